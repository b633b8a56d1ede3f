"""Figures as tables, for people and for files."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

_WIDTH = 100


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal, and whether it is reached.

    Attributes:
        what: The measured figure, and its counterpart.
        goal: The bound, as text.
        measured: The figure, as text.
        reached: Whether the figure keeps the bound.
    """

    what: str
    goal: str
    measured: str
    reached: bool

    @property
    def verdict(self) -> str:
        """Return whether the goal is reached, in words."""
        return "reached" if self.reached else "missed"


def at_least(what: str, figure: float, bound: float, unit: str = "x") -> Goal:
    """Return the goal that a figure is not below a bound."""
    return Goal(what, f"at least {bound:g}{unit}", f"{number(figure)}{unit}", figure >= bound)


def at_most(what: str, figure: float, bound: float, unit: str = "x") -> Goal:
    """Return the goal that a figure is not above a bound."""
    return Goal(what, f"at most {number(bound)}{unit}", f"{number(figure)}{unit}", figure <= bound)


@dataclass(frozen=True, slots=True)
class Chart:
    """Bars that belong to a table.

    Attributes:
        name: Name of the file, without its ending.
        title: What the bars show, with the unit.
        groups: Groups of bars: a caption, and a value for each contender.
    """

    name: str
    title: str
    groups: Sequence[tuple[str, Mapping[str, float]]]


@dataclass(frozen=True, slots=True)
class Table:
    """The outcome of one measure.

    Attributes:
        title: Name of the measurement.
        header: Names of the columns.
        rows: Cells as text.
        notes: Sentences on the method and on left out parts.
        goals: The goals.
        chart: A picture of the figures.
        further: Tables derived from this table.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()
    goals: Sequence[Goal] = ()
    chart: Chart | None = None
    further: Sequence[Table] = ()

    def as_text(self) -> str:
        """Return the table for a terminal."""
        cells = [list(self.header), *(list(row) for row in self.rows)]
        widths = [max(len(row[column]) for row in cells) for column in range(len(self.header))]
        lines = [self.title, "-" * len(self.title)]
        for row in cells:
            padded = [row[0].ljust(widths[0])]
            padded += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
            lines.append("  ".join(padded).rstrip())
        for note in self.notes:
            lines += textwrap.wrap(note, _WIDTH, initial_indent="  ", subsequent_indent="  ")
        for goal in self.goals:
            lines.append(f"  {goal.verdict}: {goal.what}: {goal.measured} (goal: {goal.goal})")
        lines += [f"\n{table.as_text()}" for table in self.further]
        return "\n".join(lines)

    def as_markdown(self) -> str:
        """Return the table for a Markdown file."""
        aligned = ["---", *("---:" for _ in self.header[1:])]
        rows = ["| " + " | ".join(row) + " |" for row in [self.header, aligned, *self.rows]]
        parts = [f"### {self.title}", "\n".join(rows)]
        if self.notes:
            parts.append("\n".join(textwrap.fill(note, _WIDTH) for note in self.notes))
        parts += [table.as_markdown() for table in self.further]
        return "\n\n".join(parts)


def goals_table(goals: Iterable[Goal]) -> Table:
    """Return the goals in one table."""
    rows = [[goal.what, goal.goal, goal.measured, goal.verdict] for goal in goals]
    return Table("Goals of the benchmarks", ("what", "goal", "measured", ""), rows)


def ratio(ours: float, theirs: float) -> str:
    """Return ours / theirs, as in "3.1x"."""
    return f"{ours / theirs:.2f}x" if theirs else "-"


def number(value: float) -> str:
    """Return a number with its significant digits."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def percentile(values: Iterable[float], share: float) -> float:
    """Return the least value that at least this share of the values do not exceed.

    Raises:
        ValueError: There are no values.
    """
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no values, so no percentile")
    return ordered[max(math.ceil(len(ordered) * share) - 1, 0)]
