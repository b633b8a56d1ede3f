"""Builds the exact bytes of segments from rows of the journal; runs in a worker thread."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...blobs.api import BlobMember
from ...core.model import BlobLocation, Value
from ...core.values import PREFIX_BYTES, blob_digest, compress, split
from ..formats import segments
from ..formats.sealing import Sealer
from ..formats.stored_json import Kind, encode_parts
from ..rows.dirty import DirtyPlace, DirtyRange

_log = logging.getLogger(__name__)

Locate = Callable[[bytes, int], BlobLocation]
"""Returns the present or future location of bytes with a given hash and size."""


@dataclass(slots=True)
class BuiltSegment:
    """Stored form of a range or a single checkpoint; without `data` no segment is needed."""

    dirty: DirtyRange
    data: bytes = b""  # the segment, or the list of its parts
    sha256: bytes = b""
    key: bytes = b""  # key of the segment; empty if the segment is not sealed
    # parts of a segment that is larger than a member may be; else none
    parts: Sequence[BlobMember] = ()
    places: Sequence[DirtyPlace] = ()  # checkpoints whose rows are in the segment
    needs: tuple[bytes, ...] = ()  # hashes of the segments that the segment names
    digests: bytes = b""  # prefixes of the digests of values in the segment, sorted
    patched: bytes = b""  # prefixes of values that are patches on a keyframe elsewhere, sorted

    @property
    def kind(self) -> Kind:
        """Kind of `data`."""
        return Kind.PARTS if self.parts else Kind.SEGMENT

    @property
    def pieces(self) -> Sequence[BlobMember]:
        """Members that are stored before the list of parts, or the only member."""
        whole = [BlobMember(self.sha256, self.data, self.kind)] if self.data else []
        return self.parts or whole

    def named(self, locate: Locate) -> BlobMember:
        """Return the member with `data`; a list of parts needs the parts' locations first."""
        if self.parts:
            places = [locate(part.sha256, len(part.data)) for part in self.parts]
            self.data = encode_parts(b"".join(part.data for part in self.parts), places)
            self.sha256 = blob_digest(self.data)
        return BlobMember(self.sha256, self.data, self.kind)


def build(
    ranges: Iterable[DirtyRange],
    fetched: Mapping[bytes, Value],
    generation: int,
    sealer: Sealer,
    part_bytes: int,
) -> list[BuiltSegment]:
    """Build segments cut at `part_bytes`; a checkpoint that cannot be stored gets a `problem`."""
    built = [_build(dirty, fetched, generation, sealer, part_bytes) for dirty in ranges]
    for segment in built:
        for bad in segment.dirty.places:
            if bad.problem:
                place = (*reversed(bad.place), segment.dirty.thread.thread_id)
                _log.error(
                    "checkpoint '%s' in namespace '%s' of thread '%s' cannot be stored: %s",
                    *place,
                    bad.problem,
                )
    return built


def _build(
    dirty: DirtyRange,
    fetched: Mapping[bytes, Value],
    generation: int,
    sealer: Sealer,
    part_bytes: int,
) -> BuiltSegment:
    for checkpoint in dirty.places:
        lacking = [digest for digest in checkpoint.gone if digest not in fetched]
        if lacking:
            checkpoint.problem = f"value {lacking[0].hex()} was evicted and cannot be read"
    places = [
        checkpoint
        for checkpoint in dirty.places
        if not checkpoint.problem and (checkpoint.own_row or checkpoint.writes)
    ]
    if (encoded := _encode(dirty, places, fetched, generation)) is None:
        return BuiltSegment(dirty)
    segment, content, places = encoded
    data, key = sealer.seal(content)
    pieces = split(data, part_bytes) if len(data) > part_bytes else ()
    return BuiltSegment(
        dirty,
        data,
        blob_digest(data),
        key,
        [BlobMember(blob_digest(piece), piece, Kind.PART) for piece in pieces],
        places,
        *segment_facts(segment),
    )


