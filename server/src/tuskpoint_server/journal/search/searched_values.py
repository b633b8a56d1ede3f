"""The values of checkpoints that search looks at: what is new in them, and not too much.

Of a checkpoint that is its plan, which may turn out to say nothing, and what the state of its
parent did not hold: that was indexed with the parent, or with one before it. LangGraph's own
channels would take room from what says something. Of what is long the latest part is taken.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, bindparam, select

from tuskpoint.v1 import checkpoint_pb2

from ...domain.json_view import MAX_ENCODED, joined, latest_part, new_part, shares
from ...domain.limits import KIB
from ...domain.model import EVICTED, Value
from ...domain.searchable import PLAN, is_internal
from ...domain.values import DamagedValueError
from ..checkpoints import contents
from ..checkpoints.delta_history import DeltaPath, follow
from ..database.schema import writes
from ..database.statements import Statement
from .records import Due

MAX_VALUES_BYTES = 32 * KIB
"""Most bytes of values that are looked at of a checkpoint. Of its text
`LIMITS.max_search_text` are indexed: to parse more costs more than it brings."""

MAX_VALUES = 256
"""Most values that are read of a checkpoint, for the same reason."""

MAX_READ_BYTES = MAX_ENCODED
"""Most bytes of values that are read of a checkpoint to find their latest part."""

ROW = ("summary", "state", "delta_channels", "delta_base", "parent_id")
"""Columns of a checkpoint that `SearchedValues.add` takes, its parent's state after them."""

_NO_NAMES = b"[]"
_WRITE = Statement(
    select(writes.c.type, writes.c.size, writes.c.encoding, writes.c.data).where(
        writes.c.number == bindparam("of_number")
    )
)


@dataclass(slots=True)
class _Channel:
    """A channel of which there is something new.

    Attributes:
        name: Its name.
        digest: Of its value; empty if it is rebuilt from writes.
        size: Bytes that are looked at.
        before: Digest of the parent's value; empty if there is none.
        delta: Writes that rebuild it.
    """

    name: str
    digest: bytes
    size: int
    before: bytes = b""
    delta: DeltaPath | None = None


@dataclass(slots=True)
class _Wanted:
    """A checkpoint with the channels to be read of it; `left_out`: there are more."""

    due: Due
    family: int
    channels: Sequence[_Channel]
    left_out: bool


