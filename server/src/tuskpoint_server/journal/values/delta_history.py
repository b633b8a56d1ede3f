"""Delta channels: the ancestors that rebuild a channel, with their values and writes.

A delta channel stores a value only now and then. In between, its content is the last stored value
with the writes of the later checkpoints on the path applied. The rules are the rules of LangGraph's
`get_delta_channel_history` (langgraph/checkpoint/base). If ancestors of a checkpoint were removed,
its `delta_base` has their values and writes, and the ancestor at which the path continues.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import NamedTuple, TypeAlias

from sqlalchemy import Connection, select

from ...core.delta_bases import DeltaChannel, DeltaSeed, DeltaWrite, decode_delta_base
from ...core.model import (
    EVICTED,
    BlobLocation,
    Channel,
    CheckpointKey,
    DeltaHistory,
    Value,
    View,
    Write,
)
from ...core.state import decode_channels
from ..database.binding import binder_of
from ..database.pending_writes import StoredWrite
from ..database.thread_rows import (
    KNOWN,
    CachedCheckpoint,
    Place,
    ThreadRef,
    find_thread,
    greatest_id,
)
from ..sql.schema import checkpoints, writes
from ..sql.statements import LISTED, Statement, of_checkpoint, of_namespace, parameters_of
from . import contents, segment_refs
from .integrity import check_rows
from .load import check_latest, load

_NODE = Statement(select(*KNOWN).where(of_checkpoint(checkpoints)))
_WRITES = Statement(
    select(
        *(writes.c.checkpoint_id, writes.c.number, writes.c.mac),
        *(writes.c[name] for name in StoredWrite._fields[:-1]),
    )
    .where(of_namespace(writes), writes.c.checkpoint_id.in_(LISTED))
    .order_by(writes.c.task_path.desc(), writes.c.task_id.desc(), writes.c.idx.desc())
)
_OF_VALUE = ("number", "thread", "digest", "type", "size", "encoding", "data")
_VALUES = Statement(
    select(*(writes.c[name] for name in _OF_VALUE)).where(writes.c.number.in_(LISTED))
)


_of_delta = attrgetter(*DeltaWrite._fields)


def delta_write(stored: StoredWrite) -> DeltaWrite:
    """Return a stored write without its value."""
    return DeltaWrite(*_of_delta(stored))


ValueKey: TypeAlias = bytes | int
"""Key of a value: its digest, or the number of the row of the write with the value."""


class PathWrite(NamedTuple):
    """A write on the path, and the checkpoint with the write, pending or in its `delta_base`.

    `number`: number of the row in `writes`; `None`: the write is in the base, its value in
    `contents`.
    """

    holder: str
    write: DeltaWrite
    number: int | None

    @property
    def key(self) -> ValueKey:
        """Key of the write's value."""
        return self.write.digest if self.number is None else self.number


@dataclass(slots=True)
class DeltaPath:
    """The stored value and the later writes from which one channel of a checkpoint is rebuilt.

    `seed_of`: the checkpoint with the seed, in its state or its `delta_base`; `goes_on_at`: the
    checkpoint at which the walk was stopped, empty if the path is complete; `lacks`: the missing
    checkpoint at which the path ends.
    """

    seed: DeltaSeed | None = None
    seed_of: str = ""
    newest_first: list[PathWrite] = field(default_factory=list)
    goes_on_at: str = ""
    lacks: str = ""

    @property
    def writes(self) -> tuple[PathWrite, ...]:
        """The writes after the seed, oldest first."""
        return tuple(reversed(self.newest_first))


def delta_history(
    connection: Connection, tenant: str, key: CheckpointKey, channels: Sequence[str]
) -> tuple[DeltaHistory, ...]:
    """Return the history of each channel, in the order of `channels`.

    A history has neither seed nor writes if the checkpoint does not exist; an empty `checkpoint_id`
    means the latest checkpoint of the namespace. An evicted value is `EVICTED`, and `sources` names
    the segments with such values; a damaged value is a `DamagedValue`.

    Raises:
        Refusal: `JOURNAL_DAMAGED`.
    """
    thread = find_thread(connection, tenant, key.thread_id)
    if thread is None:
        return tuple(DeltaHistory(name, None, ()) for name in channels)
    if not key.checkpoint_id:
        latest = greatest_id(connection, thread.number, key.checkpoint_ns)
        check_latest(connection, thread, key, latest)
        key = replace(key, checkpoint_id=latest)
    paths = follow(connection, thread.ref, (key.checkpoint_ns, key.checkpoint_id), channels)
    if any(path.lacks for path in paths.values()):
        # The ancestor was never stored here, or its row was removed behind the server's back.
        check_rows(connection, thread)
    values = _values(connection, thread.family, paths.values())
    histories: list[DeltaHistory] = []
    for name in channels:
        path, seed = paths[name], None
        if path.seed is not None:
            value = values[path.seed.digest]
            seed = Channel(name, path.seed.version, path.seed.digest, path.seed.size, value)
        path_writes = tuple(
            Write(
                *(path_write.write.task_id, path_write.write.task_path, path_write.write.idx, name),
                *(values[path_write.key], path_write.write.digest),
            )
            for path_write in path.writes
        )
        sources = _sources(connection, tenant, thread.family, key, path, values)
        histories.append(DeltaHistory(name, seed, path_writes, sources))
    return tuple(histories)


