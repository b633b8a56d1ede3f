"""Reading checkpoints and manifests from the blob store.

The store checked every byte against its hash; values are checked here against their digests. The
journal names the newest catalog and the locations of bytes; content never comes from it.
"""

from __future__ import annotations

import asyncio
import sys
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

from ...blobs.api import BlobStore
from ...core.errors import Reason, Refusal, malformed
from ...core.limits import MIB
from ...core.model import BlobLocation, Checkpoint, CheckpointKey, Entry, Value, Write, write_order
from ...core.state import decode_state
from ...core.values import PREFIX_BYTES
from ...journal.database.database import Database
from ...journal.values import segment_refs
from ..formats.catalogs import LiveRuns, read_thread
from ..formats.manifests import Key, Manifest, ManifestEntry
from ..formats.records import Record
from ..formats.sealing import opened
from ..formats.segment_reading import decode_segment, state_digests, unpacked_size, whole_value
from ..formats.segments import (
    MAX_SEGMENT_BYTES,
    Segment,
    SegmentCheckpoint,
    SegmentValue,
    SegmentWrite,
)
from ..formats.stored_json import PartList, decode_parts, is_part_list, join_parts, settled
from .standalone import GONE

Places = Callable[[Sequence[BlobLocation]], Awaitable[Sequence[BlobLocation]]]
"""Returns the recorded locations of bytes; unrecorded ones are returned unchanged."""

DAMAGE = (*GONE, Reason.BLOB_MALFORMED)
"""The store does not have a blob any more, or has other bytes."""

One = TypeVar("One")

_READS_AT_ONCE = 16  # one by one, after reading many together has failed
_PARTS_BYTES = 64 * MIB  # of parts that are read together
THREAD_ABOVE_BYTES = 64 * 1024


class StoredSegment(NamedTuple):
    """A decoded segment; checkpoints and their writes are by namespace and ID.

    `values` has those of its writes too: when a checkpoint is removed, a remaining one may need
    the values of its writes.
    """

    segment: Segment
    location: BlobLocation
    checkpoints: Mapping[tuple[str, str], SegmentCheckpoint]
    writes: Mapping[tuple[str, str], Sequence[SegmentWrite]]
    values: Mapping[bytes, SegmentValue]
    unpacked: int  # bytes of the segment, whose values are still packed


