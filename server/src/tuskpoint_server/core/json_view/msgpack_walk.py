"""msgpack, walked in place, with the extensions that LangGraph writes into it.

https://github.com/msgpack/msgpack/blob/master/spec.md. A library copies each nested extension, so
the sender decides how much memory it takes. Here an extension is a range of the same bytes, and a
length beyond the end is refused at once. Codes and payloads of extensions are those of
`langgraph.checkpoint.serde.jsonplus` (4.x): msgpack with module, name, arguments, and for some the
name of a method.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from .escapes import (
    MAX_DEPTH,
    Json,
    MalformedError,
    ViewBounds,
    escape_float,
    integer,
    mapping,
    timestamp,
)

EXTENSIONS = range(8)  # codes of the extensions that are known

_SINGLE, _POSITIONAL, _METHOD, _ARRAY, _DELTA_SNAPSHOT = 0, 1, 3, 6, 7
"""Codes of extensions that are no types with fields; all others are."""

_TIMESTAMP = -1  # code of msgpack's own timestamp

_ARGUMENTS = {
    "datetime.date": ("year", "month", "day"),
    "datetime.timedelta": ("days", "seconds", "microseconds"),
    "langgraph.types.Send": ("node", "arg", "timeout"),
    "re.compile": ("pattern", "flags"),
}
"""Names of the arguments that LangGraph writes by position."""

# Kinds of items. Plain strings: they are compared once for every item there is.
_PLAIN: Final = "plain"
_INTEGER: Final = "integer"
_FLOAT: Final = "float"
STRING: Final = "string"
_BINARY: Final = "binary"
ARRAY: Final = "array"
MAP: Final = "object"
EXTENSION: Final = "extension"
_UNUSED: Final = "unused"

_Head = tuple[str, object, struct.Struct | None]
"""Kind, then the value or size if the first byte has it, else the form of the next bytes."""


def _heads_of(kind: str, forms: str) -> list[_Head]:
    return [(kind, None, struct.Struct(f">{form}")) for form in forms]


_HEADS: list[_Head] = [
    *((_INTEGER, number, None) for number in range(128)),
    *((MAP, size, None) for size in range(16)),
    *((ARRAY, size, None) for size in range(16)),
    *((STRING, size, None) for size in range(32)),
    (_PLAIN, None, None),
    (_UNUSED, None, None),
    (_PLAIN, False, None),
    (_PLAIN, True, None),
    *_heads_of(_BINARY, "BHI"),
    *_heads_of(EXTENSION, "BHI"),
    *_heads_of(_FLOAT, "fd"),
    *_heads_of(_INTEGER, "BHIQbhiq"),
    *((EXTENSION, size, None) for size in (1, 2, 4, 8, 16)),
    *_heads_of(STRING, "BHI"),
    *_heads_of(ARRAY, "HI"),
    *_heads_of(MAP, "HI"),
    *((_INTEGER, number, None) for number in range(-32, 0)),
]
"""The head of an item by its first byte."""


def walk(data: bytes, bounds: ViewBounds) -> Json:
    """Return the view of bytes that must be exactly one msgpack item."""
    walker = Walker(data, bounds)
    shown = walker.item(0)
    if walker.at != len(data):
        raise MalformedError("bytes after the item")
    return shown


class Walker:
    """Reads items from a range of bytes; `at` is where the next one begins.

    All its methods raise `MalformedError`; those that return views raise `TooLargeError`.
    """

    __slots__ = ("_bounds", "_data", "_end", "at")

    def __init__(self, data: bytes, bounds: ViewBounds | None = None) -> None:
        self._data = data
        self._end = len(data)
        self._bounds = bounds or ViewBounds(0)
        self.at = 0

    def item(self, depth: int) -> Json:
        """Return the view of the next item, which is `depth` levels deep."""
        kind, number = self.head()
        if kind == STRING:
            return self._string(number)
        self._bounds.take()
        if kind == _INTEGER:
            return integer(number)
        if kind == _FLOAT:
            return escape_float(number)
        if kind == _PLAIN:
            plain: bool | None = number
            return plain
        if kind == _BINARY:
            return {"$bytes": self._bounds.base64(self._take(number))}
        if depth >= MAX_DEPTH:
            self._skip(kind, number)
            return self._bounds.too_deep(kind)
        if kind == ARRAY:
            return [self.item(depth + 1) for _ in range(number)]
        if kind == MAP:
            return self._map(number, depth)
        return self._extension(number, depth)

    def array_size(self) -> int:
        """Return the number of items of the array that must come next."""
        kind, size = self.head()
        if kind != ARRAY:
            raise MalformedError("no array")
        return int(size)

    def skip(self) -> int:
        """Go past the next item, however deep it is; return where it ends."""
        self._skip(*self.head())
        return self.at

    def head(self) -> tuple[str, Any]:
        """Read the head of the next item: its kind, and its value or size."""
        at = self.at
        if at >= self._end:
            raise MalformedError("the bytes end too early")
        kind, number, form = _HEADS[self._data[at]]
        self.at = at + 1
        if form is not None:
            self._go_past(form.size)
            (number,) = form.unpack_from(self._data, self.at - form.size)
        elif kind == _UNUSED:
            raise MalformedError("the byte 0xc1")
        return kind, number

    def _skip(self, kind: str, number: int) -> None:
        """Go past an item of which the head was read, however deep it is."""
        items_left = 1
        while True:
            items_left -= 1
            if kind == ARRAY:
                items_left += number
            elif kind == MAP:
                items_left += 2 * number
            elif kind == EXTENSION:
                self._go_past(1 + number)
            elif kind in (STRING, _BINARY):
                self._go_past(number)
            if not items_left:
                return
            kind, number = self.head()

    def _go_past(self, size: int) -> None:
        self.at += size
        if self.at > self._end:
            raise MalformedError("the bytes end too early")

    def _take(self, size: int) -> bytes:
        self._go_past(size)
        return self._data[self.at - size : self.at]

    def _string(self, size: int) -> Json:
        data = self._take(size)
        self._bounds.take(size)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return {"$string": self._bounds.base64(data)}

    def _map(self, size: int, depth: int) -> dict[str, Json]:
        return mapping([(self.item(depth + 1), self.item(depth + 1)) for _ in range(size)])

    def _extension(self, size: int, depth: int) -> Json:
        (code,) = struct.unpack(">b", self._take(1))
        begin, outer = self.at, self._end
        self._go_past(size)
        end = self.at
        if code == _TIMESTAMP or code in EXTENSIONS:
            self.at, self._end = begin, end
            try:
                shown = self._timestamp() if code == _TIMESTAMP else self._payload(code, depth)
                if self.at != end:
                    raise MalformedError("bytes after the payload")
                return shown
            except MalformedError:
                self.at = end
            finally:
                self._end = outer
        return {"$ext": code, "$bytes": self._bounds.base64(self._data[begin:end])}

    def _timestamp(self) -> Json:
        """Show msgpack's own timestamp, in one of its three forms."""
        data = self._take(self._end - self.at)
        if len(data) == 4:
            return timestamp(int.from_bytes(data), 0)
        if len(data) == 8:
            word = int.from_bytes(data)
            return timestamp(word & (1 << 34) - 1, word >> 34)
        if len(data) == 12:
            nanoseconds, seconds = struct.unpack(">Iq", data)
            return timestamp(seconds, nanoseconds)
        raise MalformedError("no timestamp has this size")

    def _payload(self, code: int, depth: int) -> Json:
        """Return the view of a LangGraph extension, mostly the name of a type and its content."""
        inner = depth + 1
        if code == _DELTA_SNAPSHOT:
            kind = "langgraph.checkpoint.serde.types._DeltaSnapshot"
            return {"$type": kind, "value": self.item(inner)}
        size = self.array_size()
        if code == _ARRAY:
            if size != 4:
                raise MalformedError("no array of numpy")
            names: tuple[str, ...] = ("dtype", "shape", "order", "data")
            return {"$type": "numpy.ndarray", **{name: self.item(inner) for name in names}}
        kind = f"{self._name()}.{self._name()}"
        if code == _METHOD and size == 4:
            value = self.item(inner)
            return {"$type": kind, "$method": self._name(), "$value": value}
        if code == _SINGLE and size == 3:
            return {"$type": kind, "$value": self.item(inner)}
        if code == _POSITIONAL and size == 3:
            arguments = [self.item(inner) for _ in range(self.array_size())]
            names = _ARGUMENTS.get(kind, ())
            if not names or len(arguments) > len(names):
                return {"$type": kind, "$args": arguments}
            return {"$type": kind, **dict(zip(names, arguments, strict=False))}
        if code in (_SINGLE, _POSITIONAL, _METHOD) or size not in (3, 4):
            raise MalformedError("no module, name and content")
        return {"$type": kind, **self._fields(size == 4, depth)}

    def _fields(self, method_follows: bool, depth: int) -> dict[str, Json]:
        """Return the fields of a type. The name of a method that may follow is left out."""
        before = self.at
        kind, count = self.head()
        if kind == MAP:
            fields = self._map(count, depth)
            shown: dict[str, Json] = {"$fields": fields} if "$map" in fields else fields
        else:
            self.at = before
            shown = {"$fields": self.item(depth + 1)}
        if method_follows:
            self.item(depth + 1)
        return shown

    def _name(self) -> str:
        kind, size = self.head()
        shown = self._string(size) if kind == STRING else None
        if not isinstance(shown, str):
            raise MalformedError("no name")
        return shown
