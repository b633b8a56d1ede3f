"""Storage of content as standalone blobs, whose ID is enough to fetch the content.

Content that is larger than a member may be is cut into parts; the list of the parts is stored last,
in place of the content. Bundles of hand-offs are stored and fetched this way. No local cache is
used.
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
"""Reasons that mean that the store lacks the bytes that were stored at a location."""

Put = Callable[[str, Sequence[BlobMember]], Awaitable[Mapping[bytes, BlobLocation]]]
"""Stores a tenant's members, each as a blob of its own; returns their locations by hash."""

_PARTS_AT_ONCE = 4
_OPENED_AT_ONCE = 2
_ROWS_BYTES = 128 * MIB
"""Most memory that the rows of a segment need besides their texts and values."""


class MemoryRoom(Protocol):
    """Counts the memory that a bundle needs while it is fetched and unpacked."""

    async def take(self, size: int, what: str = "") -> None:
        """Reserve bytes, waiting if necessary; refuse a size that never fits, naming `what`."""

    def give(self, size: int) -> None:
        """Release `size` bytes."""


@dataclass(frozen=True, slots=True)
class StandaloneBlob:
    """Bytes in the blob store."""

    location: BlobLocation  # location of the bytes, or of the list of their parts
    # locations of the parts, in order; empty if the bytes are one blob
    parts: tuple[BlobLocation, ...] = ()


class StandaloneStore:
    """Stores standalone blobs in the blob store itself, without a cache; fetches bundles.

    With a key provider, each blob is sealed as a root.
    """

    def __init__(self, blobs: BlobStore, put: Put, keys: KeyProvider | None) -> None:
        self._blobs = blobs
        self._put = put
        self._keys = keys
        self._opening = asyncio.Semaphore(_OPENED_AT_ONCE)
        # Half of the store's concurrent puts: the other half remains for flushes.
        self._gate = asyncio.Semaphore(max(1, blobs.limits.puts_at_once // 2))

    async def store(self, tenant: str, content: bytes, kind: Kind) -> StandaloneBlob:
        """Store content, and read it back; refuse as a put and the key provider do."""
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
        """Whether stored blobs are sealed."""
        return self._keys is not None

    async def store_bundle(self, tenant: str, closure: Closure) -> StandaloneBlob:
        """Store a closure that has all its values, as `store` does."""
        data = await asyncio.to_thread(encode_bundle, closure)
        return await self.store(tenant, data, Kind.SEGMENT)

    async def fetch(self, location: BlobLocation, progress: Progress, room: MemoryRoom) -> bytes:
        """Return a bundle's bytes, with parts joined; the hash of each blob was checked.

        `progress` is called with the number of bytes received; the number falls when a read
        restarts. `room` has the size of the returned bytes reserved.
        """
        name = location.blob_id
        await room.take(MAX_MEMBER_READ)
        data = await self._blobs.get(location, progress=progress)
        room.give(MAX_MEMBER_READ - len(data))
        if not is_part_list(data):
            return data
        part_list = decode_parts(data, location, MAX_STORED_BYTES)
        room.give(len(data))
        # Parts may be larger than the list says until their sizes are compared.
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
            # Compare each part on arrival: the list bounds the sizes that it names, not the blobs'
            # sizes.
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
        """Return the closure in a bundle's bytes, which may be sealed.

        Memory for the unpacked content is taken from `room` before unpacking, and not given back.

        Raises:
            Refusal: `BLOB_MALFORMED`; `KEY_MISSING` if the bundle is sealed and no key for it is
                known here; any refusal of the key provider and of `room`.
        """
        name = location.blob_id
        root = await with_root_key(self._keys, tenant, data, location)
        async with self._opening:  # few bundles at a time, in threads
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
