"""What differs between two states, channel by channel and inside their JSON views."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from ..limits import KIB, LIMITS, MIB
from ..model import Channel, DeltaHistory
from . import MAX_CHECKPOINT_TEXT, Json, Room, Shown, dump, escapes_of

MAX_TEXT = 4 * KIB
"""Bytes of JSON text of each side that a change carries."""

MAX_WALKED = 1 * MIB
"""Longest view, in bytes of text, that is compared inside; longer ones are compared whole."""

_MAX_ANSWER = LIMITS.max_unary
_CHANGE_OVERHEAD = 32
"""Bytes that a change takes on the wire beyond its strings, at most."""

_Path = tuple[str | int, ...]
"""Keys and positions that lead to a place. A text is made of it where something differs: keys
may be long, and places many."""

_WALKED_ESCAPES = frozenset({"$type", "$value", "$args", "$fields"})
"""Keys of escapes that hold views of their own."""


class ChangeKind(IntEnum):
    """What happened to something. Numbers are those of the contract."""

    ADDED = 1
    REMOVED = 2
    CHANGED = 3


@dataclass(frozen=True, slots=True)
class Change:
    """One difference."""

    kind: ChangeKind  # what happened
    channel: str
    path: str  # JSON Pointer (RFC 6901) inside the channel's view; empty is all of it
    before: str | None  # JSON text of the one side, cut at `MAX_TEXT` bytes; `None` if added
    after: str | None  # JSON text of the other side, cut at `MAX_TEXT` bytes; `None` if removed


@dataclass(frozen=True, slots=True)
class Diff:
    """Differences by channel and path; `truncated`: there are more."""

    changes: tuple[Change, ...]
    truncated: bool


@dataclass(frozen=True, slots=True)
class Side:
    """One of two states that are compared."""

    channels: Sequence[Channel]  # its channels, with content
    # what rebuilds its delta channels that store no value, by name
    histories: Mapping[str, DeltaHistory]


def diff(before: Side, after: Side, max_changes: int) -> Diff:
    """Compare two states.

    Channels come by name and what is inside them in the order of the view: members by key,
    items by position. Equal digests are equal content and are not looked into. What is
    looked into takes room for the text of one checkpoint, no more.

    Args:
        before: The one side.
        after: The other side.
        max_changes: Most changes to return.
    """
    found: list[Change] = []
    size = 0
    for change in _changes(before, after):
        size += _size(change)
        if len(found) == max_changes or size > _MAX_ANSWER:
            return Diff(tuple(found), truncated=True)
        found.append(change)
    return Diff(tuple(found), truncated=False)


def _changes(before: Side, after: Side) -> Iterator[Change]:
    first = {channel.name: channel for channel in before.channels}
    second = {channel.name: channel for channel in after.channels}
    room = Room(MAX_CHECKPOINT_TEXT)
    names = {*first, *second, *before.histories, *after.histories}
    for name in sorted(names):
        stored = first.get(name), second.get(name)
        histories = before.histories.get(name), after.histories.get(name)
        if histories == (None, None):
            yield from _value_changes(name, *stored, room)
        else:
            yield from _delta_changes(name, stored, histories, room)


# --- channels that hold values -------------------------------------------------------------


def _value_changes(
    name: str, first: Channel | None, second: Channel | None, room: Room
) -> Iterator[Change]:
    if first is not None and second is not None and first.digest == second.digest:
        return
    before, after = _shown(first, room), _shown(second, room)
    if before is not None and after is not None:
        yield from _content_changes(name, before, after)
    elif before is not after:
        yield _change(name, (), _content(before), _content(after))


def _content_changes(name: str, before: Shown, after: Shown) -> Iterator[Change]:
    compare = _inside if _is_short(before) and _is_short(after) else _whole
    differ = False
    for change in compare(name, (), before.content, after.content):
        differ = True
        yield change
    if not differ and not (before.complete and after.complete):
        # What the views leave out differs.
        yield _change(name, (), before.content, after.content)


def _is_short(shown: Shown) -> bool:
    return len(dump(shown.content)) <= MAX_WALKED


def _whole(name: str, path: _Path, before: Json, after: Json) -> Iterator[Change]:
    if not _same(before, after):
        yield _change(name, path, before, after)


def _inside(name: str, path: _Path, before: Json, after: Json) -> Iterator[Change]:
    """Yield what differs between two views."""
    if isinstance(before, list) and isinstance(after, list):
        yield from _inside_lists(name, path, before, after)
    elif isinstance(before, dict) and isinstance(after, dict) and _are_alike(before, after):
        yield from _inside_objects(name, path, before, after)
    elif not _same(before, after):
        yield _change(name, path, before, after)


def _inside_objects(
    name: str, path: _Path, before: dict[str, Json], after: dict[str, Json]
) -> Iterator[Change]:
    for key in sorted(before.keys() | after.keys()):
        inner = (*path, key)
        if key in before and key in after:
            yield from _inside(name, inner, before[key], after[key])
        else:
            yield _change(name, inner, before.get(key, _ABSENT), after.get(key, _ABSENT))


def _inside_lists(
    name: str, path: _Path, before: list[Json], after: list[Json]
) -> Iterator[Change]:
    """Compare what lies between the equal items at both ends, by position."""
    shorter = min(len(before), len(after))
    begin = 0
    while begin < shorter and _same(before[begin], after[begin]):
        begin += 1
    tail = 0
    while tail < shorter - begin and _same(before[-1 - tail], after[-1 - tail]):
        tail += 1
    both = shorter - tail
    for index in range(begin, both):
        yield from _inside(name, (*path, index), before[index], after[index])
    for index in range(both, len(before) - tail):
        yield _change(name, (*path, index), before[index], _ABSENT)
    for index in range(both, len(after) - tail):
        yield _change(name, (*path, index), _ABSENT, after[index])


def _are_alike(before: dict[str, Json], after: dict[str, Json]) -> bool:
    """Tell whether both are objects of the agent, or extensions of the same type."""
    escapes = escapes_of(before) | escapes_of(after)
    return escapes <= _WALKED_ESCAPES and before.get("$type") == after.get("$type")


def _same(before: Json, after: Json) -> bool:
    """Tell whether two views are equal as JSON, where `1`, `1.0` and `true` differ."""
    if type(before) is not type(after):
        return False
    if isinstance(before, list) and isinstance(after, list):
        return len(before) == len(after) and all(map(_same, before, after))
    if isinstance(before, dict) and isinstance(after, dict):
        return before.keys() == after.keys() and all(
            _same(value, after[key]) for key, value in before.items()
        )
    return before == after


# --- channels that are rebuilt from writes -------------------------------------------------


def _delta_changes(
    name: str,
    stored: tuple[Channel | None, Channel | None],
    histories: tuple[DeltaHistory | None, DeltaHistory | None],
    room: Room,
) -> Iterator[Change]:
    """Compare what a channel is rebuilt from; what comes of it only its framework knows."""
    before = _Rebuilt.of(stored[0], histories[0], room)
    after = _Rebuilt.of(stored[1], histories[1], room)
    if before.digests != after.digests:
        yield _change(name, (), before.shown, after.shown)


@dataclass(frozen=True, slots=True)
class _Rebuilt:
    """What one side of a delta channel is rebuilt from."""

    digests: tuple[bytes | None, ...]  # digest of the stored value, then those of the writes since
    # a stored value as it is; else the digest of the one before, and how many writes came since
    shown: Json | _Absent

    @classmethod
    def of(cls, channel: Channel | None, history: DeltaHistory | None, room: Room) -> _Rebuilt:
        if history is None:
            digest = channel.digest if channel is not None else None
            return cls((digest,), _content(_shown(channel, room)))
        seed = history.seed.digest if history.seed is not None else None
        digests = (seed, *(write.digest for write in history.writes))
        if digests == (None,):
            return cls(digests, _ABSENT)
        shown: Json = {
            "$seed": seed.hex() if seed is not None else None,
            "$writes": len(history.writes),
        }
        return cls(digests, shown)


# --- changes -------------------------------------------------------------------------------


def _shown(channel: Channel | None, room: Room) -> Shown | None:
    if channel is None or channel.value is None:
        return None
    return room.show(channel.value)


def _content(shown: Shown | None) -> Json | _Absent:
    return shown.content if shown is not None else _ABSENT


class _Absent:
    """Stands for what a side lacks, which is not the same as null."""


_ABSENT = _Absent()


def _change(name: str, path: _Path, before: Json | _Absent, after: Json | _Absent) -> Change:
    kind = ChangeKind.CHANGED
    if isinstance(before, _Absent):
        kind = ChangeKind.ADDED
    elif isinstance(after, _Absent):
        kind = ChangeKind.REMOVED
    return Change(kind, name, _pointer(path), _text(before), _text(after))


def _pointer(path: _Path) -> str:
    return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in path)


def _text(content: Json | _Absent) -> str | None:
    if isinstance(content, _Absent):
        return None
    return dump(content)[:MAX_TEXT].decode(errors="ignore")


def _size(change: Change) -> int:
    strings = (change.channel, change.path, change.before or "", change.after or "")
    return _CHANGE_OVERHEAD + sum(len(text.encode()) for text in strings)
