"""Checkpoints as the journal stores them, and the one path that inserts built checkpoints.

Forks, copies, adoptions, rollbacks and snapshots read rows here, build new rows from them, and
insert the new rows here. Recovery builds the same rows from segments.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection, select

from ...core.effects.records import effects_of
from ...core.errors import Reason, Refusal
from ...core.model import NO_LINEAGE, CheckpointKey, Lineage, SaveOutcome, Value
from ...core.state import delta_channels, encode_names, parse_metadata
from ...core.threads import EFFECTS, EventKind, is_reserved, judge_state
from ...core.values import compress
from ...journal.database.binding import binder_of
from ...journal.database.pending_writes import StoredWrite
from ...journal.database.thread_rows import (
    CachedCheckpoint,
    Place,
    ThreadCacheEntry,
    ThreadRow,
    find_thread,
    greatest_id,
)
from ...journal.database.unit_of_work import UnitOfWork
from ...journal.removal.deletion import delete_thread, end_incarnation
from ...journal.sql.schema import checkpoints, threads, writes
from ...journal.sql.statements import (
    LISTED,
    Statement,
    of_checkpoint,
    of_thread,
    parameters_of,
    same_checkpoint,
)
from ...journal.values.segment_refs import ROW, ForeignSegments, Row, encode_held
from ..formats.segments import SegmentCheckpoint, SegmentValue, SegmentWrite
from .segment_index import add_uses, with_needs


@dataclass(slots=True)
class StoredCheckpoint:
    """A checkpoint that is in a thread, or is about to be inserted into a thread."""

    place: Place
    known: CachedCheckpoint
    lineage: Lineage = NO_LINEAGE
    delta_base: bytes | None = None  # see `archive.formats.segments`
    # column `held`: segments, other than the thread's own, that contain the checkpoint
    held: bytes | None = None
    row: Row | None = None  # row as it was read
    writes: list[StoredWrite] = field(default_factory=list)
    # Segments that already contain a copy, the segment of its state first. A copy may then lack
    # data. Without segments the checkpoint has to be stored, and is whole.
    segments: tuple[bytes, ...] = ()
    state_only: bool = False  # whether the first segment has none of the writes
    values: list[SegmentValue] = field(
        default_factory=list
    )  # values that the segment carries, without patches

    def put(self, batch: UnitOfWork, log: ThreadCacheEntry) -> None:
        """Insert the checkpoint, without its writes and values."""
        cached, lineage = self.known, self.lineage
        cached.forked_from, cached.rolled_back_from = lineage.forked_from, lineage.rolled_back_from
        cached.adopted_from, cached.delta_base = lineage.adopted_from, self.delta_base
        batch.put_checkpoint(log, self.place, cached, held=self.held)

    @property
    def new_bytes(self) -> int:
        """Bytes of content that have to be stored."""
        if self.segments:
            return 0
        values = sum(len(value.data) for value in self.values)
        written = sum(len(write.data or b"") for write in self.writes)
        return len(self.known.state) + len(self.known.metadata) + values + written


def stored_value(digest: bytes, value: Value) -> SegmentValue:
    """Return a value in its stored form, without a patch."""
    packed = compress(value.data)
    return SegmentValue(digest, value.type, len(value.data), int(packed.encoding), packed.data)


def of_written(write: SegmentWrite, seq: int, encoding: int, data: bytes | None) -> StoredWrite:
    """Return a segment's write as the journal stores it, with data in an own encoding."""
    columns = (write.task_id, write.idx, write.task_path, write.channel, write.type)
    return StoredWrite(*columns, write.digest, write.size, encoding, seq, None, data)


def of_segment(row: SegmentCheckpoint, field: str = "metadata_json") -> StoredCheckpoint:
    """Return a segment's checkpoint as the journal stores it, without writes and values.

    Raises:
        Refusal: `METADATA_NOT_JSON`, which names `field`.
    """
    metadata = parse_metadata(row.metadata, field)
    cached = CachedCheckpoint(
        seq=row.seq,
        parent_id=row.parent_id,
        state=row.state,
        metadata=metadata.raw,
        run_id=metadata.run_id,
        root_id=metadata.root_id,
        delta_channels=encode_names(delta_channels(row.state)),
        label=row.label,
        summary=row.summary,
        created_us=row.created_us,
    )
    place = (row.checkpoint_ns, row.checkpoint_id)
    return StoredCheckpoint(place, cached, row.lineage, row.delta_base or None)


