"""Manifests: the log of what is certified of one thread incarnation.

A manifest is a chain of segments. Each is a JSON object of at most `SEGMENT_RECORDS`
records and names its predecessor by the SHA-256 of the stored bytes. Only the last one
(the open segment) is ever written again, so a flush rewrites a bounded amount however
long the thread is. Records are folded by "the latest wins". A recovered server goes on
in a new generation, which begins with a segment of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from enum import StrEnum

from .digests import blob_digest
from .model import BlobLocation, Lineage
from .stored_json import JsonObject, Reader, dump, location_json, malformed, resolved

FORMAT_VERSION = 1
SEGMENT_RECORDS = 64
NO_LINEAGE = Lineage()


class RecordType(StrEnum):
    """What a record says about its checkpoint."""

    PUT = "PUT"
    """It is stored in a full envelope; replaces all that was said before."""
    WRITES = "WRITES"
    """An addendum with later writes is stored."""
    LABEL = "LABEL"
    """It has another label."""
    SUMMARY = "SUMMARY"
    """It has another summary."""
    HIDE = "HIDE"
    """It was deleted for readers; delta channels of a descendant are still rebuilt from it."""
    RETRACT = "RETRACT"
    """It was deleted."""


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a manifest.

    Attributes:
        type: What it says.
        checkpoint_ns: Namespace of the checkpoint.
        checkpoint_id: The checkpoint.
        revision: Revision that is certified with this record; 0 in `RETRACT`.
        envelope: In `PUT` and `WRITES` the stored envelope. An empty `blob_id` means: in
            the same quilt as this segment.
        parent_id: In `PUT` the parent, or empty.
        label: In `PUT` and `LABEL` the label, or empty.
        summary: In `PUT` and `SUMMARY` the summary, or empty.
        lineage: In `PUT` the lineage beyond the parent.
        created_us: In `PUT` the time of the first save.
    """

    type: RecordType
    checkpoint_ns: str
    checkpoint_id: str
    revision: int = 0
    envelope: BlobLocation | None = None
    parent_id: str = ""
    label: str = ""
    summary: str = ""
    lineage: Lineage = NO_LINEAGE
    created_us: int = 0


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """The fold of all records about one checkpoint.

    Attributes:
        checkpoint_ns: Namespace of the checkpoint.
        checkpoint_id: The checkpoint.
        parent_id: Parent, or empty.
        revision: Certified revision.
        envelope: The full envelope.
        addenda: Later writes, oldest first.
        held: Revisions that the full envelope and each addendum hold.
        label: Name, or empty.
        summary: One sentence, or empty.
        lineage: Lineage beyond the parent.
        created_us: Time of the first save.
        hidden: It was deleted for readers.
    """

    checkpoint_ns: str
    checkpoint_id: str
    parent_id: str
    revision: int
    envelope: BlobLocation
    addenda: tuple[BlobLocation, ...] = ()
    held: tuple[int, ...] = ()
    label: str = ""
    summary: str = ""
    lineage: Lineage = NO_LINEAGE
    created_us: int = 0
    hidden: bool = False

    @property
    def envelopes(self) -> tuple[BlobLocation, ...]:
        """The full envelope, then the addenda."""
        return (self.envelope, *self.addenda)


