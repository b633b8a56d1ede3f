"""The differences between two states, channel by channel and inside their JSON views."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from ..limits import KIB, LIMITS, MIB
from ..model import Channel, DeltaHistory
from .escapes import Json, escapes_of
from .views import MAX_CHECKPOINT_TEXT, ValueView, ViewRoom, dump

MAX_TEXT = 4 * KIB  # bytes of JSON text of each side that a change carries

MAX_WALKED = 1 * MIB
"""Longest view, in bytes of text, that is compared inside; longer views are compared whole."""

_MAX_ANSWER = LIMITS.max_unary
_CHANGE_OVERHEAD = 32  # bytes that a change takes on the wire beyond its strings, at most

_Path = tuple[str | int, ...]
"""Keys and positions that lead to a place. Only the path of a difference becomes text."""

_Difference = tuple[_Path, str | None, str | None]
"""A path, and the text of each side; `None`, unlike null, if the side has no value there."""

_WALKED_ESCAPES = frozenset({"$type", "$value", "$args", "$fields"})
"""Keys of escapes that hold views of their own."""


class ChangeKind(IntEnum):
    """Kind of a difference. The contract defines the numbers."""

    ADDED = 1
    REMOVED = 2
    CHANGED = 3


@dataclass(frozen=True, slots=True)
class ValueChange:
    """One difference."""

    kind: ChangeKind
    channel: str
    path: str  # JSON Pointer (RFC 6901) inside the channel's view; empty: the whole view
    before: str | None  # JSON text, cut at `MAX_TEXT` bytes; `None` if added
    after: str | None  # JSON text of the other side, cut in the same way; `None` if removed


@dataclass(frozen=True, slots=True)
class Diff:
    """Differences by channel and path; `truncated`: more differences exist."""

    changes: tuple[ValueChange, ...]
    truncated: bool


@dataclass(frozen=True, slots=True)
class Side:
    """One of two compared states."""

    channels: Sequence[Channel]  # with content
    histories: Mapping[str, DeltaHistory]  # rebuild its delta channels that store no value


def diff(before: Side, after: Side, max_changes: int) -> Diff:
    """Compare two states.

    Channels are sorted by name, members by key, items by position. Channels with equal digests are
    skipped; all views together share the bound of one checkpoint.
    """
    changes: list[ValueChange] = []
    size = 0
    for change in _changes(before, after):
        strings = (change.channel, change.path, change.before or "", change.after or "")
        size += _CHANGE_OVERHEAD + sum(len(text.encode()) for text in strings)
        if len(changes) == max_changes or size > _MAX_ANSWER:
            return Diff(tuple(changes), truncated=True)
        changes.append(change)
    return Diff(tuple(changes), truncated=False)


def _changes(before: Side, after: Side) -> Iterator[ValueChange]:
    first = {channel.name: channel for channel in before.channels}
    second = {channel.name: channel for channel in after.channels}
    room = ViewRoom(MAX_CHECKPOINT_TEXT)
    for name in sorted({*first, *second, *before.histories, *after.histories}):
        before_channel, after_channel = first.get(name), second.get(name)
        histories = before.histories.get(name), after.histories.get(name)
        if histories == (None, None):
            for difference in _value_differences(before_channel, after_channel, room):
                yield _change(name, *difference)
            continue
        # Only the framework can compute values of delta channels, so seeds and writes are compared.
        before_digests, before_text = _show_rebuilt(before_channel, histories[0], room)
        after_digests, after_text = _show_rebuilt(after_channel, histories[1], room)
        if before_digests != after_digests:
            yield _change(name, (), before_text, after_text)


def _value_differences(
    first: Channel | None, second: Channel | None, room: ViewRoom
) -> Iterator[_Difference]:
    if first is not None and second is not None and first.digest == second.digest:
        return
    before, after = _show_channel(first, room), _show_channel(second, room)
    if before is None or after is None:
        if before is not after:
            yield (), _shown_text(before), _shown_text(after)
        return
    is_same = _are_equal(before.content, after.content)
    if not is_same and all(len(dump(view.content)) <= MAX_WALKED for view in (before, after)):
        yield from _differences_inside((), before.content, after.content)
    elif not is_same or not (before.complete and after.complete):
        # If the views are equal, parts outside the views differ.
        yield (), _text(before.content), _text(after.content)


def _show_channel(channel: Channel | None, room: ViewRoom) -> ValueView | None:
    return room.show(channel.value) if channel is not None and channel.value is not None else None


def _show_rebuilt(
    channel: Channel | None, history: DeltaHistory | None, room: ViewRoom
) -> tuple[tuple[bytes | None, ...], str | None]:
    """Return the digests of the values that rebuild a channel, and the channel's text."""
    if history is None:
        digest = channel.digest if channel is not None else None
        return (digest,), _shown_text(_show_channel(channel, room))
    seed = history.seed.digest if history.seed is not None else None
    if seed is None and not history.writes:
        return (None,), None
    digests = (seed, *(write.digest for write in history.writes))
    content: Json = {"$seed": seed.hex() if seed else None, "$writes": len(history.writes)}
    return digests, _text(content)


