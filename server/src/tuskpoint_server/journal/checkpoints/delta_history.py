"""Delta channels: which ancestors rebuild them, and what those hold.

A delta channel stores a value only now and then; between two stored values its content
is the older value with the writes of the checkpoints on the path applied. The rules are
those of LangGraph's `get_delta_channel_history` (langgraph/checkpoint/base). A checkpoint
whose ancestors were removed holds what they gave in its `delta_base`, which says where the
path goes on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, func, select

from ...domain.formats.segments import DeltaChannel, DeltaSeed, DeltaWrite, decode_delta_base
from ...domain.model import (
    EVICTED,
    BlobLocation,
    Channel,
    CheckpointKey,
    DeltaHistory,
    Value,
    View,
    Write,
)
from ...domain.state import decode_channels
from ...domain.values import DamagedValueError
from ..database.logs import Place
from ..database.schema import checkpoints, threads, writes
from ..database.statements import LISTED, Statement, of_checkpoint, of_namespace, parameters_of
from . import contents, located
from .load import load

BLOCK = 256
"""Ancestors that are read at once."""

_FIRST_BLOCK = 16

_THREAD = Statement(
    select(threads.c.number, threads.c.family).where(
        threads.c.tenant == bindparam("of_tenant"), threads.c.thread_id == bindparam("of_thread_id")
    )
)
_LATEST = Statement(select(func.max(checkpoints.c.checkpoint_id)).where(of_namespace(checkpoints)))
_NODE = (checkpoints.c.parent_id, checkpoints.c.state, checkpoints.c.delta_base)
_TARGET = Statement(select(*_NODE).where(of_checkpoint(checkpoints)))
_BLOCK = Statement(
    select(checkpoints.c.checkpoint_id, *_NODE)
    .where(of_namespace(checkpoints), checkpoints.c.checkpoint_id <= bindparam("of_id"))
    .order_by(checkpoints.c.checkpoint_id.desc())
    .limit(bindparam("max_rows"))
)
_WRITES = Statement(
    select(
        writes.c.checkpoint_id,
        writes.c.channel,
        writes.c.number,
        *(writes.c[name] for name in DeltaWrite._fields),
    )
    .where(of_namespace(writes), writes.c.checkpoint_id.in_(LISTED))
    .order_by(writes.c.task_path.desc(), writes.c.task_id.desc(), writes.c.idx.desc())
)
_VALUES = Statement(
    select(writes.c.number, writes.c.type, writes.c.size, writes.c.encoding, writes.c.data).where(
        writes.c.number.in_(LISTED)
    )
)


class PathWrite(NamedTuple):
    """A write on the path, and the checkpoint that holds it, pending or in its `delta_base`.

    `number`: of its row in `writes`; `None`: it is in the base, its value in `contents`.
    """

    holder: str
    write: DeltaWrite
    number: int | None


@dataclass(slots=True)
class DeltaPath:
    """What one channel of a checkpoint is rebuilt from: a stored value, and the writes after it.

    `seed_of`: the checkpoint that holds the seed, in its state or its `delta_base`; `goes_on_at`:
    the one before which the path was to end; empty: it has begun.
    """

    seed: DeltaSeed | None = None
    seed_of: str = ""
    newest_first: list[PathWrite] = field(default_factory=list)
    goes_on_at: str = ""

    @property
    def writes(self) -> tuple[PathWrite, ...]:
        """The writes after the seed, oldest first."""
        return tuple(reversed(self.newest_first))


def delta_history(
    connection: Connection, tenant: str, key: CheckpointKey, channels: Sequence[str]
) -> tuple[DeltaHistory, ...]:
    """Return the history of each channel, in the order asked.

    It has neither seed nor writes if the checkpoint does not exist; an empty `checkpoint_id`
    means the latest of the namespace. Where a value was evicted stands `EVICTED`, and
    `sources` has the segments that hold it.
    """
    found = _THREAD.run(connection, of_tenant=tenant, of_thread_id=key.thread_id).fetchone()
    if found is None:
        return tuple(DeltaHistory(name, None, ()) for name in channels)
    thread, family = found
    if not key.checkpoint_id:
        latest = _LATEST.run(connection, of_thread=thread, of_ns=key.checkpoint_ns).fetchone()
        key = replace(key, checkpoint_id=(latest[0] if latest else None) or "")
    paths = follow(connection, thread, (key.checkpoint_ns, key.checkpoint_id), channels)
    values = _values(connection, family, paths.values())
    evicted: dict[str, set[bytes]] = defaultdict(set)
    for path in paths.values():
        for holder, digest in _evicted(path, values):
            evicted[holder].add(digest)
    sources: dict[str, list[BlobLocation]] = {}
    for holder, digests in evicted.items():
        held = load(connection, tenant, replace(key, checkpoint_id=holder), View.ENTRY)
        sources[holder] = list(held.entry.segments) if held is not None else []
        if held is not None:
            sources[holder] += located.of_values(connection, tenant, family, sorted(digests))
    return tuple(_history(name, paths[name], values, sources) for name in channels)


# --- following the path ------------------------------------------------------------------


def follow(
    connection: Connection,
    thread: int,
    place: Place,
    channels: Iterable[str],
    most: int | None = None,
    until: Collection[str] = (),
) -> dict[str, DeltaPath]:
    """Walk from a checkpoint to its ancestors until every channel has met its beginning.

    That is a stored value, or a checkpoint with a `delta_base` at which the channel ends.

    Args:
        connection: In a transaction.
        thread: Number of the thread.
        place: The checkpoint; its own writes and values do not count.
        channels: Names of channels.
        most: Ancestors to look at; `None`: as many as it takes.
        until: IDs of checkpoints before which the walk ends.
    """
    paths = {name: DeltaPath() for name in channels}
    row = _TARGET.run(connection, **parameters_of(thread, *place)).fetchone() if paths else None
    if row is None:
        return paths
    active = set(paths)
    # It is not its own ancestor: its state does not count.
    parent_id, step = _step(place[1], row[0], None, row[2], active, paths)
    steps, seen = [step], {place[1]}
    blocks = _Blocks(connection, thread, place[0])
    while active and parent_id not in until and parent_id not in seen:
        row = blocks.get(parent_id)
        if row is None or (most is not None and len(seen) > most):
            break
        seen.add(parent_id)
        parent_id, step = _step(parent_id, *row, active, paths)
        steps.append(step)
        if len(steps) == BLOCK:
            _add_writes(connection, thread, place[0], steps, paths)
            steps = []
    _add_writes(connection, thread, place[0], steps, paths)
    if parent_id in until and parent_id not in seen:
        for name in active:
            paths[name].goes_on_at = parent_id
    return paths


def path_parent(parent_id: str, base: Sequence[DeltaChannel]) -> str:
    """Return where the path of a checkpoint goes on: at its parent, or past removed ones."""
    return next((channel.ancestor_id for channel in base if channel.ancestor_id), parent_id)


class _Step(NamedTuple):
    """A checkpoint on the path: of which channels its pending writes count, and its base's.

    Those in the base come before the pending ones.
    """

    checkpoint_id: str
    wanted: frozenset[str]
    base: tuple[DeltaChannel, ...]


def _step(
    checkpoint_id: str,
    parent_id: str,
    state: bytes | None,
    stored_base: bytes | None,
    active: set[str],
    paths: Mapping[str, DeltaPath],
) -> tuple[str, _Step]:
    """Take the channels that begin at a checkpoint from `active`; return where the path goes on."""
    wanted = frozenset(active) if state is not None else frozenset()
    for channel in decode_channels(state or b""):
        if channel.digest is not None and channel.name in active:
            path = paths[channel.name]
            path.seed = DeltaSeed(channel.version, channel.digest, channel.size)
            path.seed_of = checkpoint_id
            active.discard(channel.name)
    base = decode_delta_base(stored_base, checkpoint_id) if stored_base else ()
    counting = tuple(channel for channel in base if channel.name in active)
    for one in counting:
        if not one.ancestor_id:
            paths[one.name].seed, paths[one.name].seed_of = one.seed, checkpoint_id
            active.discard(one.name)
    return path_parent(parent_id, base), _Step(checkpoint_id, wanted, counting)


class _Blocks:
    """Parent, state and base of the checkpoints of a namespace.

    IDs mostly fall along a path, so each read takes the next ones below.
    """

    def __init__(self, connection: Connection, thread: int, checkpoint_ns: str) -> None:
        self._connection = connection
        self._namespace = (thread, checkpoint_ns)
        self._size = _FIRST_BLOCK
        self._block: dict[str, tuple[str, bytes, bytes | None]] = {}

    def get(self, checkpoint_id: str) -> tuple[str, bytes, bytes | None] | None:
        if checkpoint_id and checkpoint_id not in self._block:
            of = parameters_of(*self._namespace, checkpoint_id)
            rows = _BLOCK.run(self._connection, **of, max_rows=min(self._size, BLOCK)).fetchall()
            self._size *= 2
            self._block = {row[0]: row[1:] for row in rows}
        return self._block.get(checkpoint_id)


def _add_writes(
    connection: Connection,
    thread: int,
    checkpoint_ns: str,
    steps: Sequence[_Step],
    paths: Mapping[str, DeltaPath],
) -> None:
    """Add the writes of a stretch of the path, given nearest first, to the channels' paths."""
    asking = {one.checkpoint_id: one.wanted for one in steps if one.wanted}
    pending: dict[str, list[tuple[str, PathWrite]]] = defaultdict(list)
    of = {"of_thread": thread, "of_ns": checkpoint_ns}
    for holder, channel, number, *columns in _WRITES.run_listed(connection, asking, **of):
        if channel in asking[holder]:
            pending[holder].append((channel, PathWrite(holder, DeltaWrite(*columns), number)))
    for step in steps:
        for channel, write in pending[step.checkpoint_id]:
            paths[channel].newest_first.append(write)
        for one in step.base:
            based = (PathWrite(step.checkpoint_id, write, None) for write in reversed(one.writes))
            paths[one.name].newest_first.extend(based)


