"""What is new in a value over an earlier one, so that search indexes nothing twice.

What is read again and again grows at its end: an array gets more items, a text more words.
An object gets other members. What changed in any other way counts as new altogether.
"""

from __future__ import annotations

import json
import struct
from itertools import pairwise
from typing import Any

from ..model import Value
from .escapes import Bounds, MalformedError
from .msgpack_walk import ARRAY, MAP, STRING, Walker
from .values import dump

_MAX_DEPTH = 8
"""Levels of objects that are compared member by member."""


def new_part(value: Value, before: Value) -> Value:
    """Return a value of the same type that holds what an earlier one did not.

    Args:
        value: The value.
        before: The earlier one.
    """
    if value.type != before.type:
        return value
    try:
        if value.type == "msgpack":
            return Value(value.type, _of_item(value.data, before.data, 0))
        if value.type == "json":
            new = _of_parsed(json.loads(value.data), json.loads(before.data), 0)
            return Value(value.type, dump(new))
    except (MalformedError, ValueError, RecursionError):
        pass
    return value


def _of_item(data: bytes, before: bytes, depth: int) -> bytes:
    walker, earlier = Walker(data, Bounds(0)), Walker(before, Bounds(0))
    (kind, number), (other, had) = walker.head(), earlier.head()
    if kind != other or depth > _MAX_DEPTH:
        return data
    if kind == MAP:
        return _of_map(walker, number, earlier, had, data, before, depth)
    if kind not in (ARRAY, STRING) or not data.startswith(before[earlier.at :], walker.at):
        return data
    end = walker.at + len(before) - earlier.at
    if kind == ARRAY:
        return b"\xdd" + struct.pack(">I", number - had) + data[end:]
    # A word that went on is new as a whole.
    kept = data[max(data.rfind(b" ", walker.at, end), walker.at) :]
    return b"\xdb" + struct.pack(">I", len(kept)) + kept


def _of_map(
    walker: Walker,
    number: int,
    earlier: Walker,
    had: int,
    data: bytes,
    before: bytes,
    depth: int,
) -> bytes:
    known = dict(_members(earlier, had, before))
    new = [
        key + (_of_item(item, known[key], depth + 1) if key in known else item)
        for key, item in _members(walker, number, data)
        if known.get(key) != item
    ]
    return b"\xdf" + struct.pack(">I", len(new)) + b"".join(new)


def _members(walker: Walker, number: int, data: bytes) -> list[tuple[bytes, bytes]]:
    ends = [walker.at, *(walker.skip() for _ in range(2 * number))]
    items = [data[begin:end] for begin, end in pairwise(ends)]
    return list(zip(items[::2], items[1::2], strict=True))


def _of_parsed(parsed: Any, before: Any, depth: int) -> Any:
    if isinstance(parsed, dict) and isinstance(before, dict) and depth <= _MAX_DEPTH:
        return {
            key: _of_parsed(item, before[key], depth + 1) if key in before else item
            for key, item in parsed.items()
            if key not in before or before[key] != item
        }
    if isinstance(parsed, list) and isinstance(before, list):
        return parsed[len(before) :] if parsed[: len(before)] == before else parsed
    if isinstance(parsed, str) and isinstance(before, str) and parsed.startswith(before):
        return parsed[max(parsed.rfind(" ", 0, len(before)), 0) :]
    return parsed
