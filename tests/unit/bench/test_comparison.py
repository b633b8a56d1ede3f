"""A comparison of two benchmark runs distinguishes slower results from noise."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.__main__ import main
from bench.comparing import (
    FiguresError,
    better_of,
    comparison,
    figures_of,
    read_figures,
    write_figures,
)
from bench.report import Table


def run_of(pace: float, save: float, load: float = 2.0) -> list[Table]:
    """Return the tables of one repetition; a ratio and a word do not count as figures."""
    rows = [["many agents", f"{pace:,}", "-", "1.20x"], ["a save", "n/a", f"{save}", "0.80x"]]
    return [
        Table("Steps", ("what", "steps/s", "p50 ms", "of a peer"), rows),
        Table("Loads", ("what", "p50 ms"), [["a load", f"{load}"]]),
    ]


def file_of(path: Path, *repeats: Sequence[Table]) -> Path:
    write_figures(path, figures_of(repeats))
    return path


BEFORE = [run_of(1_000, 1.0, 2.0), run_of(1_100, 1.1, 2.3), run_of(1_050, 1.05, 2.1)]
SLOWER = [run_of(700, 1.4, 2.2), run_of(750, 1.5, 2.0), run_of(720, 1.45, 2.2)]


@pytest.mark.parametrize(
    ("column", "better"),
    [
        ("steps/s", "higher"),
        ("its saves / s", "higher"),
        ("save p50 ms", "lower"),
        ("µs per checkpoint", "lower"),
        ("seconds", "lower"),
        ("MB", "lower"),
        ("ms at 1,000", "lower"),
        ("TuskPoint is", None),
        ("late / early", None),
        ("lowest", None),
    ],
)
def test_units_say_which_figure_is_better(column: str, better: str | None) -> None:
    assert better_of(column) == better


def test_what_became_slower_is_listed_with_the_worst_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = file_of(tmp_path / "before.json", *BEFORE)
    after = file_of(tmp_path / "after.json", *SLOWER)
    table, slower = comparison(read_figures(before), read_figures(after))
    assert [row[0] for row in table.rows] == [
        "Steps · a save · p50 ms",
        "Steps · many agents · steps/s",
    ]
    assert [row[3:] for row in table.rows] == [["38%", "slower"], ["31%", "slower"]]
    assert slower == len(table.rows)
    assert table.notes == ["1 of 3 figures did not change beyond the noise."]
    for files, status in (((before, after), 1), ((after, before), 0), ((before, before), 0)):
        monkeypatch.setattr("sys.argv", ["bench", "--compare", *map(str, files)])
        assert main() == status
    assert "faster" in capsys.readouterr().out


def test_repetitions_that_overlap_are_noise() -> None:
    after = [run_of(1_000, 1.2), run_of(900, 1.3), run_of(800, 1.04)]
    table, slower = comparison(figures_of(BEFORE), figures_of(after))
    assert (table.rows, slower) == ([], 0)


def test_small_changes_are_noise_even_if_they_are_steady() -> None:
    steady, later = [run_of(1_000, 1.0)] * 3, [run_of(980, 1.02)] * 3
    assert comparison(figures_of(steady), figures_of(later))[1] == 0


def test_figures_of_one_run_only_are_counted() -> None:
    without = [tables[:1] for tables in BEFORE]
    table, _ = comparison(figures_of(BEFORE), figures_of(without))
    assert table.notes[-1] == "1 figures are in one of the runs only."


@pytest.mark.parametrize(
    ("content", "reported"),
    [
        ("", "cannot be read as figures"),
        ("[]", "cannot be read as figures"),
        ('{"version": 1}', "cannot be read as figures"),
        ('{"version": 2, "figures": []}', "figures of version 2; measure again"),
        ('{"version": 1, "figures": [["t", "r", "c", "sideways", [1]]]}', "cannot be read"),
        ('{"version": 1, "figures": [["t", "r", "c", "lower", [1, 2]]]}', "--repeat 3"),
    ],
)
def test_files_without_figures_are_refused(tmp_path: Path, content: str, reported: str) -> None:
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(FiguresError, match=reported):
        read_figures(tmp_path / "a.json")


def test_a_file_that_is_not_there_is_reported_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = str(tmp_path / "gone.json")
    monkeypatch.setattr("sys.argv", ["bench", "--compare", gone, gone])
    assert main() == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_cell_that_is_empty_in_one_repetition_is_no_figure(tmp_path: Path) -> None:
    header = ("call", "writer µs", "gRPC µs")
    runs = [[Table("Calls", header, [["a load", writer, "90"]])] for writer in ("51", "", "48")]
    path = tmp_path / "figures.json"
    write_figures(path, figures_of(runs))
    assert list(read_figures(path)) == [("Calls", "a load", "gRPC µs")]
