"""Rows of this server and the messages that they are stored as: the same fields in one order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any


class Mirror:
    """Fields of rows and of the messages that they are stored as, in one order.

    Args:
        row: The class of the rows; of its fields those that have a name in the message.
        renamed: Where the message has another name than the row.
        left_out: Fields that are stored in another way.
    """

    def __init__(self, row: type, renamed: Mapping[str, str], left_out: Sequence[str] = ()) -> None:
        own = [one.name for one in fields(row) if one.name not in left_out]
        self._names = tuple(renamed.get(name, name) for name in own)
        self._of_row = attrgetter(*own)
        self.of_message: Callable[[object], Any] = attrgetter(*self._names)
        """Returns the fields of a message, in the order of the row's."""

    def to_message(self, row: object) -> dict[str, Any]:
        """Return what a message of a row is made of."""
        return dict(zip(self._names, self._of_row(row), strict=True))
