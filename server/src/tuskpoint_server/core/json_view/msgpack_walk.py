"""The view of msgpack with LangGraph's extensions.

Payloads of extensions come from `langgraph.checkpoint.serde.jsonplus` (4.x): msgpack with
module, name, arguments, and for some the name of a method.
"""

from __future__ import annotations

import struct

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
from .msgpack_reader import (
    ARRAY,
    BINARY,
    DELTA_SNAPSHOT,
    EXTENSIONS,
    FLOAT,
    INTEGER,
    MAP,
    METHOD,
    NUMPY,
    PLAIN,
    POSITIONAL,
    SINGLE,
    STRING,
    TIMESTAMP,
    MsgpackReader,
)

_ARGUMENTS = {
    "datetime.date": ("year", "month", "day"),
    "datetime.timedelta": ("days", "seconds", "microseconds"),
    "langgraph.types.Send": ("node", "arg", "timeout"),
    "re.compile": ("pattern", "flags"),
}
"""Names of the arguments that LangGraph writes by position."""


def walk(data: bytes, bounds: ViewBounds) -> Json:
    """Return the view of bytes, which must be exactly one msgpack item."""
    walker = _Walker(data, bounds)
    shown = walker.item(0)
    if walker.at != len(data):
        raise MalformedError("bytes after the item")
    return shown


class _Walker(MsgpackReader):
    """Shows the items of a range of bytes. All methods may raise `ViewTooLargeError`."""

    __slots__ = ("_bounds",)

    def __init__(self, data: bytes, bounds: ViewBounds) -> None:
        super().__init__(data)
        self._bounds = bounds

    def item(self, depth: int) -> Json:
        """Return the view of the next item; `depth` is its level."""
        kind, number = self.head()
        if kind == STRING:
            return self._string(number)
        self._bounds.take()
        if kind == INTEGER:
            return integer(number)
        if kind == FLOAT:
            return escape_float(number)
        if kind == PLAIN:
            plain: bool | None = number
            return plain
        if kind == BINARY:
            return {"$bytes": self._bounds.base64(self.take(number))}
        if depth >= MAX_DEPTH:
            self._skip(kind, number)
            return self._bounds.too_deep(kind)
        if kind == ARRAY:
            return [self.item(depth + 1) for _ in range(number)]
        if kind == MAP:
            return self._map(number, depth)
        return self._extension(number, depth)

    def _string(self, size: int) -> Json:
        data = self.take(size)
        self._bounds.take(size)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return {"$string": self._bounds.base64(data)}

    def _map(self, size: int, depth: int) -> dict[str, Json]:
        return mapping([(self.item(depth + 1), self.item(depth + 1)) for _ in range(size)])

    def _extension(self, size: int, depth: int) -> Json:
        (code,) = struct.unpack(">b", self.take(1))
        begin, outer = self.at, self.end
        self.go_past(size)
        end = self.at
        if code == TIMESTAMP or code in EXTENSIONS:
            self.at, self.end = begin, end
            try:
                shown = self._timestamp() if code == TIMESTAMP else self._payload(code, depth)
                if self.at != end:
                    raise MalformedError("bytes after the payload")
                return shown
            except MalformedError:
                self.at = end
            finally:
                self.end = outer
        return {"$ext": code, "$bytes": self._bounds.base64(self.data[begin:end])}

    def _timestamp(self) -> Json:
        """Show msgpack's own timestamp, in one of its three forms."""
        data = self.take(self.end - self.at)
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
        if code == DELTA_SNAPSHOT:
            kind = "langgraph.checkpoint.serde.types._DeltaSnapshot"
            return {"$type": kind, "value": self.item(inner)}
        size = self.array_size()
        if code == NUMPY:
            if size != 4:
                raise MalformedError("no array of numpy")
            names: tuple[str, ...] = ("dtype", "shape", "order", "data")
            return {"$type": "numpy.ndarray", **{name: self.item(inner) for name in names}}
        kind = f"{self._name()}.{self._name()}"
        if code == METHOD and size == 4:
            value = self.item(inner)
            return {"$type": kind, "$method": self._name(), "$value": value}
        if code == SINGLE and size == 3:
            return {"$type": kind, "$value": self.item(inner)}
        if code == POSITIONAL and size == 3:
            arguments = [self.item(inner) for _ in range(self.array_size())]
            names = _ARGUMENTS.get(kind, ())
            if not names or len(arguments) > len(names):
                return {"$type": kind, "$args": arguments}
            return {"$type": kind, **dict(zip(names, arguments, strict=False))}
        if code in (SINGLE, POSITIONAL, METHOD) or size not in (3, 4):
            raise MalformedError("no module, name and content")
        return {"$type": kind, **self._fields(size == 4, depth)}

    def _fields(self, method_follows: bool, depth: int) -> dict[str, Json]:
        """Return the fields of a type, without the name of a method that may follow."""
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
