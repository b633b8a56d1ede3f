"""Figures as tables, for people and for files."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

_WIDTH = 100


@dataclass(frozen=True, slots=True)
class Table:
    """The outcome of one measure.

    Attributes:
        title: What was measured.
        header: Names of the columns.
        rows: Cells as text.
        notes: Sentences on how it was measured and on what was left out.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()

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
        return "\n".join(lines)

    def as_markdown(self) -> str:
        """Return the table for a Markdown file."""
        aligned = ["---", *("---:" for _ in self.header[1:])]
        rows = ["| " + " | ".join(row) + " |" for row in [self.header, aligned, *self.rows]]
        parts = [f"### {self.title}", "\n".join(rows)]
        if self.notes:
            parts.append("\n".join(textwrap.fill(note, _WIDTH) for note in self.notes))
        return "\n\n".join(parts)


def ratio(ours: float, theirs: float) -> str:
    """Return ours / theirs, as in "3.1x"."""
    return f"{ours / theirs:.2f}x" if theirs else "-"


def number(value: float) -> str:
    """Return a number with as many digits as matter."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