class Segments:
    """Reads segments of a blob store, and keeps some of them decoded.

    `places` returns the current locations of bytes that have moved since a segment named them;
    `None`: no other locations are known. A segment that would take more than `most_bytes` of memory
    while it is unpacked is refused (`LIMIT_EXCEEDED`) before it is.
    """

    def __init__(
        self,
        blobs: BlobStore,
        kept_bytes: int = 64 * MIB,
        places: Places | None = None,
        most_bytes: int = sys.maxsize,
    ) -> None:
        self._blobs = blobs
        self._places = places
        self._limit = kept_bytes
        self._most = most_bytes
        self._kept: OrderedDict[bytes, StoredSegment] = OrderedDict()
        self._kept_bytes = 0

    async def checkpoint(self, entry: Entry) -> Checkpoint:
        """Return a checkpoint whose state, writes and metadata come from its segments.

        The other fields are those of the entry.

        Raises:
            Refusal: `NOT_CERTIFIED` if the entry is not; `BLOB_HASH_MISMATCH`,
                `BLOB_NOT_FOUND`, `BLOB_UNAVAILABLE`, `BLOB_MALFORMED`.
        """
        if not entry.certified:
            name = entry.key.checkpoint_id
            raise Refusal(Reason.NOT_CERTIFIED, checkpoint_id=name, seq=entry.seq)
        segments = await self.read(entry.segments)
        row, holder = newest_row(segments, entry.key)
        values = await self.needed(holder, state_digests(row.state, holder.location.blob_id))
        return Checkpoint(
            entry=replace(entry, metadata=row.metadata),
            state=decode_state(row.state, values),
            writes=newest_writes(segments, entry.key),
        )

    async def needed(self, holder: StoredSegment, digests: Collection[bytes]) -> dict[bytes, Value]:
        """Return values of a checkpoint, which its segment or one that it names must hold."""
        values = await self.values(holder, digests)
        for digest in digests:
            if digest not in values:
                name = holder.location.blob_id
                raise malformed(name, f"neither it nor what it names holds value {digest.hex()}")
        return values

    async def read(self, locations: Sequence[BlobLocation]) -> list[StoredSegment]:
        """Return segments, in order; those in parts are joined."""
        found = await self.stored(locations)
        return [await self.take(location, found[location.sha256]) for location in locations]

    async def stored(self, locations: Sequence[BlobLocation]) -> dict[bytes, StoredSegment | bytes]:
        """Return by hash the segments that are kept, and the stored bytes of the others."""
        found: dict[bytes, StoredSegment | bytes] = {}
        lacking: dict[bytes, BlobLocation] = {}
        for location in locations:
            kept = self._kept.get(location.sha256)
            if kept is None:
                lacking[location.sha256] = location
            else:
                self._kept.move_to_end(location.sha256)
                found[location.sha256] = kept
        fetched = await self.fetch(list(lacking.values())) if lacking else []
        found.update(zip(lacking, fetched, strict=True))
        return found

    async def take(self, location: BlobLocation, data: StoredSegment | bytes) -> StoredSegment:
        """Return the segment in stored bytes, and keep it while there is room."""
        if not isinstance(data, bytes):
            return data
        if location.sha256 in self._kept:
            return self._kept[location.sha256]
        if is_part_list(data):
            data = await self._joined(decode_parts(data, location, MAX_SEGMENT_BYTES), location)
        if len(data) > THREAD_ABOVE_BYTES:
            stored = await asyncio.to_thread(_decoded, data, location, self._most)
        else:
            stored = _decoded(data, location, self._most)
        if stored.unpacked > self._limit:
            return stored
        self._kept[location.sha256] = stored
        self._kept_bytes += stored.unpacked
        while self._kept_bytes > self._limit:
            _, dropped = self._kept.popitem(last=False)
            self._kept_bytes -= dropped.unpacked
        return stored

    async def _joined(self, listed: PartList, location: BlobLocation) -> bytes:
        """Return the bytes of parts, each of which is fetched once, some at a time."""
        name = location.blob_id
        if 2 * listed.size > self._most:
            raise too_large(f"blob {name} of {listed.size} bytes", self._most)
        found: dict[BlobLocation, bytes] = {}
        for some in sliced(dict.fromkeys(listed.parts), _size_of, _PARTS_BYTES, _READS_AT_ONCE):
            for part, data in zip(some, await self.fetch(some), strict=True):
                if len(data) != part.size:
                    problem = f"a part has {len(data)} bytes, and its list says {part.size}"
                    raise malformed(name, problem)
                found[part] = data
        parts = [found[part] for part in listed.parts]
        return await asyncio.to_thread(join_parts, listed, parts, name)

    async def fetch(self, locations: Sequence[BlobLocation]) -> Sequence[bytes]:
        """Return the stored bytes at locations, in order."""
        try:
            return await self._get(locations)
        except Refusal as refusal:
            if self._places is None or refusal.reason not in GONE:
                raise
            # Members that a segment names may have been moved since.
            places = await self._places(locations)
            if list(places) == list(locations):
                raise
        return await self._get(places)

    async def _get(self, locations: Sequence[BlobLocation]) -> Sequence[bytes]:
        if len(locations) == 1:
            return [await self._blobs.get(locations[0])]
        return await self._blobs.get_many(locations)

    async def values(self, stored: StoredSegment, digests: Collection[bytes]) -> dict[bytes, Value]:
        """Return values from a segment, or from segments that it names, by digest.

        Unknown values are left out; a value that does not fit its digest is refused.
        """
        found = await self._find(stored, digests)
        bases = {value.keyframe for value, _ in found.values() if value.keyframe}
        keyframes = {**found, **await self._find(stored, bases - found.keys())}
        for value, holder in found.values():
            # The segment of a patch names the keyframe's segment, if this one does not.
            if value.keyframe and value.keyframe not in keyframes:
                keyframes.update(await self._find(holder, [value.keyframe]))
        size = sum(value.size for value, _ in found.values())
        if size > THREAD_ABOVE_BYTES:
            return await asyncio.to_thread(_unpacked, found, keyframes)
        return _unpacked(found, keyframes)

    async def values_at(
        self, locations: Sequence[BlobLocation], digests: Collection[bytes]
    ) -> dict[bytes, Value]:
        """Return the values that some segments hold, by digest; others are left out."""
        found: dict[bytes, Value] = {}
        for stored in await self.read(locations):
            here = [one for one in digests if one not in found and one in stored.values]
            found.update(await self.values(stored, here))
        return found

    async def _find(
        self, stored: StoredSegment, digests: Iterable[bytes]
    ) -> dict[bytes, tuple[SegmentValue, StoredSegment]]:
        wanted = set(digests)
        found = {one: (stored.values[one], stored) for one in wanted & stored.values.keys()}
        elsewhere = wanted - found.keys()
        prefixes = {digest[:PREFIX_BYTES] for digest in elsewhere}
        others = [
            settled(one.location, stored.location.blob_id)
            for one in stored.segment.members
            if not prefixes.isdisjoint(one.prefixes)
        ]
        for other in await self.read(others):
            found.update(
                (one, (other.values[one], other)) for one in elsewhere & other.values.keys()
            )
        return found


