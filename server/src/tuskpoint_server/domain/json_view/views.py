"""The view of a value, of a checkpoint, and of what a delta channel is rebuilt from."""

from __future__ import annotations

import json
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
    opaque,
)

MAX_CHECKPOINT_TEXT = 32 * MIB
"""Bytes of text of all values of one checkpoint; what exceeds them is `$opaque`."""

MAX_EXTRAS_TEXT = 1 * MIB
"""The same of all extras of its state: they travel in the message that begins a checkpoint."""

_WALKS: dict[str, Callable[[bytes, Bounds], Json]] = {
    "bytearray": lambda data, bounds: {"$bytearray": bounds.base64(data)},
    "bytes": lambda data, bounds: {"$bytes": bounds.base64(data)},
    "json": json_walk.walk,
    "msgpack": msgpack_walk.walk,
    "null": lambda data, bounds: None,
}
"""The types that are opened. Whatever else there is (pickle, encrypted values) is not."""


@dataclass(frozen=True, slots=True)
class Shown:
    """The view of a value."""

    content: Json
    complete: bool  # nothing was left out: two complete views that are equal show equal values


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
        """Return the view of the next value; its text may still be too long.

        Whatever its bytes are, there is one.
        """
        bounds = Bounds(min(self._left, MAX_TEXT))
        before = bounds.left
        problem = "too_large"
        try:
            if value.type not in _WALKS:
                problem = ""
            elif len(value.data) <= MAX_ENCODED:
                content = _WALKS[value.type](value.data, bounds)
                return Shown(content, complete=not bounds.cut)
        except MalformedError:
            problem = "malformed"
        except RecursionError:
            problem = "too_deep"
        except TooLargeError:
            pass
        finally:
            self._left = max(0, self._left - (before - bounds.left))
        return Shown(opaque(value.type, value.data, problem), complete=False)

    def view(self, value: Value) -> Value:
        """Return a value of type `json` that holds the view of the next one."""
        before = self._left
        text = dump(self.show(value).content)
        if len(text) > min(before, MAX_TEXT):
            text = dump(opaque(value.type, value.data, "too_large"))
        self._left = max(0, min(self._left, before - len(text)))
        return Value("json", text)


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
    channels = {
        one.name: one if one.value is None else replace(one, value=room.view(one.value))
        for one in state.channels
    }
    for history in histories:
        known = channels.get(history.channel, Channel(history.channel, None, None))
        if known.value is None and (shown := _delta_view(history, room)) is not None:
            channels[history.channel] = replace(known, value=shown)
    whole = State(_frame_view(state.frame), tuple(channels.values()))
    return replace(loaded, state=whole, writes=writes)


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


def _delta_view(history: DeltaHistory, room: Room) -> Value | None:
    """Return what shows what a channel is rebuilt from; `None` if it holds nothing.

    Only the framework knows how a write changes a value, so none is computed. It is
    `{"$delta": [view, ...], "$seed": view}`: the writes, oldest first, and the stored value
    before them, which is left out if there is none.
    """
    seed = history.seed.value if history.seed is not None else None
    if seed is None and not history.writes:
        return None
    # What came last matters most: it takes its room first.
    views = [json.loads(room.view(write.value).data) for write in reversed(history.writes)]
    shown: dict[str, Json] = {"$delta": views[::-1]}
    if seed is not None:
        shown["$seed"] = json.loads(room.view(seed).data)
    return Value("json", dump(shown))
