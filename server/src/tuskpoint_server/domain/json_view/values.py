"""The view of one value."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from ..model import Value
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
    """The view of a value.

    Attributes:
        content: The view.
        complete: Nothing was left out: two complete views that are equal show equal values.
    """

    content: Json
    complete: bool


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
