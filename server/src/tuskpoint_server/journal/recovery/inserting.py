"""Filling an empty journal with what blobs hold.

What is recovered is certified as it stands: nothing of it waits for a flush, except what no
catalog records yet. It takes no change rows: watchers of the journal that was lost hold
cursors of that journal. The log goes on above the greatest number that was stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection, bindparam, delete, func, insert

from ...domain.compression import Encoding
from ...domain.formats.catalogs import Catalog, encode_catalog
from ...domain.formats.members import Kind
from ...domain.formats.records import GapRecord, PinRecord
from ...domain.lineage import EventKind
from ...domain.model import EVICTED, BlobLocation, Lineage, ThreadState, Write
from ..archiving import holes, uses
from ..archiving.plan import PlannedHole, joined
from ..checkpoints.rows import checkpoint_row
from ..database.overlay import Batch, Known, Log, Place
from ..database.schema import catalogs, checkpoints, handoffs, members, removed, writes
from ..database.statements import (
    Insert,
    InsertInto,
    Statement,
    all_columns,
    of_checkpoint,
    parameters_of,
)


@dataclass(frozen=True, slots=True)
class RecoveredThread:
    """A thread, as its records describe it.

    Attributes:
        thread_id: The thread.
        incarnation: Its incarnation.
        deleted: The incarnation has ended.
        deleted_through: Greatest checkpoint ID of ended incarnations, or empty.
        seq: Greatest number that is stored of its log.
        agent_id: Agent, or empty.
        retention_s: As the column.
        unsearchable: As the column.
        settings_seq: Change that set these three; 0: none did.
        created_us: Time of the first save that is known.
        updated_us: Time of the last save that is known.
        anew: No catalog records the thread: its checkpoints, in this order, take numbers of
            their own, and the next flush records them.
        recorded_anew: Whether `anew` counts.
    """

    thread_id: str
    incarnation: int
    deleted: bool
    deleted_through: str
    seq: int
    agent_id: str
    retention_s: int
    unsearchable: bool
    settings_seq: int
    created_us: int
    updated_us: int
    anew: tuple[Place, ...] = ()
    recorded_anew: bool = False


@dataclass(frozen=True, slots=True)
class RecoveredCheckpoint:
    """A checkpoint; `held` as `journal.archiving.held` has it."""

    place: Place
    known: Known
    lineage: Lineage
    delta_base: bytes | None
    held: bytes


@dataclass(frozen=True, slots=True)
class RecoveredWrite:
    """A pending write; `data` is `None` where only segments hold it."""

    place: Place
    seq: int
    task_id: str
    idx: int
    task_path: str
    channel: str
    type: str
    digest: bytes
    size: int
    encoding: int
    data: bytes | None


@dataclass(frozen=True, slots=True)
class RecoveredValue:
    """A value of a channel; without `data` it is in `segment` only."""

    digest: bytes
    type: str
    size: int
    seq: int
    segment: bytes | None
    encoding: int = Encoding.PLAIN
    data: bytes | None = None


@dataclass(frozen=True, slots=True)
class RecoveredMember:
    """Stored bytes; fields as the columns of `members`.

    Attributes:
        location: Where they lie.
        kind: What they are.
        incarnation: Of a segment with the log of the thread: of which incarnation; `None`: it
            holds another thread's log, or none.
        first_seq: Begin of its range, if it has one.
        last_seq: End of its range.
        parts: Hashes of its parts.
        needs: Hashes of the segments that it names.
        digests: Prefixes of its values, sorted, joined.
        patched: Of these the patches on keyframes elsewhere.
    """

    location: BlobLocation
    kind: Kind
    incarnation: int | None = None
    first_seq: int | None = None
    last_seq: int | None = None
    parts: tuple[bytes, ...] = ()
    needs: tuple[bytes, ...] = ()
    digests: bytes = b""
    patched: bytes = b""


@dataclass(slots=True)
class ThreadEnd:
    """What completes a thread after its checkpoints.

    Attributes:
        count: How many checkpoints were inserted.
        added_bytes: Bytes of their content.
        head_id: Latest root checkpoint, or empty.
        state: What the thread waits for.
        values: Values of its family.
        used: Hashes of the segments that it needs.
        pins: Bundles that were handed off.
        gaps: What cannot be read from the blob store.
        lost: Checkpoints that are recorded and cannot be read.
        lost_segments: Hashes of segments that cannot be read, and why.
    """

    count: int = 0
    added_bytes: int = 0
    head_id: str = ""
    state: ThreadState = ThreadState.IDLE
    values: list[RecoveredValue] = field(default_factory=list)
    used: tuple[bytes, ...] = ()
    pins: tuple[PinRecord, ...] = ()
    gaps: tuple[GapRecord, ...] = ()
    lost: tuple[Place, ...] = ()
    lost_segments: dict[bytes, str] = field(default_factory=dict)


def _put_member(insert_into: InsertInto) -> Insert:
    """Insert a member; that it holds a thread's own log is said by that thread alone."""
    statement = insert_into(members).values(all_columns(members))
    new, old = statement.excluded, members.c
    own = ("thread", "incarnation", "first_seq", "last_seq", "parts", "needs", "digests", "patched")
    return statement.on_conflict_do_update(
        index_elements=["tenant", "sha256"],
        set_={name: func.coalesce(new[name], old[name]) for name in own},
    )


