"""Fills an empty journal with recovered rows.

Recovered checkpoints are certified: only checkpoints that no catalog records yet wait for a flush.
They have no rows in `changes`, because cursors of watchers belong to the lost journal. The log
continues above the greatest stored number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, func, select
from sqlalchemy.sql.elements import ClauseElement

from ...archive.formats.manifests import Manifest
from ...archive.rows import gaps, pinned_bundles
from ...archive.rows.plan import PlannedGap, StoredMember
from ...archive.rows.segment_index import add_uses
from ...archive.rows.stored import StoredCheckpoint
from ...core.items import keeps_items
from ...core.model import CheckpointKey
from ...core.threads import (
    EFFECTS,
    EFFECTS_END,
    SNAPSHOTS,
    SNAPSHOTS_END,
    EventKind,
    ThreadState,
)
from ...journal.database.pending_writes import StoredWrite
from ...journal.database.thread_rows import Place, ThreadCacheEntry
from ...journal.database.unit_of_work import UnitOfWork
from ...journal.removal import deletion
from ...journal.sql.schema import members, threads
from ...journal.sql.statements import Statement, insert_rows
from ...journal.values.integrity import hash_rows
from ..items import item_rows as items


class RecoveredRows(NamedTuple):
    """The rows of a thread from one segment; the rows of the segment and its parts come first."""

    thread_id: str
    members: Sequence[StoredMember]
    checkpoints: Sequence[StoredCheckpoint]
    writes: Sequence[tuple[Place, StoredWrite]]


class RecoveredValue(NamedTuple):
    """A value of a channel; a value without data is only in its segment."""

    digest: bytes
    type: str
    size: int
    encoding: int
    data: bytes | None
    seq: int
    segment: bytes


@dataclass(frozen=True, slots=True)
class ThreadEnd:
    """The rows that complete a thread, after its checkpoints."""

    manifest: Manifest
    count: int  # number of inserted checkpoints
    added_bytes: int  # bytes of their content
    head_id: str  # latest root checkpoint, or empty
    state: ThreadState
    values: Sequence[RecoveredValue]  # of its family
    used: Sequence[bytes]  # hashes of the segments that the thread needs
    bundles: Sequence[StoredMember]  # members of handed off bundles
    lost: Sequence[Place]  # recorded checkpoints that cannot be read
    lost_segments: dict[bytes, str]  # hashes of unreadable segments, and the reasons


def _put_member() -> ClauseElement:
    """Insert a member; only the thread whose log the member has sets the columns of the log."""
    statement = insert_rows(members)
    new, old = statement.excluded, members.c
    columns = (
        "thread",
        "incarnation",
        "first_seq",
        "last_seq",
        "parts",
        "needs",
        "digests",
        "patched",
    )
    return statement.on_conflict_do_update(
        index_elements=["tenant", "sha256"],
        set_={name: func.coalesce(new[name], old[name]) for name in columns},
    )


_PUT_MEMBER = Statement(_put_member())
_SNAPSHOT_THREADS = Statement(
    select(threads.c.thread_id, threads.c.head_id).where(
        threads.c.tenant == bindparam("of_tenant"),
        threads.c.thread_id >= SNAPSHOTS,
        threads.c.thread_id < SNAPSHOTS_END,
        threads.c.deleted.is_(False),
    )
)

_EFFECT_THREADS = Statement(
    select(threads.c.thread_id).where(
        threads.c.tenant == bindparam("of_tenant"),
        threads.c.thread_id >= EFFECTS,
        threads.c.thread_id < EFFECTS_END,
        threads.c.deleted.is_(False),
    )
)


def add_members(
    batch: UnitOfWork, tenant: str, found: Iterable[StoredMember], thread: int | None = None
) -> None:
    """Insert members; members with an incarnation have the log of `thread`."""
    rows = [member.row(tenant, member.location) for member in found]
    for row in rows:
        row["thread"] = None if row["incarnation"] is None else thread
    _PUT_MEMBER.run_many(batch.connection, rows)


def begin_thread(
    batch: UnitOfWork, tenant: str, manifest: Manifest, seq: int, *, unrecorded: bool
) -> None:
    """Insert a new thread with a family of its own.

    `seq` is the greatest stored number of its log. `unrecorded`: no catalog records the thread: its
    checkpoints get the following numbers, in order, and the next flush records them.
    """
    log = batch.begin(tenant, manifest.thread_id)
    row, setting = log.row, manifest.setting
    times = [entry.record.created_us for entry in manifest.entries.values()] or [batch.now_us]
    row.incarnation = manifest.incarnation
    row.deleted = manifest.ended
    row.deleted_through = manifest.deleted_through
    row.seq = row.certified_seq = row.begun_seq = row.compacted_seq = seq
    row.created_us = min(times)
    if setting is not None and not manifest.ended:
        row.agent_id = setting.agent_id
        row.retention_s = setting.retention_s
        row.unsearchable = setting.unsearchable
        row.settings_seq = setting.seq
    if manifest.ended:
        row.indexed_seq = seq
    else:
        row.unindexed_since_us = batch.now_us
    for place in manifest.entries if unrecorded else ():
        batch.change(log, EventKind.CHECKPOINT_SAVED, place, indexed=True)
    if unrecorded and manifest.ended:
        end_seq = batch.change(log, EventKind.THREAD_DELETED)
        deletion.record(batch, log, end_seq, [("", "")])
    elif unrecorded:
        row.settings_seq = batch.change(log, EventKind.PROGRESS)
    # The last change of a thread with retention is not stored, and it must not expire too early.
    row.set_updated(batch.now_us if row.retention_s else max(times))
    batch.store(log)


def add_rows(batch: UnitOfWork, tenant: str, rows: RecoveredRows) -> None:
    """Insert a thread's checkpoints and pending writes from a segment."""
    log = _log(batch, tenant, rows.thread_id)
    add_members(batch, tenant, rows.members, log.row.number)
    for checkpoint in rows.checkpoints:
        checkpoint.put(batch, log)
    if keeps_items(rows.thread_id):
        item_checkpoints = (
            checkpoint for checkpoint in rows.checkpoints if not checkpoint.place[0]
        )
        contents = (
            (checkpoint.place[1], checkpoint.known.metadata) for checkpoint in item_checkpoints
        )
        items.recover(batch, log, contents)
    for place, write in rows.writes:
        batch.put_write(log, place, write, write.seq)
    batch.store(log)


