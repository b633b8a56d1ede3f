"""Audit of one thread: every segment that its checkpoints need, and the content of the segments."""

from __future__ import annotations

import hashlib
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from ...v1 import checkpoint_pb2
from ..formats.records import FoldedThread, Place, Record
from ..formats.segments import (
    MAX_VALUES,
    MIB,
    Segment,
    Values,
    check_values,
    content_size,
    read_segment,
    unpacked,
)
from ..formats.stored import Fields, Location, MalformedError
from ..reading import Piece, Reader, all_of, in_pool
from ..verdicts import BlobFinding, Item, ItemKind, ThreadTotal, Verdict, counted

SNAPSHOTS = "$snapshot/"
SNAPSHOT_MEMBERS = "$snapshot/~"
STORES = "$store/"

_BATCH_BYTES = 16 * MIB
"""Bound on stored bytes that a thread reads at once. A single segment is always allowed."""

_KEPT_BYTES = 64 * MIB
"""Bound on unpacked bytes of segments that are kept for segments that name them."""


@dataclass(frozen=True, slots=True)
class _OpenedSegment:
    """A segment, or `None` if it is unusable, and the findings about its pieces."""

    segment: Segment | None
    findings: tuple[BlobFinding, ...]
    reason: str = ""


class Shelf:
    """Opens segments, checks their hashes, and keeps some for segments that name them.

    Args:
        reader: Reads the stored bytes.
    """

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self._kept: OrderedDict[Location, tuple[_OpenedSegment, int]] = OrderedDict()
        self._bytes = 0

    async def fetch(self, locations: Iterable[Location]) -> dict[Location, Piece]:
        """Read the segments that are not kept, concurrently."""
        new_locations = [
            location for location in dict.fromkeys(locations) if location not in self._kept
        ]
        pieces = await all_of(self.reader.read("segment", location) for location in new_locations)
        return dict(zip(new_locations, pieces, strict=True))

    async def open(
        self, location: Location, fetched: dict[Location, Piece], role: str = "segment"
    ) -> _OpenedSegment:
        """Return a segment and drop its prefetched copy."""
        if location in self._kept:
            self._kept.move_to_end(location)
            return self._kept[location][0]
        bounds = self.reader.bounds
        piece = fetched.pop(location, None) or await self.reader.read(role, location)
        whole = await self.reader.read_whole(role, piece, location, bounds.segment)
        data = whole.data
        if data is None:
            return _OpenedSegment(None, whole.findings, whole.reason)
        try:
            size = content_size(data)
            if size <= bounds.segment and len(data) + 2 * size > bounds.memory:
                root, *parts = whole.findings
                return _OpenedSegment(None, (self.reader.too_large(root, size), *parts))
            segment = await in_pool(
                size,
                lambda: read_segment(data, location.blob_id, bounds.segment, bounds.fields),
            )
        except MalformedError as error:
            return _OpenedSegment(None, whole.findings, str(error))
        opened = _OpenedSegment(segment, whole.findings)
        if size <= _KEPT_BYTES // 4 and location not in self._kept:
            self._kept[location] = (opened, size)
            self._bytes += size
        while self._bytes > _KEPT_BYTES:
            self._bytes -= self._kept.popitem(last=False)[1][1]
        return opened


@dataclass(frozen=True, slots=True)
class ThreadFindings:
    """The findings about a thread.

    Attributes:
        total: Totals of the thread.
        items: Checkpoints of the thread, and the bundles of its hand-offs.
        captured: IDs of the captured checkpoints, for a thread that describes a snapshot.
    """

    total: ThreadTotal
    items: tuple[Item, ...]
    captured: tuple[str, ...] = ()


@dataclass(slots=True)
class _Job:
    """A segment, and the records that name it."""

    location: Location | None
    needs: tuple[Location, ...] = ()
    records: list[Record] = field(default_factory=list)


async def audit_thread(shelf: Shelf, folded: FoldedThread) -> ThreadFindings:
    """Audit the segments that the records of a thread lead to."""
    return await _ThreadAudit(shelf, folded).run()


