"""The journal's records of threads, to compare with segments or to build a new catalog from."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, Table, and_, bindparam, or_, select, tuple_

from ...core.model import CheckpointEntry
from ...core.state import decode_channels
from ...core.threads import row_digests
from ...journal.database.binding import RowDamagedError, binder_of
from ...journal.database.put_back import STORED_THROUGH
from ...journal.database.thread_rows import THREAD, Place, ThreadRow, find_thread
from ...journal.sql.schema import checkpoints, handoffs, removed, threads, writes
from ...journal.sql.statements import EMPTY, SqlRow, Statement, of_thread
from ...journal.values import segment_refs
from ...journal.values.integrity import MISSING, has_its_rows
from ...journal.values.load import entry_of
from ...journal.values.segment_refs import ROW, ForeignSegments, Row, decode_held
from ..formats import records as formats
from . import gaps, segment_index, status
from .dirty import CHECKPOINT_COLUMNS, DirtyThread, Pin, dirty_checkpoint
from .gaps import Gap
from .plan import PlannedGap, StoredMember
from .restore_values import ONLY_IN
from .segment_index import Holders
from .status import NewestCatalog

_log = logging.getLogger(__name__)

_ROWS_AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class RecordedCheckpoint:
    """Checkpoint in the journal."""

    entry: CheckpointEntry  # entry without metadata
    seq: int  # change that last wrote the row
    certified_seq: int  # the thread's watermark
    content: dict[str, bytes]  # digests of the checkpoint's parts, as `row_digests` names them
    gap: str = ""  # reason why the checkpoint could not be stored, for people; else empty
    lost: bool = False  # whether some values were only in segments that are unreadable


@dataclass(frozen=True, slots=True)
class RecordedThread:
    """Checkpoints of one incarnation in the journal at one moment."""

    checkpoints: Mapping[Place, RecordedCheckpoint]  # checkpoints that exist
    removed: AbstractSet[Place]  # checkpoints whose removal is not certified yet
    lost: Mapping[bytes, str]  # segments that are known to be lost, with the reasons for people
    catalog: NewestCatalog | None  # the newest certified catalog, or `None`
    certified_seq: int  # the thread's watermark
    ended: bool = False  # whether the thread was deleted (it may have started again)


_PLACES = Statement(
    select(checkpoints.c.checkpoint_ns, checkpoints.c.checkpoint_id)
    .where(of_thread(checkpoints))
    .order_by(checkpoints.c.checkpoint_ns, checkpoints.c.checkpoint_id)
)
_GONE = (removed.c.incarnation == bindparam("of_incarnation"), removed.c.checkpoint_id != "")
_REMOVED = Statement(
    select(removed.c.checkpoint_ns, removed.c.checkpoint_id).where(of_thread(removed), *_GONE)
)


def _between_checkpoints(table: Table) -> ColumnElement[bool]:
    """Match the rows of a thread from one checkpoint to another, by namespace and ID."""
    place = tuple_(table.c.checkpoint_ns, table.c.checkpoint_id)
    return and_(
        of_thread(table),
        place >= tuple_(bindparam("first_ns"), bindparam("first_id")),
        place <= tuple_(bindparam("last_ns"), bindparam("last_id")),
    )


_ROWS = Statement(
    select(*ROW)
    .join(threads, threads.c.number == checkpoints.c.thread)
    .where(_between_checkpoints(checkpoints))
)
_WRITTEN = ("checkpoint_ns", "checkpoint_id", "task_id", "task_path", "idx", "channel", "digest")
_WRITES = Statement(
    select(*(writes.c[name] for name in (*_WRITTEN, "seq")), writes.c.data.is_(None)).where(
        _between_checkpoints(writes)
    )
)


def of_thread_now(
    connection: Connection, tenant: str, thread_id: str
) -> tuple[ThreadRow, list[Place]] | None:
    """Return a live thread, and its checkpoints by namespace and ID."""
    # a verification reports more than this check
    thread = find_thread(connection, tenant, thread_id, newest=False)
    if thread is None or thread.deleted:
        return None
    return thread, list(_PLACES.run(connection, of_thread=thread.number).fetchall())


def read_checkpoints(
    connection: Connection, of: ThreadRow, places: Sequence[Place]
) -> RecordedThread:
    """Return some checkpoints of an incarnation, in order, as the journal has them.

    `of` is the thread at the time of its lookup.
    """
    lost = gaps.lost_hashes(connection, of.tenant)
    removed_places = _REMOVED.run(
        connection, of_thread=of.number, of_incarnation=of.incarnation
    ).fetchall()
    current = find_thread(connection, of.tenant, of.thread_id, newest=False)
    ended = current is None or current.deleted or current.incarnation != of.incarnation
    by_place = _checkpoints(connection, of, places, lost) if places and not ended else {}
    certified_seq = current.certified_seq if current is not None else 0
    catalog = status.catalog(connection, of.tenant)
    return RecordedThread(by_place, set(removed_places), lost, catalog, certified_seq, ended)


def _checkpoints(
    connection: Connection, thread: ThreadRow, places: Sequence[Place], lost: Mapping[bytes, str]
) -> dict[Place, RecordedCheckpoint]:
    names = ("first_ns", "first_id", "last_ns", "last_id")
    between = dict(zip(names, (*places[0], *places[-1]), strict=True))
    wanted = set(places)
    written: dict[Place, list[SqlRow]] = defaultdict(list)
    for write in _WRITES.run(connection, of_thread=thread.number, **between).fetchall():
        written[write[:2]].append(write[2:])
    tenant_gaps = gaps.unstored_checkpoints(connection, thread.tenant)
    unstored = {gap.place: gap.reason for gap in tenant_gaps if gap.thread == thread.number}
    lost_values = {row[1] for row in ONLY_IN.run_listed(connection, lost, of_family=thread.family)}
    by_place: dict[Place, RecordedCheckpoint] = {}
    rows = _ROWS.run(connection, of_thread=thread.number, **between)
    # A few at a time: states and metadata of many checkpoints need much memory.
    while fetched := rows.fetchmany(_ROWS_AT_ONCE):
        batch = [row for row in (Row(*columns) for columns in fetched) if row.place[1:] in wanted]
        numbers = [[row.seq, *(write[5] for write in written[row.place[1:]])] for row in batch]
        located_at = segment_refs.of_rows(connection, thread.tenant, batch, numbers)
        for row, seqs, location in zip(batch, numbers, located_at, strict=True):
            place = row.place[1:]
            entry = entry_of(row, max(seqs), location.segments)
            in_lost = any(segment.sha256 in lost for segment in entry.segments)
            gap = unstored.get(place, "")
            lacks_write = any(is_evicted for *_, is_evicted in written[place])
            channels = decode_channels(row.state) if lost_values else ()
            lacks_value = any(channel.digest in lost_values for channel in channels)
            pending = [tuple(write[:5]) for write in written[place]]
            by_place[place] = RecordedCheckpoint(
                replace(entry, metadata=b"", certified=entry.certified and not (gap or in_lost)),
                seq=row.seq,
                certified_seq=row.certified_seq,
                content=row_digests(row.state, entry.metadata, row.delta_base or b"", pending),
                gap=gap,
                lost=lacks_value or (in_lost and lacks_write),
            )
    return by_place


_THREADS = Statement(
    select(*THREAD, STORED_THROUGH)
    .where(
        threads.c.tenant == bindparam("of_tenant"),
        threads.c.thread_id > bindparam("after"),
        or_(threads.c.certified_seq > 0, STORED_THROUGH.is_not(None)),
    )
    .order_by(threads.c.thread_id)
    .limit(bindparam("most"))
)
_ENDING = Statement(
    select(removed.c.seq).where(of_thread(removed), removed.c.checkpoint_id == EMPTY)
)
_ALL_ROWS = Statement(select(*CHECKPOINT_COLUMNS).where(of_thread(checkpoints)))
_ALL_WRITES = Statement(
    select(writes.c.checkpoint_ns, writes.c.checkpoint_id, writes.c.seq).where(
        of_thread(writes), writes.c.early_us.is_(None)
    )
)
_HELD = Statement(select(checkpoints.c.held).where(of_thread(checkpoints)))
_PINS = Statement(select(*(handoffs.c[name] for name in Pin._fields)).where(of_thread(handoffs)))


class ReadRecords(NamedTuple):
    """Records of some threads, and the rows that are not as the server wrote them."""

    records: list[formats.Record]
    gaps: list[PlannedGap]  # checkpoints whose rows are damaged, or whose segments do not open
    unopened: set[bytes]  # segments whose keys do not open in the journal
    # numbers of threads whose rows were put back, deleted or added, by name
    put_back: dict[str, int]
    last: str  # name of the last thread; empty: no more threads follow


def records(
    connection: Connection, tenant: str, generation: int, after: str, most: int
) -> ReadRecords:
    """Return the records of the next threads, in the order of their names."""
    result = ReadRecords([], [], set(), {}, "")
    lost = gaps.lost_hashes(connection, tenant)
    unstored: dict[int, list[Gap]] = {}
    for gap in gaps.unstored_checkpoints(connection, tenant):
        unstored.setdefault(gap.thread, []).append(gap)
    rows = _THREADS.run(connection, of_tenant=tenant, after=after, most=most).fetchall()
    for *columns, stored_through in rows:
        thread = DirtyThread(*columns)
        try:
            thread.check(binder_of(connection))
        except RowDamagedError as damage:
            arguments = (thread.thread_id, tenant, damage)
            _log.error("thread %r of tenant %s is recorded as far as it is stored: %s", *arguments)
            _distrust(connection, thread, stored_through)
        else:
            if not has_its_rows(connection, thread):
                result.put_back[thread.thread_id] = thread.number
                _log.error("thread %r of tenant %s: %s", thread.thread_id, tenant, MISSING)
        thread_gaps = unstored.get(thread.number, ())
        holders = Holders(connection, thread)
        ranges = [*holders.ranges(), *holders.unopened.values()]
        of_thread_now = _Records(
            connection, generation, thread, lost, thread_gaps, holders, ranges, result.gaps
        )
        result.records.extend(of_thread_now.all())
        result.unopened.update(holders.unopened)
        for member in holders.unopened.values():
            _log.error(
                "thread %r of tenant %s needs segment %s in blob %s, whose key does not open in "
                "the journal: it was changed, or put there from elsewhere; what it holds is stored "
                "again from the journal",
                *(thread.thread_id, tenant, member.location.sha256.hex(), member.location.blob_id),
            )
        result = result._replace(last=thread.thread_id)
    return result


def _distrust(connection: Connection, thread: DirtyThread, stored_through: int | None) -> None:
    """Take from a thread's segments what its damaged row may state wrongly.

    Otherwise a changed bit of the watermark, or of the mark that the thread was deleted, would
    remove certified checkpoints from the catalog. No segment has the thread's agent and settings.
    These are not recorded, because a retention that nobody set would delete recovered checkpoints.
    """
    thread.settings_seq = 0
    rows = _HELD.run(connection, of_thread=thread.number).fetchall()
    held_seqs = [decode_held(row[0]).seq for row in rows]
    thread.certified_seq = max(stored_through or 0, *held_seqs, 0)
    thread.deleted = thread.deleted and not held_seqs


@dataclass(slots=True)
class _Records:
    """Records of one thread, up to its watermark."""

    _connection: Connection
    _generation: int
    _thread: DirtyThread
    _lost: Mapping[bytes, str]
    _unstored: Sequence[Gap]
    _holders: Holders
    _ranges: Sequence[StoredMember]
    _damaged: list[PlannedGap]  # collects checkpoints that are not recorded
    _named: dict[bytes, None] = field(default_factory=dict)

    def all(self) -> list[formats.Record]:
        """Return all records of the thread."""
        thread = self._thread
        if thread.deleted:
            if self._rows_of(_ENDING):
                return []  # the next flush records the end
            return [formats.EndRecord(*self._at(thread.certified_seq), thread.deleted_through)]
        thread_records: list[formats.Record] = []
        if thread.deleted_through and thread.incarnation > 0:
            # The thread row has the greatest ID that earlier incarnations deleted.
            position = (thread.thread_id, thread.incarnation - 1, self._generation, 0)
            thread_records.append(formats.EndRecord(*position, thread.deleted_through))
        unstored = self._unstored
        thread_records += [
            formats.GapRecord(*self._at(gap.seq), gap.reason, *gap.place) for gap in unstored
        ]
        thread_records += self._stored({gap.place for gap in unstored})
        for pin in map(Pin._make, self._rows_of(_PINS)):
            if pin.seq <= thread.certified_seq:
                self._named[pin.sha256] = None
                thread_records.append(formats.PinRecord(*self._at(pin.seq), *pin[:3]))
        if 0 < thread.settings_seq <= thread.certified_seq:
            thread_records.append(thread.setting(self._generation))
        return thread_records + self._members()

    def _rows_of(self, statement: Statement) -> list[SqlRow]:
        return statement.run(self._connection, of_thread=self._thread.number).fetchall()

    def _at(self, seq: int) -> tuple[str, int, int, int]:
        return self._thread.at(self._generation, seq)

    def _stored(self, unstored: set[tuple[str, str]]) -> Iterable[formats.Record]:
        certified = self._thread.certified_seq
        written: dict[tuple[str, str], list[int]] = {}
        for checkpoint_ns, checkpoint_id, seq in self._rows_of(_ALL_WRITES):
            if seq <= certified:
                written.setdefault((checkpoint_ns, checkpoint_id), []).append(seq)
        for columns in self._rows_of(_ALL_ROWS):
            checkpoint = dirty_checkpoint(self._connection, self._thread, columns)
            row, held, place = checkpoint.row, checkpoint.held, checkpoint.place
            if row is None or place in unstored:
                continue
            seqs, is_stored = written.get(place, []), row.seq <= certified
            segment = held.segments[0] if row.seq <= held.seq else self._range(row.seq)
            written_to = self._segments_of(held, seqs)
            # A damaged row would be recorded with another state than its segment has.
            problem = checkpoint.problem if is_stored else ""
            problem = problem or self._problem([*([segment] if is_stored else []), *written_to])
            if problem:
                last_seq = max(row.seq if is_stored else 0, *seqs, 0)
                yield formats.GapRecord(*self._at(last_seq), problem, *place)
                number, size = self._thread.number, checkpoint.size
                self._damaged.append(PlannedGap(number, *place, last_seq, problem, size))
                continue
            if is_stored and segment is not None:
                held_ns = self._held_ns(segment, row.checkpoint_ns)
                yield self._thread.record(self._generation, row, segment, held_ns)
            for sha256, seq in written_to.items():
                if sha256 is not None:
                    held_ns = self._held_ns(sha256, place[0])
                    yield formats.WritesRecord(*self._at(seq), *place, sha256, held_ns)

    def _problem(self, segments: Collection[bytes | None]) -> str:
        """Return why segments cannot be read, `None` being an unrecorded segment; else empty."""
        if None in segments:
            return "the segment that holds it is not recorded in the journal"
        return self._holders.why_unreadable(filter(None, segments))

    def _held_ns(self, segment: bytes, checkpoint_ns: str) -> str | None:
        """Note that a segment is named; return the namespace that a copy has in the segment."""
        self._named[segment] = None
        thread, holder = self._thread, self._holders.by_hash(segment)
        is_own = holder is not None and holder.is_of(thread.number, thread.incarnation)
        return None if is_own else checkpoint_ns

    def _segments_of(self, held: ForeignSegments, seqs: Iterable[int]) -> dict[bytes | None, int]:
        """Return the segments that contain writes, and the last change of writes in each."""
        newest: dict[bytes | None, int] = {}
        for seq in seqs:
            if seq <= held.seq:
                newest.update(dict.fromkeys(held.writes, held.seq))
            else:
                segment = self._range(seq)
                newest[segment] = max(seq, newest.get(segment, 0))
        return newest

    def _range(self, seq: int) -> bytes | None:
        return next((member.location.sha256 for member in self._ranges if member.has(seq)), None)

    def _members(self) -> list[formats.Record]:
        """Return records of all named members, the members that these name, and the parts.

        All segments that the thread uses count, because later flushes name them and rely on their
        records. For instance, a checkpoint that is stored alone may be above the watermark.
        """
        members: dict[bytes, StoredMember] = {}
        identity = (self._thread.number, self._thread.incarnation)
        used = [sha256 for (sha256,) in self._rows_of(segment_index.USED_BY)]
        own_hashes = [member.location.sha256 for member in self._ranges if member.is_of(*identity)]
        waiting = [*self._named, *own_hashes, *used]
        while waiting:
            sha256 = waiting.pop()
            holder = self._holders.by_hash(sha256)
            if holder is not None and sha256 not in members:
                members[sha256] = holder
                waiting += (*holder.needed, *holder.part_hashes)
        position = self._at(self._thread.certified_seq)
        member_records: list[formats.Record] = [
            formats.GapRecord(*position, self._lost[sha256], segment=sha256)
            for sha256 in members
            if sha256 in self._lost
        ]
        for member in members.values():
            ends = (
                (member.first_seq or 0, member.last_seq or 0) if member.is_of(*identity) else (0, 0)
            )
            needs = tuple(
                needed for needed in (*member.needed, *member.part_hashes) if needed in members
            )
            member_records.append(
                formats.MemberRecord(*position, member.location, member.kind, needs, *ends)
            )
        return member_records
