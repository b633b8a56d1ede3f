"""The pages of decisions are numbered without a gap, alike in form, short, and in their index."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.pages import markdown
from tools.stubs import ROOT

FOLDER = ROOT / "docs/decisions"
PAGES = sorted(FOLDER.glob("[0-9]*.md"))
SECTIONS = ["Context", "Options", "Decision", "Consequences"]
MOST_WORDS = 500
CONSEQUENCES = ("**Costs.**", "**Forbids.**", "**Reconsider")


def test_numbers_have_no_gap() -> None:
    assert len(PAGES) >= 15
    assert [page.name[:5] for page in PAGES] == [f"{n + 1:04}-" for n in range(len(PAGES))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_has_the_form_of_a_decision(page: Path) -> None:
    text = page.read_text("utf-8")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS
    assert re.search(r"^Decided on 20\d\d-\d\d-\d\d", text, re.MULTILINE)
    assert len(text.split()) <= MOST_WORDS
    consequences = text.partition("## Consequences")[2]
    assert [mark for mark in CONSEQUENCES if mark not in consequences] == []


def test_the_index_lists_each_page_with_its_title() -> None:
    rows = re.findall(
        r"^\| (\d{4}) \| \[(.+)\]\((.+)\) \|$", (FOLDER / "README.md").read_text(), re.MULTILINE
    )
    assert rows == [
        (page.name[:4], markdown.read(page.read_text("utf-8")).title, page.name) for page in PAGES
    ]


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_pages_for_maintainers_link_to_the_index(page: str) -> None:
    links = markdown.read((ROOT / page).read_text("utf-8")).links
    assert any(link.endswith("decisions/README.md") for link in links)
