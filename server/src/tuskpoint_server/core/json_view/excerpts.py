"""Excerpts of values for search: the latest part of a long value, or the new part of a change.

Values grow at their end, so an array keeps its last items and a text its end. An object keeps its
first members, which say most, and shortens long members. A value that changed in any other way is
new as a whole. An excerpt is a value of the same type.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from ..model import Value
from .escapes import Json, MalformedError
from .msgpack_reader import (
    ARRAY,
    DELTA_SNAPSHOT,
    EXTENSION,
    EXTENSIONS,
    MAP,
    STRING,
    MsgpackReader,
)
from .views import dump

_MAX_DEPTH = 16  # levels that are shortened; longer items below are left out
_MAX_COMPARED_DEPTH = 8  # levels of objects that are compared member by member

_HEAD = 6
"""Most bytes of the head of a shortened item, the code of an extension included."""


def latest_part(value: Value, maximum: int) -> Value | None:
    """Return a value with the latest part of another, within a size; `None`: nothing fits."""
    if len(value.data) <= maximum:
        return value
    data = b""
    try:
        if value.type == "msgpack":
            data = _latest_part(value.data, maximum, 0)
        elif value.type == "json":
            data = shorten(json.loads(value.data.decode()), maximum)
    except (MalformedError, ValueError, RecursionError):
        return None
    return Value(value.type, data) if data else None


def new_part(value: Value, before: Value) -> Value:
    """Return a value of the same type with the content that an earlier one lacks."""
    if value.type != before.type:
        return value
    try:
        if value.type == "msgpack":
            return Value(value.type, _new_part(value.data, before.data, 0))
        if value.type == "json":
            new = _new_parsed(json.loads(value.data), json.loads(before.data), 0)
            return Value(value.type, dump(new))
    except (MalformedError, ValueError, RecursionError):
        pass
    return value


def join_values(values: Sequence[Value]) -> tuple[Value | None, bool]:
    """Return an array of values of the last value's type, and whether the array has all values."""
    kind = values[-1].type if values else ""
    items = [value.data for value in values if value.type == kind]
    if kind == "msgpack":
        return Value(kind, _with_size(_ARRAY, len(items), *items)), len(items) == len(values)
    if kind == "json":
        return Value(kind, b"[%s]" % b",".join(items)), len(items) == len(values)
    return None, not values


