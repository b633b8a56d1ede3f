"""Reads checkpoints and manifests from the blob store.

The store checked every byte against its hash; this module checks values against their digests. The
journal names the newest catalog and the locations of bytes; content never comes from the journal.
"""

from __future__ import annotations

import asyncio
import sys
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

from ...blobs.api import BlobStore
from ...core.errors import Reason, Refusal, malformed_bytes
from ...core.limits import MIB
from ...core.model import (
    BlobLocation,
    Checkpoint,
    CheckpointEntry,
    CheckpointKey,
    Value,
    Write,
    write_order,
)
from ...core.state import decode_state
from ...core.values import PREFIX_BYTES
from ...journal.database.database import Database
from ...journal.values import segment_refs
from ..formats.catalogs import LiveRuns, read_thread
from ..formats.manifests import Key, Manifest, ManifestEntry
from ..formats.records import Record
from ..formats.sealing import open_member
from ..formats.segment_reading import decode_segment, state_digests, unpacked_size, whole_value
from ..formats.segments import (
    MAX_SEGMENT_BYTES,
    Segment,
    SegmentCheckpoint,
    SegmentValue,
    SegmentWrite,
)
from ..formats.stored_json import PartList, decode_parts, is_part_list, join_parts, settle_location
from .standalone import GONE

Places = Callable[[Sequence[BlobLocation]], Awaitable[Sequence[BlobLocation]]]
"""Returns the recorded locations of bytes; unrecorded locations are returned unchanged."""

DAMAGE = (*GONE, Reason.BLOB_MALFORMED)
"""Reasons that mean that the store has lost a blob or has other bytes."""

One = TypeVar("One")

_READS_AT_ONCE = 16  # single reads at once, after a read of many together has failed
_PARTS_BYTES = 64 * MIB  # bytes of parts that are read together
THREAD_ABOVE_BYTES = 64 * 1024


class StoredSegment(NamedTuple):
    """Decoded segment; checkpoints and their writes are by namespace and ID.

    `values` also has the values of writes: after a checkpoint is removed, another checkpoint may
    need the values of its writes.
    """

    segment: Segment
    location: BlobLocation
    checkpoints: Mapping[tuple[str, str], SegmentCheckpoint]
    writes: Mapping[tuple[str, str], Sequence[SegmentWrite]]
    values: Mapping[bytes, SegmentValue]
    unpacked: int  # unpacked bytes of the segment, without unpacking its values