def follow(
    connection: Connection,
    of: ThreadRef,
    place: Place,
    channels: Iterable[str],
    most: int | None = None,
    until: Collection[str] = (),
) -> dict[str, DeltaPath]:
    """Walk from a checkpoint to its ancestors until every channel has reached its start.

    A channel starts at a stored value, or at a checkpoint with a `delta_base` at which the channel
    ends. The checkpoint's own writes and values do not count. `most`: largest number of ancestors
    to read; `until`: IDs of checkpoints before which the walk ends.

    Raises:
        Refusal: `JOURNAL_DAMAGED`: the row of a checkpoint or of a write on the way was changed.
    """
    binder = binder_of(connection)
    paths = {name: DeltaPath() for name in channels}
    active, start, at = set(paths), place[1], place[1]
    passed: dict[str, tuple[DeltaChannel, ...]] = {}
    asking: dict[str, frozenset[str]] = {}
    while active and at not in passed and (at == start or at not in until):
        row = _NODE.run(connection, **parameters_of(of.number, place[0], at)).fetchone()
        if row is None or (most is not None and len(passed) > most):
            if row is None and at and at != start:
                for name in active:
                    paths[name].lacks = at
            break
        node = CachedCheckpoint(*row)
        node.check(binder, of, (place[0], at))
        if at != start:  # the checkpoint's own values and writes do not count
            asking[at] = frozenset(active)
            for channel in decode_channels(node.state):
                if channel.digest is not None and channel.name in active:
                    seed = DeltaSeed(channel.version, channel.digest, channel.size)
                    paths[channel.name].seed, paths[channel.name].seed_of = seed, at
                    active.discard(channel.name)
        base = decode_delta_base(node.delta_base, at) if node.delta_base else ()
        passed[at] = tuple(channel for channel in base if channel.name in active)
        for of_base in passed[at]:
            if not of_base.ancestor_id:
                path = paths[of_base.name]
                path.seed, path.seed_of = of_base.seed, at
                active.discard(of_base.name)
        at = path_parent(node.parent_id, base)
    pending: dict[str, list[tuple[str, PathWrite]]] = defaultdict(list)
    parameters = {"of_thread": of.number, "of_ns": place[0]}
    for holder, number, mac, *columns in _WRITES.run_listed(connection, asking, **parameters):
        stored_write = StoredWrite._make([*columns, None])
        # Also checks writes of other channels: an edit may have moved a write to another channel.
        stored_write.check(binder, of.thread_id, of.number, (place[0], holder), mac)
        if stored_write.channel in asking[holder]:
            path_write = PathWrite(holder, delta_write(stored_write), number)
            pending[holder].append((stored_write.channel, path_write))
    # Newest first: writes in a base are older than pending ones.
    for holder, based in passed.items():
        for name, write in pending[holder]:
            paths[name].newest_first.append(write)
        for of_base in based:
            base_writes = (PathWrite(holder, write, None) for write in reversed(of_base.writes))
            paths[of_base.name].newest_first.extend(base_writes)
    if passed and at in until and at not in passed:
        for name in active:
            paths[name].goes_on_at = at
    return paths


def path_parent(parent_id: str, base: Sequence[DeltaChannel]) -> str:
    """Return the next checkpoint of the path: the parent, or the ancestor above removed ones."""
    return next((channel.ancestor_id for channel in base if channel.ancestor_id), parent_id)


def _values(
    connection: Connection, family: int, paths: Collection[DeltaPath]
) -> Mapping[ValueKey, Value]:
    keys: set[ValueKey] = {write.key for path in paths for write in path.newest_first}
    keys |= {path.seed.digest for path in paths if path.seed is not None}
    values = read_values(connection, family, keys)
    for key in keys - values.keys():
        # values of writes need no check: their rows were read with their numbers
        if isinstance(key, bytes):
            values[key] = contents.missing_value(family, key)
    return values


def read_values(
    connection: Connection, family: int, keys: Collection[ValueKey]
) -> dict[ValueKey, Value]:
    """Return values of the family by digest, and values of writes by the number of their row.

    Each value is as `contents.read` returns it.
    """
    digests = {key for key in keys if isinstance(key, bytes)}
    numbers = sorted(key for key in keys if isinstance(key, int))
    values: dict[ValueKey, Value] = {}
    values.update(contents.read(connection, family, digests).items())
    for number, *row in _VALUES.run_listed(connection, numbers):
        values[number] = contents.stored_value(*row)
    return values


def _sources(
    connection: Connection,
    tenant: str,
    family: int,
    key: CheckpointKey,
    path: DeltaPath,
    values: Mapping[ValueKey, Value],
) -> tuple[BlobLocation, ...]:
    """Return the segments with the evicted values of a path."""
    lacking = (path_write for path_write in path.newest_first if values[path_write.key] is EVICTED)
    evicted = {(path_write.holder, path_write.write.digest) for path_write in lacking}
    if path.seed is not None and values[path.seed.digest] is EVICTED:
        evicted.add((path.seed_of, path.seed.digest))
    places: dict[BlobLocation, None] = {}
    for holder in sorted({holder for holder, _ in evicted}):
        checkpoint = load(connection, tenant, replace(key, checkpoint_id=holder), View.ENTRY)
        places |= dict.fromkeys(checkpoint.entry.segments if checkpoint is not None else ())
    digests = sorted({digest for _, digest in evicted})
    return (*(places | dict.fromkeys(segment_refs.of_values(connection, tenant, family, digests))),)