def segment_facts(segment: segments.Segment) -> tuple[tuple[bytes, ...], bytes, bytes]:
    """Return the recorded facts of a segment: `needs`, `digests` and `patched` of `BuiltSegment`.

    Values of the writes in the segment count: a checkpoint may need one later (`delta_base`).
    """
    digests = {value.digest for value in segment.values}
    digests.update(write.digest for write in segment.writes)
    patched = (
        value.digest for value in segment.values if value.keyframe and value.keyframe not in digests
    )
    needs = tuple(member.location.sha256 for member in segment.members)
    return needs, _prefixes(digests), _prefixes(patched)


def _encode(
    dirty: DirtyRange, places: list[DirtyPlace], fetched: Mapping[bytes, Value], generation: int
) -> tuple[segments.Segment, bytes, list[DirtyPlace]] | None:
    """Encode a segment of the encodable checkpoints; each other one gets a problem."""
    if not places:
        return None
    try:
        segment = _segment(dirty, places, fetched, generation)
        return segment, segments.encode_segment(segment), places
    except (TypeError, ValueError) as error:
        if len(places) == 1:
            namespace, checkpoint_id = places[0].place
            _log.exception(
                "checkpoint '%s' in namespace '%s' cannot be encoded", checkpoint_id, namespace
            )
            places[0].problem = str(error)
            return None
    for checkpoint in places:
        _encode(dirty, [checkpoint], fetched, generation)
    checkpoints = [checkpoint for checkpoint in places if not checkpoint.problem]
    if len(checkpoints) == len(places):  # each checkpoint fits alone, all together are too large
        for checkpoint in checkpoints:
            checkpoint.problem = "the changes of its thread are too large for one segment"
        return None
    return _encode(dirty, checkpoints, fetched, generation)


def _segment(
    dirty: DirtyRange, places: Sequence[DirtyPlace], fetched: Mapping[bytes, Value], generation: int
) -> segments.Segment:
    thread = dirty.thread
    needed = {digest for checkpoint in places for digest in checkpoint.needs}
    needed |= {
        value.keyframe
        for digest in needed
        if (value := dirty.values.get(digest)) is not None and value.keyframe is not None
    }
    members: dict[bytes, tuple[BlobLocation, list[bytes]]] = {}
    for digest, holder in dirty.named.items():
        members.setdefault(holder.location.sha256, (holder.location, []))[1].append(digest)
    return segments.Segment(
        thread_id=thread.thread_id,
        incarnation=thread.incarnation,
        generation=generation,
        first_seq=min(places[0].seqs) if dirty.alone else thread.certified_seq + 1,
        last_seq=dirty.through,
        checkpoints=tuple(row for checkpoint in places if (row := checkpoint.own_row) is not None),
        writes=tuple(
            _write(checkpoint, write, fetched)
            for checkpoint in places
            for write in checkpoint.writes
        ),
        values=tuple(_value(dirty, digest, fetched) for digest in dirty.values if digest in needed),
        members=tuple(segments.member(location, digests) for location, digests in members.values()),
    )


def _write(
    checkpoint: DirtyPlace, write: segments.SegmentWrite, fetched: Mapping[bytes, Value]
) -> segments.SegmentWrite:
    if write.digest not in checkpoint.gone:
        return write
    packed = compress(fetched[write.digest].data)
    return write._replace(encoding=packed.encoding, data=packed.data)


def _value(
    dirty: DirtyRange, digest: bytes, fetched: Mapping[bytes, Value]
) -> segments.SegmentValue:
    value = dirty.values[digest]
    if value.data is None:
        whole = fetched[digest]
        packed = compress(whole.data)
        return segments.SegmentValue(
            digest, whole.type, len(whole.data), packed.encoding, packed.data
        )
    return segments.SegmentValue(
        digest, value.type, value.size, value.encoding, value.data, value.keyframe or b""
    )


def _prefixes(digests: Iterable[bytes]) -> bytes:
    return b"".join(sorted({digest[:PREFIX_BYTES] for digest in digests}))