async def read_each(blobs: BlobStore, locations: Sequence[BlobLocation]) -> list[bytes | Refusal]:
    """Return for each location its bytes, or the reason why they cannot be read."""

    async def one(location: BlobLocation) -> bytes | Refusal:
        try:
            return await blobs.get(location)
        except Refusal as refusal:
            if refusal.reason not in DAMAGE:
                raise
            return refusal

    try:
        return list(await blobs.get_many(locations))
    except Refusal as refusal:
        if refusal.reason not in DAMAGE:
            raise
    found: list[bytes | Refusal] = []
    for start in range(0, len(locations), _READS_AT_ONCE):
        found += await asyncio.gather(*map(one, locations[start : start + _READS_AT_ONCE]))
    return found


def sliced(
    found: Iterable[One], size_of: Callable[[One], int], most_bytes: int, most: int
) -> Iterable[list[One]]:
    """Yield items in lists of at most `most`, and of at most `most_bytes` or of one item."""
    some: list[One] = []
    size = 0
    for one in found:
        more = size_of(one)
        size += more
        if some and (size > most_bytes or len(some) >= most):
            yield some
            some, size = [], more
        some.append(one)
    if some:
        yield some


def placed(database: Database, tenant: str = "") -> Places:
    """Return a function that returns a journal's recorded locations, of a tenant or of any."""

    async def places(locations: Sequence[BlobLocation]) -> Sequence[BlobLocation]:
        hashes = {one.sha256 for one in locations}
        known = await database.query(
            lambda connection: (
                segment_refs.by_hash(connection, tenant, hashes)
                if tenant
                else segment_refs.anywhere(connection, hashes)
            )
        )
        return [known.get(one.sha256, one) for one in locations]

    return places


def newest_row(
    segments: Sequence[StoredSegment], key: CheckpointKey
) -> tuple[SegmentCheckpoint, StoredSegment]:
    """Return the newest row of a checkpoint, and the segment that has it."""
    place = (key.checkpoint_ns, key.checkpoint_id)
    rows = [(one.checkpoints[place], one) for one in segments if place in one.checkpoints]
    if not rows:
        name = segments[0].location.blob_id
        raise malformed(name, f"it does not hold checkpoint '{key.checkpoint_id}'")
    return max(rows, key=lambda one: _rank(one[1], one[0].seq, key))


def newest_writes(segments: Sequence[StoredSegment], key: CheckpointKey) -> tuple[Write, ...]:
    """Return the pending writes of a checkpoint; of one slot the newest counts."""
    place = (key.checkpoint_ns, key.checkpoint_id)
    newest: dict[tuple[str, int], tuple[tuple[bool, int, int], SegmentWrite, str]] = {}
    for stored in segments:
        for one in stored.writes.get(place, ()):
            rank = _rank(stored, one.seq, key)
            before = newest.get((one.task_id, one.idx))
            if before is None or rank > before[0]:
                newest[one.task_id, one.idx] = (rank, one, stored.location.blob_id)
    found = (
        Write(
            one.task_id,
            one.task_path,
            one.idx,
            one.channel,
            whole_value(one, None, name),
            one.digest,
        )
        for _, one, name in newest.values()
    )
    return tuple(sorted(found, key=write_order))


