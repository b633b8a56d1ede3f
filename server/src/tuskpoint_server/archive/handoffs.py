"""Bundles of hand-offs in the blob store itself: nothing here asks a local copy.

A bundle is a blob of its own, so that its ID and its hash are all that another side needs.
One that is larger than a member of the store may be is cut; its list of parts is stored
last and stands in its place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from ..blobs.api import BlobStore, Member, Progress
from ..domain.bundle import MAX_STORED_BYTES, decode_bundle, encode_bundle
from ..domain.digests import blob_digest
from ..domain.errors import Reason, Refusal
from ..domain.lineage import Closure
from ..domain.model import BlobLocation, StoredBlob
from ..domain.parts import PartList, cut, decode_parts, encode_parts, is_part_list, join
from ..domain.stored_json import malformed

_T = TypeVar("_T")

_PARTS_AT_ONCE = 4
_OPENED_AT_ONCE = 2
_NOT_THERE = (Reason.BLOB_HASH_MISMATCH, Reason.BLOB_NOT_FOUND)


@dataclass(frozen=True, slots=True)
class StoredBundle:
    """A bundle in the blob store.

    Attributes:
        location: Where it lies, or the list of its parts.
        parts: Where its parts lie, in order; empty if it is whole.
        blobs: The blobs that it was stored as, and how long they last.
    """

    location: BlobLocation
    parts: tuple[BlobLocation, ...]
    blobs: tuple[StoredBlob, ...]


class HandoffStore:
    """Stores and fetches bundles.

    Args:
        blobs: The blob store; no cache in between.
    """

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs
        # Half of what the store takes at once: flushes must get through.
        self._gate = asyncio.Semaphore(max(1, blobs.limits.puts_at_once // 2))
        self._opening = asyncio.Semaphore(_OPENED_AT_ONCE)

    @property
    def backend(self) -> str:
        """Kind of the blob store."""
        return self._blobs.backend

    async def store(self, closure: Closure) -> StoredBundle:
        """Store a closure that has all its values, and read it back.

        Raises:
            Refusal: `LIMIT_EXCEEDED`, `BLOB_UNAVAILABLE`, `BLOB_REJECTED`.
        """
        data = await asyncio.to_thread(encode_bundle, closure)
        largest = self._blobs.limits.max_member_bytes
        if largest is None or len(data) <= largest:
            location, blobs = await self._put(data)
            return StoredBundle(location, (), blobs)
        stored = await _all(self._put(part) for part in cut(data, largest))
        parts = tuple(location for location, _ in stored)
        location, blobs = await self._put(encode_parts(data, parts))
        made = (*(blob for _, of_part in stored for blob in of_part), *blobs)
        return StoredBundle(location, parts, made)

    async def fetch(self, location: BlobLocation, progress: Progress) -> bytes:
        """Return a bundle's bytes, those of its parts joined; each blob's hash was checked.

        Args:
            location: Where it lies, or its list of parts; the size need not be known.
            progress: Told how many bytes have arrived; falls where a read begins anew.

        Raises:
            Refusal: `BLOB_NOT_FOUND`, `BLOB_HASH_MISMATCH`, `BLOB_MALFORMED`,
                `BLOB_UNAVAILABLE`.
        """
        data = await self._blobs.get(location, progress=progress)
        if not is_part_list(data):
            return data
        listed = decode_parts(data, location, MAX_STORED_BYTES)
        if not all(part.size for part in listed.parts):
            raise malformed(location.blob_id, "one of its parts is empty")
        parts = await self._fetch_parts(listed, location.blob_id, progress)
        return await asyncio.to_thread(join, listed, parts, location.blob_id)

    async def open(self, data: bytes, blob_id: str) -> Closure:
        """Return the closure in a bundle's bytes.

        Raises:
            Refusal: `BLOB_MALFORMED`.
        """
        # Aside and few at once: a few bytes, packed, can unpack to much.
        async with self._opening:
            return await asyncio.to_thread(decode_bundle, data, blob_id)

    async def _put(self, data: bytes) -> tuple[BlobLocation, tuple[StoredBlob, ...]]:
        """Store bytes as a blob of their own, and compare what the store has then."""
        sha256 = await asyncio.to_thread(blob_digest, data)
        async with self._gate:
            receipt = await self._blobs.put([Member(sha256, data)], apart=True)
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
            backend=self.backend,
            problem=f"what was stored cannot be read back: {problem}",
        )

    async def _fetch_parts(self, listed: PartList, name: str, progress: Progress) -> list[bytes]:
        """Return the parts of a bundle, a few at a time; `name` is the blob ID of the list."""
        gate = asyncio.Semaphore(_PARTS_AT_ONCE)
        arrived = [0] * len(listed.parts)

        async def one(number: int, part: BlobLocation) -> bytes:
            def note(count: int) -> None:
                arrived[number] = count
                progress(sum(arrived))

            async with gate:
                data = await self._blobs.get(part, progress=note)
            # At once: the sum of what the list claims is bounded, what comes is not.
            if len(data) != part.size:
                raise malformed(name, f"part {number} has {len(data)} bytes, not {part.size}")
            return data

        return await _all(one(number, part) for number, part in enumerate(listed.parts))


async def _all(calls: Iterable[Coroutine[Any, Any, _T]]) -> list[_T]:
    """Run calls at once; once one fails, end the others."""
    tasks = [asyncio.create_task(call) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
