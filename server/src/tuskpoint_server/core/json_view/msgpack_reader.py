"""Items of msgpack, read in place.

https://github.com/msgpack/msgpack/blob/master/spec.md. A library copies each nested extension, so
the sender decides how much memory a value takes. Here an extension is a range of the same bytes,
and a length beyond the end is refused at once. Codes of extensions come from
`langgraph.checkpoint.serde.jsonplus` (4.x).
"""

from __future__ import annotations

import struct
from typing import Any, Final

from .escapes import MalformedError

EXTENSIONS = range(8)  # codes of the extensions of LangGraph

SINGLE, POSITIONAL, METHOD, NUMPY, DELTA_SNAPSHOT = 0, 1, 3, 6, 7
"""Codes of extensions that are not types with fields; all other codes are such types."""

TIMESTAMP = -1  # code of msgpack's own timestamp

# Kinds of items. Plain strings, because each item compares them once.
PLAIN: Final = "plain"
INTEGER: Final = "integer"
FLOAT: Final = "float"
STRING: Final = "string"
BINARY: Final = "binary"
ARRAY: Final = "array"
MAP: Final = "object"
EXTENSION: Final = "extension"
_UNUSED: Final = "unused"

_Head = tuple[str, object, struct.Struct | None]
"""Kind, then the value or size if the first byte has one, or else the form of the next bytes."""


def _heads_of(kind: str, forms: str) -> list[_Head]:
    return [(kind, None, struct.Struct(f">{form}")) for form in forms]


_HEADS: list[_Head] = [
    *((INTEGER, number, None) for number in range(128)),
    *((MAP, size, None) for size in range(16)),
    *((ARRAY, size, None) for size in range(16)),
    *((STRING, size, None) for size in range(32)),
    (PLAIN, None, None),
    (_UNUSED, None, None),
    (PLAIN, False, None),
    (PLAIN, True, None),
    *_heads_of(BINARY, "BHI"),
    *_heads_of(EXTENSION, "BHI"),
    *_heads_of(FLOAT, "fd"),
    *_heads_of(INTEGER, "BHIQbhiq"),
    *((EXTENSION, size, None) for size in (1, 2, 4, 8, 16)),
    *_heads_of(STRING, "BHI"),
    *_heads_of(ARRAY, "HI"),
    *_heads_of(MAP, "HI"),
    *((INTEGER, number, None) for number in range(-32, 0)),
]
"""The head of an item by its first byte."""


class MsgpackReader:
    """Reads heads of items from a range of bytes.

    All methods raise `MalformedError`.

    Attributes:
        data: The bytes.
        end: Offset of the end of the range.
        at: Offset of the next item.
    """

    __slots__ = ("at", "data", "end")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.end = len(data)
        self.at = 0

    def array_size(self) -> int:
        """Return the number of items of the next item, which must be an array."""
        kind, size = self.head()
        if kind != ARRAY:
            raise MalformedError("no array")
        return int(size)

    def skip(self) -> int:
        """Skip the next item at any depth; return the offset of its end."""
        self._skip(*self.head())
        return self.at

    def head(self) -> tuple[str, Any]:
        """Read the head of the next item: its kind, and its value or size."""
        at = self.at
        if at >= self.end:
            raise MalformedError("the bytes end too early")
        kind, number, form = _HEADS[self.data[at]]
        self.at = at + 1
        if form is not None:
            self.go_past(form.size)
            (number,) = form.unpack_from(self.data, self.at - form.size)
        elif kind == _UNUSED:
            raise MalformedError("the byte 0xc1")
        return kind, number

    def _skip(self, kind: str, number: int) -> None:
        """Skip the rest of an item whose head was read, at any depth."""
        items_left = 1
        while True:
            items_left -= 1
            if kind == ARRAY:
                items_left += number
            elif kind == MAP:
                items_left += 2 * number
            elif kind == EXTENSION:
                self.go_past(1 + number)
            elif kind in (STRING, BINARY):
                self.go_past(number)
            if not items_left:
                return
            kind, number = self.head()

    def go_past(self, size: int) -> None:
        """Skip a number of bytes."""
        self.at += size
        if self.at > self.end:
            raise MalformedError("the bytes end too early")

    def take(self, size: int) -> bytes:
        """Return a number of bytes, and skip them."""
        begin = self.at
        self.go_past(size)
        return self.data[begin : self.at]