class Segments:
    """Reads segments of a blob store, and caches some of them decoded.

    `places` returns the current locations of bytes that have moved since a segment named them;
    `None`: no other locations are known. A segment that would need more than `most_bytes` of memory
    to unpack is refused (`LIMIT_EXCEEDED`) before it is unpacked.
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

    async def checkpoint(self, entry: CheckpointEntry) -> Checkpoint:
        """Return a checkpoint whose state, writes and metadata come from its segments.

        All other fields come from the entry.

        Raises:
            Refusal: `NOT_CERTIFIED` if the entry is not certified; `BLOB_HASH_MISMATCH`,
                `BLOB_NOT_FOUND`, `BLOB_UNAVAILABLE`, `BLOB_MALFORMED`.
        """
        if not entry.certified:
            name = entry.key.checkpoint_id
            raise Refusal(Reason.NOT_CERTIFIED, checkpoint_id=name, seq=entry.seq)
        segments = await self.read(entry.segments)
        row, holder = stored_row(segments, entry.key)
        values = await self.needed(holder, state_digests(row.state, holder.location.blob_id))
        return Checkpoint(
            entry=replace(entry, metadata=row.metadata),
            state=decode_state(row.state, values),
            writes=newest_writes(segments, entry.key),
        )

    async def needed(self, holder: StoredSegment, digests: Collection[bytes]) -> dict[bytes, Value]:
        """Return values of a checkpoint, which must be in its segment or in a named one."""
        values = await self.values(holder, digests)
        for digest in digests:
            if digest not in values:
                name = holder.location.blob_id
                raise malformed_bytes(
                    name, f"neither it nor what it names holds value {digest.hex()}"
                )
        return values

    async def read(self, locations: Sequence[BlobLocation]) -> list[StoredSegment]:
        """Return segments, in order; join those that are stored in parts."""
        segments = await self.stored(locations)
        return [await self.take(location, segments[location.sha256]) for location in locations]

    async def stored(self, locations: Sequence[BlobLocation]) -> dict[bytes, StoredSegment | bytes]:
        """Return, by hash, the cached segments, and the stored bytes of the other segments."""
        segments: dict[bytes, StoredSegment | bytes] = {}
        lacking: dict[bytes, BlobLocation] = {}
        for location in locations:
            segment = self._kept.get(location.sha256)
            if segment is None:
                lacking[location.sha256] = location
            else:
                self._kept.move_to_end(location.sha256)
                segments[location.sha256] = segment
        fetched = await self.fetch(list(lacking.values())) if lacking else []
        segments.update(zip(lacking, fetched, strict=True))
        return segments

    async def take(self, location: BlobLocation, data: StoredSegment | bytes) -> StoredSegment:
        """Return the segment in stored bytes, and cache it while there is room."""
        if not isinstance(data, bytes):
            return data
        if location.sha256 in self._kept:
            return self._kept[location.sha256]
        if is_part_list(data):
            data = await self._joined(decode_parts(data, location, MAX_SEGMENT_BYTES), location)
        if len(data) > THREAD_ABOVE_BYTES:
            stored = await asyncio.to_thread(_decode, data, location, self._most)
        else:
            stored = _decode(data, location, self._most)
        if stored.unpacked > self._limit:
            return stored
        self._kept[location.sha256] = stored
        self._kept_bytes += stored.unpacked
        while self._kept_bytes > self._limit:
            _, segment = self._kept.popitem(last=False)
            self._kept_bytes -= segment.unpacked
        return stored

    async def _joined(self, part_list: PartList, location: BlobLocation) -> bytes:
        """Return the joined bytes of parts; fetch each part once, a bounded number at a time."""
        name = location.blob_id
        if 2 * part_list.size > self._most:
            raise too_large(f"blob {name} of {part_list.size} bytes", self._most)
        contents: dict[BlobLocation, bytes] = {}
        for batch in slice_items(
            dict.fromkeys(part_list.parts), _size_of, _PARTS_BYTES, _READS_AT_ONCE
        ):
            for part, data in zip(batch, await self.fetch(batch), strict=True):
                if len(data) != part.size:
                    problem = f"a part has {len(data)} bytes, and its list says {part.size}"
                    raise malformed_bytes(name, problem)
                contents[part] = data
        parts = [contents[part] for part in part_list.parts]
        return await asyncio.to_thread(join_parts, part_list, parts, name)

    async def fetch(self, locations: Sequence[BlobLocation]) -> Sequence[bytes]:
        """Return the stored bytes at locations, in order."""
        try:
            return await self._get(locations)
        except Refusal as refusal:
            if self._places is None or refusal.reason not in GONE:
                raise
            # Members that a segment names may have moved since.
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

        Unknown values are left out; a value that does not match its digest is refused.
        """
        rows = await self._find(stored, digests)
        bases = {value.keyframe for value, _ in rows.values() if value.keyframe}
        keyframes = {**rows, **await self._find(stored, bases - rows.keys())}
        for value, holder in rows.values():
            # The segment of a patch names the keyframe's segment, if this segment does not.
            if value.keyframe and value.keyframe not in keyframes:
                keyframes.update(await self._find(holder, [value.keyframe]))
        size = sum(value.size for value, _ in rows.values())
        if size > THREAD_ABOVE_BYTES:
            return await asyncio.to_thread(_unpack_rows, rows, keyframes)
        return _unpack_rows(rows, keyframes)

    async def values_at(
        self, locations: Sequence[BlobLocation], digests: Collection[bytes]
    ) -> dict[bytes, Value]:
        """Return, by digest, the values that some segments contain; leave out missing values."""
        values: dict[bytes, Value] = {}
        for stored in await self.read(locations):
            new_digests = [
                digest for digest in digests if digest not in values and digest in stored.values
            ]
            values.update(await self.values(stored, new_digests))
        return values

    async def _find(
        self, stored: StoredSegment, digests: Iterable[bytes]
    ) -> dict[bytes, tuple[SegmentValue, StoredSegment]]:
        wanted = set(digests)
        rows = {digest: (stored.values[digest], stored) for digest in wanted & stored.values.keys()}
        missing = wanted - rows.keys()
        prefixes = {digest[:PREFIX_BYTES] for digest in missing}
        locations = [
            settle_location(member.location, stored.location.blob_id)
            for member in stored.segment.members
            if not prefixes.isdisjoint(member.prefixes)
        ]
        for holder in await self.read(locations):
            rows.update(
                (digest, (holder.values[digest], holder))
                for digest in missing & holder.values.keys()
            )
        return rows


