"""The first sentences of the page of benchmarks follow from the measured results."""

from __future__ import annotations

from bench.evidence.summary import summary
from bench.report import Table


def _steps(*rows: tuple[str, str, str]) -> dict[str, Table]:
    return {"steps": Table("t", ("agents", "steps/s", "save p50 ms"), rows)}


def test_the_sentences_have_the_figures_of_the_run() -> None:
    rows = [("1 agent, async, SQLite", "359", "1.65"), ("1 agent, async, TuskPoint", "131", "4.83")]
    text = " ".join(summary(_steps(*rows)).split())
    assert "one agent does 359 steps per second with SQLite, and 131 with TuskPoint" in text
    assert "a save takes 4.83 ms, compared with 1.65 ms with SQLite" in text


def test_a_figure_that_was_not_measured_is_called_so() -> None:
    text = " ".join(summary({}).split())
    assert "one agent does (not measured) steps per second" in text
    assert text.count("- **") == 5
