"""Storing content as a blob of its own, so that its ID is enough to fetch it.

Larger content than a member may be is cut; the list of its parts is stored last, in its place.
Bundles of hand-offs are stored and fetched this way. No local cache is used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..blobs.api import BlobStore, Member, Progress, every
from ..domain.errors import Reason, Refusal, malformed
from ..domain.formats.bundles import MAX_STORED_BYTES, Closure, decode_bundle, encode_bundle
from ..domain.formats.sealing import opened, seal_root
from ..domain.formats.stored_json import (
    MEMBER_BYTES,
    Kind,
    decode_parts,
    encode_parts,
    is_part_list,
    join_parts,
)
from ..domain.model import BlobLocation
from ..domain.values import blob_digest, split
from ..keys.provider import KeyProvider
from .roots import new_root, with_root_key

GONE = (Reason.BLOB_NOT_FOUND, Reason.BLOB_HASH_MISMATCH)
"""Reasons that the store does not have the bytes that were stored at a location."""

Put = Callable[[str, Sequence[Member]], Awaitable[Mapping[bytes, BlobLocation]]]
"""Stores a tenant's members, each as a blob of its own; returns their locations by hash."""

_PARTS_AT_ONCE = 4
_OPENED_AT_ONCE = 2


@dataclass(frozen=True, slots=True)
class StoredApart:
    """Bytes in the blob store."""

    location: BlobLocation  # of them, or of the list of their parts
    parts: tuple[BlobLocation, ...] = ()  # in order; empty if they are whole


class ApartStore:
    """Stores blobs of their own in the blob store itself, no cache in between; fetches bundles.

    With a key provider they are sealed, each as a root.
    """

    def __init__(self, blobs: BlobStore, put: Put, keys: KeyProvider | None) -> None:
        self._blobs = blobs
        self._put = put
        self._keys = keys
        self._opening = asyncio.Semaphore(_OPENED_AT_ONCE)
        # Half of the store's concurrent puts: flushes must get through.
        self._gate = asyncio.Semaphore(max(1, blobs.limits.puts_at_once // 2))

    async def store(self, tenant: str, content: bytes, kind: Kind) -> StoredApart:
        """Store content, and read it back; refuses as a put and the key provider do."""
        root = await new_root(self._keys, tenant)
        stored = await self._cut(tenant, await asyncio.to_thread(seal_root, content, root), kind)
        return replace(stored, location=replace(stored.location, key=root.key))

    async def _cut(self, tenant: str, data: bytes, kind: Kind) -> StoredApart:
        largest = min(MEMBER_BYTES, self._blobs.limits.max_member_bytes or MEMBER_BYTES)
        if len(data) <= largest:
            return StoredApart(await self._store(tenant, data, kind))
        cut = split(data, largest)
        parts = await every(self._store(tenant, part, Kind.PART) for part in cut)
        listed = await asyncio.to_thread(encode_parts, data, parts)
        return StoredApart(await self._store(tenant, listed, Kind.PARTS), tuple(parts))

    async def _store(self, tenant: str, data: bytes, kind: Kind) -> BlobLocation:
        sha256 = await asyncio.to_thread(blob_digest, data)
        try:
            async with self._gate:
                return (await self._put(tenant, [Member(sha256, data, kind.value)]))[sha256]
        except Refusal as refusal:
            if refusal.reason not in GONE:
                raise
            problem = f"what was stored cannot be read back: {refusal.message}"
            backend = self._blobs.backend
            raise Refusal(Reason.BLOB_UNAVAILABLE, backend=backend, problem=problem) from refusal

    @property
    def backend(self) -> str:
        """Kind of the blob store."""
        return self._blobs.backend

    @property
    def seals(self) -> bool:
        """Whether what is stored is sealed."""
        return self._keys is not None

    async def store_bundle(self, tenant: str, closure: Closure) -> StoredApart:
        """Store a closure that has all its values, as `store` does."""
        data = await asyncio.to_thread(encode_bundle, closure)
        return await self.store(tenant, data, Kind.SEGMENT)

    async def fetch(self, location: BlobLocation, progress: Progress) -> bytes:
        """Return a bundle's bytes, those of its parts joined; each blob's hash was checked.

        `progress` is called with the number of bytes that have arrived; it
        falls where a read begins anew.
        """
        data = await self._blobs.get(location, progress=progress)
        if not is_part_list(data):
            return data
        listed = decode_parts(data, location, MAX_STORED_BYTES)
        name = location.blob_id
        if not all(part.size for part in listed.parts):
            raise malformed(name, "one of its parts is empty")
        gate = asyncio.Semaphore(_PARTS_AT_ONCE)
        arrived = [0] * len(listed.parts)

        async def one(number: int, part: BlobLocation) -> bytes:
            def note(count: int) -> None:
                arrived[number] = count
                progress(sum(arrived))

            async with gate:
                data = await self._blobs.get(part, progress=note)
            # Not at the end: the list bounds the sizes that it names, not those of the blobs.
            if len(data) != part.size:
                raise malformed(name, f"part {number} has {len(data)} bytes, not {part.size}")
            return data

        parts = await every(one(number, part) for number, part in enumerate(listed.parts))
        return await asyncio.to_thread(join_parts, listed, parts, name)

    async def open(self, tenant: str, data: bytes, location: BlobLocation) -> Closure:
        """Return the closure in a bundle's bytes, sealed or not.

        Raises:
            Refusal: `BLOB_MALFORMED`; `KEY_MISSING` if it is sealed and no key for it is known
                here; what the key provider refuses.
        """
        known = await with_root_key(self._keys, tenant, data, location)
        # In a thread, and few at a time: a few packed bytes can unpack to very many.
        async with self._opening:
            return await asyncio.to_thread(_closure, data, known)


def _closure(data: bytes, location: BlobLocation) -> Closure:
    return decode_bundle(opened(data, location), location.blob_id)
