"""Delta channels: which ancestors rebuild them, and what those hold.

A delta channel stores a value only now and then; between two stored values its content
is the older value with the writes of the checkpoints on the path applied. The rules are
those of LangGraph's `get_delta_channel_history` (langgraph/checkpoint/base).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlalchemy import Connection, bindparam, select

from ..domain.model import (
    EVICTED,
    Channel,
    CheckpointKey,
    DeltaHistory,
    Entry,
    Value,
    Write,
    write_order,
)
from ..domain.state import decode_channels
from . import pending, reads, threads
from .schema import checkpoints, contents, writes
from .statements import Statement, of_checkpoint, of_namespace, parameters_of

BLOCK = 256
"""Ancestors that are read at once."""

_BLOCK = Statement(
    select(
        checkpoints.c.checkpoint_id,
        checkpoints.c.parent_id,
        checkpoints.c.state,
    )
    .where(of_namespace(checkpoints), checkpoints.c.checkpoint_id <= bindparam("of_id"))
    .order_by(checkpoints.c.checkpoint_id.desc())
    .limit(bindparam("max_rows"))
)
_TARGET = Statement(
    select(checkpoints.c.parent_id).where(
        of_checkpoint(checkpoints), checkpoints.c.hidden.is_(False)
    )
)
_CONTENT = Statement(
    select(contents.c.type, contents.c.data).where(
        contents.c.tenant == bindparam("of_tenant"), contents.c.digest == bindparam("of_digest")
    )
)


@dataclass(frozen=True, slots=True)
class Ancestor:
    """A checkpoint on the path from another to the root; `stored` has a digest each."""

    checkpoint_id: str
    parent_id: str
    stored: dict[str, Channel]


@dataclass(slots=True)
class _Walk:
    """What is known of one channel so far.

    Attributes:
        seed: The stored value.
        writes: The writes, newest first.
        seed_of: Checkpoint that stores the seed.
        evicted_of: Checkpoints of which something was evicted.
    """

    seed: Channel | None = None
    writes: list[Write] = field(default_factory=list)
    seed_of: str = ""
    evicted_of: set[str] = field(default_factory=set)


def ancestors(
    connection: Connection, tenant: str, key: CheckpointKey, parent_id: str
) -> Iterator[Ancestor]:
    """Yield the ancestors of a checkpoint, hidden ones too, nearest first.

    Ends at the root, at a parent that is not stored, and where the path meets itself.
    IDs mostly fall along the path, so each read takes the next ones below.
    """
    block: dict[str, tuple[str, bytes]] = {}
    seen = {key.checkpoint_id}
    size = 8
    while parent_id and parent_id not in seen:
        if parent_id not in block:
            size = min(size * 2, BLOCK)
            rows = _BLOCK.run(
                connection,
                of_tenant=tenant,
                of_thread=key.thread_id,
                of_ns=key.checkpoint_ns,
                of_id=parent_id,
                max_rows=size,
            ).fetchall()
            block = {row[0]: (row[1], row[2]) for row in rows}
            if parent_id not in block:
                return
        seen.add(parent_id)
        grandparent_id, state = block[parent_id]
        yield Ancestor(parent_id, grandparent_id, stored_channels(state))
        parent_id = grandparent_id


def stored_channels(state: bytes) -> dict[str, Channel]:
    """Return the channels that have a value, by name."""
    return {
        channel.name: channel for channel in decode_channels(state) if channel.digest is not None
    }


def delta_history(
    connection: Connection, tenant: str, key: CheckpointKey, channels: Sequence[str]
) -> tuple[DeltaHistory, ...]:
    """Return the history of each channel; see `api.Journal.delta_history`."""
    checkpoint_id = key.checkpoint_id or threads.latest(
        connection, tenant, key.thread_id, key.checkpoint_ns
    )
    target = CheckpointKey(key.thread_id, key.checkpoint_ns, checkpoint_id)
    row = _TARGET.run(connection, **parameters_of(tenant, target)).fetchone()
    walks = {channel: _Walk() for channel in channels}
    if row is not None and walks:
        _collect(connection, tenant, target, row[0], walks)
    for walk in walks.values():
        _fill_seed(connection, tenant, walk)
    evicted_of = sorted(set().union(*(walk.evicted_of for walk in walks.values())))
    sources = {
        name: reads.source(
            connection, tenant, CheckpointKey(target.thread_id, target.checkpoint_ns, name)
        )
        for name in evicted_of
    }
    histories = {channel: _history(channel, walk, sources) for channel, walk in walks.items()}
    return tuple(histories[channel] for channel in channels)


def _history(channel: str, walk: _Walk, sources: Mapping[str, Entry]) -> DeltaHistory:
    return DeltaHistory(
        channel,
        walk.seed,
        tuple(reversed(walk.writes)),
        tuple(sources[name] for name in sorted(walk.evicted_of)),
    )


def _collect(
    connection: Connection,
    tenant: str,
    target: CheckpointKey,
    parent_id: str,
    walks: dict[str, _Walk],
) -> None:
    """Walk up until every channel has met a stored value."""
    active = set(walks)
    path: list[tuple[str, frozenset[str]]] = []
    for ancestor in ancestors(connection, tenant, target, parent_id):
        path.append((ancestor.checkpoint_id, frozenset(active)))
        for name in active & ancestor.stored.keys():
            walks[name].seed = ancestor.stored[name]
            walks[name].seed_of = ancestor.checkpoint_id
            active.discard(name)
        if len(path) == BLOCK or not active:
            _add_writes(connection, tenant, target, path, walks)
            path = []
        if not active:
            return
    _add_writes(connection, tenant, target, path, walks)


def _add_writes(
    connection: Connection,
    tenant: str,
    target: CheckpointKey,
    path: Sequence[tuple[str, frozenset[str]]],
    walks: dict[str, _Walk],
) -> None:
    """Add the writes of a stretch of the path, given nearest first, to the channels' walks."""
    if not path:
        return
    ids = [checkpoint_id for checkpoint_id, _ in path]
    wanted = frozenset().union(*(active for _, active in path))
    rows = connection.execute(
        select(writes.c.checkpoint_id, *pending.COLUMNS).where(
            writes.c.tenant == tenant,
            writes.c.thread_id == target.thread_id,
            writes.c.checkpoint_ns == target.checkpoint_ns,
            writes.c.checkpoint_id.in_(ids),
            writes.c.channel.in_(sorted(wanted)),
        )
    )
    by_checkpoint: dict[str, list[Write]] = {}
    for row in rows:
        by_checkpoint.setdefault(row[0], []).append(pending.write_from(row[1:]))
    for checkpoint_id, active in path:
        found = by_checkpoint.get(checkpoint_id, [])
        for write in sorted(found, key=write_order, reverse=True):
            if write.channel in active:
                walk = walks[write.channel]
                walk.writes.append(write)
                if write.value is EVICTED:
                    walk.evicted_of.add(checkpoint_id)


def _fill_seed(connection: Connection, tenant: str, walk: _Walk) -> None:
    """Give the seed its value."""
    if walk.seed is None:
        return
    row = _CONTENT.run(connection, of_tenant=tenant, of_digest=walk.seed.digest).fetchone()
    if row is None:
        return
    if row[1] is None:
        walk.evicted_of.add(walk.seed_of)
        walk.seed = replace(walk.seed, value=EVICTED)
    else:
        walk.seed = replace(walk.seed, value=Value(row[0], row[1]))
