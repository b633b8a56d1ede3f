"""Delta channels: which ancestors rebuild them, and what those hold.

A delta channel stores a value only now and then; between two stored values its content
is the older value with the writes of the checkpoints on the path applied. The rules are
those of LangGraph's `get_delta_channel_history` (langgraph/checkpoint/base). A checkpoint
whose ancestors were removed holds what they gave in its `delta_base`, which says where the
path goes on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import NamedTuple

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
from ..database.statements import Statement, in_lists, of_checkpoint, of_namespace, parameters_of
from . import located
from .contents import read, stored_value
from .load import load

_WRITE = tuple(writes.c[one.name] for one in fields(DeltaWrite))
_NEWEST_FIRST = (writes.c.task_path.desc(), writes.c.task_id.desc(), writes.c.idx.desc())

BLOCK = 256
"""Ancestors that are read at once."""

_FIRST_BLOCK = 16

_THREAD = Statement(
    select(threads.c.number, threads.c.family).where(
        threads.c.tenant == bindparam("of_tenant"), threads.c.thread_id == bindparam("of_thread_id")
    )
)
_LATEST = Statement(select(func.max(checkpoints.c.checkpoint_id)).where(of_namespace(checkpoints)))
_TARGET = Statement(
    select(checkpoints.c.parent_id, checkpoints.c.delta_base).where(of_checkpoint(checkpoints))
)
_BLOCK = Statement(
    select(
        checkpoints.c.checkpoint_id,
        checkpoints.c.parent_id,
        checkpoints.c.state,
        checkpoints.c.delta_base,
    )
    .where(of_namespace(checkpoints), checkpoints.c.checkpoint_id <= bindparam("of_id"))
    .order_by(checkpoints.c.checkpoint_id.desc())
    .limit(bindparam("max_rows"))
)


class PathWrite(NamedTuple):
    """A write on the path to a checkpoint.

    Attributes:
        holder: Checkpoint that holds it, as a pending write or in its `delta_base`.
        write: The write.
        number: Of its row in `writes`; `None`: it is in the base, its value in `contents`.
    """

    holder: str
    write: DeltaWrite
    number: int | None


@dataclass(slots=True)
class DeltaPath:
    """What one channel of a checkpoint is rebuilt from.

    Attributes:
        seed: The stored value that it begins with.
        seed_of: Checkpoint that holds the seed, in its state or its `delta_base`.
        newest_first: The writes after the seed.
        goes_on_at: The checkpoint before which it was to end; empty: it has begun.
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

    Args:
        connection: In a transaction.
        tenant: The tenant.
        key: The checkpoint; an empty `checkpoint_id` means the latest of the namespace.
        channels: Names of channels.

    Returns:
        The histories; without seed and writes if the checkpoint does not exist. Where a
        value was evicted stands `EVICTED`, and `sources` has the checkpoints that hold it.
    """
    found = _THREAD.run(connection, of_tenant=tenant, of_thread_id=key.thread_id).fetchone()
    if found is None:
        return tuple(DeltaHistory(name, None, ()) for name in channels)
    thread, family = found
    place = (key.checkpoint_ns, key.checkpoint_id)
    if not key.checkpoint_id:
        latest = _LATEST.run(connection, of_thread=thread, of_ns=key.checkpoint_ns).fetchone()
        place = (key.checkpoint_ns, (latest[0] if latest else None) or "")
    paths = follow(connection, thread, place, channels)
    values = _values(connection, family, paths.values())
    sources = _sources(
        connection, tenant, family, replace(key, checkpoint_id=place[1]), paths, values
    )
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

    Returns:
        What each is rebuilt from, by name.
    """
    paths = {name: DeltaPath() for name in channels}
    row = _TARGET.run(connection, **parameters_of(thread, *place)).fetchone() if paths else None
    if row is None:
        return paths
    active = set(paths)
    parent_id, step = _step(place[1], row[0], None, row[1], active, paths)
    steps = [step]
    seen = {place[1]}
    blocks = _Blocks(connection, thread, place[0])
    while active and parent_id not in until and parent_id not in seen:
        row = blocks.get(parent_id)
        if row is None:
            break
        if most is not None and len(seen) > most:
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
    """A checkpoint on the path.

    Attributes:
        checkpoint_id: The checkpoint.
        wanted: Channels whose pending writes count.
        base: Channels whose writes in the `delta_base` count, which come before those.
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
    """Take the channels that begin at a checkpoint from `active`; return where the path goes on.

    `state` is `None` for the checkpoint that the path begins at: it is not its own ancestor.
    """
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
        self._thread = thread
        self._namespace = checkpoint_ns
        self._size = _FIRST_BLOCK
        self._block: dict[str, tuple[str, bytes, bytes | None]] = {}

    def get(self, checkpoint_id: str) -> tuple[str, bytes, bytes | None] | None:
        """Return those of a checkpoint, or `None` if it is not stored."""
        if checkpoint_id and checkpoint_id not in self._block:
            of = parameters_of(self._thread, self._namespace, checkpoint_id)
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
    pending = _pending(connection, thread, checkpoint_ns, [one for one in steps if one.wanted])
    for step in steps:
        for channel, write in pending.get(step.checkpoint_id, ()):
            if channel in step.wanted:
                paths[channel].newest_first.append(write)
        for one in step.base:
            paths[one.name].newest_first.extend(
                PathWrite(step.checkpoint_id, write, None) for write in reversed(one.writes)
            )


def _pending(
    connection: Connection, thread: int, checkpoint_ns: str, steps: Sequence[_Step]
) -> dict[str, list[tuple[str, PathWrite]]]:
    """Return the pending writes of checkpoints that may count, each with its channel.

    Those of a checkpoint come in the reverse of the order in which they count.
    """
    found: dict[str, list[tuple[str, PathWrite]]] = {}
    if not steps:
        return found
    wanted = frozenset[str]().union(*(one.wanted for one in steps))
    rows = connection.execute(
        select(writes.c.checkpoint_id, writes.c.channel, writes.c.number, *_WRITE)
        .where(
            writes.c.thread == thread,
            writes.c.checkpoint_ns == checkpoint_ns,
            writes.c.checkpoint_id.in_([one.checkpoint_id for one in steps]),
            writes.c.channel.in_(sorted(wanted)),
        )
        .order_by(*_NEWEST_FIRST)
    )
    for checkpoint_id, channel, number, *columns in rows:
        write = PathWrite(checkpoint_id, DeltaWrite(*columns), number)
        found.setdefault(checkpoint_id, []).append((channel, write))
    return found


# --- values ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Values:
    """Values of writes by the number of their row, and of the family by digest."""

    of_writes: dict[int, Value]
    of_family: dict[bytes, Value]

    def of(self, write: PathWrite) -> Value:
        """Return the value of a write."""
        if write.number is not None:
            return self.of_writes[write.number]
        return self.named(write.write.digest)

    def named(self, digest: bytes) -> Value:
        """Return a value of the family.

        Raises:
            DamagedValueError: It is not stored.
        """
        value = self.of_family.get(digest)
        if value is None:
            raise DamagedValueError(f"value {digest.hex()}: a delta channel's, is not stored")
        return value


def _values(connection: Connection, family: int, paths: Iterable[DeltaPath]) -> _Values:
    numbers: set[int] = set()
    digests: set[bytes] = set()
    for path in paths:
        if path.seed is not None:
            digests.add(path.seed.digest)
        for write in path.newest_first:
            if write.number is not None:
                numbers.add(write.number)
            else:
                digests.add(write.write.digest)
    of_writes: dict[int, Value] = {}
    for some in in_lists(sorted(numbers)):
        rows = connection.execute(
            select(
                writes.c.number, writes.c.type, writes.c.size, writes.c.encoding, writes.c.data
            ).where(writes.c.number.in_(some))
        )
        of_writes.update((row[0], stored_value(*row[1:])) for row in rows)
    of_family = read(connection, family, digests) if digests else {}
    return _Values(of_writes, of_family)


def _sources(
    connection: Connection,
    tenant: str,
    family: int,
    key: CheckpointKey,
    paths: Mapping[str, DeltaPath],
    values: _Values,
) -> dict[str, tuple[BlobLocation, ...]]:
    """Return where the evicted values of each checkpoint that holds some lie."""
    evicted: dict[str, set[bytes]] = {}
    for holder, digest in (one for path in paths.values() for one in _evicted(path, values)):
        evicted.setdefault(holder, set()).add(digest)
    sources: dict[str, tuple[BlobLocation, ...]] = {}
    for holder, digests in evicted.items():
        found = load(connection, tenant, replace(key, checkpoint_id=holder), View.ENTRY)
        if found is not None:
            places = located.of_values(connection, tenant, family, sorted(digests))
            sources[holder] = (*found.entry.segments, *places)
    return sources


def _evicted(path: DeltaPath, values: _Values) -> Iterator[tuple[str, bytes]]:
    """Yield holder and digest of what was evicted of a path."""
    if path.seed is not None and values.named(path.seed.digest) is EVICTED:
        yield path.seed_of, path.seed.digest
    for write in path.newest_first:
        if values.of(write) is EVICTED:
            yield write.holder, write.write.digest


def _history(
    name: str,
    path: DeltaPath,
    values: _Values,
    sources: Mapping[str, Sequence[BlobLocation]],
) -> DeltaHistory:
    seed, begun = path.seed, None
    if seed is not None:
        begun = Channel(name, seed.version, seed.digest, seed.size, values.named(seed.digest))
    written: list[Write] = []
    for stored in path.writes:
        one, value = stored.write, values.of(stored)
        written.append(Write(one.task_id, one.task_path, one.idx, name, value, one.digest))
    holders = sorted({holder for holder, _ in _evicted(path, values)})
    places = dict.fromkeys(place for holder in holders for place in sources.get(holder, ()))
    return DeltaHistory(name, begun, tuple(written), tuple(places))