async def read_each(blobs: BlobStore, locations: Sequence[BlobLocation]) -> list[bytes | Refusal]:
    """Return, for each location, its bytes or the reason why they cannot be read."""

    async def read_one(location: BlobLocation) -> bytes | Refusal:
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
    contents: list[bytes | Refusal] = []
    for start in range(0, len(locations), _READS_AT_ONCE):
        contents += await asyncio.gather(*map(read_one, locations[start : start + _READS_AT_ONCE]))
    return contents


def slice_items(
    items: Iterable[One], size_of: Callable[[One], int], most_bytes: int, most: int
) -> Iterable[list[One]]:
    """Yield items in lists of at most `most` items and `most_bytes`, or of one larger item."""
    batch: list[One] = []
    size = 0
    for item in items:
        item_size = size_of(item)
        size += item_size
        if batch and (size > most_bytes or len(batch) >= most):
            yield batch
            batch, size = [], item_size
        batch.append(item)
    if batch:
        yield batch


def recorded_places(database: Database, tenant: str = "") -> Places:
    """Return a function that returns a journal's recorded locations, of one tenant or of all."""

    async def places(locations: Sequence[BlobLocation]) -> Sequence[BlobLocation]:
        hashes = {location.sha256 for location in locations}
        by_hash = await database.query(
            lambda connection: (
                segment_refs.by_hash(connection, tenant, hashes)
                if tenant
                else segment_refs.locations_anywhere(connection, hashes)
            )
        )
        return [by_hash.get(location.sha256, location) for location in locations]

    return places


def stored_row(
    segments: Sequence[StoredSegment], key: CheckpointKey
) -> tuple[SegmentCheckpoint, StoredSegment]:
    """Return the row of a checkpoint, and its segment, which is the first in `segments`.

    The other segments have the checkpoint's writes, and may have an older row of the checkpoint.
    Segments of another log have other sequence numbers, so the greatest number is not the newest
    row.
    """
    row = segments[0].checkpoints.get((key.checkpoint_ns, key.checkpoint_id))
    if row is None:
        name = segments[0].location.blob_id
        raise malformed_bytes(name, f"it does not hold checkpoint '{key.checkpoint_id}'")
    return row, segments[0]


def newest_writes(segments: Sequence[StoredSegment], key: CheckpointKey) -> tuple[Write, ...]:
    """Return the pending writes of a checkpoint; the newest write of each slot counts."""
    place = (key.checkpoint_ns, key.checkpoint_id)
    newest: dict[tuple[str, int], tuple[tuple[bool, int, int], SegmentWrite, str]] = {}
    for stored in segments:
        for write in stored.writes.get(place, ()):
            rank = _rank(stored, write.seq, key)
            entry = newest.get((write.task_id, write.idx))
            if entry is None or rank > entry[0]:
                newest[write.task_id, write.idx] = (rank, write, stored.location.blob_id)
    writes = (
        Write(
            write.task_id,
            write.task_path,
            write.idx,
            write.channel,
            whole_value(write, None, name),
            write.digest,
        )
        for _, write, name in newest.values()
    )
    return tuple(sorted(writes, key=write_order))


