"""What the records of a flush say, and what its certification changes in the journal.

Pure and synchronous; runs in a worker thread.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from ...domain.formats.records import (
    EndRecord,
    GapRecord,
    MemberRecord,
    PinRecord,
    Record,
    RemovalRecord,
    WritesRecord,
)
from ...domain.formats.stored_json import Kind
from ...domain.model import BlobLocation
from ...journal.archiving.dirty_rows import CheckpointRow, DirtyPlace, DirtyRange, DirtyThread
from ...journal.archiving.holding import Holder
from ...journal.archiving.plan import (
    PlannedHold,
    PlannedHole,
    PlannedMember,
    PlannedThread,
    PlannedUse,
    joined,
)
from ...journal.checkpoints.located import encode_held
from .building import Built, BuiltLone, BuiltSegment, Failed

Locate = Callable[[bytes, int], BlobLocation]
"""Returns where bytes with this hash and size lie, or will lie."""


@dataclass(slots=True)
class Recorded:
    """Records of a flush, and what goes into its plan."""

    records: list[Record] = field(default_factory=list)
    threads: list[PlannedThread] = field(default_factory=list)
    members: list[PlannedMember] = field(default_factory=list)
    named: set[bytes] = field(default_factory=set)
    uses: list[PlannedUse] = field(default_factory=list)
    holds: list[PlannedHold] = field(default_factory=list)
    holes: list[PlannedHole] = field(default_factory=list)
    filled: list[int] = field(default_factory=list)
    postponed: list[tuple[int, str]] = field(default_factory=list)


def record(
    built: Built,
    used: Collection[tuple[bytes, int]],
    generation: int,
    locate: Locate,
) -> Recorded:
    """Return the records of a flush and what goes into its plan.

    Args:
        built: Its segments, whose hashes are known.
        used: Segments and threads of which it is recorded that the thread needs the segment.
        generation: Generation of the logs.
        locate: Says where segments and parts lie.
    """
    recorder = _Recorder(used, generation, locate)
    for dirty, segment in built.ranges:
        recorder.range(dirty, segment)
    for one in built.alone:
        recorder.alone(one)
    for bad in built.failed:
        recorder.failed(bad)
    return recorder.recorded


class _Recorder:
    def __init__(
        self, used: Collection[tuple[bytes, int]], generation: int, locate: Locate
    ) -> None:
        self.recorded = Recorded()
        self._used = used
        self._generation = generation
        self._locate = locate

    def range(self, dirty: DirtyRange, segment: BuiltSegment | None) -> None:
        """Record a range of a thread."""
        thread, records = dirty.thread, self.recorded.records
        for gone in dirty.removed:
            where = (thread.thread_id, gone.incarnation, self._generation, gone.seq)
            if gone.checkpoint_id:
                records.append(RemovalRecord(*where, gone.checkpoint_ns, gone.checkpoint_id))
            else:
                records.append(EndRecord(*where, thread.deleted_through))
        if thread.certified_seq < thread.settings_seq <= dirty.through and not thread.deleted:
            records.append(thread.setting(self._generation))
        stored = [one for one in dirty.places if not one.problem]
        for one in stored:
            self._place(dirty, one, segment)
        if segment is not None:
            self._segment(dirty.thread, segment, dirty.through)
            named = {holder.location.sha256: holder for holder in dirty.named.values()}
            for sha256 in segment.needs:
                self._needed(dirty, named[sha256], dirty.through)
        self._copies(dirty, stored)
        self._bundles(dirty)
        self.recorded.threads.append(
            PlannedThread(
                thread.number,
                thread.thread_id,
                thread.certified_seq,
                dirty.through,
                dirty.size_bytes,
                any(not gone.checkpoint_id for gone in dirty.removed),
                len(stored),
            )
        )

    def alone(self, one: BuiltLone) -> None:
        """Record a checkpoint in a segment of its own."""
        lone, segment = one.lone, one.segment
        thread, dirty = lone.thread, lone.dirty
        last_seq = dirty.last_seq
        if dirty.row is not None:
            self._checkpoint(thread, dirty.row, segment.sha256)
        if dirty.writes:
            self._writes(thread, dirty, segment.sha256)
        self._segment(thread, segment, last_seq)
        self.recorded.holds.append(
            PlannedHold(thread.number, *dirty.place, encode_held(last_seq, (segment.sha256,)))
        )
        if lone.hole:
            self.recorded.filled.append(lone.hole)
            seq = max(last_seq, lone.hole_seq)
            self.recorded.records.append(
                GapRecord(*thread.at(self._generation, seq), "", *dirty.place)
            )

    def failed(self, bad: Failed) -> None:
        """Record a checkpoint that is not stored."""
        thread, dirty = bad.thread, bad.dirty
        if bad.hole and dirty.last_seq <= bad.hole_seq:
            self.recorded.postponed.append((bad.hole, dirty.problem))
            return
        where = thread.at(self._generation, dirty.last_seq)
        self.recorded.records.append(GapRecord(*where, dirty.problem, *dirty.place))
        self.recorded.holes.append(
            PlannedHole(thread.number, *dirty.place, dirty.last_seq, dirty.problem, dirty.size)
        )

    def _place(self, dirty: DirtyRange, one: DirtyPlace, segment: BuiltSegment | None) -> None:
        thread = dirty.thread
        if one.row is not None and one.held_row:
            first = dirty.holders[one.elsewhere[0]]
            self._checkpoint(thread, one.row, first.location.sha256, _held_ns(thread, one, first))
        elif one.row is not None and segment is not None:
            self._checkpoint(thread, one.row, segment.sha256)
        if one.held is not None and one.held_writes:
            where = thread.at(self._generation, one.held.seq)
            for sha256 in one.elsewhere:
                held_ns = _held_ns(thread, one, dirty.holders[sha256])
                self.recorded.records.append(WritesRecord(*where, *one.place, sha256, held_ns))
        if one.writes and segment is not None:
            self._writes(thread, one, segment.sha256)

    def _checkpoint(
        self,
        thread: DirtyThread,
        row: CheckpointRow,
        segment: bytes,
        held_ns: str | None = None,
    ) -> None:
        self.recorded.records.append(row.record(thread, self._generation, segment, held_ns))

    def _writes(self, thread: DirtyThread, one: DirtyPlace, segment: bytes) -> None:
        seq = max(write.seq for write in one.writes)
        self.recorded.records.append(
            WritesRecord(*thread.at(self._generation, seq), *one.place, segment)
        )

    def _segment(self, thread: DirtyThread, segment: BuiltSegment, seq: int) -> None:
        """Record a segment that is stored with this flush, and its parts."""
        location = self._locate(segment.sha256, len(segment.data))
        parts = [self._locate(hashlib.sha256(part).digest(), len(part)) for part in segment.parts]
        hashes = [part.sha256 for part in parts]
        kind = Kind.PARTS if parts else Kind.SEGMENT
        self.recorded.members.append(
            PlannedMember(
                location,
                kind.value,
                thread.number,
                thread.incarnation,
                segment.first_seq,
                segment.last_seq,
                joined(segment.needs),
                joined(hashes),
                segment.digests,
                segment.patched,
            )
        )
        self.recorded.uses.append(PlannedUse(segment.sha256, thread.number))
        where = thread.at(self._generation, seq)
        self.recorded.records.append(
            MemberRecord(
                *where,
                location,
                kind,
                (*segment.needs, *hashes),
                segment.first_seq or 0,
                segment.last_seq or 0,
            )
        )
        for part in parts:
            self.recorded.members.append(PlannedMember(part, Kind.PART.value))
            self.recorded.records.append(MemberRecord(*where, part, Kind.PART))

    def _needed(
        self, dirty: DirtyRange, holder: Holder, seq: int, needs: tuple[bytes, ...] = ()
    ) -> None:
        """Record an earlier segment that the thread needs.

        What the thread's own log holds is recorded already. A record of rank 0 says where
        something lies without overriding what is said of it.
        """
        thread, sha256 = dirty.thread, holder.location.sha256
        self.recorded.named.add(sha256)
        self.recorded.uses.append(PlannedUse(sha256, thread.number))
        if holder.is_of(thread.number, thread.incarnation):
            return
        parts = [dirty.holders[part] for part in holder.parts if part in dirty.holders]
        where = thread.at(self._generation, seq)
        if not needs and (sha256, thread.number) in self._used:
            where = (thread.thread_id, thread.incarnation, 0, 0)
        self.recorded.records.append(
            MemberRecord(*where, holder.location, Kind(holder.kind), (*needs, *holder.parts))
        )
        for part in parts:
            self.recorded.records.append(MemberRecord(*where, part.location, Kind.PART))

    def _copies(self, dirty: DirtyRange, stored: Iterable[DirtyPlace]) -> None:
        holding: dict[bytes, None] = {}
        for one in stored:
            holding.update(dict.fromkeys(one.elsewhere))
        needed: dict[bytes, None] = {}
        for sha256 in holding:
            holder = dirty.holders[sha256]
            self._needed(dirty, holder, dirty.through, holder.needs)
            needed.update(dict.fromkeys(holder.needs))
        for sha256 in needed:
            if sha256 not in holding and sha256 in dirty.holders:
                self._needed(dirty, dirty.holders[sha256], dirty.through)

    def _bundles(self, dirty: DirtyRange) -> None:
        for pin in dirty.pins:
            holder = dirty.bundles.get(pin.sha256)
            if holder is None:
                continue
            where = dirty.thread.at(self._generation, pin.seq)
            place = (pin.checkpoint_ns, pin.checkpoint_id)
            self.recorded.records.append(PinRecord(*where, pin.sha256, *place))
            kind = Kind.PARTS if holder.parts else Kind.SEGMENT
            self.recorded.records.append(MemberRecord(*where, holder.location, kind, holder.parts))
            for sha256 in holder.parts:
                part = dirty.bundles.get(sha256)
                if part is not None:
                    self.recorded.records.append(MemberRecord(*where, part.location, Kind.PART))


def _held_ns(thread: DirtyThread, one: DirtyPlace, holder: Holder) -> str | None:
    """Return the namespace of a copy in another thread's segment; `None`: it is no copy."""
    return None if holder.is_of(thread.number, thread.incarnation) else one.place[0]