def end_thread(batch: UnitOfWork, tenant: str, end: ThreadEnd) -> None:
    """Complete a thread whose checkpoints are inserted.

    Unreadable checkpoints count as removed, so that later manifests do not list them.
    """
    manifest = end.manifest
    log = _log(batch, tenant, manifest.thread_id)
    row, connection = log.row, batch.connection
    for value in end.values:
        segment = value.segment if value.data is None else None
        batch.put_content(log, value.seq, value, segment=segment)
    add_members(batch, tenant, end.bundles)
    add_uses(connection, tenant, ((sha256, row.number) for sha256 in end.used))
    row.checkpoint_count = end.count
    row.added_bytes = end.added_bytes
    row.head_id = end.head_id
    row.state = end.state
    # A thread that no catalog records is recorded with the settings.
    unrecorded = row.settings_seq if row.settings_seq > row.certified_seq else None
    for pin in manifest.pins:
        if pin.segment in manifest.members:
            key = CheckpointKey(manifest.thread_id, pin.checkpoint_ns, pin.checkpoint_id)
            seq = pin.seq if unrecorded is None else unrecorded
            # The change at which the bundle was created is not stored.
            pinned_bundles.put(batch, log, key, pin.segment, seq, content_seq=0)
    unstored = [
        PlannedGap(row.number, gap.checkpoint_ns, gap.checkpoint_id, gap.seq, gap.reason, 0)
        for gap in manifest.gaps
        if gap.checkpoint_id
    ]
    gaps.record(connection, tenant, unstored, batch.now_us)
    for sha256, reason in end.lost_segments.items():
        gaps.record_lost(connection, tenant, row.number, sha256, reason, batch.now_us)
    batch.write_out()
    row.bound_rows = hash_rows(connection, row.number)  # several segments may have a write
    batch.store(log)
    if end.lost:
        batch.write_out()
        deletion.drop(batch, log, end.lost)
        batch.write_out()
        batch.logs.forget(tenant, manifest.thread_id)


def drop_stale_effects(batch: UnitOfWork, tenant: str) -> None:
    """Delete the effects of deleted threads: their deletion may not be certified."""
    rows = _EFFECT_THREADS.run(batch.connection, of_tenant=tenant).fetchall()
    for (name,) in rows:
        owner = batch.find(tenant, name.removeprefix(EFFECTS))
        if owner is not None and owner.row.deleted:
            deletion.delete_thread(batch, tenant, name)


def snapshot_threads(connection: Connection, tenant: str) -> dict[str, str]:
    """Return the threads of snapshots, and their latest root checkpoints."""
    return dict(_SNAPSHOT_THREADS.run(connection, of_tenant=tenant).fetchall())


def _log(batch: UnitOfWork, tenant: str, thread_id: str) -> ThreadCacheEntry:
    log = batch.find(tenant, thread_id)
    if log is None:
        raise ValueError(f"thread {thread_id!r} was not begun")
    return log