class SearchedValues:
    """Reads the values of many checkpoints together.

    Args:
        connection: In a transaction.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._wanted: list[_Wanted] = []

    def add(self, due: Due, family: int, row: Sequence[Any]) -> None:
        """Note a checkpoint whose values are to be read.

        Args:
            due: The checkpoint, without channels.
            family: Family of its thread.
            row: `ROW`, then the state of its parent or `None`.
        """
        _, state, delta_channels, _, _, before = row
        known = _channels(before) if before is not None else {}
        stored = _channels(state)
        found = [
            _Channel(name, digest, size, _readable(known.get(name)))
            for name, (digest, size) in stored.items()
            if name == PLAN or name not in known or known[name][0] != digest
        ]
        if delta_channels != _NO_NAMES:
            names = [name for name in json.loads(delta_channels) if name not in stored]
            found += self._rebuilt(due, names, is_root=before is None)
        found.sort(key=lambda one: (one.name != PLAN, one.name))
        channels, room = list[_Channel](), MAX_READ_BYTES
        for channel in found:
            if len(channels) == MAX_VALUES or channel.size > room:
                continue
            channels.append(channel)
            room -= channel.size
        self._wanted.append(_Wanted(due, family, channels, len(channels) < len(found)))

    def due(self) -> list[Due]:
        """Return the checkpoints with their values, in the order in which they came."""
        digests: dict[int, set[bytes]] = {}
        for one in self._wanted:
            if one.channels:
                digests.setdefault(one.family, set()).update(_digests(one.channels))
        values = {
            family: _read(self._connection, family, wanted) for family, wanted in digests.items()
        }
        return [self._due(one, values.get(one.family, {})) for one in self._wanted]

    def _due(self, wanted: _Wanted, values: Mapping[bytes, Value]) -> Due:
        found = [(one.name, *self._new(one, values)) for one in wanted.channels]
        said = [(name, value) for name, value, _ in found if value is not None]
        sizes = [len(value.data) for _, value in said]
        parts = [
            (name, value, latest_part(value, share))
            for (name, value), share in zip(said, shares(sizes, MAX_VALUES_BYTES), strict=True)
        ]
        return replace(
            wanted.due,
            channels=tuple((name, part) for name, _, part in parts if part is not None),
            truncated=wanted.left_out
            or not all(whole for *_, whole in found)
            or any(part is not value for _, value, part in parts),
        )

    def _new(self, channel: _Channel, values: Mapping[bytes, Value]) -> tuple[Value | None, bool]:
        """Return what is new in a channel's value, and whether it is all of it."""
        if channel.delta is not None:
            return self._delta_value(channel.delta, values)
        value = values.get(channel.digest, EVICTED)
        if value is EVICTED:
            return None, False
        before = values.get(channel.before, EVICTED)
        if before is EVICTED or channel.name == PLAN:
            return value, True
        return new_part(value, before), True

    # --- delta channels ----------------------------------------------------------------

    def _rebuilt(self, due: Due, names: Sequence[str], *, is_root: bool) -> Iterator[_Channel]:
        """Yield the delta channels that the checkpoint does not store itself.

        What is new of one is what was written at the parent. Without a parent that is all
        that rebuilding begins with.
        """
        place = (due.key.checkpoint_ns, due.key.checkpoint_id)
        paths = follow(self._connection, due.thread, place, names, most=1)
        for name, path in paths.items():
            if not is_root:
                path.seed = None
            size = path.seed.size if path.seed is not None else 0
            size += sum(one.write.size for one in path.newest_first)
            if path.newest_first or path.seed is not None:
                yield _Channel(name, b"", min(size, MAX_VALUES_BYTES), delta=path)

    def _delta_value(
        self, path: DeltaPath, values: Mapping[bytes, Value]
    ) -> tuple[Value | None, bool]:
        """Return the latest writes of a channel and, if there is room, what they began with."""
        latest: list[Value] = []
        room = MAX_VALUES_BYTES
        whole = True
        for one in path.newest_first:
            if one.write.size > room:
                whole = False
                break
            value = (
                self._written(one.number)
                if one.number is not None
                else values.get(one.write.digest, EVICTED)
            )
            if value is EVICTED:
                whole = False
                continue
            latest.append(value)
            room -= one.write.size
        if whole and path.seed is not None:
            stored = values.get(path.seed.digest, EVICTED)
            seed = latest_part(stored, room) if stored is not EVICTED else None
            whole = seed is stored
            latest += [seed] if seed is not None else []
        joint, all_joined = joined(latest[::-1])
        return joint, whole and all_joined

    def _written(self, number: int) -> Value:
        row = _WRITE.run(self._connection, of_number=number).fetchone()
        try:
            return contents.stored_value(*row) if row is not None else EVICTED
        except DamagedValueError:
            return EVICTED


def _channels(state: bytes) -> dict[str, tuple[bytes, int]]:
    """Return digest and size of the values of a state's channels, if they are the agent's own."""
    return {
        channel.name: (channel.digest, channel.size_bytes)
        for channel in checkpoint_pb2.CheckpointState.FromString(state).channels
        if channel.digest and not is_internal(channel.name)
    }


def _readable(known: tuple[bytes, int] | None) -> bytes:
    """Return the digest of a parent's value; empty if there is none, or it is too long."""
    return known[0] if known is not None and known[1] <= MAX_READ_BYTES else b""


def _digests(channels: Sequence[_Channel]) -> Iterator[bytes]:
    """Yield the values of a family that channels take."""
    for channel in channels:
        if channel.delta is None:
            yield channel.digest
            if channel.before:
                yield channel.before
            continue
        seed, room = channel.delta.seed, MAX_VALUES_BYTES
        for one in channel.delta.newest_first:
            room -= one.write.size
            if room < 0:
                break
            if one.number is None:
                yield one.write.digest
        if seed is not None and 0 <= seed.size <= MAX_READ_BYTES:
            yield seed.digest


def _read(connection: Connection, family: int, digests: set[bytes]) -> Mapping[bytes, Value]:
    """Return values; of those that are damaged the others do not go without."""
    try:
        return contents.read(connection, family, digests)
    except DamagedValueError:
        found: dict[bytes, Value] = {}
        for digest in digests:
            try:
                found.update(contents.read(connection, family, (digest,)))
            except DamagedValueError:
                continue
        return found