@dataclass(frozen=True, slots=True)
class ManifestHead:
    """The latest segment of a manifest; with it the whole chain can be checked.

    Attributes:
        location: Where the segment lies, and its hash.
        segment: Number of the segment, from 0.
        generation: Generation of the chain.
        records: Number of records in the chain.
    """

    location: BlobLocation
    segment: int
    generation: int
    records: int


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment of a manifest. `previous` is `None` in segment 0."""

    thread_id: str
    incarnation: int
    generation: int
    segment: int
    previous: BlobLocation | None = None
    records: tuple[Record, ...] = field(default=())


def encode_segment(segment: Segment) -> bytes:
    """Return the stored bytes."""
    previous = segment.previous
    return dump(
        {
            "format_version": FORMAT_VERSION,
            "thread_id": segment.thread_id,
            "incarnation": segment.incarnation,
            "generation": segment.generation,
            "segment": segment.segment,
            "previous": None if previous is None else location_json(previous),
            "records": [_record_json(record) for record in segment.records],
        }
    )


def decode_segment(data: bytes, name: str) -> Segment:
    """Return what stored bytes hold.

    Args:
        data: The stored bytes, already checked against their hash.
        name: Blob ID, for the refusal.

    Raises:
        Refusal: `BLOB_MALFORMED`.
    """
    reader = Reader.parse(data, name, FORMAT_VERSION)
    records = reader.children("records")
    if len(records) > SEGMENT_RECORDS:
        raise reader.fail(f"a segment holds at most {SEGMENT_RECORDS} records")
    segment = Segment(
        thread_id=reader.text("thread_id"),
        incarnation=reader.number("incarnation"),
        generation=reader.number("generation"),
        segment=reader.number("segment"),
        previous=reader.optional_location("previous"),
        records=tuple(_record(record) for record in records),
    )
    if (segment.segment == 0) != (segment.previous is None):
        raise reader.fail("exactly the first segment has no predecessor")
    return segment


def append(
    segment: Segment,
    stored: BlobLocation | None,
    records: Sequence[Record],
    predict: Callable[[bytes, int], BlobLocation],
    generation: int = 0,
) -> tuple[list[Segment], Segment]:
    """Add records to a manifest.

    Args:
        segment: The open segment.
        stored: Where it is stored as it stands, or `None` if it never was.
        records: What to add, oldest first.
        predict: Hash and size to the location that these bytes will have.
        generation: Generation of what is added, if it is above that of the open segment;
            the next segment begins then, whether or not this one is full.

    Returns:
        Segments that became full, and the new open segment; all of them are to be
        stored in one pack.
    """
    full: list[Segment] = []
    if stored is not None:
        segment = _settled(segment, stored.blob_id)
    generation = max(generation, segment.generation)
    pending = list(records)
    while pending:
        room = SEGMENT_RECORDS - len(segment.records)
        if room == 0 or segment.generation != generation:
            if stored is None:
                full.append(segment)
            segment = Segment(
                thread_id=segment.thread_id,
                incarnation=segment.incarnation,
                generation=generation,
                segment=segment.segment + 1,
                previous=stored or _predicted(segment, predict),
            )
            stored = None
            continue
        segment = replace(segment, records=segment.records + tuple(pending[:room]))
        del pending[:room]
        stored = None
    return full, segment


@dataclass(frozen=True, slots=True)
class Folded:
    """All that a manifest says, by (namespace, checkpoint ID).

    Attributes:
        entries: What is stored, in the order of the last records.
        retracted: What was deleted, and not stored again.
    """

    entries: Mapping[tuple[str, str], ManifestEntry]
    retracted: AbstractSet[tuple[str, str]]


def fold(segments: Iterable[tuple[Segment, str]]) -> dict[tuple[str, str], ManifestEntry]:
    """Return the entries of a manifest by (namespace, checkpoint ID).

    They come in the order of their last records.

    Args:
        segments: Each segment with the blob ID that it was read from, oldest first.

    Raises:
        Refusal: `BLOB_MALFORMED` if a record belongs to a checkpoint without a `PUT`.
    """
    entries: dict[tuple[str, str], ManifestEntry] = {}
    for segment, blob_id in segments:
        for record in segment.records:
            _apply(entries, record, blob_id)
    return entries


def fold_all(segments: Sequence[tuple[Segment, str]]) -> Folded:
    """Return as `fold`, and what was retracted besides."""
    entries = fold(segments)
    retracted = {
        (record.checkpoint_ns, record.checkpoint_id)
        for segment, _ in segments
        for record in segment.records
        if record.type is RecordType.RETRACT
    }
    return Folded(entries, retracted - entries.keys())


class ChainCheck:
    """Checks a chain of segments from its head to its first segment.

    Detects segments that are missing, substituted, reordered, truncated or of another
    thread. While `wanted` is not `None`, the bytes at that location come next;
    `accepted` is the segment that came last.

    Args:
        head: The recorded head; 0 records: it is not known how many there are.
        thread_id: The thread it belongs to.
        incarnation: The thread's incarnation.
    """

    def __init__(self, head: ManifestHead, thread_id: str, incarnation: int) -> None:
        self._head = head
        self._thread = (thread_id, incarnation)
        self._generation = head.generation
        self._number = head.segment
        self._records = 0
        self.wanted: BlobLocation | None = head.location
        self.accepted: Segment | None = None

    def accept(self, data: bytes) -> str:
        """Check the bytes of the wanted segment.

        Returns:
            What is wrong, for people; empty if nothing is.

        Raises:
            Refusal: `BLOB_MALFORMED`.
        """
        wanted = self.wanted
        if wanted is None:
            return "bytes stand before the first segment"
        number = self._number
        actual = blob_digest(data)
        if actual != wanted.sha256:
            return (
                f"segment {number} has SHA-256 {actual.hex()} where "
                f"{wanted.sha256.hex()} was recorded"
            )
        segment = decode_segment(data, wanted.blob_id or f"segment {number}")
        if (segment.thread_id, segment.incarnation) != self._thread:
            return f"segment {number} belongs to another thread or incarnation"
        if segment.segment != number:
            return f"segment {segment.segment} stands where segment {number} belongs"
        is_head = number == self._head.segment
        if segment.generation > self._generation or (
            is_head and segment.generation != self._generation
        ):
            return f"segment {number} belongs to another generation"
        is_open = is_head or segment.generation < self._generation
        if not is_open and len(segment.records) != SEGMENT_RECORDS:
            return f"segment {number} has a successor and only {len(segment.records)} records"
        self._generation = segment.generation
        self._number -= 1
        self._records += len(segment.records)
        self.wanted = segment.previous and resolved(segment.previous, wanted.blob_id)
        self.accepted = segment
        recorded = self._head.records
        if self.wanted is None and recorded and self._records != recorded:
            return f"the chain has {self._records} records where {recorded} were recorded"
        return ""


def chain_problem(
    head: ManifestHead, thread_id: str, incarnation: int, stored: Sequence[bytes]
) -> str:
    """Tell what is wrong with a chain of segments, given oldest first; empty if it holds."""
    check = ChainCheck(head, thread_id, incarnation)
    for data in reversed(stored):
        problem = check.accept(data)
        if problem:
            return problem
    if check.wanted is not None:
        return f"the segment with SHA-256 {check.wanted.sha256.hex()} is missing"
    return ""


def _predicted(segment: Segment, predict: Callable[[bytes, int], BlobLocation]) -> BlobLocation:
    data = encode_segment(segment)
    return predict(blob_digest(data), len(data))


def _settled(segment: Segment, blob_id: str) -> Segment:
    """Return a stored segment with "this quilt" replaced by the blob that it means."""
    if not blob_id:
        return segment
    previous = segment.previous and resolved(segment.previous, blob_id)
    records = tuple(
        replace(record, envelope=resolved(record.envelope, blob_id)) if record.envelope else record
        for record in segment.records
    )
    return replace(segment, previous=previous, records=records)


def _apply(entries: dict[tuple[str, str], ManifestEntry], record: Record, blob_id: str) -> None:
    key = (record.checkpoint_ns, record.checkpoint_id)
    envelope = record.envelope and resolved(record.envelope, blob_id)
    entry = entries.pop(key, None)
    if record.type is RecordType.RETRACT:
        return
    if record.type is RecordType.PUT and envelope is not None:
        entries[key] = ManifestEntry(
            checkpoint_ns=record.checkpoint_ns,
            checkpoint_id=record.checkpoint_id,
            parent_id=record.parent_id,
            revision=record.revision,
            envelope=envelope,
            held=(record.revision,),
            label=record.label,
            summary=record.summary,
            lineage=record.lineage,
            created_us=record.created_us,
        )
        return
    if entry is None:
        raise malformed(blob_id, f"{record.type} of checkpoint {key[1]} comes before its PUT")
    if record.type is RecordType.LABEL:
        entry = replace(entry, label=record.label)
    elif record.type is RecordType.SUMMARY:
        entry = replace(entry, summary=record.summary)
    elif record.type is RecordType.HIDE:
        entry = replace(entry, hidden=True, label="")
    elif envelope is not None:
        entry = replace(
            entry, addenda=(*entry.addenda, envelope), held=(*entry.held, record.revision)
        )
    entries[key] = replace(entry, revision=max(entry.revision, record.revision))


_WITH_ENVELOPE = (RecordType.PUT, RecordType.WRITES)


def _record_json(record: Record) -> JsonObject:
    content: JsonObject = {
        "type": record.type.value,
        "checkpoint_ns": record.checkpoint_ns,
        "checkpoint_id": record.checkpoint_id,
    }
    if record.type is RecordType.RETRACT:
        return content
    content["revision"] = record.revision
    if record.type in _WITH_ENVELOPE:
        if record.envelope is None:
            raise ValueError(f"a {record.type} record needs an envelope")
        content["envelope"] = location_json(record.envelope)
    if record.type in (RecordType.PUT, RecordType.LABEL):
        content["label"] = record.label
    if record.type in (RecordType.PUT, RecordType.SUMMARY):
        content["summary"] = record.summary
    if record.type is RecordType.PUT:
        content["parent_checkpoint_id"] = record.parent_id
        content["create_time_us"] = record.created_us
        content["lineage"] = _lineage_json(record.lineage)
    return content


def _lineage_json(lineage: Lineage) -> Mapping[str, str]:
    spelled = {
        "forked_from": lineage.forked_from,
        "rolled_back_from": lineage.rolled_back_from,
        "adopted_from": lineage.adopted_from,
    }
    return {name: reference for name, reference in spelled.items() if reference}


def _record(reader: Reader) -> Record:
    spelled = reader.text("type")
    try:
        kind = RecordType(spelled)
    except ValueError:
        raise reader.fail(f"record type '{spelled}' is not known") from None
    checkpoint_ns = reader.text("checkpoint_ns")
    checkpoint_id = reader.text("checkpoint_id")
    if kind is RecordType.RETRACT:
        return Record(kind, checkpoint_ns, checkpoint_id)
    put = kind is RecordType.PUT
    return Record(
        type=kind,
        checkpoint_ns=checkpoint_ns,
        checkpoint_id=checkpoint_id,
        revision=reader.number("revision"),
        envelope=reader.location("envelope") if kind in _WITH_ENVELOPE else None,
        parent_id=reader.text("parent_checkpoint_id") if put else "",
        label=reader.text("label") if put or kind is RecordType.LABEL else "",
        summary=reader.text("summary") if put or kind is RecordType.SUMMARY else "",
        lineage=_lineage(reader.child("lineage")) if put else NO_LINEAGE,
        created_us=reader.number("create_time_us") if put else 0,
    )


def _lineage(reader: Reader) -> Lineage:
    return Lineage(
        reader.text("forked_from", ""),
        reader.text("rolled_back_from", ""),
        reader.text("adopted_from", ""),
    )