class _ThreadAudit:
    def __init__(self, shelf: Shelf, folded: FoldedThread) -> None:
        self._shelf = shelf
        self._folded = folded
        self._found: defaultdict[Place, list[Item]] = defaultdict(list)
        self._captured: tuple[str, ...] = ()
        self._lost = {name: gap for name, gap in folded.gaps.items() if isinstance(name, str)}

    async def run(self) -> ThreadFindings:
        folded, reader = self._folded, self._shelf.reader
        jobs = self._jobs()
        reader.expect(len(jobs) + len(folded.pins))
        for batch in _batches(list(jobs.values())):
            locations = (
                location
                for job in batch
                for location in (job.location, *job.needs)
                if location is not None
            )
            fetched = await self._shelf.fetch(locations)
            for job in batch:
                async with reader.alone:  # unpacked segments are large: check one at a time
                    await self._judge(job, fetched)
                reader.step("segments")
        items = [self._checkpoint(place) for place in self._places()]
        items += [await self._bundle(pin) for pin in folded.pins]
        total = ThreadTotal(
            thread_id=folded.thread_id,
            incarnation=folded.incarnation,
            ended=folded.ended,
            snapshot=folded.thread_id.startswith(SNAPSHOTS),
            facts=folded.facts,
            records=folded.records,
            segments=len(jobs),
            checkpoints=counted(items),
        )
        return ThreadFindings(total, tuple(items), self._captured)

    def _jobs(self) -> dict[str, _Job]:
        """Return the segments to read, with the records that name each segment."""
        folded = self._folded
        jobs: dict[str, _Job] = {}
        writes = (write for group in folded.writes.values() for write in group)
        for record in (*folded.checkpoints.values(), *writes):
            sha256 = record.fields["segment"]
            if sha256 not in jobs:
                member = folded.members.get(sha256)
                needs = map(self._where, member.fields.get("needs", ())) if member else ()
                jobs[sha256] = _Job(self._where(sha256), tuple(filter(None, needs)))
            jobs[sha256].records.append(record)
        return jobs

    def _note(
        self, record: Record, blobs: Iterable[BlobFinding] = (), reason: str = "", note: str = ""
    ) -> None:
        """Add a finding about a checkpoint, unless its loss is recorded."""
        notes = (note,) if note else ()
        item = Item.of(ItemKind.CHECKPOINT, blobs, reason, notes=notes)
        missing = {blob.expected_sha256 for blob in item.blobs if blob.verdict is Verdict.MISSING}
        sha256 = record.fields["segment"]
        if item.verdict is Verdict.MISSING and (
            sha256 in self._lost or missing <= self._lost.keys()
        ):
            gap = self._lost.get(sha256) or self._lost[min(missing)]
            item = replace(item, verdict=Verdict.GAP, reason=_lost(gap))
        self._found[record.place].append(item)

    def _where(self, sha256: str) -> Location | None:
        """Return the recorded location of a segment, or of the list of its parts."""
        member = self._folded.members.get(sha256)
        return None if member is None or member.fields["holds"] == "part" else member.location

    async def _judge(self, job: _Job, fetched: dict[Location, Piece]) -> None:
        """Compare the records of a job with the segment that they name."""
        if job.location is None:
            sha256 = job.records[0].fields["segment"]
            opened = _OpenedSegment(None, (), f"no record has the location of segment {sha256}")
        else:
            opened = await self._shelf.open(job.location, fetched)
        segment = opened.segment
        if segment is None:
            for record in job.records:
                self._note(record, opened.findings, opened.reason)
            return
        members: dict[str, _OpenedSegment] = {}
        for hint, _ in segment.members:
            try:
                members[hint.sha256] = await self._shelf.open(self._place_of(hint), fetched)
            except MalformedError as error:
                members[hint.sha256] = _OpenedSegment(None, (), str(error))
        usable = {sha256: member.segment for sha256, member in members.items()}
        size = sum(value.size_bytes for value in segment.values.values())
        values = await in_pool(size, lambda: check_values(segment, usable))
        for record in job.records:
            self._judge_record(record, opened, segment, members, values)

    def _place_of(self, hint: Location) -> Location:
        """Return the location of a segment that another names; records are newer than its hint."""
        return self._where(hint.sha256) or hint

    def _judge_record(
        self,
        record: Record,
        opened: _OpenedSegment,
        segment: Segment,
        members: dict[str, _OpenedSegment],
        values: Values,
    ) -> None:
        place, thread_id = record.held_place, self._folded.thread_id
        if record.kind == "checkpoint":
            reason = _row_problem(segment, record)
            digests = segment.needs.get(place, frozenset())
        else:
            writes = segment.writes.get(place, ())
            reason = "" if writes else "its segment does not hold the writes that a record names"
            digests = frozenset(write.digest for write in writes)
        blobs = list(opened.findings)
        segments = {sha256 for digest in digests for sha256 in values.segments_of.get(digest, ())}
        for sha256 in sorted(segments):
            blobs += members[sha256].findings
            reason = reason or members[sha256].reason
        problems = sorted(
            values.problems[digest] for digest in digests if digest in values.problems
        )
        reason = reason or next(iter(problems), "")
        note, made_for = "", segment.message.thread_id
        if made_for != thread_id and "held_ns" in record.fields:
            note = f"shares the segment that was made for thread '{made_for}'"
        elif made_for != thread_id:
            reason = reason or f"its segment is of thread '{made_for}'"
        self._note(record, blobs, reason, note)
        if record.kind == "checkpoint" and not reason and thread_id == SNAPSHOTS + place[1]:
            self._capture(segment, place, record)

    def _capture(self, segment: Segment, place: Place, record: Record) -> None:
        """Add the checkpoints that a snapshot captured."""
        state = checkpoint_pb2.CheckpointState.FromString(segment.rows[place].state)
        digests = [channel.digest for channel in state.channels if channel.name == "members"]
        try:
            data = unpacked(segment.values[digests[0]]) if digests else b""
            members = Fields.parse(b'{"members":%s}' % data, "").children("members")
            self._captured = tuple(member.name("checkpoint_id") for member in members)
        except (MalformedError, KeyError) as error:
            self._note(record, reason=f"it describes no snapshot: {error}")

    # --- results -------------------------------------------------------------------------

    def _places(self) -> list[Place]:
        folded = self._folded
        gaps = (gap for gap in folded.gaps if isinstance(gap, tuple))
        return sorted({*folded.checkpoints, *folded.writes, *gaps})

    def _checkpoint(self, place: Place) -> Item:
        """Return the item of a checkpoint, with the worst finding about its segments."""
        items = self._found[place]
        notes = list(dict.fromkeys(note for item in items for note in item.notes))
        gap, stored = self._folded.gaps.get(place), self._folded.checkpoints.get(place)
        if gap is not None and (stored is None or stored.rank <= gap.rank):
            items.append(Item(ItemKind.CHECKPOINT, verdict=Verdict.GAP, reason=_lost(gap)))
        elif stored is None:
            notes.append("only writes of it are stored, which wait for it")
        gravest = max(items, key=lambda item: list(Verdict).index(item.verdict))
        return Item(
            ItemKind.CHECKPOINT,
            self._folded.thread_id,
            *place,
            gravest.verdict,
            gravest.reason,
            tuple(notes),
            tuple(dict.fromkeys(blob for item in items for blob in item.blobs)),
        )

    async def _bundle(self, pin: Record) -> Item:
        """Check that the bundle of a hand-off exists and contains the checkpoint."""
        more = {"thread_id": self._folded.thread_id, "checkpoint_id": pin.place[1]}
        location = self._where(pin.fields["segment"])
        self._shelf.reader.step("bundles")
        if location is None:
            reason = f"no record has the location of bundle {pin.fields['segment']}"
            return Item.of(ItemKind.BUNDLE, (), reason, **more)
        async with self._shelf.reader.alone:
            opened = await self._shelf.open(location, {}, "bundle")
            reason = opened.reason
            if opened.segment is not None:
                reason = await bundle_problem(opened.segment, pin.place)
        return Item.of(ItemKind.BUNDLE, opened.findings, reason, **more)


