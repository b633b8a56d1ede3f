"""The packages that `make dist` builds match the source tree."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from tools.packages.archives import (
    CLIENT,
    DISTRIBUTIONS,
    ROOT,
    SERVER,
    Built,
    Distribution,
    build,
    lacking_pages,
    problems,
    versions,
)
from tools.packages.extras import STATEMENTS, combinations
from tools.packages.installs import InstallError, lines


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=lambda each: each.name)
def test_archives_have_every_file_and_nothing_else(
    distribution: Distribution, tmp_path: Path
) -> None:
    built = build(distribution, tmp_path)
    assert problems(built) == []
    assert len(distribution.sources()) > 10


def test_a_release_needs_the_pages_that_are_built_for_it() -> None:
    nowhere = "tuskpoint_server/nowhere/"
    assert lacking_pages(replace(SERVER, pages=nowhere)) == [
        f"tuskpoint-server: {nowhere}{name} is missing; `make console` builds it"
        for name in ("index.html", "licenses.md")
    ]
    assert lacking_pages(CLIENT) == []


def rewritten(built: Built, folder: Path, without: str, but_with: dict[str, bytes]) -> Built:
    """Return the same distribution with a changed wheel."""
    wheel = folder / "changed.whl"
    with zipfile.ZipFile(built.wheel) as old, zipfile.ZipFile(wheel, "w") as new:
        for name in old.namelist():
            if name != without:
                new.writestr(name, but_with.pop(name, old.read(name)))
        for name, content in but_with.items():
            new.writestr(name, content)
    return replace(built, wheel=wheel)


def test_a_wheel_that_differs_is_described(tmp_path: Path) -> None:
    built = build(CLIENT, tmp_path)
    stub = "tuskpoint/v1/value_pb2.pyi"
    test, changed = "tuskpoint/tests/test_client.py", "tuskpoint/client.py"
    wrong = rewritten(built, tmp_path, stub, {test: b"", changed: b"pass\n"})
    assert problems(wrong) == [
        f"tuskpoint: {stub} is missing",
        f"tuskpoint: {test} does not belong there",
        f"tuskpoint: {changed} differs from the source tree",
    ]


@pytest.mark.parametrize("distribution", [CLIENT, SERVER], ids=lambda each: each.name)
def test_every_extra_is_tried_as_the_pages_show_it(distribution: Distribution) -> None:
    statements = STATEMENTS[distribution.name]
    assert set(statements) == set(distribution.project["optional-dependencies"])
    pages = "".join(page.read_text("utf-8") for page in (ROOT / "docs").rglob("*.md"))
    shown = [
        line for lines in statements.values() for line in lines if line.startswith("from tusk")
    ]
    assert [line for line in shown if f"\n{line}\n" not in pages] == []


def test_each_line_of_pip_on_a_page_is_tried() -> None:
    tried = combinations()
    assert (("tuskpoint", ("cli", "langgraph")), ("tuskpoint-server", ("http",))) in tried
    assert (
        ("tuskpoint", ("cli", "objects")),
        ("tuskpoint-server", ("objects", "prometheus")),
    ) in tried
    from_pages = [origin for origin in tried.values() if origin.endswith(".md")]
    assert len(from_pages) > 5


def test_a_page_that_installs_what_is_not_there_is_named(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("Run `pip install 'tuskpoint[nothing]'` first.\n")
    with pytest.raises(InstallError, match=r"page\.md: tuskpoint has no extra nothing"):
        combinations(tmp_path)


def test_lines_of_pip_are_found() -> None:
    text = "`pip install a[b]` c\n/opt/bin/pip install 'd' \\\n  e  # f\npip install g && h\n"
    assert lines(text) == [["install", "a[b]"], ["install", "d", "e"], ["install", "g"]]


def test_every_place_names_one_version() -> None:
    version_by_place = versions()
    assert len(version_by_place) == 8
    assert len(set(version_by_place.values())) == 1, version_by_place