def of_stored(checkpoint: StoredCheckpoint) -> SegmentCheckpoint:
    """Return a checkpoint in a bundle's form, without its writes and values."""
    cached = checkpoint.known
    columns = (
        *checkpoint.place,
        0,
        cached.parent_id,
        cached.state,
        cached.metadata,
        cached.created_us,
    )
    notes = (cached.label, cached.summary, checkpoint.delta_base or b"", checkpoint.lineage)
    return SegmentCheckpoint(*columns, *notes)


_of = checkpoints.c
_NUMBER = Statement(select(_of.number).where(of_checkpoint(checkpoints)))
_NUMBERS = Statement(select(_of.seq, _of.number).where(of_thread(checkpoints)))
_ANY = Statement(select(_of.checkpoint_id).where(of_thread(checkpoints)).limit(1))
_CHECKPOINTS = Statement(
    select(_of.number, *ROW)
    .join(threads, threads.c.number == _of.thread)
    .where(_of.number.in_(LISTED))
)
WRITE = tuple(writes.c[name] for name in StoredWrite._fields)
"""Columns of a `StoredWrite`."""
_WRITES = Statement(
    select(_of.number, writes.c.mac, *WRITE)
    .join(writes, same_checkpoint(writes, checkpoints))
    .where(_of.number.in_(LISTED))
)


def live_thread(connection: Connection, tenant: str, thread_id: str) -> ThreadRow | None:
    """Return the row of a thread that is not deleted, or `None`."""
    row = find_thread(connection, tenant, thread_id)
    return None if row is None or row.deleted else row


def is_taken(connection: Connection, number: int) -> bool:
    """Return whether a thread has checkpoints."""
    return _ANY.run(connection, of_thread=number).fetchone() is not None


def named_place(connection: Connection, thread: ThreadRow, key: CheckpointKey) -> Place | None:
    """Return the place of a checkpoint, if it exists; an empty ID means the latest."""
    checkpoint_id = key.checkpoint_id or greatest_id(connection, thread.number, key.checkpoint_ns)
    place = (key.checkpoint_ns, checkpoint_id)
    return place if numbers_of(connection, thread.number, [place]) else None


def numbers_of(connection: Connection, thread: int, places: Sequence[Place]) -> list[int]:
    """Return the row numbers of the checkpoints that are stored."""
    rows = (_NUMBER.run(connection, **parameters_of(thread, *place)).fetchone() for place in places)
    return [row[0] for row in rows if row is not None]


def all_numbers(connection: Connection, thread: int) -> list[int]:
    """Return the row numbers of a thread's checkpoints, oldest change first."""
    return [number for _, number in sorted(_NUMBERS.run(connection, of_thread=thread).fetchall())]


def read(connection: Connection, numbers: Collection[int]) -> list[StoredCheckpoint]:
    """Return checkpoints with their writes, in the order of the given row numbers."""
    binder = binder_of(connection)
    by_number: dict[int, StoredCheckpoint] = {}
    for number, *columns in _CHECKPOINTS.run_listed(connection, numbers):
        row = Row(*columns).check(binder)
        cached = CachedCheckpoint(
            *(row.seq, row.parent_id, row.state, row.metadata, row.run_id, row.root_id),
            *(row.delta_channels, row.label, row.summary, row.created_us),
        )
        lineage = Lineage(row.forked_from, row.rolled_back_from, row.adopted_from)
        by_number[number] = StoredCheckpoint(
            row.place[1:], cached, lineage, row.delta_base or None, row.held, row
        )
    for number, mac, *columns in _WRITES.run_listed(connection, numbers):
        checkpoint, write = by_number[number], StoredWrite(*columns)
        if checkpoint.row is not None:
            write.check(
                binder, checkpoint.row.thread_id, checkpoint.row.thread, checkpoint.place, mac
            )
        checkpoint.writes.append(write)
    return [by_number[number] for number in numbers]