def _rank(stored: StoredSegment, seq: int, key: CheckpointKey) -> tuple[bool, int, int]:
    """Return the rank of a row: the greatest rank is the newest.

    Rows that the thread itself stored are newer than copied rows, whose sequence numbers belong to
    another log.
    """
    segment = stored.segment
    return (segment.thread_id == key.thread_id, segment.generation, seq)


def too_large(what: str, most: int) -> Refusal:
    """Return the refusal of content that needs more memory than allowed."""
    advice = "give a larger --memory-bytes"
    return Refusal(
        Reason.LIMIT_EXCEEDED, advice=advice, what=what, limit="--memory-bytes", maximum=most
    )


def _size_of(location: BlobLocation) -> int:
    return location.size


def _decode(data: bytes, location: BlobLocation, most: int) -> StoredSegment:
    name = location.blob_id
    content = open_member(data, location)
    unpacked = unpacked_size(content, name)
    if len(content) + 2 * unpacked > most:
        raise too_large(f"blob {name}, which unpacks to {unpacked} bytes,", most)
    segment = decode_segment(content, name)
    writes: dict[tuple[str, str], list[SegmentWrite]] = {}
    values: dict[bytes, SegmentValue] = {}
    for write in segment.writes:
        writes.setdefault((write.checkpoint_ns, write.checkpoint_id), []).append(write)
        values[write.digest] = SegmentValue(
            write.digest, write.type, write.size, write.encoding, write.data
        )
    values.update((value.digest, value) for value in segment.values)
    rows = {(row.checkpoint_ns, row.checkpoint_id): row for row in segment.checkpoints}
    return StoredSegment(segment, location, rows, writes, values, unpacked)


def _unpack_rows(
    rows: Mapping[bytes, tuple[SegmentValue, StoredSegment]],
    keyframes: Mapping[bytes, tuple[SegmentValue, StoredSegment]],
) -> dict[bytes, Value]:
    whole: dict[bytes, Value] = {}
    values: dict[bytes, Value] = {}
    for digest, (value, holder) in rows.items():
        name = holder.location.blob_id
        keyframe = None
        if value.keyframe:
            base = keyframes.get(value.keyframe)
            if base is None:
                raise malformed_bytes(name, f"nothing holds the keyframe of value {digest.hex()}")
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
    """Return all records of a thread, records of older runs first; fetch runs together."""
    locations = [
        ref.location for ref in runs.oldest_first() if ref.first[0] <= thread_id <= ref.last[0]
    ]
    order = {location.sha256: number for number, location in enumerate(locations)}
    fetched: dict[bytes, bytes] = {}

    async def fetch_one(location: BlobLocation) -> bytes:
        if location.sha256 not in order:  # runs that a branch names
            [data] = await fetch([location])
            return data
        if location.sha256 not in fetched:
            number = order[location.sha256]
            batch = locations[number : number + _RUNS_AT_ONCE]
            fetched.clear()
            fetched.update(zip([run.sha256 for run in batch], await fetch(batch), strict=True))
        return fetched[location.sha256]

    return await read_thread(runs, thread_id, fetch_one)


def page_of(
    manifest: Manifest, after: Key | None, size: int
) -> tuple[list[tuple[Key, ManifestEntry]], bool]:
    """Return a page of the stored checkpoints, by namespace and ID, and whether more follow."""
    keys = sorted(key for key in manifest.entries if after is None or key > after)
    return [(key, manifest.entries[key]) for key in keys[:size]], len(keys) > size
