"""The blob store in a directory."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

from ...domain.errors import Reason, Refusal
from ...domain.model import BlobLocation
from ..api import Listed, Member, Progress, Receipt, StoreLimits, blob_name, unique_members
from .files import MAGIC, BlobFiles, StoredFile, pack_pieces

_A = TypeVar("_A")
_T = TypeVar("_T")

_THREADS = 8


class DirectoryStore:
    """A `BlobStore` in a directory, which is created if it is missing.

    A put is one file: a pack, addressed like a quilt, whose members are named by their
    SHA-256 in hex. A member that is put alone or apart is a file of its own.

    Raises:
        UnknownLayoutError: It is laid out in another way.
        OSError: It cannot be made, read or written.
    """

    backend = "directory"
    limits = StoreLimits()
    epoch_s = None  # files do not expire

    def __init__(self, root: Path) -> None:
        self._files = BlobFiles(root)
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="blob-directory")

    def predict(self, sha256: bytes, size: int) -> BlobLocation:
        """Return the location in "this pack": the ID of a pack depends on all of its members."""
        return BlobLocation(sha256, size, "", sha256.hex())

    async def put(self, members: Sequence[Member], *, apart: bool = False) -> Receipt:
        """Store members as one pack file, or each as a blob of its own."""
        unique = unique_members(members)
        groups = [[member] for member in unique] if apart or len(unique) < 2 else [unique]
        stored = await self._each(self._write, groups)
        located = {location.sha256: location for some in stored for location in some}
        return Receipt(tuple(located[member.sha256] for member in members))

    async def get(self, location: BlobLocation, *, progress: Progress | None = None) -> bytes:
        """Return the bytes at a location, after checking their SHA-256."""
        soon = asyncio.get_running_loop().call_soon_threadsafe
        told = progress and (lambda count: soon(progress, count))
        [[data]] = await self._each(partial(self._files.read, told=told), [[location]])
        return data

    async def get_many(self, locations: Sequence[BlobLocation]) -> list[bytes]:
        """Return the bytes at many locations, in order; each blob is opened once."""
        blobs: dict[str, dict[BlobLocation, None]] = {}
        for location in locations:
            blobs.setdefault(location.blob_id, {})[location] = None
        wanted = [list(some) for some in blobs.values()]
        read = await self._each(self._files.read, wanted)
        found: dict[BlobLocation, bytes] = {}
        for some, data in zip(wanted, read, strict=True):
            found.update(zip(some, data, strict=True))
        return [found[location] for location in locations]

    async def list_blob(self, blob_id: str) -> Sequence[Listed]:
        """Return the members of a pack, after checking its SHA-256; of another blob, itself."""
        [listed] = await self._each(self._files.list_members, [blob_id])
        return listed

    async def renew(self, blob_id: str) -> Receipt:
        """Check that a blob is there and whole; it stays for good."""
        locations = tuple(listed.location for listed in await self.list_blob(blob_id))
        for location in locations:
            await self.get(location)
        return Receipt(locations)

    async def blobs(self) -> AsyncIterator[StoredFile]:
        """Return every blob of the directory, whoever stored it."""
        [shards] = await self._each(lambda _: self._files.shards(), [None])
        for shard in shards:
            [found] = await self._each(lambda name: list(self._files.shard(name)), [shard])
            for file in found:
                yield file

    async def remove(self, blob_id: str, *, min_age_s: float = 0.0) -> bool:
        """Remove a blob for good with all of its members; tell whether it was there and old.

        Nothing is removed but by this call. What was put lately may be another server's, which
        has not recorded it yet.
        """
        [removed] = await self._each(lambda name: self._files.remove(name, min_age_s), [blob_id])
        return removed

    async def close(self) -> None:
        """Wait for running work and end the threads."""
        await asyncio.to_thread(self._pool.shutdown)

    def _write(self, members: Sequence[Member]) -> list[BlobLocation]:
        """Write members as one file and return where they lie."""
        first = members[0]
        # What would be taken for a pack when it is listed becomes the member of one.
        if len(members) == 1 and not first.data.startswith(MAGIC):
            blob_id = blob_name(first.sha256)
            self._files.write(blob_id, [first.data])
            return [BlobLocation(first.sha256, len(first.data), blob_id)]
        pieces = pack_pieces(members)
        hasher = hashlib.sha256()
        for piece in pieces:
            hasher.update(piece)
        blob_id = blob_name(hasher.digest())
        self._files.write(blob_id, pieces)
        return [
            BlobLocation(one.sha256, len(one.data), blob_id, one.sha256.hex()) for one in members
        ]

    async def _each(self, work: Callable[[_A], _T], items: Sequence[_A]) -> list[_T]:
        """Run work on items in the threads, of which each takes a share; wait for all.

        Handing over thousands of single items would cost the event loop more than the files
        cost the disk. What fails ends its share.
        """
        loop = asyncio.get_running_loop()
        size = -(-len(items) // _THREADS) or 1
        calls = [
            loop.run_in_executor(
                self._pool, lambda share: [work(item) for item in share], items[at : at + size]
            )
            for at in range(0, len(items), size)
        ]
        await asyncio.gather(*calls, return_exceptions=True)
        try:
            return [result for call in calls for result in call.result()]
        except OSError as error:
            problem = error.strerror or type(error).__name__
            raise Refusal(Reason.BLOB_UNAVAILABLE, backend=self.backend, problem=problem) from error
