"""The links of all pages work, and `make docs` prepares the pages for Sphinx."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

import tuskpoint
from tools.pages import api, contract, markdown, staging
from tools.pages.__main__ import CLIENT, described
from tools.stubs import ROOT, run_buf


def write(root: Path, pages: dict[str, str]) -> None:
    for name, text in pages.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.fixture(scope="module")
def image() -> FileDescriptorSet:
    return described()


def test_every_link_leads_to_a_file_and_a_heading() -> None:
    pages = markdown.pages(ROOT)
    assert len(pages) > 50
    assert markdown.broken(ROOT, pages) == []


NAMED_FILE = re.compile(r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|toml|ts|go))`")


def test_every_file_that_a_page_names_exists() -> None:
    """Pages name files by the end of their path, such as `journal/lease.py`."""
    ends: set[str] = set()
    for folder, inner, names in os.walk(ROOT):
        inner[:] = [
            name for name in inner if name not in markdown.BUILT and not name.startswith(".")
        ]
        parts = Path(folder).relative_to(ROOT).parts
        ends |= {"/".join((*parts[at:], name)) for name in names for at in range(len(parts))}
    named = {
        (page.relative_to(ROOT).as_posix(), name)
        for page in markdown.pages(ROOT)
        if page.name != "CHANGELOG.md"
        for name in NAMED_FILE.findall(page.read_text())
    }
    assert len(named) > 50
    assert sorted(mention for mention in named if mention[1] not in ends) == []


def test_no_page_has_the_marks_of_a_merge() -> None:
    pages = {page: page.read_text() for page in markdown.pages(ROOT)}
    assert [page for page, text in pages.items() if "\n<<<<<<< " in f"\n{text}"] == []


def test_broken_links_are_listed(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "docs/one.md": "# One\n\n## The `a_b` — c!\n\n## Twice\n\n## Twice\n\n"
            "[a](two.md) [b](gone.md) ![c](gone.svg)\n\n| [d](../../outside.md) |\n|---|\n| x |\n",
            "docs/two.md": "[a](one.md#the-a_b--c) [b](one.md#twice-1)\n"
            "[c](one.md#twice-2) [d](#up)\n\n"
            "`[code](no-link.md)` [e](https://example.com/none)\n\n```\n[code](no-link.md)\n```\n",
        },
    )
    assert markdown.broken(tmp_path, sorted(tmp_path.glob("docs/*.md"))) == [
        "docs/one.md: gone.md does not exist",
        "docs/one.md: gone.svg does not exist",
        "docs/one.md: ../../outside.md does not exist",
        "docs/two.md: one.md#twice-2 is not a heading there",
        "docs/two.md: #up is not a heading there",
    ]


def test_links_lead_to_a_page_of_the_site(tmp_path: Path, image: FileDescriptorSet) -> None:
    references = {
        f"{staging.CONTRACT}/{name}": text for name, text in contract.pages(image).items()
    }
    count = staging.stage(ROOT, tmp_path, references)
    pages = [path for path in tmp_path.rglob("*.md") if "reference" not in path.parts]
    assert len(pages) > count > 30
    assert markdown.broken(tmp_path, pages) == []
    contract_page = (tmp_path / "docs/contract.md").read_text()
    assert "](../reference/contract/index.md)" in contract_page
    assert "](errors.md)" in contract_page
    errors_page = (tmp_path / "docs/errors.md").read_text()
    assert "](../reference/contract/errors.md)" in errors_page
    menus = (tmp_path / "index.md").read_text()
    for page in (ROOT / "docs").rglob("*.md"):
        path = page.relative_to(ROOT).with_suffix("").as_posix()
        assert f"\n{path}\n" in menus or page.parent.name == "decisions"


def test_a_broken_link_stops_the_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "GROUPS", {staging.MORE: []})
    write(tmp_path, {"README.md": "# Home\n\n[a](docs/a.md)\n", "docs/a.md": "[code](../a.py)\n"})
    with pytest.raises(staging.PageError, match=r"docs/a\.md: \.\./a\.py does not exist"):
        staging.stage(tmp_path, tmp_path / "out", {})
    (tmp_path / "a.py").write_text("print('```')\n")
    assert staging.stage(tmp_path, tmp_path / "out", {}) == 2
    assert (tmp_path / "out/docs/a.md").read_text() == "[code](../files/a.py.md)\n"
    assert "````python\nprint('```')\n````" in (tmp_path / "out/files/a.py.md").read_text()
    assert ":caption: Project\ndocs/a\n```" in (tmp_path / "out/index.md").read_text()


def test_a_picture_for_each_theme_is_copied_and_shown_by_the_theme_of_the_site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "GROUPS", {staging.MORE: []})
    picture = (
        '<picture>\n  <source media="(prefers-color-scheme: dark)" srcset="docs/dark.png">\n'
        '  <img alt="A thread" src="docs/light.png">\n</picture>\n'
    )
    write(tmp_path, {"README.md": f"# Home\n\n{picture}", "docs/light.png": "light"})
    with pytest.raises(staging.PageError, match=r"README\.md: docs/dark\.png does not exist"):
        staging.stage(tmp_path, tmp_path / "out", {})
    write(tmp_path, {"docs/dark.png": "dark"})
    staging.stage(tmp_path, tmp_path / "out", {})
    home = (tmp_path / "out/index.md").read_text()
    assert "```{image} docs/dark.png\n:alt: A thread\n:class: only-dark\n```" in home
    assert "```{image} docs/light.png\n:alt: A thread\n:class: only-light\n```" in home
    assert (tmp_path / "out/docs/dark.png").read_text() == "dark"


def test_pages_that_a_readme_lists_are_in_no_menu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "GROUPS", {"Why": ["docs/why/README.md"], staging.MORE: []})
    pages = {
        "README.md": "# Home\n",
        "docs/why/README.md": "# Why\n\n[a](a.md)\n",
        "docs/why/a.md": "# A\n",
        "docs/other/b.md": "# B\n",
    }
    write(tmp_path, pages)
    assert staging.stage(tmp_path, tmp_path / "out", {}) == len(pages)
    menus = (tmp_path / "out/index.md").read_text()
    assert ":caption: Why\ndocs/why/README\n```" in menus
    assert ":caption: Project\ndocs/other/b\n```" in menus
    assert (tmp_path / "out/docs/why/a.md").read_text().startswith(staging.ONLY_LINKED)


PROTO = """\
syntax = "proto3";
package tuskpoint.v1;

