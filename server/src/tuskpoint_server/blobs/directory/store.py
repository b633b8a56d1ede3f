"""The blob store in a directory.

A file is written under a temporary name in `<root>/incoming`, synced and renamed, and the
directory that it is renamed into is synced: a name never shows half a file. The file
`<root>/layout` says how the directory is laid out; it is there before the first blob.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from io import FileIO
from itertools import chain
from pathlib import Path
from typing import NamedTuple, TypeVar

from ...domain.errors import Reason, Refusal, malformed
from ...domain.limits import LIMITS, MIB
from ...domain.model import BlobLocation
from ...process import sync
from ..api import (
    Listed,
    Member,
    Progress,
    Receipt,
    StoreLimits,
    blob_name,
    digest_of,
    hash_mismatch,
    member_hash,
    unique_members,
    verified,
)
from .packs import MAGIC, NotAPackError, find, pack_pieces, read_index, read_rows

_A = TypeVar("_A")
_T = TypeVar("_T")

_THREADS = 8
_LAYOUT = b"tuskpoint blobs, layout 1\n"
_SHARD_CHARACTERS = 2
_ABANDONED_AFTER_S = 24 * 3600
_LONGEST_BYTES = 2 * LIMITS.max_bundle
"""Bound on what is read into memory; anyone who shares the directory may have put it there."""


class UnknownLayoutError(Exception):
    """A blob directory that is laid out in another way; the text is one line."""


class StoredFile(NamedTuple):
    """A blob as its file shows it: its ID, its bytes, and the seconds since it was last put."""

    blob_id: str
    size: int
    age_s: float


class _Blob(NamedTuple):
    blob_id: str
    file: FileIO  # open for reading, without a buffer
    size: int


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
        self._root = root
        self._incoming = root / "incoming"
        self._incoming.mkdir(parents=True, exist_ok=True)
        shards = self._shards()
        # Read after that: the process that made one of them had written the layout before.
        self._check_layout(used=bool(shards))
        self._synced_shards = set(shards)
        sync(root)
        # Temporary files that a crash left; younger ones may be another server's.
        oldest = time.time() - _ABANDONED_AFTER_S
        for path in self._incoming.iterdir():
            with contextlib.suppress(FileNotFoundError):  # another server was faster
                if path.stat().st_mtime < oldest:
                    path.unlink()
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
        report = progress and (lambda count: soon(progress, count))
        [[data]] = await self._each(partial(self._read, report=report), [[location]])
        return data

    async def get_many(self, locations: Sequence[BlobLocation]) -> list[bytes]:
        """Return the bytes at many locations, in order; each blob is opened once."""
        blobs: dict[str, list[BlobLocation]] = {}
        for location in dict.fromkeys(locations):
            blobs.setdefault(location.blob_id, []).append(location)
        wanted = list(blobs.values())
        read = await self._each(self._read, wanted)
        found = dict(zip(chain(*wanted), chain(*read), strict=True))
        return [found[location] for location in locations]

    async def list_blob(self, blob_id: str) -> Sequence[Listed]:
        """Return the members of a pack, after checking its SHA-256; of another blob, itself."""
        [listed] = await self._each(self._list, [blob_id])
        return listed

    async def renew(self, blob_id: str) -> Receipt:
        """Check that a blob is there and whole; it stays for good."""
        locations = tuple(listed.location for listed in await self.list_blob(blob_id))
        for location in locations:
            await self.get(location)
        return Receipt(locations)

    async def blobs(self) -> AsyncIterator[StoredFile]:
        """Return every blob of the directory, from every writer."""
        [shards] = await self._each(lambda _: self._shards(), [None])
        for shard in shards:
            [found] = await self._each(lambda name: list(self._shard(name)), [shard])
            for file in found:
                yield file

    async def remove(self, blob_id: str, *, min_age_s: float = 0.0) -> bool:
        """Remove a blob for good with all of its members; return whether it was there and old.

        Nothing is removed but by this call. What was put lately may be another server's, which
        has not recorded it yet.
        """
        [removed] = await self._each(lambda name: self._remove(name, min_age_s), [blob_id])
        return removed

    async def close(self) -> None:
        """Wait for running work and end the threads."""
        await asyncio.to_thread(self._pool.shutdown)

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

    def _write(self, members: Sequence[Member]) -> list[BlobLocation]:
        """Write members as one file and return where they lie.

        A file that is there already is replaced: that heals a damaged one, and its age begins
        again.
        """
        first = members[0]
        pieces, digest, packed = [first.data], first.sha256, False
        # What would be taken for a pack when it is listed becomes the member of one.
        if len(members) > 1 or first.data.startswith(MAGIC):
            pieces, packed = pack_pieces(members), True
            hasher = hashlib.sha256()
            for piece in pieces:
                hasher.update(piece)
            digest = hasher.digest()
        blob_id = blob_name(digest)
        path = self._path(blob_id)
        shard = path.parent
        with contextlib.suppress(FileExistsError):
            shard.mkdir()
            self._synced_shards.discard(shard.name)
        # Another server may have made it, and not have synced its name yet.
        if shard.name not in self._synced_shards:
            sync(self._root)
            self._synced_shards.add(shard.name)
        self._place(path, pieces)
        return [
            BlobLocation(one.sha256, len(one.data), blob_id, one.sha256.hex() if packed else "")
            for one in members
        ]

    def _remove(self, blob_id: str, min_age_s: float) -> bool:
        try:
            path = self._path(blob_id)
            # Looked at again: it may have been put once more since it was listed.
            if time.time() - path.stat().st_mtime < min_age_s:
                return False
            path.unlink()
        except FileNotFoundError:
            return False
        sync(path.parent)
        return True

    def _shards(self) -> list[str]:
        """Return the names of the directories that hold blobs, in order."""
        with os.scandir(self._root) as entries:
            return sorted(
                entry.name
                for entry in entries
                if len(entry.name) == _SHARD_CHARACTERS and entry.is_dir()
            )

    def _shard(self, name: str) -> Iterator[StoredFile]:
        """Return the blobs of one directory; what is not named like one is left out."""
        now = time.time()
        with os.scandir(self._root / name) as entries:
            for entry in entries:
                if entry.name[:_SHARD_CHARACTERS] != name or digest_of(entry.name) is None:
                    continue
                with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                    stat = entry.stat()
                    yield StoredFile(entry.name, stat.st_size, max(0.0, now - stat.st_mtime))

    def _read(
        self, locations: Sequence[BlobLocation], report: Callable[[int], object] | None = None
    ) -> list[bytes]:
        """Return the bytes at locations in one blob, in order, each after checking its hash.

        They are read in the order of the file. `report` is called in this thread with the number
        of bytes that were read of the one that is being read.
        """
        blob_id = locations[0].blob_id
        if not blob_id:
            raise Refusal(Reason.BLOB_NOT_FOUND, blob_id=locations[0].sha256.hex())
        with self._opened(blob_id) as blob:
            packed = any(one.identifier for one in locations)
            rows = read_rows(blob.file, blob.size) if packed else b""
            found = [b""] * len(locations)
            spans = [(_span(blob, rows, one), number) for number, one in enumerate(locations)]
            for span, number in sorted(spans):
                data = _read_span(blob.file, *span, report)
                try:
                    found[number] = verified(data, locations[number])
                except Refusal:
                    if packed:
                        read_index(blob.file, blob.size)
                    raise
            return found

    def _list(self, blob_id: str) -> list[Listed]:
        with self._opened(blob_id) as blob:
            if blob.file.read(len(MAGIC)) != MAGIC:
                return [Listed(BlobLocation(digest_of(blob_id) or b"", blob.size, blob_id), "")]
            _check_whole(blob)
            return [
                Listed(BlobLocation(sha256, size, blob_id, sha256.hex()), kind)
                for sha256, _, size, kind in read_index(blob.file, blob.size)
            ]

    @contextlib.contextmanager
    def _opened(self, blob_id: str) -> Iterator[_Blob]:
        """Open a blob; where its index is wrong, its hash says whether it is what was stored."""
        try:
            file = self._path(blob_id).open("rb", buffering=0)
        except FileNotFoundError:
            raise Refusal(Reason.BLOB_NOT_FOUND, blob_id=blob_id) from None
        with file:
            blob = _Blob(blob_id, file, os.fstat(file.fileno()).st_size)
            try:
                yield blob
            except NotAPackError as error:
                _check_whole(blob)
                raise malformed(blob_id, str(error)) from None

    def _path(self, blob_id: str) -> Path:
        """Return the path of a blob; what cannot be the ID of one is not found, and no path."""
        if digest_of(blob_id) is None:
            raise FileNotFoundError(blob_id)
        return self._root / blob_id[:_SHARD_CHARACTERS] / blob_id

    def _place(self, path: Path, pieces: Sequence[bytes]) -> None:
        """Make a file of some bytes durable under its name."""
        part = self._incoming / uuid.uuid4().hex
        try:
            with part.open("xb", buffering=MIB) as file:
                file.writelines(pieces)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
            raise
        sync(path.parent)

    def _check_layout(self, *, used: bool) -> None:
        path = self._root / "layout"
        try:
            with path.open("rb") as file:
                found = file.read(200)
        except FileNotFoundError:
            if used:
                raise UnknownLayoutError(
                    "it holds blobs, but no file 'layout' that says how they are laid out"
                ) from None
            self._place(path, [_LAYOUT])
            return
        if found != _LAYOUT:
            shown = found.decode(errors="replace").strip().partition("\n")[0]
            raise UnknownLayoutError(
                f"its layout is '{shown}', and this server knows '{_LAYOUT.decode().strip()}'"
            )


def _check_whole(blob: _Blob) -> None:
    """Refuse a blob with another hash than its ID spells."""
    if blob.size > _LONGEST_BYTES:
        raise malformed(blob.blob_id, "it is longer than anything that is stored")
    blob.file.seek(0)
    actual = hashlib.file_digest(blob.file, "sha256").digest()
    if blob_name(actual) != blob.blob_id:
        raise hash_mismatch(blob.blob_id, digest_of(blob.blob_id) or b"", actual)


def _span(blob: _Blob, rows: bytes, location: BlobLocation) -> tuple[int, int]:
    """Return offset and size in bytes of what is at a location."""
    span: tuple[int, int] | None = (0, blob.size)
    if location.identifier:
        span = find(rows, member_hash(location.identifier) or b"")
    if span is None:
        # Either it was never there, or the index is not the one that was stored.
        _check_whole(blob)
        raise Refusal(Reason.BLOB_NOT_FOUND, blob_id=blob.blob_id)
    if sum(span) > blob.size or span[1] > _LONGEST_BYTES:
        raise NotAPackError(f"its index has a member that ends at byte {sum(span)} of {blob.size}")
    return span


def _read_span(
    file: FileIO, offset: int, size: int, report: Callable[[int], object] | None
) -> bytes:
    """Return the bytes of a span, fewer if the file ends before it."""
    chunks: list[bytes] = []
    arrived = 0
    longest = MIB if report else size
    while arrived < size and (
        chunk := os.pread(file.fileno(), min(longest, size - arrived), offset + arrived)
    ):
        chunks.append(chunk)
        arrived += len(chunk)
        if report:
            report(arrived)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)
