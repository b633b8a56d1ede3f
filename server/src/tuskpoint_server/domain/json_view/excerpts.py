"""Parts of values for search: the latest of what is long, and what is new over an earlier one.

What grows grows at its end: an array gets more items, a text more words. So of an array the
last items are kept, of a text its end. An object keeps its first members, which say most, and
shortens those that are long. What changed in any other way counts as new altogether. The
result is a value of the same type, so whatever reads values reads it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from ..model import Value
from .escapes import Bounds, MalformedError
from .msgpack_walk import ARRAY, EXTENSION, EXTENSIONS, MAP, STRING, Walker
from .views import dump

_MAX_DEPTH = 16
"""Levels that are shortened; what is longer and deeper is left out."""

_HEAD = 6
"""Bytes that the head of a shortened item takes at most, the code of an extension included."""

_ENCLOSING = (7,)
"""Codes of extensions whose payload is one item and no array of arguments."""


def latest_part(value: Value, maximum: int) -> Value | None:
    """Return a value that holds the latest part of another; `None` if there is none to show.

    Args:
        value: The value.
        maximum: About how many bytes it may have at most.
    """
    if len(value.data) <= maximum:
        return value
    try:
        if value.type == "msgpack":
            data = _of_item(value.data, maximum, 0)
        elif value.type == "json":
            data = _of_text(value.data, maximum)
        else:
            return None
    except (MalformedError, ValueError, RecursionError):
        return None
    return Value(value.type, data) if data else None


def shares(sizes: Sequence[int], room: int) -> list[int]:
    """Return how much room each of some parts gets.

    None takes more than half of what is left, unless those after it need less.
    """
    after = sum(sizes)
    left = room
    found = []
    for size in sizes:
        after -= size
        share = min(size, max(left // 2, left - after, 0))
        found.append(share)
        left -= share
    return found


# --- msgpack ---------------------------------------------------------------------------------


def _of_item(data: bytes, maximum: int, depth: int) -> bytes:
    """Return the latest part of one item as an item; empty if there is none."""
    if len(data) <= maximum:
        return data
    if depth >= _MAX_DEPTH or maximum <= 2 * _HEAD:
        return b""
    walker = Walker(data, Bounds(0))
    kind, number = walker.head()
    begin = walker.at
    if kind == STRING:
        return _of_string(data[begin : begin + number], maximum)
    if kind == ARRAY:
        return _of_array(data, _ends(walker, number), maximum, depth)
    if kind == MAP:
        return _of_map(data, _ends(walker, 2 * number), maximum, depth)
    if kind == EXTENSION:
        return _of_extension(data, begin, number, maximum, depth)
    return b""


def _ends(walker: Walker, count: int) -> list[int]:
    """Return where items begin and end: one place more than there are items."""
    return [walker.at, *(walker.skip() for _ in range(count))]


def _of_string(data: bytes, maximum: int) -> bytes:
    kept = data[-(maximum - _HEAD) :]
    # A character that was cut is left out: what continues one begins with the bits 10.
    start = next((at for at, byte in enumerate(kept[:4]) if byte & 0xC0 != 0x80), 0)
    kept = kept[start:]
    return b"\xdb" + struct.pack(">I", len(kept)) + kept


def _of_array(data: bytes, ends: Sequence[int], maximum: int, depth: int) -> bytes:
    room = maximum - _HEAD
    first = len(ends) - 1
    while first and ends[-1] - ends[first - 1] <= room:
        first -= 1
    parts = [data[ends[first] : ends[-1]]] if first < len(ends) - 1 else []
    count = len(ends) - 1 - first
    if not parts and first:
        last = _of_item(data[ends[-2] : ends[-1]], room, depth + 1)
        parts, count = ([last], 1) if last else ([], 0)
    return b"\xdd" + struct.pack(">I", count) + b"".join(parts) if parts else b""


def _of_map(data: bytes, ends: Sequence[int], maximum: int, depth: int) -> bytes:
    keys = [data[ends[at] : ends[at + 1]] for at in range(0, len(ends) - 1, 2)]
    values = [data[ends[at] : ends[at + 1]] for at in range(1, len(ends) - 1, 2)]
    room = maximum - _HEAD
    members: list[bytes] = []
    for key, value, share in zip(keys, values, _of_members(keys, values, room), strict=True):
        kept = _of_item(value, share - len(key), depth + 1) if share > len(key) else b""
        if kept:
            members += (key, kept)
    return b"\xdf" + struct.pack(">I", len(members) // 2) + b"".join(members) if members else b""


def _of_members(keys: Sequence[bytes], values: Sequence[bytes], room: int) -> list[int]:
    return shares([len(key) + len(value) for key, value in zip(keys, values, strict=True)], room)


def _of_extension(data: bytes, begin: int, size: int, maximum: int, depth: int) -> bytes:
    (code,) = struct.unpack_from(">b", data, begin)
    payload = data[begin + 1 : begin + 1 + size]
    room = maximum - _HEAD
    if code in _ENCLOSING:
        kept = _of_item(payload, room, depth + 1)
    elif code in EXTENSIONS:
        kept = _of_arguments(payload, room, depth + 1)
    else:
        return b""
    return b"\xc9" + struct.pack(">Ib", len(kept), code) + kept if kept else b""


def _of_arguments(payload: bytes, maximum: int, depth: int) -> bytes:
    """Return an array in which every item keeps its place; empty if one cannot be shortened."""
    walker = Walker(payload, Bounds(0))
    ends = _ends(walker, walker.array_size())
    items = [payload[ends[at] : ends[at + 1]] for at in range(len(ends) - 1)]
    wanted = shares([len(item) for item in items], maximum - _HEAD)
    kept = [_of_item(item, share, depth) for item, share in zip(items, wanted, strict=True)]
    return b"\xdd" + struct.pack(">I", len(kept)) + b"".join(kept) if all(kept) else b""


# --- JSON ------------------------------------------------------------------------------------


def _of_text(data: bytes, maximum: int) -> bytes:
    """Return the latest part of a JSON text as one; empty if there is none."""
    kept = _of_parsed(json.loads(data.decode()), maximum, 0)
    return dump(kept) if kept is not None else b""


def _of_parsed(parsed: Any, maximum: int, depth: int) -> Any:
    """Return the latest part of what a JSON text says, `None` if there is none."""
    if depth >= _MAX_DEPTH or maximum <= 0:
        return None
    if isinstance(parsed, str):
        return parsed.encode(errors="replace")[-maximum:].decode(errors="ignore")
    if isinstance(parsed, list):
        return _of_list(parsed, maximum, depth)
    if isinstance(parsed, dict):
        sizes = [len(dump({key: item})) for key, item in parsed.items()]
        members = {
            key: item if size <= share else _of_parsed(item, share - len(key) - 4, depth + 1)
            for (key, item), size, share in zip(
                parsed.items(), sizes, shares(sizes, maximum), strict=True
            )
        }
        return {key: item for key, item in members.items() if item is not None} or None
    return None


def _of_list(parsed: list[Any], maximum: int, depth: int) -> list[Any] | None:
    left = maximum
    kept: list[Any] = []
    for item in reversed(parsed):
        left -= len(dump(item)) + 1
        if left < 0:
            break
        kept.append(item)
    if not parsed:
        return None
    if not kept:
        last = _of_parsed(parsed[-1], maximum - 2, depth + 1)
        return None if last is None else [last]
    return kept[::-1]


_MAX_COMPARED_DEPTH = 8
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
            return Value(value.type, _new_of_item(value.data, before.data, 0))
        if value.type == "json":
            new = _new_of_parsed(json.loads(value.data), json.loads(before.data), 0)
            return Value(value.type, dump(new))
    except (MalformedError, ValueError, RecursionError):
        pass
    return value


def _new_of_item(data: bytes, before: bytes, depth: int) -> bytes:
    walker, earlier = Walker(data, Bounds(0)), Walker(before, Bounds(0))
    (kind, number), (other, had) = walker.head(), earlier.head()
    if kind != other or depth > _MAX_COMPARED_DEPTH:
        return data
    if kind == MAP:
        return _new_of_map(walker, number, earlier, had, data, before, depth)
    if kind not in (ARRAY, STRING) or not data.startswith(before[earlier.at :], walker.at):
        return data
    end = walker.at + len(before) - earlier.at
    if kind == ARRAY:
        return b"\xdd" + struct.pack(">I", number - had) + data[end:]
    # A word that went on is new as a whole.
    kept = data[max(data.rfind(b" ", walker.at, end), walker.at) :]
    return b"\xdb" + struct.pack(">I", len(kept)) + kept


def _new_of_map(
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
        key + (_new_of_item(item, known[key], depth + 1) if key in known else item)
        for key, item in _members(walker, number, data)
        if known.get(key) != item
    ]
    return b"\xdf" + struct.pack(">I", len(new)) + b"".join(new)


def _members(walker: Walker, number: int, data: bytes) -> list[tuple[bytes, bytes]]:
    ends = [walker.at, *(walker.skip() for _ in range(2 * number))]
    items = [data[begin:end] for begin, end in pairwise(ends)]
    return list(zip(items[::2], items[1::2], strict=True))


def _new_of_parsed(parsed: Any, before: Any, depth: int) -> Any:
    if isinstance(parsed, dict) and isinstance(before, dict) and depth <= _MAX_COMPARED_DEPTH:
        return {
            key: _new_of_parsed(item, before[key], depth + 1) if key in before else item
            for key, item in parsed.items()
            if key not in before or before[key] != item
        }
    if isinstance(parsed, list) and isinstance(before, list):
        return parsed[len(before) :] if parsed[: len(before)] == before else parsed
    if isinstance(parsed, str) and isinstance(before, str) and parsed.startswith(before):
        return parsed[max(parsed.rfind(" ", 0, len(before)), 0) :]
    return parsed