def begin(
    batch: UnitOfWork,
    tenant: str,
    target: str,
    family: int | None,
    agent_id: str = "",
    *,
    unsearchable: bool = False,
) -> ThreadCacheEntry:
    """Return a thread that starts now, in the given family or in a new one.

    A thread that has checkpoints or effects is refused (`THREAD_EXISTS`).
    """
    log = batch.find(tenant, target)
    if not target.startswith(EFFECTS) and (log is None or not log.row.deleted):
        effects = batch.find(tenant, effects_of(target))
        if effects is not None and is_taken(batch.connection, effects.row.number):
            raise Refusal(Reason.THREAD_EXISTS, thread_id=target)
    if log is None:
        log = batch.begin(tenant, target, family)
    else:
        lease: tuple[str | None, int | None] = (None, None)
        if is_taken(batch.connection, log.row.number):
            raise Refusal(Reason.THREAD_EXISTS, thread_id=target)
        if log.row.deleted:
            # removes writes that arrived early for the next incarnation
            delete_thread(batch, tenant, target)
            log = batch.find(tenant, target) or log
        else:
            lease = log.row.lease, log.row.lease_until_us  # who holds it may fill the thread
            end_incarnation(batch, log)
        log.row.begin_next(batch.new_family() if family is None else family, batch.now_us)
        log.row.lease, log.row.lease_until_us = lease
    log.row.agent_id, log.row.unsearchable = agent_id, unsearchable
    return log


def begin_from(batch: UnitOfWork, tenant: str, target: str, origin: ThreadRow) -> ThreadCacheEntry:
    """Return a thread that starts now, with the family and the agent of another thread."""
    hidden = origin.unsearchable
    return begin(batch, tenant, target, origin.family, origin.agent_id, unsearchable=hidden)


def fill(
    batch: UnitOfWork,
    log: ThreadCacheEntry,
    new: Sequence[StoredCheckpoint],
    place: Place,
    lineage: Lineage = NO_LINEAGE,
) -> SaveOutcome:
    """Insert all checkpoints of a new thread; their creation time is now.

    The thread's family has the values that the segment does not carry. `lineage` belongs to the
    checkpoint at `place`.
    """
    for checkpoint in new:
        checkpoint.lineage = lineage if checkpoint.place == place else NO_LINEAGE
        checkpoint.known.created_us = batch.now_us
    add(batch, log, new)
    return end(batch, log, place)


def add(batch: UnitOfWork, log: ThreadCacheEntry, new: Sequence[StoredCheckpoint]) -> None:
    """Insert checkpoints into a thread, and record the segments that contain them as used."""
    for checkpoint in new:
        insert_checkpoint(batch, log, checkpoint)
    hashes = dict.fromkeys(sha256 for checkpoint in new for sha256 in checkpoint.segments)
    needed = with_needs(batch.connection, log.row.tenant, hashes)
    add_uses(batch.connection, log.row.tenant, ((sha256, log.row.number) for sha256 in needed))


def end(batch: UnitOfWork, log: ThreadCacheEntry, place: Place) -> SaveOutcome:
    """End the change that created a thread; the change also covers the thread's settings."""
    row = log.row
    row.settings_seq = row.seq
    batch.store(log)
    log.forget_checkpoints()
    return SaveOutcome(CheckpointKey(row.thread_id, *place), row.seq, row.incarnation)


def insert_checkpoint(batch: UnitOfWork, log: ThreadCacheEntry, new: StoredCheckpoint) -> None:
    """Insert a checkpoint, which must not exist yet, as a change of its own."""
    row, place = log.row, new.place
    searched = not is_reserved(row.thread_id)
    seq = batch.change(
        log, EventKind.CHECKPOINT_SAVED, place, size_bytes=new.new_bytes, indexed=searched
    )
    new.known.seq = seq
    foreign = ForeignSegments(seq, new.segments, new.state_only)
    new.held = encode_held(foreign) if new.segments else None
    new.put(batch, log)
    for value in new.values:
        batch.put_content(log, seq, value)
    for write in new.writes:
        batch.put_write(log, place, write, seq)
    row.checkpoint_count += 1
    if place[0] == "" and place[1] >= row.head_id:
        row.head_id = place[1]
        row.state = judge_state((write.task_id, write.channel, seq) for write in new.writes)