def _rank(stored: StoredSegment, seq: int, key: CheckpointKey) -> tuple[bool, int, int]:
    """Return the rank of a row: the greatest is the newest.

    Rows that the thread itself stored are newer than copied ones, which have other numbers.
    """
    segment = stored.segment
    return (segment.thread_id == key.thread_id, segment.generation, seq)


def too_large(what: str, most: int) -> Refusal:
    """Return the refusal of what takes more memory than there may be."""
    advice = "give a larger --memory-bytes"
    return Refusal(
        Reason.LIMIT_EXCEEDED, advice=advice, what=what, limit="--memory-bytes", maximum=most
    )


def _size_of(location: BlobLocation) -> int:
    return location.size


def _decoded(data: bytes, location: BlobLocation, most: int) -> StoredSegment:
    name = location.blob_id
    content = opened(data, location)
    unpacked = unpacked_size(content, name)
    if len(content) + 2 * unpacked > most:
        raise too_large(f"blob {name}, which unpacks to {unpacked} bytes,", most)
    segment = decode_segment(content, name)
    writes: dict[tuple[str, str], list[SegmentWrite]] = {}
    values: dict[bytes, SegmentValue] = {}
    for one in segment.writes:
        writes.setdefault((one.checkpoint_ns, one.checkpoint_id), []).append(one)
        values[one.digest] = SegmentValue(one.digest, one.type, one.size, one.encoding, one.data)
    values.update((value.digest, value) for value in segment.values)
    rows = {(row.checkpoint_ns, row.checkpoint_id): row for row in segment.checkpoints}
    return StoredSegment(segment, location, rows, writes, values, unpacked)


def _unpacked(
    found: Mapping[bytes, tuple[SegmentValue, StoredSegment]],
    keyframes: Mapping[bytes, tuple[SegmentValue, StoredSegment]],
) -> dict[bytes, Value]:
    whole: dict[bytes, Value] = {}
    values: dict[bytes, Value] = {}
    for digest, (value, holder) in found.items():
        name = holder.location.blob_id
        keyframe = None
        if value.keyframe:
            base = keyframes.get(value.keyframe)
            if base is None:
                raise malformed(name, f"nothing holds the keyframe of value {digest.hex()}")
            if value.keyframe not in whole:
                whole[value.keyframe] = whole_value(base[0], None, base[1].location.blob_id)
            keyframe = whole[value.keyframe].data
        values[digest] = whole.get(digest) or whole_value(value, keyframe, name)
    return values


_RUNS_AT_ONCE = 8


async def records_of(
    runs: LiveRuns,
    thread_id: str,
    fetch: Callable[[Sequence[BlobLocation]], Awaitable[Sequence[bytes]]],
) -> list[Record]:
    """Return all records of a thread, those of older runs first; runs are fetched together."""
    wanted = [
        ref.location for ref in runs.oldest_first() if ref.first[0] <= thread_id <= ref.last[0]
    ]
    order = {location.sha256: number for number, location in enumerate(wanted)}
    fetched: dict[bytes, bytes] = {}

    async def fetch_one(location: BlobLocation) -> bytes:
        if location.sha256 not in order:  # named by a branch
            [data] = await fetch([location])
            return data
        if location.sha256 not in fetched:
            number = order[location.sha256]
            some = wanted[number : number + _RUNS_AT_ONCE]
            fetched.clear()
            fetched.update(zip([one.sha256 for one in some], await fetch(some), strict=True))
        return fetched[location.sha256]

    return await read_thread(runs, thread_id, fetch_one)


def page_of(
    found: Manifest, after: Key | None, size: int
) -> tuple[list[tuple[Key, ManifestEntry]], bool]:
    """Return a page of the stored checkpoints, by namespace and ID, and whether more follow."""
    keys = sorted(key for key in found.entries if after is None or key > after)
    return [(key, found.entries[key]) for key in keys[:size]], len(keys) > size
