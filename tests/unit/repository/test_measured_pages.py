"""The measured pages contain every measure, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.evidence.pages import BENCHMARKS, PAGES, filled
from bench.evidence.pictures import svg
from bench.registry import MEASURES
from bench.report import Chart

DOCS = Path(__file__).parents[3] / "docs"
COUNTED = {"versions", "conformance", "tests", "kills", "kill-points", "simulation"}


def blocks(page: str) -> list[str]:
    """Return the names of the blocks of a page."""
    return re.findall(r"<!-- measured: (.*) -->", (DOCS / page).read_text(encoding="utf-8"))


def test_every_measure_has_one_place() -> None:
    measured = [name for page in BENCHMARKS for name in blocks(page) if name != "run"]
    assert sorted(measured) == sorted(["summary", "goals", *MEASURES])
    assert sorted(blocks("evidence.md")) == sorted(["run", *COUNTED])


def test_every_page_tells_of_its_run_but_for_the_page_of_one_table() -> None:
    assert {page for page in PAGES if blocks(page).count("run") != 1} == {"servers/scale.md"}


def test_no_other_page_has_a_block() -> None:
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert {page for page in pages if blocks(page)} == set(PAGES)


def test_a_block_is_replaced_and_the_text_around_it_stays() -> None:
    page = "before\n<!-- measured: a -->\nold\n\nold\n<!-- end -->\nafter\n"
    new = filled(page, {"a": r"new \1"})
    assert new == "before\n<!-- measured: a -->\nnew \\1\n<!-- end -->\nafter\n"
    assert filled(new, {"a": r"new \1"}) == new
    with pytest.raises(KeyError):
        filled(page, {})


def test_a_picture_has_a_bar_for_each_figure() -> None:
    groups = [("one & all", {"ours": 4.0, "theirs": 2.0}), ("none", {"ours": 0.0})]
    drawn = svg(Chart("name", "title <b>", groups))
    widths = re.findall(r'height="13" width|width="([\d.]+)" height="13"', drawn)
    assert [float(width) for width in widths] == [440.0, 220.0, 1.0]
    assert "one &amp; all" in drawn
    assert "title &lt;b&gt;" in drawn
