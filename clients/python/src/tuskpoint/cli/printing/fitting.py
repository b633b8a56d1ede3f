"""Fitting of lists into the width: parts of a line are shown whole, cut, or left out.

A part that a person may paste into another command, such as an ID, is never cut. If the
width is too small, whole parts are left out instead, the least important first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

GAP = 2
_LEAST_TEXT = 16  # least characters of a text that is cut


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a line, or a column of a table, and its priority.

    Attributes:
        heading: The heading of the column; empty in a line.
        rank: 0 for a part that is always shown. Other parts are left out, the greatest rank first.
        is_text: Whether the part may be cut at its end.
    """

    heading: str = ""
    rank: int = 0
    is_text: bool = False


def widths(parts: Sequence[Part], natural: Sequence[int], width: int) -> dict[int, int]:
    """Return the indexes of the shown parts, and the width of each.

    Args:
        parts: The parts.
        natural: Width of each part when shown whole.
        width: Width of the line. Parts of rank 0 that are not texts may exceed it.
    """
    shown = {
        index: min(natural[index], _LEAST_TEXT) if part.is_text else natural[index]
        for index, part in enumerate(parts)
        if natural[index]
    }
    while _total(shown) > width and any(parts[index].rank for index in shown):
        del shown[max(shown, key=lambda index: (parts[index].rank, index))]
    room = width - _total(shown)
    texts = sorted(
        (index for index in shown if parts[index].is_text), key=lambda index: natural[index]
    )
    for position, index in enumerate(texts):
        share = room // (len(texts) - position)
        growth = max(0, min(natural[index] - shown[index], share))
        shown[index] += growth
        room -= growth
    return shown


def _total(shown: dict[int, int]) -> int:
    return sum(shown.values()) + GAP * max(0, len(shown) - 1)


class Line:
    """A line of parts with a gap between them."""

    def __init__(self) -> None:
        self._parts: list[Part] = []
        self._texts: list[Text] = []

    def add(self, text: str, style: str = "", *, rank: int = 0, is_text: bool = False) -> Line:
        """Add a part, which is safe to print; skip an empty part. Return the line."""
        from rich.text import Text

        self._parts.append(Part("", rank, is_text))
        self._texts.append(Text(text, style))
        return self

    def fitted(self, width: int) -> Text:
        """Return the line fitted into a width."""
        shown = widths(self._parts, [text.cell_len for text in self._texts], width)
        return _joined([(self._texts[index], shown[index]) for index in sorted(shown)])


class Tree:
    """A line, and the trees below it.

    Args:
        line: The line.
    """

    def __init__(self, line: Line) -> None:
        self.line = line
        self.children: list[Tree] = []

    def add(self, line: Line) -> Tree:
        """Add a tree of one line below this tree; return the new tree."""
        child = Tree(line)
        self.children.append(child)
        return child


def tree_lines(tree: Tree, width: int, *, is_unicode: bool = True) -> Iterator[Text]:
    """Yield the lines of a tree, which may be thousands of levels deep."""
    from rich.text import Text

    branch, last, down = ("├── ", "└── ", "│   ") if is_unicode else ("+-- ", "`-- ", "|   ")
    yield tree.line.fitted(width)
    waiting = [("", tree.children, 0)]
    while waiting:
        indent, children, index = waiting.pop()
        if index == len(children):
            continue
        waiting.append((indent, children, index + 1))
        child, is_last = children[index], index == len(children) - 1
        guide = indent + (last if is_last else branch)
        yield Text().append(guide, "dim").append_text(child.line.fitted(width - len(guide)))
        waiting.append((indent + ("    " if is_last else down), child.children, 0))


def table_lines(
    columns: Sequence[Part], rows: Iterable[Sequence[str | Text]], width: int
) -> Iterator[Text]:
    """Yield the lines of a table. Skip columns without any text.

    Args:
        columns: The columns.
        rows: The cells, already safe to print.
        width: Width of a line.
    """
    from rich.text import Text

    cells = [[Text(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
    contents = [
        max((row[index].cell_len for row in cells), default=0) for index in range(len(columns))
    ]
    natural = [
        max(content, len(column.heading)) if content else 0
        for column, content in zip(columns, contents, strict=True)
    ]
    shown = widths(columns, natural, width)
    for row in ([Text(column.heading, "bold") for column in columns], *cells):
        yield _joined([(row[index], shown[index]) for index in sorted(shown)], is_padded=True)


def _joined(parts: Sequence[tuple[Text, int]], *, is_padded: bool = False) -> Text:
    """Return texts, each cut to its width, with gaps between them."""
    from rich.text import Text

    line = Text()
    for position, (text, width) in enumerate(parts):
        part = text.copy()
        part.truncate(width, overflow="ellipsis")
        if position < len(parts) - 1:
            part.pad_right(GAP + (width - part.cell_len if is_padded else 0))
        line.append_text(part)
    return line