def shares(sizes: Sequence[int], room: int) -> list[int]:
    """Return the share of each part: at most half of the rest, unless later parts need less."""
    after = sum(sizes)
    room_left = room
    rooms = []
    for size in sizes:
        after -= size
        share = min(size, max(room_left // 2, room_left - after, 0))
        rooms.append(share)
        room_left -= share
    return rooms


_STRING, _ARRAY, _MAP = b"\xdb", b"\xdd", b"\xdf"  # four bytes of size follow


def _with_size(code: bytes, size: int, *parts: bytes) -> bytes:
    return b"".join((code, struct.pack(">I", size), *parts))


def _ends(reader: MsgpackReader, count: int) -> list[int]:
    """Return the offsets at which the next items start, and the end of the last item."""
    return [reader.at, *(reader.skip() for _ in range(count))]


def _items(reader: MsgpackReader, count: int, data: bytes) -> list[bytes]:
    return [data[begin:end] for begin, end in pairwise(_ends(reader, count))]


def _members(reader: MsgpackReader, count: int, data: bytes) -> list[tuple[bytes, bytes]]:
    items = _items(reader, 2 * count, data)
    return list(zip(items[::2], items[1::2], strict=True))


def _latest_part(data: bytes, maximum: int, depth: int) -> bytes:
    """Return the latest part of one item as an item; empty if there is none."""
    if len(data) <= maximum:
        return data
    room = maximum - _HEAD
    if depth >= _MAX_DEPTH or room <= _HEAD:
        return b""
    reader = MsgpackReader(data)
    kind, number = reader.head()
    begin = reader.at
    if kind == STRING:
        part = data[begin : begin + number][-room:]
        # A cut character is left out: its continuation bytes start with the bits 10.
        start = next((at for at, byte in enumerate(part[:4]) if byte & 0xC0 != 0x80), 0)
        part = part[start:]
        return _with_size(_STRING, len(part), part)
    if kind == ARRAY:
        return _latest_items(data, _ends(reader, number), room, depth)
    if kind == MAP:
        return _latest_members(_members(reader, number, data), room, depth)
    if kind == EXTENSION:
        (code,) = struct.unpack_from(">b", data, begin)
        payload = data[begin + 1 : begin + 1 + number]
        part = b""
        if code == DELTA_SNAPSHOT:
            part = _latest_part(payload, room, depth + 1)
        elif code in EXTENSIONS:
            part = _latest_arguments(payload, room, depth + 1)
        return b"\xc9" + struct.pack(">Ib", len(part), code) + part if part else b""
    return b""


def _latest_items(data: bytes, ends: Sequence[int], room: int, depth: int) -> bytes:
    count = len(ends) - 1
    first = count
    while first and ends[-1] - ends[first - 1] <= room:
        first -= 1
    if first < count:
        return _with_size(_ARRAY, count - first, data[ends[first] : ends[-1]])
    last = _latest_part(data[ends[-2] : ends[-1]], room, depth + 1) if count else b""
    return _with_size(_ARRAY, 1, last) if last else b""


def _latest_members(members: Sequence[tuple[bytes, bytes]], room: int, depth: int) -> bytes:
    sizes = [len(key) + len(value) for key, value in members]
    parts = []
    for (key, value), share in zip(members, shares(sizes, room), strict=True):
        part = _latest_part(value, share - len(key), depth + 1) if share > len(key) else b""
        if part:
            parts.append(key + part)
    return _with_size(_MAP, len(parts), *parts) if parts else b""


def _latest_arguments(payload: bytes, maximum: int, depth: int) -> bytes:
    """Return an array in which every item keeps its place; empty if one cannot be shortened."""
    reader = MsgpackReader(payload)
    items = _items(reader, reader.array_size(), payload)
    rooms = shares([len(item) for item in items], maximum - _HEAD)
    parts = [_latest_part(item, share, depth) for item, share in zip(items, rooms, strict=True)]
    return _with_size(_ARRAY, len(parts), *parts) if all(parts) else b""


def _new_part(data: bytes, before: bytes, depth: int) -> bytes:
    """Return the new part of one item over an earlier one, as an item."""
    reader, earlier = MsgpackReader(data), MsgpackReader(before)
    (kind, number), (earlier_kind, earlier_number) = reader.head(), earlier.head()
    if kind != earlier_kind or depth > _MAX_COMPARED_DEPTH:
        return data
    if kind == MAP:
        earlier_members = dict(_members(earlier, earlier_number, before))
        new = [
            key
            + (_new_part(item, earlier_members[key], depth + 1) if key in earlier_members else item)
            for key, item in _members(reader, number, data)
            if earlier_members.get(key) != item
        ]
        return _with_size(_MAP, len(new), *new)
    if kind not in (ARRAY, STRING) or not data.startswith(before[earlier.at :], reader.at):
        return data
    end = reader.at + len(before) - earlier.at
    if kind == ARRAY:  # `before` may announce more items than it has
        return (
            _with_size(_ARRAY, number - earlier_number, data[end:])
            if number >= earlier_number
            else data
        )
    # A word that became longer is new as a whole.
    went_on = data[max(data.rfind(b" ", reader.at, end), reader.at) :]
    return _with_size(_STRING, len(went_on), went_on)


def shorten(content: Json, room: int, depth: int = 0) -> bytes:
    """Return JSON with the latest part of some content that fits; empty if nothing fits.

    Members of an object take their `shares`; an array keeps its last items, and cuts
    only a single item; a string keeps its end.
    """
    text = dump(content)
    if len(text) <= room:
        return text
    if depth >= _MAX_DEPTH or room <= len('""'):
        return b""
    parts: list[bytes] = []
    if isinstance(content, str):
        end = content.encode(errors="replace")[len('""') - room :].decode(errors="ignore")
        while (excess := len(dump(end)) - room) > 0:  # most escaped characters take two bytes
            end = end[(excess + 1) // 2 :]
        return dump(end) if end else b""
    if isinstance(content, list):
        room_left = room - 1
        for item in reversed(content):
            part = dump(item)
            room_left -= len(part) + 1
            if room_left < 0:
                break
            parts.append(part)
        if content and not parts and (part := shorten(content[-1], room - 2, depth + 1)):
            parts.append(part)
        return b"[%s]" % b",".join(reversed(parts)) if parts else b""
    if isinstance(content, dict):
        sizes = [len(dump({key: item})) - 1 for key, item in content.items()]
        for (key, item), share in zip(content.items(), shares(sizes, room - 1), strict=True):
            name = dump(key) + b":"
            if part := shorten(item, share - len(name) - 1, depth + 1):
                parts.append(name + part)
        return b"{%s}" % b",".join(parts) if parts else b""
    return b""


def _new_parsed(parsed: object, before: object, depth: int) -> Any:
    if isinstance(parsed, dict) and isinstance(before, dict) and depth <= _MAX_COMPARED_DEPTH:
        return {
            key: _new_parsed(item, before[key], depth + 1) if key in before else item
            for key, item in parsed.items()
            if key not in before or before[key] != item
        }
    if isinstance(parsed, list) and isinstance(before, list):
        return parsed[len(before) :] if parsed[: len(before)] == before else parsed
    if isinstance(parsed, str) and isinstance(before, str) and parsed.startswith(before):
        return parsed[max(parsed.rfind(" ", 0, len(before)), 0) :]
    return parsed