_PUT_MEMBER = Statement(_put_member)
_PUT_CATALOG = Statement(insert(catalogs).values(all_columns(catalogs)))
_PUT_HANDOFF = Statement(insert(handoffs).values(all_columns(handoffs)))
_PUT_REMOVED = Statement(
    insert(removed).values({column.name: bindparam(column.name) for column in removed.columns})
)
_DROP_CHECKPOINT = Statement(delete(checkpoints).where(of_checkpoint(checkpoints)))
_DROP_WRITES = Statement(delete(writes).where(of_checkpoint(writes)))


def add_catalog(
    connection: Connection, tenant: str, catalog: Catalog, location: BlobLocation, now_us: int
) -> None:
    """Make a catalog the newest one; the next catalog follows it.

    Args:
        connection: In a write transaction.
        tenant: The tenant.
        catalog: The catalog; everything in it names its blob.
        location: Where it lies.
        now_us: Time of the recovery.
    """
    _PUT_CATALOG.run(
        connection,
        tenant=tenant,
        generation=catalog.generation,
        number=catalog.number,
        sha256=location.sha256,
        content=encode_catalog(catalog),
        certified_us=now_us,
    )


def add_members(
    connection: Connection,
    tenant: str,
    found: Iterable[RecoveredMember],
    thread: int | None = None,
) -> None:
    """Insert stored bytes.

    Args:
        connection: In a write transaction.
        tenant: The tenant.
        found: The members.
        thread: Number of the thread whose log those with an incarnation hold.
    """
    _PUT_MEMBER.run_many(
        connection,
        [
            {
                "tenant": tenant,
                "sha256": one.location.sha256,
                "kind": one.kind.value,
                "size": one.location.size,
                "blob_id": one.location.blob_id,
                "identifier": one.location.identifier,
                "parts": joined(one.parts) or None,
                "needs": joined(one.needs) or None,
                "thread": thread if one.incarnation is not None else None,
                "incarnation": one.incarnation,
                "first_seq": one.first_seq,
                "last_seq": one.last_seq,
                "digests": one.digests or None,
                "patched": one.patched or None,
            }
            for one in found
        ],
    )


def begin_thread(batch: Batch, tenant: str, thread: RecoveredThread) -> None:
    """Insert a thread of which nothing is here; it founds a family.

    Those of its checkpoints that no catalog records take the numbers that follow `seq`, one
    each, in order.
    """
    log = batch.begin(tenant, thread.thread_id)
    row = log.row
    row.incarnation = thread.incarnation
    row.deleted = thread.deleted
    row.deleted_through = thread.deleted_through
    row.seq = row.certified_seq = row.begun_seq = row.compacted_seq = thread.seq
    row.agent_id = thread.agent_id
    row.retention_s = thread.retention_s
    row.unsearchable = thread.unsearchable
    row.settings_seq = thread.settings_seq
    row.created_us = thread.created_us
    if thread.deleted:
        row.indexed_seq = thread.seq
    else:
        row.unindexed_since_us = batch.now_us
    if thread.recorded_anew:
        _record_anew(batch, log, thread)
    # When a thread with retention last changed is not stored, and it must not go too early.
    row.set_updated(batch.now_us if thread.retention_s else thread.updated_us)
    batch.store(log)


def _record_anew(batch: Batch, log: Log, thread: RecoveredThread) -> None:
    for place in thread.anew:
        batch.change(log, EventKind.CHECKPOINT_SAVED, place, indexed=True)
    if thread.deleted:
        seq = batch.change(log, EventKind.THREAD_DELETED)
        _record_removed(batch, log, seq, [("", "")])
    else:
        log.row.settings_seq = batch.change(log, EventKind.PROGRESS)


