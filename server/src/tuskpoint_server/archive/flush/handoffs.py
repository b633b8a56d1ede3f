"""Bundles of hand-offs in the blob store itself: nothing here asks a local copy.

A bundle is a blob of its own, or a list of parts (`archive.apart`), so that its ID and its
hash are all that another side needs.
"""

from __future__ import annotations

import asyncio

from ...blobs.api import BlobStore, Progress, every
from ...domain.errors import malformed
from ...domain.formats.bundles import MAX_STORED_BYTES, Closure, decode_bundle, encode_bundle
from ...domain.formats.stored_json import Kind, PartList, decode_parts, is_part_list, join_parts
from ...domain.model import BlobLocation
from ..apart import ApartStore, StoredApart

_PARTS_AT_ONCE = 4
_OPENED_AT_ONCE = 2


class HandoffStore:
    """Stores and fetches bundles, past any cache."""

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs
        self._apart = ApartStore(blobs)
        self._opening = asyncio.Semaphore(_OPENED_AT_ONCE)

    @property
    def backend(self) -> str:
        """Kind of the blob store."""
        return self._blobs.backend

    async def store(self, closure: Closure) -> StoredApart:
        """Store a closure that has all its values, and read it back."""
        data = await asyncio.to_thread(encode_bundle, closure)
        return await self._apart.store(data, Kind.SEGMENT)

    async def fetch(self, location: BlobLocation, progress: Progress) -> bytes:
        """Return a bundle's bytes, those of its parts joined; each blob's hash was checked.

        `progress` is told how many bytes have arrived, fewer again where a read begins anew.
        """
        data = await self._blobs.get(location, progress=progress)
        if not is_part_list(data):
            return data
        listed = decode_parts(data, location, MAX_STORED_BYTES)
        if not all(part.size for part in listed.parts):
            raise malformed(location.blob_id, "one of its parts is empty")
        parts = await self._fetch_parts(listed, location.blob_id, progress)
        return await asyncio.to_thread(join_parts, listed, parts, location.blob_id)

    async def open(self, data: bytes, blob_id: str) -> Closure:
        """Return the closure in a bundle's bytes; refuses with `BLOB_MALFORMED`."""
        # In a thread and few at once: a few bytes, packed, can unpack to much.
        async with self._opening:
            return await asyncio.to_thread(decode_bundle, data, blob_id)

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

        return await every(one(number, part) for number, part in enumerate(listed.parts))
