"""msgpack, walked in place, with the extensions that LangGraph writes into it.

https://github.com/msgpack/msgpack/blob/master/spec.md. A library builds objects and copies
each nested extension, so that its memory is what the sender wants it to be; here an
extension is a range of the same bytes, and a length that exceeds what is left is refused
before anything is made of it. Codes and payloads of extensions are those of
`langgraph.checkpoint.serde.jsonplus` (4.x): msgpack itself, with module, name, arguments, and
for some the name of a method.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from .escapes import (
    MAX_DEPTH,
    Bounds,
    Json,
    MalformedError,
    base64_text,
    extension,
    floating,
    integer,
    mapping,
    timestamp,
)

_ARGUMENTS = {
    "datetime.date": ("year", "month", "day"),
    "datetime.timedelta": ("days", "seconds", "microseconds"),
    "langgraph.types.Send": ("node", "arg", "timeout"),
    "re.compile": ("pattern", "flags"),
}
"""Names of the arguments of what LangGraph writes by position."""


def timestamp_view(walker: Walker, depth: int) -> Json:
    """Show msgpack's own timestamp (code -1), in one of its three forms."""
    data = walker.rest()
    if len(data) == 4:
        return timestamp(int.from_bytes(data), 0)
    if len(data) == 8:
        both = int.from_bytes(data)
        return timestamp(both & (1 << 34) - 1, both >> 34)
    if len(data) == 12:
        nanoseconds, seconds = struct.unpack(">Iq", data)
        return timestamp(seconds, nanoseconds)
    raise MalformedError("no timestamp has this size")


def _single(walker: Walker, depth: int) -> Json:
    """Show a type and its one argument."""
    kind = _type(walker, 3)
    return {"$type": kind, "$value": walker.item(depth + 1)}


def _positional(walker: Walker, depth: int) -> Json:
    """Show a type and its arguments by position, by name where the names are known."""
    kind = _type(walker, 3)
    arguments = [walker.item(depth + 1) for _ in range(walker.array_size())]
    names = _ARGUMENTS.get(kind, ())
    if not names or len(arguments) > len(names):
        return {"$type": kind, "$args": arguments}
    return {"$type": kind, **dict(zip(names, arguments, strict=False))}


def _fields(walker: Walker, depth: int) -> Json:
    """Show a type and its fields. The name of a method that may follow is left out."""
    size = walker.array_size()
    if size not in (3, 4):
        raise MalformedError("no module, name and fields")
    kind = f"{walker.name()}.{walker.name()}"
    count = walker.map_size()
    if count is None:
        shown: dict[str, Json] = {"$type": kind, "$fields": walker.item(depth + 1)}
    else:
        fields = walker.map(count, depth)
        shown = {"$type": kind, **({"$fields": fields} if "$map" in fields else fields)}
    if size == 4:
        walker.item(depth + 1)
    return shown


def _method(walker: Walker, depth: int) -> Json:
    """Show a type, the argument and the method that makes one of it."""
    kind = _type(walker, 4)
    value = walker.item(depth + 1)
    return {"$type": kind, "$method": walker.name(), "$value": value}


def _array(walker: Walker, depth: int) -> Json:
    """Show an array of numpy: type and shape of its items, and their bytes."""
    if walker.array_size() != 4:
        raise MalformedError("no array of numpy")
    dtype, shape, order, data = (walker.item(depth + 1) for _ in range(4))
    return {
        "$type": "numpy.ndarray",
        "dtype": dtype,
        "shape": shape,
        "order": order,
        "data": data,
    }


def _delta_snapshot(walker: Walker, depth: int) -> Json:
    """Show the stored value of a delta channel."""
    return {
        "$type": "langgraph.checkpoint.serde.types._DeltaSnapshot",
        "value": walker.item(depth + 1),
    }


def _type(walker: Walker, size: int) -> str:
    if walker.array_size() != size:
        raise MalformedError(f"not {size} items")
    return f"{walker.name()}.{walker.name()}"


EXTENSIONS: dict[int, Callable[[Walker, int], Json]] = {
    0: _single,
    1: _positional,
    2: _fields,
    3: _method,
    4: _fields,
    5: _fields,
    6: _array,
    7: _delta_snapshot,
}
"""What shows the payload of an extension, by its code."""


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

_Head = tuple[str, Any, struct.Struct | None]
"""Kind, then the value or size if the first byte tells it, else the form of what tells it."""


def _sized(kind: str, forms: str) -> list[_Head]:
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
    *_sized(_BINARY, "BHI"),
    *_sized(EXTENSION, "BHI"),
    *_sized(_FLOAT, "fd"),
    *_sized(_INTEGER, "BHIQbhiq"),
    *((EXTENSION, size, None) for size in (1, 2, 4, 8, 16)),
    *_sized(STRING, "BHI"),
    *_sized(ARRAY, "HI"),
    *_sized(MAP, "HI"),
    *((_INTEGER, number, None) for number in range(-32, 0)),
]
"""The head of an item by its first byte."""


def walk(data: bytes, bounds: Bounds) -> Json:
    """Return the view of one msgpack item.

    Raises:
        MalformedError: These bytes are not exactly one item.
        TooLargeError: Its text is too long.
    """
    walker = Walker(data, bounds)
    shown = walker.item(0)
    if not walker.at_end:
        raise MalformedError("bytes after the item")
    return shown


