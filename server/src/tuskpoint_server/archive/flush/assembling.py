"""Builds the records, run and catalog of a flush, and the plan of its certification."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Collection, Coroutine, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ...blobs.api import BlobMember
from ...core.model import BlobLocation
from ...core.values import blob_digest
from ...journal.database.thread_rows import Place
from ...journal.values.segment_refs import ForeignSegments, encode_held
from ..formats import records as facts
from ..formats.catalogs import (
    NO_RUNS,
    Catalog,
    advance,
    encode_catalog,
    relocate_members,
    without_threads,
)
from ..formats.runs import Fetch, RunPut, store_records
from ..formats.sealing import Root, Sealer, seal_root
from ..formats.stored_json import Kind
from ..rows.dirty import DirtyPlace, DirtyRange, DirtyThread
from ..rows.plan import Plan, PlannedGap, PlannedThread, StoredMember
from .building import BuiltSegment, Locate
from .collect import CollectedRanges


@dataclass(frozen=True, slots=True)
class Chores:
    """Changes of a catalog that do not come from changes of threads."""

    records: Sequence[facts.Record] = ()
    # current locations of members of earlier puts, by hash
    moved: Mapping[bytes, BlobLocation] = field(default_factory=dict)
    dropped: Sequence[bytes] = ()  # hashes of members that nothing needs
    gaps: Sequence[PlannedGap] = ()  # checkpoints whose `records` say that they are gaps
    anew: bool = False  # whether `records` replace all earlier runs
    # ends of incarnations whose records are removed from the runs at once, by thread
    ended: Mapping[str, facts.EndRecord] = field(default_factory=dict)


@dataclass(slots=True)
class Work:
    """A flush whose segments are built, but which is not spooled yet."""

    taken: CollectedRanges
    begun_us: int
    sealer: Sealer
    root: Root  # key of the flush's catalog
    built: list[BuiltSegment] = field(default_factory=list)
    chores: Chores = field(default_factory=Chores)  # further changes of the flush's catalog
    # locations of members of the flush that are already stored, by hash
    located: dict[bytes, BlobLocation] = field(default_factory=dict)
    left_out: bool = False  # whether the store rejected a part of the flush


class FinalPut(NamedTuple):
    """Content of the final put of a flush."""

    members: list[BlobMember]
    leaves: list[BlobMember]  # the runs among the members, which may be stored before the others
    recorder: Recorder


async def assemble(
    work: Work, tenant: str, journal_id: str, generation: int, predict: Locate, fetch: Fetch
) -> FinalPut:
    """Build the final put of a flush in worker threads; `predict` returns future locations."""
    running = _assemble(work, tenant, journal_id, generation, predict)
    data: bytes | None = None
    while True:
        step = await asyncio.to_thread(_step, running, data)
        if isinstance(step, FinalPut):
            return step
        try:
            data = await fetch(step)
        except BaseException as error:
            # Python 3.11 cannot close a coroutine while a generator in it waits
            running.throw(error)
            raise


def _step(
    running: Coroutine[BlobLocation, bytes | None, FinalPut], data: bytes | None
) -> BlobLocation | FinalPut:
    try:
        return running.send(data)
    except StopIteration as end:
        assembled: FinalPut = end.value
        return assembled


@types.coroutine
def _fetch(location: BlobLocation) -> Generator[BlobLocation, bytes, bytes]:
    """Let the driver of the coroutine fetch a member."""
    return (yield location)


async def _assemble(
    work: Work, tenant: str, journal_id: str, generation: int, predict: Locate
) -> FinalPut:
    members: dict[bytes, BlobMember] = {}
    runs: dict[bytes, BlobLocation] = {}

    def locate(sha256: bytes, size: int) -> BlobLocation:
        return work.located.get(sha256) or predict(sha256, size)

    def add(member: BlobMember) -> BlobLocation:
        if member.sha256 not in work.located:
            members[member.sha256] = member
        return locate(member.sha256, len(member.data))

    def store_run(data: bytes) -> BlobLocation:
        stored, key = work.sealer.seal(data)
        location = add(BlobMember(blob_digest(stored), stored, Kind.RUN))
        runs[location.sha256] = location = replace(location, key=key)
        return location

    async def fetch(location: BlobLocation) -> bytes:
        # A merge may read a run that this flush has just written.
        member = members.get(location.sha256)
        return member.data if member is not None else await _fetch(location)

    for segment in work.built:
        if segment.data:
            for part in segment.parts:
                add(part)
            add(segment.named(locate))
    chores, known = work.chores, work.taken.catalog
    recorder = record(work, generation, locate)
    recorder.records += chores.records
    follows = known is not None and known.catalog.generation == generation
    number = 1 + known.catalog.number if known is not None and follows else 1
    put = RunPut(generation, number, store_run)
    new = store_records(recorder.records, put)
    live = known.catalog.runs if known is not None and not chores.anew else NO_RUNS
    live, rewritten = await relocate_members(live, chores.moved, fetch, put)
    ends = dict(chores.ended)
    if work.root.key:
        ends |= {end.thread_id: end for end in recorder.records if isinstance(end, facts.EndRecord)}
    live, purged = await without_threads(live, ends, fetch, put)
    rewritten += purged
    advanced = await advance(live, new, fetch, put)
    dropped = [*chores.dropped, *rewritten, *(run.sha256 for run in advanced.dropped)]
    for sha256 in dropped:  # members that nothing names need not be stored
        if sha256 in runs and members.pop(sha256, None) is not None:
            del runs[sha256]
    leaves = [members[sha256] for sha256 in runs if sha256 in members]
    previous = known.location if known is not None else None
    content = encode_catalog(
        Catalog(
            tenant=tenant,
            journal_id=journal_id,
            generation=generation,
            number=number,
            created_us=work.begun_us,
            previous=previous,
            runs=advanced.runs,
        )
    )
    catalog = seal_root(content, work.root)
    place = replace(add(BlobMember(blob_digest(catalog), catalog, Kind.CATALOG)), key=work.root.key)
    plan = recorder.plan
    plan.begun_us, plan.catalog = work.begun_us, place.sha256
    plan.previous = previous.sha256 if previous is not None else b""
    plan.members += [StoredMember(run, Kind.RUN) for run in runs.values()]
    plan.members.append(StoredMember(place, Kind.CATALOG))
    plan.gaps += chores.gaps
    plan.dropped += dropped
    plan.dropped += [plan.previous] if plan.previous else []
    plan.moved += chores.moved.values()
    return FinalPut(list(members.values()), leaves, recorder)


def record(work: Work, generation: int, locate: Locate) -> Recorder:
    """Return the records and the plan of a flush whose segments have their hashes."""
    recorder = Recorder(work.taken.used, generation, locate)
    for segment in work.built:
        recorder.add(segment)
    recorder.plan.filled += work.taken.filled
    recorder.plan.named = sorted(recorder.named)
    return recorder


@dataclass(slots=True)
class Recorder:
    """Builds the records of segments, and the plan of their certification."""

    _used: Collection[tuple[bytes, int]]  # recorded uses: segment and thread
    _generation: int
    _locate: Locate
    records: list[facts.Record] = field(default_factory=list)
    plan: Plan = field(default_factory=Plan)
    named: set[bytes] = field(default_factory=set)
    postponed: list[tuple[int, str]] = field(default_factory=list)

    def add(self, segment: BuiltSegment) -> None:
        """Record a range, or a single checkpoint."""
        dirty, thread = segment.dirty, segment.dirty.thread
        checkpoints = [checkpoint for checkpoint in dirty.places if not checkpoint.problem]
        self._changes(dirty)
        for checkpoint in checkpoints:
            self._place(dirty, checkpoint, segment.sha256)
        if segment.data:
            self._segment(segment)
        self._copies(dirty, checkpoints)
        for bad in dirty.places:
            if bad.problem:
                self._failed(dirty, bad)
        if dirty.alone:
            for checkpoint in checkpoints:
                self._hold(dirty, checkpoint.place, segment.sha256)
            return
        ended = any(not removal.checkpoint_id for removal in dirty.removed)
        fields = (thread.number, thread.thread_id, thread.certified_seq, dirty.through)
        self.plan.threads.append(PlannedThread(*fields, dirty.size_bytes, ended, len(checkpoints)))

    def _changes(self, dirty: DirtyRange) -> None:
        """Record the changes in a range that concern the thread itself, and the range's bundles."""
        thread = dirty.thread
        for removal in dirty.removed:
            position = (thread.thread_id, removal.incarnation, self._generation, removal.seq)
            if removal.checkpoint_id:
                self.records.append(
                    facts.RemovalRecord(*position, removal.checkpoint_ns, removal.checkpoint_id)
                )
            else:
                self.records.append(facts.EndRecord(*position, thread.deleted_through))
        is_set = thread.certified_seq < thread.settings_seq <= dirty.through
        if is_set and not thread.deleted and not dirty.alone:
            self.records.append(thread.setting(self._generation))
        for pin in dirty.pins:
            bundle = dirty.holders.get(pin.sha256)
            if bundle is not None:
                position = thread.at(self._generation, pin.seq)
                place = (pin.checkpoint_ns, pin.checkpoint_id)
                self.records.append(facts.PinRecord(*position, pin.sha256, *place))
                self._lies(dirty, position, bundle)

    def _place(self, dirty: DirtyRange, checkpoint: DirtyPlace, segment: bytes) -> None:
        thread, row = dirty.thread, checkpoint.row
        if row is not None and checkpoint.held_row:
            first = dirty.holders[checkpoint.elsewhere[0]]
            held_ns = _held_ns(thread, checkpoint, first)
            self.records.append(
                thread.record(self._generation, row, checkpoint.elsewhere[0], held_ns)
            )
        elif row is not None:
            self.records.append(thread.record(self._generation, row, segment, None))
        if checkpoint.held_writes:
            for sha256 in checkpoint.held.writes:
                held_ns = _held_ns(thread, checkpoint, dirty.holders[sha256])
                self._writes(thread, checkpoint, checkpoint.held.seq, sha256, held_ns)
        if checkpoint.writes:
            seq = max(write.seq for write in checkpoint.writes)
            self._writes(thread, checkpoint, seq, segment, None)

    def _writes(
        self,
        thread: DirtyThread,
        checkpoint: DirtyPlace,
        seq: int,
        segment: bytes,
        held_ns: str | None,
    ) -> None:
        position = thread.at(self._generation, seq)
        self.records.append(facts.WritesRecord(*position, *checkpoint.place, segment, held_ns))

    def _segment(self, segment: BuiltSegment) -> None:
        """Record a segment that is stored with this flush, its parts and the named members."""
        dirty, thread = segment.dirty, segment.dirty.thread
        position = thread.at(self._generation, dirty.through)
        location = replace(self._locate(segment.sha256, len(segment.data)), key=segment.key)
        parts = [self._locate(part.sha256, len(part.data)) for part in segment.parts]
        hashes = [part.sha256 for part in parts]
        first, last = (None, None) if dirty.alone else (thread.certified_seq + 1, dirty.through)
        identity = (location, segment.kind, thread.number, thread.incarnation, first, last)
        contents = (b"".join(segment.needs), b"".join(hashes), segment.digests, segment.patched)
        self.plan.members.append(StoredMember(*identity, *contents))
        self.plan.uses.append((segment.sha256, thread.number))
        needs = (*segment.needs, *hashes)
        self.records.append(
            facts.MemberRecord(*position, location, segment.kind, needs, first or 0, last or 0)
        )
        for part in parts:
            self.plan.members.append(StoredMember(part, Kind.PART))
            self.records.append(facts.MemberRecord(*position, part, Kind.PART))
        for holder in {member.location.sha256: member for member in dirty.named.values()}.values():
            if holder.location.sha256 in segment.needs:
                self._needed(dirty, holder)

    def _copies(self, dirty: DirtyRange, checkpoints: Iterable[DirtyPlace]) -> None:
        """Record the segments that contain copies, and the members that those segments name."""
        hashes = list(
            dict.fromkeys(sha256 for checkpoint in checkpoints for sha256 in checkpoint.elsewhere)
        )
        needed: dict[bytes, None] = {}
        for sha256 in hashes:
            holder = dirty.holders[sha256]
            self._needed(dirty, holder, holder.needed)
            needed.update(dict.fromkeys(holder.needed))
        for sha256 in needed:
            if sha256 not in hashes and sha256 in dirty.holders:
                self._needed(dirty, dirty.holders[sha256])

    def _needed(self, dirty: DirtyRange, holder: StoredMember, needs: Sequence[bytes] = ()) -> None:
        """Record an earlier segment that the thread needs, unless its own log contains it."""
        thread, sha256 = dirty.thread, holder.location.sha256
        self.named.add(sha256)
        self.plan.uses.append((sha256, thread.number))
        if holder.is_of(thread.number, thread.incarnation):
            return
        position = thread.at(self._generation, dirty.through)
        if not needs and (sha256, thread.number) in self._used:
            position = thread.at(0, 0)
        self._lies(dirty, position, holder, needs)

    def _lies(
        self,
        dirty: DirtyRange,
        position: tuple[str, int, int, int],
        holder: StoredMember,
        needs: Sequence[bytes] = (),
    ) -> None:
        """Record the locations of an earlier segment and of its parts."""
        needs = (*needs, *holder.part_hashes)
        self.records.append(facts.MemberRecord(*position, holder.location, holder.kind, needs))
        for part in holder.part_hashes:
            if part in dirty.holders:
                place = dirty.holders[part].location
                self.records.append(facts.MemberRecord(*position, place, Kind.PART))

    def _failed(self, dirty: DirtyRange, bad: DirtyPlace) -> None:
        """Record a checkpoint that cannot be stored."""
        # The sequence number in a damaged row may be greater than any in the log.
        last_seq = min(bad.last_seq, dirty.thread.seq)
        if dirty.gap is not None and last_seq <= dirty.gap.seq:
            self.postponed.append((dirty.gap.number, bad.problem))
            return
        position = dirty.thread.at(self._generation, last_seq)
        self.records.append(facts.GapRecord(*position, bad.problem, *bad.place))
        gap = PlannedGap(dirty.thread.number, *bad.place, last_seq, bad.problem, bad.size)
        self.plan.gaps.append(gap)

    def _hold(self, dirty: DirtyRange, place: Place, segment: bytes) -> None:
        """Record that a checkpoint is stored outside its range, and is not a gap."""
        held = encode_held(ForeignSegments(dirty.through, (segment,)))
        self.plan.holds.append((dirty.thread.number, *place, held))
        if dirty.gap is not None:
            self.plan.filled.append(dirty.gap.number)
            seq = max(dirty.through, dirty.gap.seq)
            self.records.append(
                facts.GapRecord(*dirty.thread.at(self._generation, seq), "", *place)
            )


def _held_ns(thread: DirtyThread, checkpoint: DirtyPlace, holder: StoredMember) -> str | None:
    """Return the namespace of a copy in another thread's segment; `None`: not a copy."""
    return None if holder.is_of(thread.number, thread.incarnation) else checkpoint.place[0]
