"""Compares two runs of the benchmarks, and finds slowdowns beyond noise."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from statistics import median

from bench.report import Table, number

LEAST_REPEATS = 3
_LEAST_CHANGE = 0.03  # of the medians
_VERSION = 1
_PACE = re.compile(r"/ ?s$")
_COST = re.compile(r"(^|\W)(ms|µs|s|seconds|bytes|KB|MB)($|\W)")


class FiguresError(Exception):
    """A file has no comparable figures; the text says why."""


class Better(StrEnum):
    """Whether a lower or a higher figure is better."""

    LOWER = "lower"
    HIGHER = "higher"


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of a table, once for each repetition of the measure."""

    better: Better
    values: Sequence[float]


Figures = Mapping[tuple[str, str, str], Figure]
"""Figures by the title of their table, the first cell of their row, and their column."""


def better_of(column: str) -> Better | None:
    """Return which figures of a column are better, from its unit; `None` without figures.

    Ratios are left out: the two figures of a ratio have units, which say more.
    """
    if _PACE.search(column):
        return Better.HIGHER
    return Better.LOWER if _COST.search(column) else None


def figures_of(runs: Sequence[Sequence[Table]]) -> Figures:
    """Return the figures in the tables of several runs of the same measures.

    A cell that is empty in one of the runs is left out: nothing was measured.
    """
    values: dict[tuple[str, str, str], list[float]] = {}
    for tables in runs:
        for name, value in _cells(tables):
            values.setdefault(name, []).append(value)
    return {
        name: Figure(better, repeats)
        for name, repeats in values.items()
        if len(repeats) >= len(runs) and (better := better_of(name[2])) is not None
    }


def _cells(tables: Iterable[Table]) -> Iterator[tuple[tuple[str, str, str], float]]:
    for table in tables:
        for row in table.rows:
            for column, cell in zip(table.header[1:], row[1:], strict=True):
                try:
                    value = float(cell.replace(",", ""))
                except ValueError:
                    continue
                yield (table.title, row[0], column), value


def write_figures(path: Path, figures: Figures) -> None:
    """Write figures to a file, which `read_figures` reads."""
    rows = [[*name, figure.better, [*figure.values]] for name, figure in figures.items()]
    path.write_text(json.dumps({"version": _VERSION, "figures": rows}, indent=1) + "\n", "utf-8")


def read_figures(path: Path) -> Figures:
    """Return the figures of a file; raise `FiguresError` if it has none that can be compared."""
    try:
        document = json.loads(path.read_text("utf-8"))
        version, rows = document["version"], document["figures"]
        figures = {
            (str(title), str(row), str(column)): Figure(Better(better), [*map(float, values)])
            for title, row, column, better, values in rows
        }
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise FiguresError(f"{path} cannot be read as figures: {error!r}") from None
    if version != _VERSION:
        raise FiguresError(f"{path} has figures of version {version}; measure again")
    if any(len(figure.values) < LEAST_REPEATS for figure in figures.values()):
        least = f"{LEAST_REPEATS} repetitions or more tell a change from noise"
        raise FiguresError(f"{path}: {least}; measure again with --repeat {LEAST_REPEATS}")
    return figures


def comparison(before: Figures, after: Figures) -> tuple[Table, int]:
    """Return the slower and faster figures, worst first, and the number of slower ones.

    A figure changed if each repetition after is on the same side of each repetition before, and
    the medians differ by 3 % or more. Of figures that did not change, one of ten would still be
    on one side by chance with three repetitions, so measure again before you look for a cause.
    """
    changes: list[tuple[float, tuple[str, str, str], Figure, Figure]] = []
    both = before.keys() & after.keys()
    for name in both:
        change = _change(before[name], after[name])
        if change:
            changes.append((change, name, before[name], after[name]))
    changes.sort(key=lambda entry: (-entry[0], entry[1]))
    rows = [
        [
            " · ".join(name),
            number(median(old.values)),
            number(median(new.values)),
            f"{abs(change):.0%}",
            "slower" if change > 0 else "faster",
        ]
        for change, name, old, new in changes
    ]
    notes = [f"{len(both) - len(rows)} of {len(both)} figures did not change beyond the noise."]
    if alone := len(before.keys() ^ after.keys()):
        notes.append(f"{alone} figures are in one of the runs only.")
    table = Table("Figures that changed", ("what", "before", "after", "by", ""), rows, notes)
    return table, sum(change > 0 for change, *_ in changes)


def _change(before: Figure, after: Figure) -> float:
    """Return the share that a figure became worse; negative: better; 0: unchanged."""
    if not all((*before.values, *after.values)):
        return 0.0  # a share of nothing
    apart = max(before.values) < min(after.values) or max(after.values) < min(before.values)
    share = median(after.values) / median(before.values) - 1
    if not apart or abs(share) < _LEAST_CHANGE:
        return 0.0
    return share if before.better is Better.LOWER else -share
