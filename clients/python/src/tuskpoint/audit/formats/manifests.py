"""Manifests: segments, the chain that they make, and what their records say together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum

from .stored import Fields, Location, Malformed

SEGMENT_RECORDS = 64

Place = tuple[str, str]
"""Namespace and checkpoint ID."""


class RecordType(StrEnum):
    """What a record says of its checkpoint."""

    PUT = "PUT"
    WRITES = "WRITES"
    LABEL = "LABEL"
    SUMMARY = "SUMMARY"
    HIDE = "HIDE"
    RETRACT = "RETRACT"


@dataclass(frozen=True, slots=True)
class Record:
    """One record; fields that its type does not have are empty."""

    type: RecordType
    place: Place
    revision: int = 0
    envelope: Location | None = None
    parent_id: str = ""
    label: str = ""
    summary: str = ""
    lineage: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Segment:
    """One stored segment. `previous` is `None` in segment 0."""

    thread_id: str
    incarnation: int
    generation: int
    number: int
    previous: Location | None
    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class ManifestHead:
    """Where a manifest ends, and what is known of it; `None`: it is not known."""

    location: Location
    number: int | None = None
    generation: int | None = None
    records: int | None = None


def read_segment(data: bytes, holder: str) -> Segment:
    """Return the segment in stored bytes.

    Args:
        data: The stored bytes.
        holder: Blob that they lie in.

    Raises:
        Malformed: It is none.
    """
    fields = Fields.parse(data)
    records = tuple(_record(record, holder) for record in fields.children("records"))
    if len(records) > SEGMENT_RECORDS:
        raise Malformed(f"it has more than {SEGMENT_RECORDS} records")
    segment = Segment(
        thread_id=fields.text("thread_id"),
        incarnation=fields.count("incarnation"),
        generation=fields.count("generation"),
        number=fields.count("segment"),
        previous=fields.optional_location("previous", holder),
        records=records,
    )
    if (segment.number == 0) != (segment.previous is None):
        raise Malformed("exactly segment 0 has no predecessor")
    return segment


def _record(fields: Fields, holder: str) -> Record:
    spelled = fields.text("type")
    try:
        kind = RecordType(spelled)
    except ValueError:
        raise Malformed(f"records of type '{spelled}' are not known") from None
    place = (fields.text("checkpoint_ns"), fields.text("checkpoint_id"))
    if kind is RecordType.RETRACT:
        return Record(kind, place)
    record = Record(kind, place, fields.count("revision"))
    if kind in (RecordType.PUT, RecordType.WRITES):
        record = replace(record, envelope=fields.child("envelope").location(holder))
    if kind in (RecordType.PUT, RecordType.LABEL):
        record = replace(record, label=fields.text("label"))
    if kind in (RecordType.PUT, RecordType.SUMMARY):
        record = replace(record, summary=fields.text("summary"))
    if kind is RecordType.PUT:
        fields.count("create_time_us")
        record = replace(
            record,
            parent_id=fields.text("parent_checkpoint_id"),
            lineage=_lineage(fields.child("lineage")),
        )
    return record


def _lineage(fields: Fields) -> tuple[tuple[str, str], ...]:
    names = ("forked_from", "rolled_back_from", "adopted_from")
    return tuple((name, fields.text(name)) for name in names if fields.has(name))


# --- the chain -------------------------------------------------------------------------


class Chain:
    """Checks segments that came by the hash of their successor, the newest first.

    Args:
        head: What is known of the end of the manifest.
        thread: Thread and incarnation, if they are known.
    """

    def __init__(self, head: ManifestHead, thread: tuple[str, int] | None = None) -> None:
        self._head = head
        self._thread = thread
        self.segments: list[Segment] = []
        self.wanted: Location | None = head.location

    @property
    def next_number(self) -> int | None:
        """Number of the wanted segment, if it is known."""
        return self.segments[-1].number - 1 if self.segments else self._head.number

    def take(self, segment: Segment) -> str:
        """Take the wanted segment; say what is wrong with it, or nothing."""
        problem = self._problem(segment)
        if problem:
            return problem
        self._thread = (segment.thread_id, segment.incarnation)
        self.segments.append(segment)
        self.wanted = segment.previous
        counted = sum(len(one.records) for one in self.segments)
        recorded = self._head.records
        if self.wanted is None and recorded is not None and counted != recorded:
            return f"the chain has {counted} records where {recorded} were recorded"
        return ""

    def _problem(self, segment: Segment) -> str:
        after = self.segments[-1] if self.segments else None
        number = self.next_number
        if self._thread not in (None, (segment.thread_id, segment.incarnation)):
            return (
                f"segment {segment.number} is of thread '{segment.thread_id}', "
                f"incarnation {segment.incarnation}"
            )
        if number is not None and segment.number != number:
            return f"segment {segment.number} stands where segment {number} belongs"
        if after is None:
            if self._head.generation not in (None, segment.generation):
                return f"segment {segment.number} is of generation {segment.generation}"
        elif segment.generation > after.generation:
            return f"segment {segment.number} is of a later generation than its successor"
        elif segment.generation == after.generation and len(segment.records) < SEGMENT_RECORDS:
            return (
                f"segment {segment.number} has a successor and only {len(segment.records)} records"
            )
        return ""


# --- the fold --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Entry:
    """What a manifest says of one checkpoint that is stored.

    Attributes:
        place: The checkpoint.
        parent_id: Its parent, or empty.
        revision: The certified revision.
        envelope: The full envelope.
        addenda: What came later, oldest first.
        label: Its name, or empty.
        summary: Its summary, or empty.
        lineage: Where it came from besides its parent.
        hidden: It was deleted for readers and is kept for the delta channels of others.
    """

    place: Place
    parent_id: str
    revision: int
    envelope: Location
    addenda: tuple[Location, ...] = ()
    label: str = ""
    summary: str = ""
    lineage: tuple[tuple[str, str], ...] = ()
    hidden: bool = False

    @property
    def envelopes(self) -> tuple[Location, ...]:
        """The full envelope, then the addenda."""
        return (self.envelope, *self.addenda)


@dataclass(slots=True)
class Folded:
    """What all records say together.

    Attributes:
        entries: What is stored.
        retracted: What was deleted and not stored again.
        rootless: Records tell of it, and none says where its envelope is.
    """

    entries: dict[Place, Entry] = field(default_factory=dict)
    retracted: set[Place] = field(default_factory=set)
    rootless: set[Place] = field(default_factory=set)


def fold(segments: Iterable[Segment]) -> Folded:
    """Return what segments say, given oldest first."""
    folded = Folded()
    for segment in segments:
        for record in segment.records:
            _apply(folded, record)
    return folded


def _apply(folded: Folded, record: Record) -> None:
    place = record.place
    if record.type is RecordType.RETRACT:
        folded.entries.pop(place, None)
        folded.rootless.discard(place)
        folded.retracted.add(place)
        return
    if record.type is RecordType.PUT and record.envelope is not None:
        folded.retracted.discard(place)
        folded.rootless.discard(place)
        folded.entries[place] = Entry(
            place,
            record.parent_id,
            record.revision,
            record.envelope,
            label=record.label,
            summary=record.summary,
            lineage=record.lineage,
        )
        return
    entry = folded.entries.get(place)
    if entry is None:
        folded.rootless.add(place)
        return
    folded.entries[place] = replace(
        _changed(entry, record), revision=max(entry.revision, record.revision)
    )


def _changed(entry: Entry, record: Record) -> Entry:
    if record.type is RecordType.LABEL:
        return replace(entry, label=record.label)
    if record.type is RecordType.SUMMARY:
        return replace(entry, summary=record.summary)
    if record.type is RecordType.HIDE:
        return replace(entry, hidden=True, label="")
    if record.envelope is None:
        return entry
    return replace(entry, addenda=(*entry.addenda, record.envelope))