def add_checkpoints(
    batch: Batch,
    tenant: str,
    thread_id: str,
    found: Sequence[RecoveredCheckpoint],
    written: Sequence[RecoveredWrite],
    stored: Sequence[RecoveredMember],
) -> None:
    """Insert checkpoints and pending writes of a thread, and the segments that hold them."""
    log = _log(batch, tenant, thread_id)
    add_members(batch.connection, tenant, stored, log.row.number)
    for one in found:
        row = checkpoint_row(
            log,
            one.place,
            one.known,
            lineage=one.lineage,
            delta_base=one.delta_base,
            held=one.held,
        )
        batch.put_checkpoint(log, one.place, row)
    for write in written:
        named = Write(
            write.task_id, write.task_path, write.idx, write.channel, EVICTED, write.digest
        )
        batch.put_write(log, write.place, named, _write_row(log, write))


def end_thread(batch: Batch, tenant: str, thread_id: str, end: ThreadEnd) -> None:
    """Complete a thread whose checkpoints are there.

    Those that cannot be read count as removed, so that manifests to come lack them.
    """
    log = _log(batch, tenant, thread_id)
    row, connection = log.row, batch.connection
    for value in end.values:
        batch.put_content(row.family, value.digest, _content_row(log, value))
    uses.add(connection, tenant, ((sha256, row.number) for sha256 in end.used))
    row.checkpoint_count = end.count
    row.added_bytes = end.added_bytes
    row.head_id = end.head_id
    row.state = end.state
    _add_pins(batch, log, end.pins)
    holes.record(
        connection,
        tenant,
        [
            PlannedHole(row.number, one.checkpoint_ns, one.checkpoint_id, one.seq, one.reason, 0)
            for one in end.gaps
            if one.checkpoint_id
        ],
        batch.now_us,
    )
    for sha256, reason in end.lost_segments.items():
        holes.record_lost(connection, tenant, row.number, sha256, reason, batch.now_us)
    batch.store(log)
    if end.lost:
        _drop_lost(batch, log, end.lost)


def _drop_lost(batch: Batch, log: Log, lost: Sequence[Place]) -> None:
    batch.write_out()
    keys = [parameters_of(log.row.number, *place) for place in lost]
    _DROP_CHECKPOINT.run_many(batch.connection, keys)
    _DROP_WRITES.run_many(batch.connection, keys)
    seq = batch.change(log, EventKind.CHECKPOINTS_DELETED, deleted=len(lost))
    _record_removed(batch, log, seq, lost)
    batch.write_out()
    batch.forget(log.row.tenant, log.row.thread_id)


def _record_removed(batch: Batch, log: Log, seq: int, places: Iterable[Place]) -> None:
    _PUT_REMOVED.run_many(
        batch.connection,
        [
            {
                "thread": log.row.number,
                "seq": seq,
                "checkpoint_ns": checkpoint_ns,
                "checkpoint_id": checkpoint_id,
                "incarnation": log.row.incarnation,
            }
            for checkpoint_ns, checkpoint_id in places
        ],
    )


def _add_pins(batch: Batch, log: Log, pins: Iterable[PinRecord]) -> None:
    row = log.row
    _PUT_HANDOFF.run_many(
        batch.connection,
        [
            {
                "tenant": row.tenant,
                "sha256": pin.segment,
                "thread": row.number,
                "checkpoint_ns": pin.checkpoint_ns,
                "checkpoint_id": pin.checkpoint_id,
                # One that no catalog records is recorded with the settings.
                "seq": pin.seq if row.settings_seq <= row.certified_seq else row.settings_seq,
                "content_seq": 0,  # as of which change it was made is not stored
                "created_us": batch.now_us,
            }
            for pin in pins
        ],
    )


def _log(batch: Batch, tenant: str, thread_id: str) -> Log:
    log = batch.find(tenant, thread_id)
    if log is None:
        raise ValueError(f"thread {thread_id!r} was not begun")
    return log


def _write_row(log: Log, one: RecoveredWrite) -> tuple[object, ...]:
    return (
        log.row.number,
        *one.place,
        one.task_id,
        one.idx,
        one.task_path,
        one.channel,
        one.type,
        one.digest,
        one.size,
        one.encoding,
        one.data,
        one.seq,
        None,
    )


def _content_row(log: Log, one: RecoveredValue) -> tuple[object, ...]:
    return (
        log.row.family,
        one.digest,
        one.type,
        one.size,
        int(one.encoding),
        one.data,
        None,
        0,
        0,
        log.row.number,
        one.seq,
        one.segment,
    )
