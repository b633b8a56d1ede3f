"""The view of a value, of a checkpoint, and of the history of a delta channel.

Values of type `json` get the same escapes as all other types, so that a view has one meaning.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tuskpoint.v1 import checkpoint_pb2

from ..limits import MIB
from ..model import Channel, Checkpoint, DeltaHistory, State, Value
from . import msgpack_walk
from .escapes import (
    ITEM_COST,
    MAX_DEPTH,
    MAX_ENCODED,
    MAX_TEXT,
    Json,
    MalformedError,
    ViewBounds,
    ViewTooLargeError,
    escape_float,
    escape_opaque,
    integer,
    mapping,
)

_MAX_DIGITS = 17  # characters of the greatest exact integer, with a sign

_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
"""A string in a JSON text. The pattern matches at every quotation mark, in linear time."""


class JsonPairs(list[tuple[str, object]]):
    """The members of an object, repeated keys included; a dictionary is an escape."""


def parse_json(data: bytes) -> Any:
    """Parse a JSON text in UTF-8, with `JsonPairs` for objects; `NaN` and `Infinity` are accepted.

    Raises:
        MalformedError: The text is not JSON.
        RecursionError: The text is nested too deeply.
    """
    try:
        return _decode(data.decode())
    except ValueError:
        raise MalformedError("no JSON in UTF-8") from None


def _walk_json(data: bytes, bounds: ViewBounds) -> Json:
    """Return the view of a JSON text."""
    if _exceeds_items(data, bounds.left // ITEM_COST):
        raise ViewTooLargeError
    return _walk_parsed(parse_json(data), 0, bounds)


def _exceeds_items(data: bytes, items: int) -> bool:
    """Return whether a text has more items than a bound, before objects are made of them."""
    # Strings may contain commas. Removing strings costs less than parsing.
    return data.count(b",") >= items and _STRING.sub(b"", data).count(b",") >= items


def _walk_parsed(parsed: Any, depth: int, bounds: ViewBounds) -> Json:
    if isinstance(parsed, str):
        bounds.take(len(parsed))
        return parsed
    bounds.take()
    if not isinstance(parsed, list):
        shown: Json = parsed
        return shown
    if depth >= MAX_DEPTH:
        return bounds.too_deep("object" if isinstance(parsed, JsonPairs) else "array")
    if not isinstance(parsed, JsonPairs):
        return [_walk_parsed(item, depth + 1, bounds) for item in parsed]
    pairs: list[tuple[Json, Json]] = []
    for key, value in parsed:
        bounds.take(len(key))
        pairs.append((key, _walk_parsed(value, depth + 1, bounds)))
    return mapping(pairs)


def _json_integer(literal: str) -> Json:
    """Show an integer of any length. A long one stays text, because a conversion takes long."""
    return integer(int(literal)) if len(literal) <= _MAX_DIGITS else {"$int": literal}


def _json_number(literal: str) -> Json:
    """Show a number with a fraction or an exponent as a double, as most readers do."""
    number = float(literal)
    return number if math.isfinite(number) else {"$number": literal}


_CONSTANTS = {name: escape_float(float(name)) for name in ("NaN", "Infinity", "-Infinity")}
"""Shared, since a text may hold a million of them."""

_decode = json.JSONDecoder(
    object_pairs_hook=JsonPairs,
    parse_int=_json_integer,
    parse_float=_json_number,
    parse_constant=_CONSTANTS.__getitem__,
).decode


MAX_CHECKPOINT_TEXT = 32 * MIB
"""Most bytes of text of all values of one checkpoint; a value beyond is `$opaque`."""

MAX_EXTRAS_TEXT = 1 * MIB
"""Most bytes of text of all extras of a state: the first message of a checkpoint has them."""

_WALKS: dict[str, Callable[[bytes, ViewBounds], Json]] = {
    "bytearray": lambda data, bounds: {"$bytearray": bounds.base64(data)},
    "bytes": lambda data, bounds: {"$bytes": bounds.base64(data)},
    "json": _walk_json,
    "msgpack": msgpack_walk.walk,
    "null": lambda data, bounds: None,
}
"""The types that are opened. Other types (pickle, encrypted values) are not."""


@dataclass(frozen=True, slots=True)
class ValueView:
    """The view of a value."""

    content: Json
    complete: bool  # nothing was left out: equal complete views show equal values


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def dump(content: Json) -> bytes:
    """Return a view as UTF-8 without white space; as ASCII if it has half a surrogate pair."""
    try:
        return _encode(content).encode()
    except UnicodeEncodeError:
        return json.dumps(content, separators=(",", ":")).encode()


class ViewRoom:
    """Bytes of text left for the views of several values.

    A value that needs more bytes, or more than `MAX_TEXT`, shows only its type and size.
    """

    __slots__ = ("_left",)

    def __init__(self, left: int) -> None:
        self._left = left

    @property
    def left(self) -> int:
        """Bytes that are left."""
        return self._left

    def show(self, value: Value) -> ValueView:
        """Return the view of the next value, for any bytes; a view may have no text."""
        bounds = ViewBounds(min(self._left, MAX_TEXT))
        before = bounds.left
        problem = "too_large"
        try:
            if value.type not in _WALKS:
                problem = ""
            elif len(value.data) <= MAX_ENCODED:
                content = _WALKS[value.type](value.data, bounds)
                return ValueView(content, complete=not bounds.cut)
        except MalformedError:
            problem = "malformed"
        except RecursionError:
            problem = "too_deep"
        except ViewTooLargeError:
            pass
        finally:
            self._left = max(0, self._left - (before - bounds.left))
        return ValueView(escape_opaque(value.type, value.data, problem), complete=False)

    def view(self, value: Value) -> Value:
        """Return a value of type `json` with the view of the next value."""
        before = self._left
        text = dump(self.show(value).content)
        if len(text) > min(before, MAX_TEXT):
            text = dump(escape_opaque(value.type, value.data, "too_large"))
        self._left = max(0, min(self._left, before - len(text)))
        return Value("json", text)


def checkpoint_view(loaded: Checkpoint, histories: Sequence[DeltaHistory] = ()) -> Checkpoint:
    """Return a checkpoint with views in place of values; digests stay.

    Views of pending writes come first, because they show what a thread waits for; delta channels
    with histories come last.
    """
    room = ViewRoom(MAX_CHECKPOINT_TEXT)
    writes = tuple(replace(write, value=room.view(write.value)) for write in loaded.writes)
    state = loaded.state
    if state is None:
        return replace(loaded, writes=writes)
    channels = {
        channel.name: channel
        if channel.value is None
        else replace(channel, value=room.view(channel.value))
        for channel in state.channels
    }
    for history in histories:
        channel = channels.get(history.channel, Channel(history.channel, None, None))
        if channel.value is None and (shown := _delta_view(history, room)) is not None:
            channels[history.channel] = replace(channel, value=shown)
    whole = State(_frame_view(state.frame), tuple(channels.values()))
    return replace(loaded, state=whole, writes=writes)


def _frame_view(frame: bytes) -> bytes:
    """Return a frame with views in place of its extras."""
    message = checkpoint_pb2.CheckpointState.FromString(frame)
    if not message.extras:
        return frame
    room = ViewRoom(MAX_EXTRAS_TEXT)
    for name in sorted(message.extras):
        extra = message.extras[name]
        shown = room.view(Value(extra.type, extra.data))
        extra.type, extra.data = shown.type, shown.data
    return message.SerializeToString(deterministic=True)


def _delta_view(history: DeltaHistory, room: ViewRoom) -> Value | None:
    """Return the history of a channel as a view; `None` if it is empty.

    Only the framework can compute the value. So the view is `{"$delta": [view, ...],
    "$seed": view}`: the writes, oldest first, and the stored value before them, if there is one.
    """
    seed = history.seed.value if history.seed is not None else None
    if seed is None and not history.writes:
        return None
    # The latest writes matter most, so their views come first.
    views = [json.loads(room.view(write.value).data) for write in reversed(history.writes)]
    shown: dict[str, Json] = {"$delta": views[::-1]}
    if seed is not None:
        shown["$seed"] = json.loads(room.view(seed).data)
    return Value("json", dump(shown))