def _differences_inside(path: _Path, before: Json, after: Json) -> Iterator[_Difference]:
    """Yield the differences between two views."""
    if isinstance(before, list) and isinstance(after, list):
        yield from _inside_lists(path, before, after)
    elif isinstance(before, dict) and isinstance(after, dict) and _are_alike(before, after):
        for key in sorted(before.keys() | after.keys()):
            if key in before and key in after:
                yield from _differences_inside((*path, key), before[key], after[key])
            elif key in before:
                yield (*path, key), _text(before[key]), None
            else:
                yield (*path, key), None, _text(after[key])
    elif not _are_equal(before, after):
        yield path, _text(before), _text(after)


def _inside_lists(path: _Path, before: list[Json], after: list[Json]) -> Iterator[_Difference]:
    """Compare the items between the equal items at both ends, by position."""
    shorter = min(len(before), len(after))
    begin = 0
    while begin < shorter and _are_equal(before[begin], after[begin]):
        begin += 1
    tail = 0
    while tail < shorter - begin and _are_equal(before[-1 - tail], after[-1 - tail]):
        tail += 1
    end = shorter - tail
    for index in range(begin, end):
        yield from _differences_inside((*path, index), before[index], after[index])
    for index in range(end, len(before) - tail):
        yield (*path, index), _text(before[index]), None
    for index in range(end, len(after) - tail):
        yield (*path, index), None, _text(after[index])


def _are_alike(before: dict[str, Json], after: dict[str, Json]) -> bool:
    """Return whether both values are objects of the agent, or extensions of the same type."""
    escapes = escapes_of(before) | escapes_of(after)
    return escapes <= _WALKED_ESCAPES and before.get("$type") == after.get("$type")


def _are_equal(before: Json, after: Json) -> bool:
    """Return whether two views are equal as JSON, where `1`, `1.0` and `true` differ."""
    if type(before) is not type(after):
        return False
    if isinstance(before, list) and isinstance(after, list):
        return len(before) == len(after) and all(map(_are_equal, before, after))
    if isinstance(before, dict) and isinstance(after, dict):
        return before.keys() == after.keys() and all(
            _are_equal(value, after[key]) for key, value in before.items()
        )
    return before == after


def _change(name: str, path: _Path, before: str | None, after: str | None) -> ValueChange:
    kind = ChangeKind.CHANGED
    if before is None or after is None:
        kind = ChangeKind.ADDED if before is None else ChangeKind.REMOVED
    return ValueChange(kind, name, _pointer(path), before, after)


def _pointer(path: _Path) -> str:
    return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in path)


def _shown_text(shown: ValueView | None) -> str | None:
    return _text(shown.content) if shown is not None else None


def _text(content: Json) -> str:
    return dump(content)[:MAX_TEXT].decode(errors="ignore")
