"""Delta channels: what stands for a value that is rebuilt from writes.

Only the framework knows how a write changes a value, so none is computed: shown are the
value that rebuilding begins with and the writes, each on its own.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence

from ..model import DeltaHistory, Value
from .escapes import Json
from .values import Room, dump


def delta_view(history: DeltaHistory, room: Room) -> Value | None:
    """Return a value of type `json` that shows what a channel is rebuilt from.

    It is `{"$delta": [view, ...], "$seed": view}`: the writes, oldest first, and the stored
    value before them, which is left out if there is none.

    Args:
        history: Of the channel, with all values.
        room: What is left for views.

    Returns:
        The value; `None` if the channel holds nothing.
    """
    seed = history.seed.value if history.seed is not None else None
    if seed is None and not history.writes:
        return None
    # What came last matters most: it takes its room first.
    views = [_shown(room, write.value) for write in reversed(history.writes)]
    shown: dict[str, Json] = {"$delta": views[::-1]}
    if seed is not None:
        shown["$seed"] = _shown(room, seed)
    return Value("json", dump(shown))


def _shown(room: Room, value: Value) -> Json:
    view: Json = json.loads(room.view(value).data)
    return view


def joined(values: Sequence[Value]) -> tuple[Value | None, bool]:
    """Return an array of values as one, and whether it holds all of them.

    It is of the last one's type: those of another, and what is no array of values in its
    encoding, are left out.
    """
    kind = values[-1].type if values else ""
    same = [value.data for value in values if value.type == kind]
    whole = len(same) == len(values)
    if kind == "msgpack":
        return Value(kind, b"\xdd" + struct.pack(">I", len(same)) + b"".join(same)), whole
    if kind == "json":
        return Value(kind, b"[%s]" % b",".join(same)), whole
    return None, not values
