"""Building the exact bytes of segments from rows of the journal; runs in a worker thread."""

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
"""Returns the present or future location of bytes with this hash and size."""


@dataclass(slots=True)
class BuiltSegment:
    """The stored form of a range or a lone checkpoint; without `data` it needs no segment."""

    dirty: DirtyRange
    data: bytes = b""  # the segment, or the list of its parts
    sha256: bytes = b""
    key: bytes = b""  # of the segment; empty if it is not sealed
    parts: Sequence[BlobMember] = ()  # its parts, if it is larger than a member may be; else none
    places: Sequence[DirtyPlace] = ()  # the checkpoints with rows in it
    needs: tuple[bytes, ...] = ()  # hashes of the segments that it names
    digests: bytes = b""  # prefixes of the values in it, sorted
    patched: bytes = b""  # prefixes of those that are patches on a keyframe elsewhere, sorted

    @property
    def kind(self) -> Kind:
        """Kind of its `data`."""
        return Kind.PARTS if self.parts else Kind.SEGMENT

    @property
    def pieces(self) -> Sequence[BlobMember]:
        """The members that are stored before the list of its parts, or its only one."""
        whole = [BlobMember(self.sha256, self.data, self.kind)] if self.data else []
        return self.parts or whole

    def named(self, locate: Locate) -> BlobMember:
        """Return the member with its `data`; a list of parts gets their locations first."""
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
    built = [_build(one, fetched, generation, sealer, part_bytes) for one in ranges]
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
    for one in dirty.places:
        lacking = [digest for digest in one.gone if digest not in fetched]
        if lacking:
            one.problem = f"value {lacking[0].hex()} was evicted and cannot be read"
    places = [one for one in dirty.places if not one.problem and (one.own_row or one.writes)]
    if (encoded := _encoded(dirty, places, fetched, generation)) is None:
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
        *described(segment),
    )


def described(segment: segments.Segment) -> tuple[tuple[bytes, ...], bytes, bytes]:
    """Return the recorded facts of a segment: `needs`, `digests` and `patched` of `BuiltSegment`.

    The values of its writes count: a checkpoint may come to need one (`delta_base`).
    """
    here = {value.digest for value in segment.values}
    here.update(write.digest for write in segment.writes)
    patched = (one.digest for one in segment.values if one.keyframe and one.keyframe not in here)
    needs = tuple(one.location.sha256 for one in segment.members)
    return needs, _prefixes(here), _prefixes(patched)


def _encoded(
    dirty: DirtyRange, places: list[DirtyPlace], fetched: Mapping[bytes, Value], generation: int
) -> tuple[segments.Segment, bytes, list[DirtyPlace]] | None:
    """Encode a segment of those checkpoints that can be encoded; the others get a problem."""
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
    for one in places:
        _encoded(dirty, [one], fetched, generation)
    good = [one for one in places if not one.problem]
    if len(good) == len(places):  # each fits alone, all together are too large
        for one in good:
            one.problem = "the changes of its thread are too large for one segment"
        return None
    return _encoded(dirty, good, fetched, generation)


def _segment(
    dirty: DirtyRange, places: Sequence[DirtyPlace], fetched: Mapping[bytes, Value], generation: int
) -> segments.Segment:
    thread = dirty.thread
    needed = {digest for one in places for digest in one.needs}
    needed |= {
        value.keyframe
        for digest in needed
        if (value := dirty.values.get(digest)) is not None and value.keyframe is not None
    }
    named: dict[bytes, tuple[BlobLocation, list[bytes]]] = {}
    for digest, holder in dirty.named.items():
        named.setdefault(holder.location.sha256, (holder.location, []))[1].append(digest)
    return segments.Segment(
        thread_id=thread.thread_id,
        incarnation=thread.incarnation,
        generation=generation,
        first_seq=min(places[0].seqs) if dirty.alone else thread.certified_seq + 1,
        last_seq=dirty.through,
        checkpoints=tuple(row for one in places if (row := one.own_row) is not None),
        writes=tuple(_write(one, write, fetched) for one in places for write in one.writes),
        values=tuple(_value(dirty, digest, fetched) for digest in dirty.values if digest in needed),
        members=tuple(segments.member(location, digests) for location, digests in named.values()),
    )


def _write(
    one: DirtyPlace, write: segments.SegmentWrite, fetched: Mapping[bytes, Value]
) -> segments.SegmentWrite:
    if write.digest not in one.gone:
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
