"""The view of a value, of a checkpoint, and of what a delta channel is rebuilt from."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tuskpoint.v1 import checkpoint_pb2

from ..limits import MIB
from ..model import Channel, Checkpoint, DeltaHistory, State, Value
from . import json_walk, msgpack_walk
from .escapes import (
    MAX_ENCODED,
    MAX_TEXT,
    Bounds,
    Json,
    MalformedError,
    TooLargeError,
    base64_text,
    opaque,
)

_Walk = Callable[[bytes, Bounds], Json]


def _null(data: bytes, bounds: Bounds) -> Json:
    return None


def _bytes(data: bytes, bounds: Bounds) -> Json:
    bounds.take(len(data) // 3 * 4)
    return {"$bytes": base64_text(data)}


def _bytearray(data: bytes, bounds: Bounds) -> Json:
    bounds.take(len(data) // 3 * 4)
    return {"$bytearray": base64_text(data)}


_WALKS: dict[str, _Walk] = {
    "bytearray": _bytearray,
    "bytes": _bytes,
    "json": json_walk.walk,
    "msgpack": msgpack_walk.walk,
    "null": _null,
}
"""The types that are opened. Whatever else there is (pickle, encrypted values) is not."""


@dataclass(frozen=True, slots=True)
class Shown:
    """The view of a value."""

    content: Json  # the view
    complete: bool  # nothing was left out: two complete views that are equal show equal values


def show(value: Value, bounds: Bounds | None = None) -> Shown:
    """Return the view of a value. Whatever its bytes are, there is one.

    Args:
        value: The value.
        bounds: What is left for it; `None` is room for `MAX_TEXT`.
    """
    walk = _WALKS.get(value.type)
    if walk is None:
        return Shown(opaque(value.type, value.data), complete=False)
    if len(value.data) > MAX_ENCODED:
        return _hidden(value, "too_large")
    bounds = bounds or Bounds(MAX_TEXT)
    try:
        content = walk(value.data, bounds)
    except MalformedError:
        return _hidden(value, "malformed")
    except TooLargeError:
        return _hidden(value, "too_large")
    except RecursionError:
        return _hidden(value, "too_deep")
    return Shown(content, complete=not bounds.cut)


def dump(content: Json) -> bytes:
    """Return a view as UTF-8 text without white space.

    Text that holds half of a surrogate pair, which UTF-8 cannot, is written in ASCII.
    """
    try:
        return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(content, separators=(",", ":")).encode()


class Room:
    """Bytes of text that are left for the views of several values.

    Of a value that takes more than is left, or than `MAX_TEXT`, only type and size are
    shown: these are small, and shown whatever is left.
    """

    __slots__ = ("_left",)

    def __init__(self, left: int) -> None:
        self._left = left

    def show(self, value: Value) -> Shown:
        """Return the view of the next value; its text may still be too long."""
        most = min(self._left, MAX_TEXT)
        bounds = Bounds(most)
        shown = show(value, bounds)
        self._left = max(0, self._left - (most - bounds.left))
        return shown

    def view(self, value: Value) -> Value:
        """Return a value of type `json` that holds the view of the next one."""
        before = self._left
        text = dump(self.show(value).content)
        if len(text) > min(before, MAX_TEXT):
            text = dump(opaque(value.type, value.data, "too_large"))
        self._left = max(0, min(self._left, before - len(text)))
        return Value("json", text)


def value_view(value: Value) -> Value:
    """Return a value of type `json` that holds the view of another."""
    return Room(MAX_TEXT).view(value)


def _hidden(value: Value, problem: str) -> Shown:
    return Shown(opaque(value.type, value.data, problem), complete=False)


MAX_CHECKPOINT_TEXT = 32 * MIB
"""Bytes of text of all values of one checkpoint; what exceeds them is `$opaque`."""

MAX_EXTRAS_TEXT = 1 * MIB
"""The same of all extras of its state: they travel in the message that begins a checkpoint."""


def checkpoint_view(loaded: Checkpoint, histories: Sequence[DeltaHistory] = ()) -> Checkpoint:
    """Return a checkpoint with a view in the place of every value; digests stay.

    Pending writes come first, so that what a thread waits for is shown however large its
    state is; delta channels come last.

    Args:
        loaded: The checkpoint.
        histories: Of the delta channels that it does not store itself; their channels are
            shown with what they are rebuilt from.
    """
    room = Room(MAX_CHECKPOINT_TEXT)
    writes = tuple(replace(write, value=room.view(write.value)) for write in loaded.writes)
    state = loaded.state
    if state is None:
        return replace(loaded, writes=writes)
    channels = tuple(
        channel if channel.value is None else replace(channel, value=room.view(channel.value))
        for channel in state.channels
    )
    channels = _with_deltas(channels, histories, room)
    return replace(loaded, state=State(_frame_view(state.frame), channels), writes=writes)


def _with_deltas(
    channels: tuple[Channel, ...], histories: Sequence[DeltaHistory], room: Room
) -> tuple[Channel, ...]:
    """Return channels with what delta channels are rebuilt from; those of no history stay."""
    found = {channel.name: channel for channel in channels}
    for history in histories:
        known = found.get(history.channel, Channel(history.channel, None, None))
        if known.value is None and (shown := delta_view(history, room)) is not None:
            found[history.channel] = replace(known, value=shown)
    return tuple(found.values())


def _frame_view(frame: bytes) -> bytes:
    """Return a frame with views in the place of its extras."""
    message = checkpoint_pb2.CheckpointState.FromString(frame)
    if not message.extras:
        return frame
    room = Room(MAX_EXTRAS_TEXT)
    for name in sorted(message.extras):
        held = message.extras[name]
        shown = room.view(Value(held.type, held.data))
        held.type, held.data = shown.type, shown.data
    return message.SerializeToString(deterministic=True)


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
    views = [_shown_in(room, write.value) for write in reversed(history.writes)]
    shown: dict[str, Json] = {"$delta": views[::-1]}
    if seed is not None:
        shown["$seed"] = _shown_in(room, seed)
    return Value("json", dump(shown))


def _shown_in(room: Room, value: Value) -> Json:
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
