"""Storing bytes as a blob of their own, whose ID is all that another side needs.

They are put, read back and compared. What is larger than a member of the store may be is cut;
the list of its parts is stored last and stands in its place.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from ..blobs.api import BlobStore, Member, every
from ..domain.errors import Reason, Refusal
from ..domain.formats.stored_json import MEMBER_BYTES, Kind, cut_in_parts, encode_parts
from ..domain.model import BlobLocation, StoredBlob
from ..domain.values import blob_digest


@dataclass(frozen=True, slots=True)
class StoredApart:
    """Bytes in the blob store."""

    location: BlobLocation  # of them, or of the list of their parts
    parts: tuple[BlobLocation, ...]  # in order; empty if they are whole
    blobs: tuple[StoredBlob, ...]


class ApartStore:
    """Stores blobs of their own in the blob store itself, no cache in between."""

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs
        # Half of what the store takes at once: flushes must get through.
        self._gate = asyncio.Semaphore(max(1, blobs.limits.puts_at_once // 2))

    async def store(self, data: bytes, kind: Kind) -> StoredApart:
        """Store bytes, and read them back.

        Raises:
            Refusal: `BLOB_UNAVAILABLE`, `BLOB_REJECTED`.
        """
        largest = min(MEMBER_BYTES, self._blobs.limits.max_member_bytes or MEMBER_BYTES)
        if len(data) <= largest:
            location, blobs = await self._put(data, kind)
            return StoredApart(location, (), blobs)
        stored = await every(self._put(part, Kind.PART) for part in cut_in_parts(data, largest))
        parts = tuple(location for location, _ in stored)
        listed = await asyncio.to_thread(encode_parts, data, parts)
        location, blobs = await self._put(listed, Kind.PARTS)
        made = (*(blob for _, of_part in stored for blob in of_part), *blobs)
        return StoredApart(location, parts, made)

    async def _put(self, data: bytes, kind: Kind) -> tuple[BlobLocation, tuple[StoredBlob, ...]]:
        """Store bytes as one blob, and compare what the store has then."""
        sha256 = await asyncio.to_thread(blob_digest, data)
        async with self._gate:
            receipt = await self._blobs.put([Member(sha256, data, kind.value)], apart=True)
            [location] = receipt.locations
            problem = ""
            try:
                if await self._blobs.get(location) != data:
                    problem = f"blob {location.blob_id} holds other bytes"
            except Refusal as refusal:
                if refusal.reason not in (Reason.BLOB_HASH_MISMATCH, Reason.BLOB_NOT_FOUND):
                    raise
                problem = refusal.message
        if problem:
            raise Refusal(
                Reason.BLOB_UNAVAILABLE,
                backend=self._blobs.backend,
                problem=f"what was stored cannot be read back: {problem}",
            )
        return location, receipt.blobs
