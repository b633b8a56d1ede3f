"""From what was read of the journal to the exact bytes of segments.

Pure and synchronous; runs in a worker thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ...domain.formats.segments import (
    PREFIX_BYTES,
    Segment,
    SegmentCheckpoint,
    SegmentMember,
    SegmentValue,
    SegmentWrite,
    encode_segment,
    member,
)
from ...domain.formats.stored_json import cut_in_parts
from ...domain.model import Lineage, Value
from ...domain.values import blob_digest, compress
from ...journal.archiving.alone import LoneCheckpoint
from ...journal.archiving.dirty_rows import (
    CheckpointRow,
    DirtyPlace,
    DirtyRange,
    DirtyThread,
    WriteRow,
)

_log = logging.getLogger(__name__)

NO_LINEAGE = Lineage()


@dataclass(slots=True)
class BuiltSegment:
    """A segment, encoded.

    Attributes:
        thread: Its thread.
        data: What is stored under its name: the segment, or the list of its parts.
        parts: Its parts, if it is larger than a member may be; else none.
        places: The checkpoints with rows in it.
        first_seq: Begin of its range; `None`: it has none.
        last_seq: End of its range.
        needs: Hashes of the segments that it names.
        digests: Prefixes of the values in it, sorted.
        patched: Prefixes of those that are patches on a keyframe elsewhere, sorted.
        sha256: Hash of `data`.
    """

    thread: DirtyThread
    data: bytes
    parts: tuple[bytes, ...]
    places: list[DirtyPlace]
    first_seq: int | None
    last_seq: int | None
    needs: tuple[bytes, ...] = ()
    digests: bytes = b""
    patched: bytes = b""
    sha256: bytes = b""

    @property
    def sizes(self) -> list[int]:
        """Sizes of what is stored of it; a list of parts is smaller than one of them."""
        return [len(part) for part in self.parts] or [len(self.data)]


@dataclass(slots=True)
class BuiltLone:
    """A checkpoint in a segment of its own."""

    lone: LoneCheckpoint
    segment: BuiltSegment


@dataclass(frozen=True, slots=True)
class Failed:
    """A checkpoint that cannot be stored; `hole` and `hole_seq` as in `LoneCheckpoint`."""

    thread: DirtyThread
    dirty: DirtyPlace
    hole: int = 0
    hole_seq: int = 0


@dataclass(slots=True)
class Built:
    """Segments of a flush.

    Attributes:
        ranges: Ranges, each with its segment; `None` if it needs none.
        alone: Checkpoints in segments of their own.
        failed: Checkpoints that cannot be stored.
    """

    ranges: list[tuple[DirtyRange, BuiltSegment | None]] = field(default_factory=list)
    alone: list[BuiltLone] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)

    @property
    def segments(self) -> list[BuiltSegment]:
        """All segments."""
        of_ranges = [segment for _, segment in self.ranges if segment is not None]
        return [*of_ranges, *(one.segment for one in self.alone)]


def build(
    ranges: Sequence[DirtyRange],
    alone: Sequence[LoneCheckpoint],
    fetched: Mapping[bytes, Value],
    generation: int,
    part_bytes: int,
) -> Built:
    """Build the segments of a flush.

    Args:
        ranges: Ranges of threads.
        alone: Checkpoints for segments of their own.
        fetched: Evicted values by digest.
        generation: Generation of the logs.
        part_bytes: Bytes beyond which a segment is cut into parts.
    """
    built = Built()
    for one in ranges:
        segment = _build_range(one, fetched, generation, part_bytes)
        built.ranges.append((one, segment))
        built.failed += [Failed(one.thread, bad) for bad in one.places if bad.problem]
    for lone in alone:
        found = _build_alone(lone, fetched, generation, part_bytes)
        if found is not None:
            built.alone.append(BuiltLone(lone, found))
        else:
            built.failed.append(Failed(lone.thread, lone.dirty, lone.hole, lone.hole_seq))
    for bad in built.failed:
        _log.error(
            "%s of thread %s cannot be stored: %s",
            bad.dirty.place,
            bad.thread.thread_id,
            bad.dirty.problem,
        )
    return built


# --- segments of ranges ------------------------------------------------------------------


def _build_range(
    dirty: DirtyRange, fetched: Mapping[bytes, Value], generation: int, part_bytes: int
) -> BuiltSegment | None:
    for digest, value in dirty.values.items():
        if value.stored is None and digest not in fetched:
            for one in dirty.places:
                if digest in one.needs:
                    one.problem = f"value {digest.hex()} was evicted and cannot be read"
    places = [one for one in dirty.places if not one.problem and (_own_row(one) or one.writes)]

    def segment_of(some: Iterable[DirtyPlace]) -> Segment:
        return _segment(dirty, list(some), fetched, generation)

    encoded, places = _encoded(places, segment_of)
    if encoded is None:
        return None
    segment, data = encoded
    here = {value.digest for value in segment.values}
    return BuiltSegment(
        thread=dirty.thread,
        data=data,
        parts=_parts(data, part_bytes),
        places=places,
        first_seq=segment.first_seq,
        last_seq=segment.last_seq,
        needs=tuple(one.location.sha256 for one in segment.members),
        digests=_prefixes(here),
        patched=_prefixes(
            value.digest
            for value in segment.values
            if value.keyframe and value.keyframe not in here
        ),
        sha256=blob_digest(data),
    )


def _segment(
    dirty: DirtyRange,
    places: Sequence[DirtyPlace],
    fetched: Mapping[bytes, Value],
    generation: int,
) -> Segment:
    thread = dirty.thread
    needed = {digest for one in places for digest in one.needs}
    needed |= {
        value.keyframe
        for digest in needed
        if (value := dirty.values.get(digest)) is not None and value.keyframe is not None
    }
    named: dict[bytes, tuple[SegmentMember, set[bytes]]] = {}
    for digest, holder in dirty.named.items():
        sha256 = holder.location.sha256
        named.setdefault(sha256, (SegmentMember(holder.location, ()), set()))[1].add(digest)
    return Segment(
        thread_id=thread.thread_id,
        incarnation=thread.incarnation,
        generation=generation,
        first_seq=thread.certified_seq + 1,
        last_seq=dirty.through,
        checkpoints=tuple(_checkpoint(row) for one in places if (row := _own_row(one))),
        writes=tuple(_write(write) for one in places for write in one.writes),
        values=tuple(_value(dirty, digest, fetched) for digest in dirty.values if digest in needed),
        members=tuple(member(one.location, digests) for one, digests in named.values()),
    )


def _value(dirty: DirtyRange, digest: bytes, fetched: Mapping[bytes, Value]) -> SegmentValue:
    value = dirty.values[digest]
    data = dirty.data.get(digest)
    if data is None:
        return _whole(digest, fetched[digest])
    return SegmentValue(digest, value.type, value.size, value.encoding, data, value.keyframe or b"")


def _own_row(one: DirtyPlace) -> CheckpointRow | None:
    return None if one.held_row else one.row


# --- segments of single checkpoints ------------------------------------------------------


def _build_alone(
    lone: LoneCheckpoint, fetched: Mapping[bytes, Value], generation: int, part_bytes: int
) -> BuiltSegment | None:
    values = dict(lone.values)
    for digest in lone.evicted:
        if digest not in fetched:
            lone.dirty.problem = f"value {digest.hex()} was evicted and cannot be read"
            return None
        if digest in lone.dirty.needs:
            values[digest] = fetched[digest]
    thread, one = lone.thread, lone.dirty
    written = [_supplied(write, fetched) for write in one.writes]

    def segment_of(some: Iterable[DirtyPlace]) -> Segment:
        return Segment(
            thread_id=thread.thread_id,
            incarnation=thread.incarnation,
            generation=generation,
            first_seq=min(seqs := [write.seq for write in one.writes] + [_seq(one)]),
            last_seq=max(seqs),
            checkpoints=tuple(_checkpoint(place.row) for place in some if place.row is not None),
            writes=tuple(map(_write, written)),
            values=tuple(_whole(digest, value) for digest, value in values.items()),
        )

    encoded, _ = _encoded([] if one.problem else [one], segment_of)
    if encoded is None:
        return None
    data = encoded[1]
    return BuiltSegment(
        thread, data, _parts(data, part_bytes), [one], None, None, sha256=blob_digest(data),
        digests=_prefixes(values),
    )  # fmt: skip


def _supplied(write: WriteRow, fetched: Mapping[bytes, Value]) -> WriteRow:
    """Return a write with its value, which may have been evicted."""
    if write.data is not None:
        return write
    packed = compress(fetched[write.digest].data)
    return write._replace(encoding=int(packed.encoding), data=packed.data)


def _seq(one: DirtyPlace) -> int:
    return one.row.seq if one.row is not None else one.last_seq


# --- both --------------------------------------------------------------------------------


def _encoded(
    places: list[DirtyPlace], segment_of: Callable[[Iterable[DirtyPlace]], Segment]
) -> tuple[tuple[Segment, bytes] | None, list[DirtyPlace]]:
    """Encode a segment of those checkpoints that can be encoded; the others get a problem."""
    if not places:
        return None, places
    try:
        segment = segment_of(places)
        return (segment, encode_segment(segment)), places
    except (TypeError, ValueError) as error:
        if len(places) == 1:
            _log.exception("no segment can be made of %s", places[0].place)
            places[0].problem = str(error)
            return None, []
    for one in places:
        _encoded([one], segment_of)
    good = [one for one in places if not one.problem]
    if len(good) == len(places):  # each fits alone, all together are too large
        for one in good:
            one.problem = "its thread changed too much at once"
        return None, []
    return _encoded(good, segment_of)


def _checkpoint(row: CheckpointRow) -> SegmentCheckpoint:
    lineage = NO_LINEAGE
    if row.forked_from or row.rolled_back_from or row.adopted_from:
        lineage = Lineage(row.forked_from, row.rolled_back_from, row.adopted_from)
    return SegmentCheckpoint(
        row.checkpoint_ns,
        row.checkpoint_id,
        row.seq,
        row.parent_id,
        row.state,
        row.metadata,
        row.created_us,
        row.label,
        row.summary,
        row.delta_base or b"",
        lineage,
    )


def _write(write: WriteRow) -> SegmentWrite:
    return SegmentWrite(*write[:11], write.data or b"")


def _whole(digest: bytes, value: Value) -> SegmentValue:
    packed = compress(value.data)
    return SegmentValue(digest, value.type, len(value.data), packed.encoding, packed.data)


def _prefixes(digests: Iterable[bytes]) -> bytes:
    return b"".join(sorted({digest[:PREFIX_BYTES] for digest in digests}))


def _parts(data: bytes, part_bytes: int) -> tuple[bytes, ...]:
    return tuple(cut_in_parts(data, part_bytes)) if len(data) > part_bytes else ()
