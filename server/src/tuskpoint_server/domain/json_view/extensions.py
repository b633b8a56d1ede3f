"""The extensions that LangGraph writes into msgpack.

Codes and payloads are those of `langgraph.checkpoint.serde.jsonplus` (4.x). A payload is
msgpack itself: module, name, arguments, and for some the name of a method.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

from .escapes import Json, MalformedError, timestamp

if TYPE_CHECKING:
    from .msgpack_walk import Walker

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