# --- values ------------------------------------------------------------------------------

_ValuesByKey = Mapping[Any, Value]
"""Values of writes by the number of their row, and of the family by digest."""


def _values(connection: Connection, family: int, paths: Collection[DeltaPath]) -> _ValuesByKey:
    wanted = [one for path in paths for one in path.newest_first]
    numbers = {one.number for one in wanted if one.number is not None}
    digests = {one.write.digest for one in wanted if one.number is None}
    digests |= {path.seed.digest for path in paths if path.seed is not None}
    found: dict[Any, Value] = {**contents.read(connection, family, digests)}
    for digest in digests - found.keys():
        raise DamagedValueError(f"value {digest.hex()}: a delta channel's, is not stored")
    for number, *row in _VALUES.run_listed(connection, sorted(numbers)):
        found[number] = contents.stored_value(*row)
    return found


def _of(write: PathWrite, values: _ValuesByKey) -> Value:
    return values[write.write.digest if write.number is None else write.number]


def _evicted(path: DeltaPath, values: _ValuesByKey) -> list[tuple[str, bytes]]:
    """Return holder and digest of what was evicted of a path."""
    found = [
        (one.holder, one.write.digest) for one in path.newest_first if _of(one, values) is EVICTED
    ]
    if path.seed is not None and values[path.seed.digest] is EVICTED:
        found.append((path.seed_of, path.seed.digest))
    return found


def _history(
    name: str, path: DeltaPath, values: _ValuesByKey, sources: Mapping[str, Sequence[BlobLocation]]
) -> DeltaHistory:
    seed, begun = path.seed, None
    if seed is not None:
        begun = Channel(name, seed.version, seed.digest, seed.size, values[seed.digest])
    written: list[Write] = []
    for stored in path.writes:
        one, value = stored.write, _of(stored, values)
        written.append(Write(one.task_id, one.task_path, one.idx, name, value, one.digest))
    holders = sorted({holder for holder, _ in _evicted(path, values)})
    places = dict.fromkeys(place for holder in holders for place in sources[holder])
    return DeltaHistory(name, begun, tuple(written), tuple(places))
