"""The program of each tutorial prints what its page shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pages.reader import PAGE_SECONDS, Reader
from tools.stubs import ROOT

PAGES = sorted((ROOT / "docs/tutorials").glob("*.md"))
TUTORIALS = [page.stem for page in PAGES if page.name != "README.md"]


@pytest.mark.slow
@pytest.mark.timeout(PAGE_SECONDS)
@pytest.mark.parametrize("tutorial", TUTORIALS)
def test_the_page_is_true(tutorial: str, tmp_path: Path) -> None:
    with Reader(f"docs/tutorials/{tutorial}.md", tmp_path) as reader:
        reader.follow()
        assert reader.failed == []


def test_the_tutorials_are_listed() -> None:
    overview = (ROOT / "docs/tutorials/README.md").read_text("utf-8")
    assert len(TUTORIALS) == 8
    assert [name for name in TUTORIALS if f"]({name}.md)" not in overview] == []
