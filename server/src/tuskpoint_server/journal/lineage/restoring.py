"""Restoring snapshots: each member as a new thread, or its own thread taken back to it."""

from __future__ import annotations

from ...domain import snapshots as kept
from ...domain.model import CheckpointKey, Saved
from ..database.overlay import Batch
from ..database.thread_rows import ThreadRow
from . import closures, copying, forks, insert, rollbacks, snapshots, sources
from .evicted import Supplied
from .rollbacks import Follower
from .sources import Source


def as_new_threads(
    batch: Batch, tenant: str, snapshot_id: str, supplied: Supplied, names: str
) -> tuple[Saved, ...]:
    """Make a thread of each member.

    Args:
        batch: In a change of its own.
        tenant: The tenant.
        snapshot_id: The snapshot.
        supplied: Evicted values that have been read.
        names: What the names of the threads begin with.

    Raises:
        Refusal: `SNAPSHOT_NOT_FOUND`.
        ValuesEvicted: It needs values that are not here.
    """
    connection = batch.connection
    members = _members(batch, tenant, snapshot_id)
    found = []
    for number in range(len(members)):
        at = snapshots.member_thread(connection, tenant, snapshot_id, number)
        numbers = sources.all_numbers(connection, at.number)
        found.append(copying.prepare(connection, at, numbers, supplied, with_ancestors=True))
    copying.refuse_lacking(found)
    restored = []
    for number, (member, copies) in enumerate(zip(members, found, strict=True)):
        log = insert.begin(batch, tenant, f"{names}-{number}", copies.origin.family)
        log.row.agent_id = member.agent_id
        own = closures.live(connection, tenant, member.key.thread_id)
        log.row.unsearchable = member.unsearchable or bool(own is not None and own.unsearchable)
        place = ("", member.key.checkpoint_id)
        copying.insert_fork(batch, log, copies, {place: str(member.key)})
        forks.end(batch, log)
        key = CheckpointKey(log.row.thread_id, *place)
        size = sum(new.new_bytes for new in copies.checkpoints)
        restored.append(Saved(key, log.row.seq, log.row.incarnation, size))
    return tuple(restored)


def roll_back(
    batch: Batch, tenant: str, snapshot_id: str, supplied: Supplied, entropy: int
) -> tuple[Saved, ...]:
    """Roll each member's own thread back to what was captured of it.

    Args:
        batch: In a change of its own.
        tenant: The tenant.
        snapshot_id: The snapshot.
        supplied: Evicted values that have been read.
        entropy: 62 random bits.

    Raises:
        Refusal: `SNAPSHOT_NOT_FOUND`, `THREAD_NOT_FOUND`.
        ValuesEvicted: It needs values that are not here.
    """
    return tuple(
        _roll_back(batch, tenant, snapshot_id, number, member, supplied, entropy)
        for number, member in enumerate(_members(batch, tenant, snapshot_id))
    )


def _members(batch: Batch, tenant: str, snapshot_id: str) -> tuple[kept.Member, ...]:
    found = snapshots.read(batch.connection, tenant, snapshot_id)
    if found is None:
        raise snapshots.not_found(snapshot_id)
    return found[1]


def _roll_back(
    batch: Batch,
    tenant: str,
    snapshot_id: str,
    number: int,
    member: kept.Member,
    supplied: Supplied,
    entropy: int,
) -> Saved:
    connection = batch.connection
    log = batch.find(tenant, member.key.thread_id)
    if log is None or log.row.deleted:
        raise snapshots.thread_not_found(
            member.key.thread_id, "restore the snapshot as new threads instead"
        )
    at = snapshots.member_thread(connection, tenant, snapshot_id, number)
    captured = {
        one.place: one
        for one in sources.read(connection, sources.all_numbers(connection, at.number))
    }
    target = captured["", member.key.checkpoint_id]
    followers = _followers(batch, log.row, at, target, captured)
    return rollbacks.roll_back(batch, log, at, target, followers, supplied, entropy)


def _followers(
    batch: Batch,
    thread: ThreadRow,
    at: ThreadRow,
    target: Source,
    captured: dict[tuple[str, str], Source],
) -> list[Follower]:
    """Return the stateful subgraphs that stand elsewhere than before the captured root ran.

    What they stood at then was captured with it, whatever the thread has lost since.
    """
    connection = batch.connection
    batch.write_out()
    namespaces = {
        *closures.stateful_namespaces(connection, thread.number),
        *closures.stateful_namespaces(connection, at.number),
    }
    found: list[Follower] = []
    for namespace in sorted(namespaces):
        left = ""
        if target.parent_id:
            left = closures.left_at(connection, at.number, target.parent_id, namespace)
        if left != closures.latest(connection, thread.number, namespace):
            found.append(Follower(namespace, captured.get((namespace, left))))
    return found