// Keeps things. Scope: `write`.
service ThingService {
  // Keeps the things
  // of a stream. Then answers.
  //
  // Errors: `NOT_FOUND`.
  rpc Keep(stream Thing) returns (Thing.Part);
}

// A thing.
message Thing {
  // Its names:
  //
  // * a list
  map<string, Kind> names = 1;
  repeated Part parts = 2;
  optional uint64 size = 3;
  // How it is kept.
  oneof keeping {
    // In a place.
    string place = 4;
    bytes data = 5;
  }
  // A part.
  message Part {}
}

// A kind.
enum Kind {
  // Never sent.
  KIND_UNSPECIFIED = 0;
}
"""
PAGE = """\
# thing.proto

(contract-thingservice)=
## ThingService

Keeps things. Scope: `write`.

(contract-thingservice.keep)=
### Keep

stream of [`Thing`](#contract-thing) → [`Thing.Part`](#contract-thing.part)

Keeps the things
of a stream. Then answers.

Errors: `NOT_FOUND`.

(contract-thing)=
## Thing

A thing.

`names` map of string to [`Kind`](#contract-kind) = 1
: Its names:

  * a list

`parts` repeated [`Thing.Part`](#contract-thing.part) = 2

`size` optional uint64 = 3

`place` string = 4
: One of `keeping`.

  In a place.

`data` bytes = 5
: One of `keeping`.

oneof `keeping`
: How it is kept.

(contract-thing.part)=
## Thing.Part

A part.

(contract-kind)=
## Kind

A kind.

`KIND_UNSPECIFIED` = 0
: Never sent.
"""


def test_a_page_has_everything_in_its_proto(tmp_path: Path) -> None:
    (tmp_path / "thing.proto").write_text(PROTO)
    image = tmp_path / "image.binpb"
    assert run_buf("build", str(tmp_path), "--output", str(image)) == 0
    made = contract.pages(FileDescriptorSet.FromString(image.read_bytes()))
    assert made["thing.md"] == PAGE
    call = "[`Keep`](#contract-thingservice.keep): Keeps the things of a stream."
    assert call in made["index.md"].splitlines()[-5]
    assert "[`Kind`](#contract-kind) · [`Thing`](#contract-thing)" in made["index.md"]


def test_each_link_of_the_contract_has_one_target(image: FileDescriptorSet) -> None:
    text = "\n".join(contract.pages(image).values())
    labels = re.findall(r"^\((contract-\S+)\)=$", text, re.MULTILINE)
    assert len(labels) == len(set(labels)) > 150
    assert set(re.findall(r"\(#(contract-[^)]+)\)", text)) <= set(labels)


def test_every_public_name_is_in_one_page() -> None:
    made = api.pages(CLIENT)
    text = "\n".join(made.values())
    for name in tuskpoint.__all__:
        if name != "__version__":
            assert len(re.findall(rf"^\.\. auto\w+:: {name}$", text, re.MULTILINE)) == 1, name
    assert ".. autofunction:: audit_catalog" in made["audit.rst"]


def test_a_new_module_has_a_page(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "__init__.py": '__all__ = ["Client"]\n_ELSEWHERE = {"Client": ".client"}\n',
            "client.py": "class Client: ...\n",
            "frameworks/__init__.py": "",
            "frameworks/some_framework.py": "class Session: ...\nclass _Private: ...\n",
            "frameworks/_thread.py": "class Thread: ...\n",
            "_private.py": "class Private: ...\n",
        },
    )
    made = api.pages(tmp_path)
    assert made.keys() == {"client.rst", "frameworks.some_framework.rst", "index.rst"}
    assert ".. automodule:: tuskpoint.frameworks.some_framework" in (
        page := made["frameworks.some_framework.rst"]
    )
    assert ".. autoclass:: Session" in page
    assert "Private" not in page
    assert "   frameworks.some_framework" in made["index.rst"]