async def bundle_problem(segment: Segment, handed_off: Place) -> str:
    """Return the problem of a segment as the bundle of a hand-off; empty for no problem."""
    message = segment.message
    place = (message.handoff.checkpoint_ns, message.handoff.checkpoint_id)
    if not message.HasField("handoff"):
        return "it is a segment without a hand-off"
    if place != handed_off:
        return f"it hands off checkpoint '{place[1]}' and not '{handed_off[1]}'"
    if not segment.writes.keys() <= segment.rows.keys():
        return "it has writes of a checkpoint that it lacks"
    if any(
        channel.ancestor_checkpoint_id
        for row in segment.rows.values()
        for channel in row.delta_base.channels
    ):
        return "a delta channel is rebuilt from an ancestor that it lacks"
    size = sum(value.size_bytes for value in message.values)
    size += sum(write.size_bytes for write in message.writes)
    if size > MAX_VALUES:
        return f"its values take {size} bytes where {MAX_VALUES} are the most"
    values = await in_pool(size, lambda: check_values(segment, {}))
    return min(values.problems.values(), default="")


def _row_problem(segment: Segment, record: Record) -> str:
    """Return the contradiction between a segment and a checkpoint's record; empty for none."""
    row = segment.rows.get(record.held_place)
    if row is None:
        return "its segment does not hold it"
    actual, expected = hashlib.sha256(row.state).hexdigest(), record.fields["state_sha256"]
    if actual != expected:
        return f"its state has SHA-256 {actual} where the record says {expected}"
    parent = record.fields["parent_checkpoint_id"]
    if row.parent_checkpoint_id != parent and "held_ns" not in record.fields:
        return f"its parent is '{row.parent_checkpoint_id}' where the record says '{parent}'"
    return ""


def _lost(gap: Record) -> str:
    return f"its server recorded at change {gap.rank[1]} that it is lost: {gap.fields['reason']}"


def _batches(jobs: Sequence[_Job]) -> Iterator[list[_Job]]:
    batch: list[_Job] = []
    size = 0
    for job in jobs:
        more = sum(
            location.size_bytes or 0
            for location in (job.location, *job.needs)
            if location is not None
        )
        if batch and size + more > _BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(job)
        size += more
    if batch:
        yield batch
