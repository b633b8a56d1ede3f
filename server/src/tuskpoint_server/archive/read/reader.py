"""From stored segments back to checkpoints."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from ...blobs.api import BlobStore
from ...domain.errors import Reason, Refusal, malformed
from ...domain.formats.segment_reading import state_digests, whole_value
from ...domain.formats.segments import SegmentCheckpoint, SegmentWrite, decode_delta_base
from ...domain.model import (
    BlobLocation,
    Checkpoint,
    CheckpointKey,
    Entry,
    Value,
    Write,
    write_order,
)
from ...domain.state import decode_state
from .segments import KEPT_BYTES, Places, Segments, Stored


class CheckpointReader:
    """Reads checkpoints of a blob store.

    Args:
        blobs: Where segments are read.
        kept_bytes: Bound on the segments that are kept decoded, by their stored bytes.
        places: As of `Segments`.
    """

    def __init__(
        self, blobs: BlobStore, kept_bytes: int = KEPT_BYTES, places: Places | None = None
    ) -> None:
        self._segments = Segments(blobs, kept_bytes, places)

    async def read(self, entry: Entry) -> Checkpoint:
        """Return a checkpoint whose state, writes and metadata come from its segments.

        Args:
            entry: What the journal knows of it; its other fields are taken over.

        Raises:
            Refusal: `NOT_CERTIFIED` if it is in no segment; `BLOB_HASH_MISMATCH`,
                `BLOB_NOT_FOUND`, `BLOB_UNAVAILABLE`, `BLOB_MALFORMED`.
        """
        segments = await self._of(entry)
        row, holder = newest_row(segments, entry.key)
        digests = state_digests(row.state, holder.location.blob_id)
        values = await needed_values(self._segments, holder, digests)
        return Checkpoint(
            entry=replace(entry, metadata=row.metadata),
            state=decode_state(row.state, values),
            writes=newest_writes(segments, entry.key),
        )

    async def values(self, entry: Entry) -> dict[bytes, Value]:
        """Return all values of a checkpoint by digest.

        Those of its channels, of what pruned ancestors left to it, and of its writes.

        Raises:
            Refusal: As `read`.
        """
        segments = await self._of(entry)
        row, holder = newest_row(segments, entry.key)
        values = await needed_values(self._segments, holder, digests_of(row, holder))
        values.update((write.digest, write.value) for write in newest_writes(segments, entry.key))
        return values

    async def values_at(
        self, locations: Sequence[BlobLocation], digests: Collection[bytes]
    ) -> dict[bytes, Value]:
        """Return the values that some segments hold, by digest; others are left out.

        Raises:
            Refusal: As `read`.
        """
        return await self._segments.values_at(locations, digests)

    async def _of(self, entry: Entry) -> list[Stored]:
        if not entry.segments:
            raise Refusal(
                Reason.NOT_CERTIFIED, checkpoint_id=entry.key.checkpoint_id, seq=entry.seq
            )
        return await self._segments.read(entry.segments)


def digests_of(row: SegmentCheckpoint, holder: Stored) -> set[bytes]:
    """Return the values of a checkpoint: of its channels, and what pruned ancestors left to it.

    Raises:
        Refusal: `BLOB_MALFORMED`.
    """
    name = holder.location.blob_id
    bases = decode_delta_base(row.delta_base, name)
    return set(state_digests(row.state, name)).union(*(channel.digests for channel in bases))


async def needed_values(
    segments: Segments, holder: Stored, digests: Collection[bytes]
) -> dict[bytes, Value]:
    """Return values of a checkpoint, which its segment or one that it names must hold.

    Raises:
        Refusal: As `Segments.values`; `BLOB_MALFORMED` if one is in neither.
    """
    values = await segments.values(holder, digests)
    for digest in digests:
        if digest not in values:
            name = holder.location.blob_id
            raise malformed(name, f"neither it nor what it names holds value {digest.hex()}")
    return values


def newest_row(segments: Sequence[Stored], key: CheckpointKey) -> tuple[SegmentCheckpoint, Stored]:
    """Return the newest row of a checkpoint, and the segment that has it.

    Raises:
        Refusal: `BLOB_MALFORMED`: none has it.
    """
    place = (key.checkpoint_ns, key.checkpoint_id)
    rows = [
        (_rank(stored, row.seq, key), number, row, stored)
        for number, stored in enumerate(segments)
        if (row := stored.checkpoints.get(place)) is not None
    ]
    if not rows:
        raise malformed(
            segments[0].location.blob_id, f"it does not hold checkpoint '{key.checkpoint_id}'"
        )
    _, _, row, stored = max(rows, key=lambda one: (one[0], -one[1]))
    return row, stored


def _rank(stored: Stored, seq: int, key: CheckpointKey) -> tuple[bool, int, int]:
    """Say which of two rows is newer.

    What the thread itself stored followed what it was copied from, whose numbers are others.
    """
    segment = stored.segment
    return (segment.thread_id == key.thread_id, segment.generation, seq)


def newest_writes(segments: Sequence[Stored], key: CheckpointKey) -> tuple[Write, ...]:
    """Return the pending writes of a checkpoint; of one slot the newest counts.

    Raises:
        Refusal: `BLOB_MALFORMED`: one is not what its digest says.
    """
    place = (key.checkpoint_ns, key.checkpoint_id)
    newest: dict[tuple[str, int], tuple[tuple[bool, int, int], SegmentWrite, Stored]] = {}
    for stored in segments:
        for write in stored.writes.get(place, ()):
            rank = _rank(stored, write.seq, key)
            before = newest.get((write.task_id, write.idx))
            if before is None or rank > before[0]:
                newest[write.task_id, write.idx] = (rank, write, stored)
    found = (_write(write, stored.location.blob_id) for _, write, stored in newest.values())
    return tuple(sorted(found, key=write_order))


def _write(write: SegmentWrite, name: str) -> Write:
    value = whole_value(write, None, name)
    return Write(write.task_id, write.task_path, write.idx, write.channel, value, write.digest)
