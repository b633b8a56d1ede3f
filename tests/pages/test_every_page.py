"""Every code block of every page runs, or is checked by its language."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.pages.compiled import Compiled, skip_without_go, skip_without_node, typescript
from tests.pages.compiled import go as build
from tests.pages.every_page import (
    OWN_TESTS,
    blocks,
    environment_of,
    has_own_test,
    lacking_programs,
    pages,
    program_name,
    programs,
    undefined_names,
    unreadable,
)
from tests.pages.reader import PAGE_SECONDS, with_own_ports
from tests.pages.whole_page import WholePage, forking
from tools.stubs import ROOT

PAGES = pages()
FRAMEWORKS = os.environ.get("TUSKPOINT_FRAMEWORKS", "").split()
"""Environments of frameworks that this run may use; tools/frameworks.py creates them."""


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with forking(tmp_path_factory.mktemp("forks")) as address:
        yield address


@pytest.fixture(scope="module")
def ts(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return typescript(localized("ts"), tmp_path_factory.mktemp("typescript"))


@pytest.fixture(scope="module")
def go(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return build(localized("go"), tmp_path_factory.mktemp("go"))


@pytest.fixture(scope="module")
def undefined(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The undefined names of all programs in Python."""
    texts = {f"{name}.py": text for name, (_, text) in programs("python").items()}
    assert len(texts) > 10
    return undefined_names(texts, tmp_path_factory.mktemp("python"))


def wrong(page: str, undefined: list[str]) -> list[str]:
    """Return the errors of a page that show before a block runs."""
    return [
        *unreadable(ROOT / page),
        *(line for line in undefined if line.startswith(program_name(page, ""))),
    ]


def localized(language: str) -> dict[str, str]:
    """Return the programs in a language with free ports in place of their pages' ports."""
    return {name: with_own_ports(page, text) for name, (page, text) in programs(language).items()}


@pytest.mark.timeout(PAGE_SECONDS)
@pytest.mark.parametrize("page", [page for page in PAGES if not has_own_test(page)])
def test_the_page_runs(
    page: str,
    tmp_path: Path,
    forks: Path,
    undefined: list[str],
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    assert wrong(page, undefined) == []
    environment = environment_of(page)
    python = environment.python if environment else None
    python_forks = None
    if environment and environment.name not in FRAMEWORKS:
        pytest.skip(f"needs the packages of {environment.name}: make frameworks")
    languages = {block.language for block in blocks(ROOT / page)}
    if {"js", "ts"} & languages:
        skip_without_node()
    if "go" in languages:
        skip_without_go()
    if lacking := lacking_programs(page):
        pytest.skip(f"needs {', '.join(lacking)} on PATH")
    compiled = {name: request.getfixturevalue(name) for name in {"go", "ts"} & languages}
    for made in compiled.values():
        assert [line for line in made.errors if program_name(page, "") in line] == []
    with ExitStack() as stack:
        if python:
            adapter = f"tuskpoint.frameworks.{Path(page).stem.replace('-', '_')}"
            folder = tmp_path_factory.mktemp("framework")
            python_forks = stack.enter_context(forking(folder, python, adapter))
        reader = WholePage(page, tmp_path, forks, compiled, python, python_forks)
        stack.enter_context(reader)
        printed = reader.follow()
        assert reader.failed == [], printed


@pytest.mark.parametrize("page", [page for page in PAGES if has_own_test(page)])
def test_a_page_with_a_test_of_its_own_can_be_read(page: str, undefined: list[str]) -> None:
    assert wrong(page, undefined) == []


def test_the_tests_of_single_pages_name_their_pages() -> None:
    for pattern, test in OWN_TESTS.items():
        name = Path(pattern).stem.strip("*") or Path(pattern).parent.name
        assert name in (ROOT / test).read_text("utf-8")
        assert any(fnmatch(page, pattern) for page in PAGES), pattern
