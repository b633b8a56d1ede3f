"""Reading the rows that have some numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, bindparam

from ..database.statements import Statement

_LONGEST = 512


class Numbered:
    """A query for the rows with some numbers.

    A list of numbers is filled up to the next power of two, so that few texts are compiled.

    Args:
        query: What is read.
        number: The column that has the numbers.
    """

    def __init__(self, query: Select[Any], number: ColumnElement[int]) -> None:
        self._query = query
        self._number = number
        self._statements: dict[int, tuple[Statement, tuple[str, ...]]] = {}

    def rows(self, connection: Connection, numbers: Sequence[int]) -> Iterator[tuple[Any, ...]]:
        """Yield the rows, as the driver returns them."""
        for start in range(0, len(numbers), _LONGEST):
            some = list(numbers[start : start + _LONGEST])
            count = 1 << (len(some) - 1).bit_length()
            some += [some[-1]] * (count - len(some))
            statement, names = self.of(count)
            cursor = statement.run(connection, **dict(zip(names, some, strict=True)))
            yield from cursor.fetchall()
            cursor.close()

    def of(self, count: int) -> tuple[Statement, tuple[str, ...]]:
        """Return the statement that reads so many rows, and its parameters."""
        known = self._statements.get(count)
        if known is None:
            names = tuple(f"number_{index}" for index in range(count))
            listed = self._number.in_([bindparam(name) for name in names])
            known = self._statements[count] = Statement(self._query.where(listed)), names
        return known
