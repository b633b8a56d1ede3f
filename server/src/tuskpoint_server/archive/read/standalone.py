"""Storing content as a blob of its own, so that its ID is enough to fetch it.

Larger content than a member may be is cut; the list of its parts is stored last, in its place.
Bundles of hand-offs are stored and fetched this way. No local cache is used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from ...blobs.api import BlobMember, BlobStore, Progress, gather_all
from ...core.errors import Reason, Refusal, malformed_bytes
from ...core.limits import MAX_MEMBER_READ, MIB
from ...core.model import BlobLocation
from ...core.values import blob_digest, split
from ...keys.provider import KeyProvider
from ..formats.bundles import (
    MAX_STORED_BYTES,
    Closure,
    encode_bundle,
    read_bundle,
    unpack_bundle,
    unpacked_bytes,
)
from ..formats.sealing import is_sealed, open_member, seal_root
from ..formats.segment_reading import unpacked_size
from ..formats.stored_json import (
    MEMBER_BYTES,
    Kind,
    decode_parts,
    encode_parts,
    is_part_list,
    join_parts,
)
from .root_keys import new_root, with_root_key

GONE = (Reason.BLOB_NOT_FOUND, Reason.BLOB_HASH_MISMATCH)
"""Reasons that the store does not have the bytes that were stored at a location."""

Put = Callable[[str, Sequence[BlobMember]], Awaitable[Mapping[bytes, BlobLocation]]]
"""Stores a tenant's members, each as a blob of its own; returns their locations by hash."""

_PARTS_AT_ONCE = 4
_OPENED_AT_ONCE = 2
_ROWS_BYTES = 128 * MIB
"""Memory that the rows of a segment take at most besides their texts and values."""


class MemoryRoom(Protocol):
    """Counts the memory that a bundle takes while it is fetched and unpacked."""

    async def take(self, size: int, what: str = "") -> None:
        """Wait until so many bytes more may be held; refuse what never fits, by its name."""

    def give(self, size: int) -> None:
        """Hold so many bytes no longer."""


@dataclass(frozen=True, slots=True)
class StandaloneBlob:
    """Bytes in the blob store."""

    location: BlobLocation  # of them, or of the list of their parts
    parts: tuple[BlobLocation, ...] = ()  # in order; empty if they are whole


class StandaloneStore:
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

    async def store(self, tenant: str, content: bytes, kind: Kind) -> StandaloneBlob:
        """Store content, and read it back; refuses as a put and the key provider do."""
        root = await new_root(self._keys, tenant)
        stored = await self._cut(tenant, await asyncio.to_thread(seal_root, content, root), kind)
        return replace(stored, location=replace(stored.location, key=root.key))

    async def _cut(self, tenant: str, data: bytes, kind: Kind) -> StandaloneBlob:
        largest = min(MEMBER_BYTES, self._blobs.limits.max_member_bytes or MEMBER_BYTES)
        if len(data) <= largest:
            return StandaloneBlob(await self._store(tenant, data, kind))
        pieces = split(data, largest)
        parts = await gather_all(self._store(tenant, part, Kind.PART) for part in pieces)
        part_list = await asyncio.to_thread(encode_parts, data, parts)
        return StandaloneBlob(await self._store(tenant, part_list, Kind.PARTS), tuple(parts))

    async def _store(self, tenant: str, data: bytes, kind: Kind) -> BlobLocation:
        sha256 = await asyncio.to_thread(blob_digest, data)
        try:
            async with self._gate:
                return (await self._put(tenant, [BlobMember(sha256, data, kind.value)]))[sha256]
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

    async def store_bundle(self, tenant: str, closure: Closure) -> StandaloneBlob:
        """Store a closure that has all its values, as `store` does."""
        data = await asyncio.to_thread(encode_bundle, closure)
        return await self.store(tenant, data, Kind.SEGMENT)

    async def fetch(self, location: BlobLocation, progress: Progress, room: MemoryRoom) -> bytes:
        """Return a bundle's bytes, those of its parts joined; each blob's hash was checked.

        `progress` is called with the number of bytes that have arrived; it
        falls where a read begins anew. `room` has the size of what is returned.
        """
        name = location.blob_id
        await room.take(MAX_MEMBER_READ)
        data = await self._blobs.get(location, progress=progress)
        room.give(MAX_MEMBER_READ - len(data))
        if not is_part_list(data):
            return data
        part_list = decode_parts(data, location, MAX_STORED_BYTES)
        room.give(len(data))
        # Parts that arrive may be larger than the list says, until their sizes are compared.
        arriving_bytes = 2 * part_list.size + _PARTS_AT_ONCE * MAX_MEMBER_READ
        await room.take(arriving_bytes, f"bundle {name} of {part_list.size} bytes")
        gate = asyncio.Semaphore(_PARTS_AT_ONCE)
        part_locations = list(dict.fromkeys(part_list.parts))
        byte_counts = [0] * len(part_locations)

        async def fetch_one(number: int, part: BlobLocation) -> bytes:
            def note(count: int) -> None:
                byte_counts[number] = count
                progress(sum(byte_counts))

            async with gate:
                data = await self._blobs.get(part, progress=note)
            # Not at the end: the list bounds the sizes that it names, not those of the blobs.
            if len(data) != part.size:
                raise malformed_bytes(name, f"part {number} has {len(data)} bytes, not {part.size}")
            return data

        parts = await gather_all(
            fetch_one(number, part) for number, part in enumerate(part_locations)
        )
        contents = dict(zip(part_locations, parts, strict=True))
        del parts
        try:
            return await asyncio.to_thread(
                join_parts, part_list, [contents[part] for part in part_list.parts], name
            )
        finally:
            room.give(arriving_bytes - part_list.size)

    async def open(
        self, tenant: str, data: bytes, location: BlobLocation, room: MemoryRoom
    ) -> Closure:
        """Return the closure in a bundle's bytes, sealed or not.

        What they unpack to is taken from `room` before it is made, and not given back.

        Raises:
            Refusal: `BLOB_MALFORMED`; `KEY_MISSING` if it is sealed and no key for it is known
                here; what the key provider and the room refuse.
        """
        name = location.blob_id
        root = await with_root_key(self._keys, tenant, data, location)
        async with self._opening:  # few at a time, in threads
            if is_sealed(data):
                await room.take(len(data), f"bundle {name} of {len(data)} bytes")
            content = await asyncio.to_thread(open_member, data, root)
            del data
            size = unpacked_size(content, name)
            what = f"bundle {name}, which unpacks to {size} bytes,"
            await room.take(2 * size + _ROWS_BYTES, what)
            segment = await asyncio.to_thread(read_bundle, content, name)
            del content
            room.give(size + _ROWS_BYTES)
            size = unpacked_bytes(segment)
            await room.take(size, f"bundle {name}, whose values unpack to {size} bytes,")
            return await asyncio.to_thread(unpack_bundle, segment, name)