class Walker:
    """Reads items from a range of bytes, one after another."""

    __slots__ = ("_at", "_data", "_end", "bounds")

    def __init__(self, data: bytes, bounds: Bounds) -> None:
        self._data = data
        self._at = 0
        self._end = len(data)
        self.bounds = bounds

    @property
    def at(self) -> int:
        """Where the next item begins."""
        return self._at

    @property
    def at_end(self) -> bool:
        """Whether nothing is left."""
        return self._at == self._end

    def item(self, depth: int) -> Json:
        """Return the view of the next item, which lies `depth` levels deep.

        Raises:
            MalformedError: It is not one.
            TooLargeError: The text is too long.
        """
        kind, number = self.head()
        if kind == STRING:
            return self._string(number)
        self.bounds.take()
        if kind == _INTEGER:
            return integer(number)
        if kind == _FLOAT:
            return floating(number)
        if kind == _PLAIN:
            plain: bool | None = number
            return plain
        if kind == _BINARY:
            return self._binary(number)
        if depth >= MAX_DEPTH:
            self._skip(kind, number)
            return self.bounds.too_deep(kind)
        if kind == ARRAY:
            return [self.item(depth + 1) for _ in range(number)]
        if kind == MAP:
            return self.map(number, depth)
        return self._extension(number, depth)

    def array_size(self) -> int:
        """Return the number of items of the array that must come next.

        Raises:
            MalformedError: Something else comes.
        """
        kind, size = self.head()
        if kind != ARRAY:
            raise MalformedError("no array")
        return int(size)

    def map_size(self) -> int | None:
        """Return the number of pairs if a map comes next; else `None`, and nothing is read."""
        before = self._at
        kind, size = self.head()
        if kind == MAP:
            return int(size)
        self._at = before
        return None

    def name(self) -> str:
        """Return the string that must come next.

        Raises:
            MalformedError: Something else comes.
        """
        kind, size = self.head()
        shown = self._string(size) if kind == STRING else None
        if not isinstance(shown, str):
            raise MalformedError("no name")
        return shown

    def map(self, size: int, depth: int) -> dict[str, Json]:
        """Return the view of a map of which the head was read."""
        return mapping([(self.item(depth + 1), self.item(depth + 1)) for _ in range(size)])

    def skip(self) -> int:
        """Go past the next item, however deep it is; return where it ends.

        Raises:
            MalformedError: The bytes end before.
        """
        self._skip(*self.head())
        return self._at

    def rest(self) -> bytes:
        """Return the bytes that are left."""
        return self.take(self._end - self._at)

    def take(self, size: int) -> bytes:
        """Return the next bytes.

        Raises:
            MalformedError: There are not as many.
        """
        begin = self._at
        self._go_past(size)
        return self._data[begin : self._at]

    def _go_past(self, size: int) -> None:
        self._at += size
        if self._at > self._end:
            raise MalformedError("the bytes end too early")

    def _binary(self, size: int) -> Json:
        return {"$bytes": self._base64(self.take(size))}

    def _base64(self, data: bytes) -> str:
        self.bounds.take(len(data) // 3 * 4)
        return base64_text(data)

    def _string(self, size: int) -> Json:
        data = self.take(size)
        self.bounds.take(size)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return {"$string": self._base64(data)}

    def head(self) -> tuple[str, Any]:
        """Read the head of the next item: its kind, and its value or size.

        Raises:
            MalformedError: There is none.
        """
        at = self._at
        if at >= self._end:
            raise MalformedError("the bytes end too early")
        kind, number, form = _HEADS[self._data[at]]
        self._at = at + 1
        if form is not None:
            self._go_past(form.size)
            (number,) = form.unpack_from(self._data, self._at - form.size)
        elif kind == _UNUSED:
            raise MalformedError("the byte 0xc1")
        return kind, number

    def _extension(self, size: int, depth: int) -> Json:
        (code,) = struct.unpack(">b", self.take(1))
        begin, outer = self._at, self._end
        self._go_past(size)
        view = timestamp_view if code == -1 else EXTENSIONS.get(code)
        if view is None:
            return self._unknown(code, begin)
        end, self._at, self._end = self._at, begin, self._at
        try:
            shown = view(self, depth)
            if not self.at_end:
                raise MalformedError("bytes after the payload")
        except MalformedError:
            self._at, self._end = end, outer
            return self._unknown(code, begin)
        self._end = outer
        return shown

    def _unknown(self, code: int, begin: int) -> Json:
        data = self._data[begin : self._at]
        self.bounds.take(len(data) // 3 * 4)
        return extension(code, data)

    def _skip(self, kind: str, number: int) -> None:
        """Go past an item of which the head was read, however deep it is."""
        left = 1
        while True:
            left -= 1
            if kind == ARRAY:
                left += number
            elif kind == MAP:
                left += 2 * number
            elif kind == EXTENSION:
                self._go_past(1 + number)
            elif kind in (STRING, _BINARY):
                self._go_past(number)
            if not left:
                return
            kind, number = self.head()
