"""Storing bytes as a blob of their own, whose ID is all that another side needs.

They are put, read back and compared. What is larger than a member of the store may be is cut;
the list of its parts is stored last and stands in its place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from ..blobs.api import BlobStore, Member
from ..domain.errors import Reason, Refusal
from ..domain.formats.stored_json import MEMBER_BYTES, Kind, cut_in_parts, encode_parts
from ..domain.model import BlobLocation, StoredBlob
from ..domain.values import blob_digest

_T = TypeVar("_T")
_NOT_THERE = (Reason.BLOB_HASH_MISMATCH, Reason.BLOB_NOT_FOUND)


@dataclass(frozen=True, slots=True)
class StoredApart:
    """Bytes in the blob store.

    Attributes:
        location: Where they lie, or the list of their parts.
        parts: Where their parts lie, in order; empty if they are whole.
        blobs: The blobs that they were stored as, and how long these last.
    """

    location: BlobLocation
    parts: tuple[BlobLocation, ...]
    blobs: tuple[StoredBlob, ...]


class ApartStore:
    """Stores blobs of their own.

    Args:
        blobs: The blob store; no cache in between.
    """

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs
        # Half of what the store takes at once: flushes must get through.
        self._gate = asyncio.Semaphore(max(1, blobs.limits.puts_at_once // 2))

    async def store(self, data: bytes, kind: Kind) -> StoredApart:
        """Store bytes, and read them back.

        Args:
            data: The bytes.
            kind: What they are.

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
            try:
                found = await self._blobs.get(location)
            except Refusal as refusal:
                if refusal.reason not in _NOT_THERE:
                    raise
                raise self._not_read_back(refusal.message) from refusal
        if found != data:
            raise self._not_read_back(f"blob {location.blob_id} holds other bytes")
        return location, receipt.blobs

    def _not_read_back(self, problem: str) -> Refusal:
        return Refusal(
            Reason.BLOB_UNAVAILABLE,
            backend=self._blobs.backend,
            problem=f"what was stored cannot be read back: {problem}",
        )


async def every(calls: Iterable[Coroutine[Any, Any, _T]]) -> list[_T]:
    """Run calls at once; once one fails, end the others."""
    tasks = [asyncio.create_task(call) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
