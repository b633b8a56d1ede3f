"""The pages that measurements fill name every measure, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.evidence.pages import filled
from bench.evidence.pictures import svg
from bench.registry import MEASURES
from bench.report import Chart

DOCS = Path(__file__).parents[3] / "docs"
COUNTED = {
    "run",
    "versions",
    "conformance",
    "tests",
    "kills",
    "kill-points",
    "simulation",
    "goals",
}


def test_every_measure_has_its_place() -> None:
    named = {
        page: re.findall(r"<!-- measured: (.*) -->", (DOCS / page).read_text(encoding="utf-8"))
        for page in ("benchmarks.md", "evidence.md", "servers/scale.md")
    }
    assert named["servers/scale.md"] == ["scale"]
    assert sorted([*named["benchmarks.md"], "scale"]) == sorted(["run", "summary", *MEASURES])
    assert sorted(named["evidence.md"]) == sorted(COUNTED)


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
