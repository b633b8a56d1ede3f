"""Blob stores that store each put as one pack: the common part of directory and bucket.

A put is one blob: a pack whose members are named by their SHA-256 in hex, or one member as it is.
The ID of a blob is the base64url of its SHA-256, and its name is `XX/ID`, where `XX` is the first
two characters of the ID. Reads are checked here; a subclass stores and opens the blobs.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from itertools import chain
from typing import ClassVar, NamedTuple, Protocol, TypeVar

from ..core.errors import Reason, Refusal, malformed_bytes
from ..core.limits import LIMITS, MAX_MEMBER_READ, MIB
from ..core.model import BlobLocation
from .api import (
    BlobMember,
    ListedMember,
    Progress,
    PutReceipt,
    StoreLimits,
    blob_name,
    digest_of,
    hash_mismatch,
    member_hash,
    unique_members,
    verify_bytes,
)
from .packs import MAGIC, NotAPackError, find, pack_bytes, pack_pieces, read_index, read_rows

_A = TypeVar("_A")
_T = TypeVar("_T")

LAYOUT = b"tuskpoint blobs, layout 1\n"
"""Content of the file `layout`, which is written before the first blob."""
SHARD_CHARACTERS = 2
_LONGEST_BYTES = 2 * LIMITS.max_bundle
"""Bound on the bytes of a blob that is hashed, a piece at a time: anyone may have put the blob."""


class UnknownLayoutError(Exception):
    """The place has another layout; the text is one line."""


class StoredFile(NamedTuple):
    """Blob in a listing: its ID, its size in bytes, and the seconds since its last put."""

    blob_id: str
    size: int
    age_s: float


class Blob(Protocol):
    """Open blob."""

    @property
    def blob_id(self) -> str:
        """ID of the blob."""

    @property
    def size(self) -> int:
        """Size of the blob in bytes."""

    def expect(self, spans: Sequence[tuple[int, int]]) -> None:
        """Announce reads that follow: offsets and sizes in ascending order."""

    def read(self, offset: int, size: int) -> bytes:
        """Return `size` bytes from an offset, or fewer if the blob ends before."""


class PackStore(ABC):
    """A `BlobStore` whose blobs are packs; all work runs in threads.

    Blobs never change, and are removed only on request.
    """

    backend: str
    limits = StoreLimits()
    epoch_s = None  # blobs never expire
    threads: ClassVar[int] = 8
    troubles: ClassVar[tuple[type[Exception], ...]] = (OSError,)
    """Exceptions that mean that the store cannot be used."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix=f"blobs-{self.backend}")

    def predict(self, sha256: bytes, size: int) -> BlobLocation:
        """Return the location in "this pack": the ID of a pack depends on all of its members."""
        return BlobLocation(sha256, size, "", sha256.hex())

    async def put(self, members: Sequence[BlobMember], *, standalone: bool = False) -> PutReceipt:
        """Store members as one pack, or each member as a blob of its own."""
        unique = unique_members(members)
        groups = [[member] for member in unique] if standalone or len(unique) < 2 else [unique]
        stored = await self._each(self._write, groups)
        located = {location.sha256: location for group in stored for location in group}
        return PutReceipt(tuple(located[member.sha256] for member in members))

    async def get(self, location: BlobLocation, *, progress: Progress | None = None) -> bytes:
        """Return the bytes at a location, after checking their SHA-256."""
        soon = asyncio.get_running_loop().call_soon_threadsafe
        report = progress and (lambda count: soon(progress, count))
        [[data]] = await self._each(partial(self._read, report=report), [[location]])
        return data

    async def get_many(self, locations: Sequence[BlobLocation]) -> list[bytes]:
        """Return the bytes at many locations, in order; open each blob once."""
        blobs: dict[str, list[BlobLocation]] = {}
        for location in dict.fromkeys(locations):
            blobs.setdefault(location.blob_id, []).append(location)
        groups = list(blobs.values())
        read = await self._each(self._read, groups)
        contents = dict(zip(chain(*groups), chain(*read), strict=True))
        return [contents[location] for location in locations]

    async def list_blob(self, blob_id: str) -> Sequence[ListedMember]:
        """Return the members of a pack, or another blob as a member; check the SHA-256."""
        [listed] = await self._each(self._list, [blob_id])
        return listed

    async def indexes(self, blob_ids: Sequence[str]) -> list[Sequence[ListedMember]]:
        """Return what `list_blob` returns, for several blobs, without checking their SHA-256."""
        return list(await self._each(partial(self._list, whole=False), blob_ids))

    async def renew(self, blob_id: str) -> PutReceipt:
        """Check that a blob exists and is whole; blobs of this store never expire."""
        locations = tuple(listed.location for listed in await self.list_blob(blob_id))
        for location in locations:
            await self.get(location)
        return PutReceipt(locations)

    async def blobs(self) -> AsyncIterator[StoredFile]:
        """Return every blob of the store, whichever server put it."""
        pages = self._pages()
        while True:
            [page] = await self._each(lambda pages: next(pages, None), [pages])
            if page is None:
                return
            for file in page:
                yield file

    async def remove(self, blob_id: str, *, min_age_s: float = 0.0) -> bool:
        """Remove a blob with all of its members; return whether the blob existed and was old.

        Nothing else removes blobs. A young blob stays: another server may have put it, and not have
        recorded it yet.
        """
        [removed] = await self._each(lambda name: self._remove(name, min_age_s), [blob_id])
        return removed

    async def close(self) -> None:
        """Wait for running work and stop the threads."""
        await asyncio.to_thread(self._pool.shutdown)

    # --- implemented by each store; called in threads -------------------------------------

    @abstractmethod
    def _place(self, blob_id: str, pieces: Sequence[bytes]) -> None:
        """Store bytes durably as a blob; replace an existing blob that is damaged."""

    @abstractmethod
    def _open(self, blob_id: str, likely: int) -> AbstractContextManager[Blob]:
        """Open a blob; reads likely need its first `likely` bytes; or raise `FileNotFoundError`."""

    @abstractmethod
    def _pages(self) -> Iterator[list[StoredFile]]:
        """Return every blob, in pages; skip names that are not blob IDs."""

    @abstractmethod
    def _remove(self, blob_id: str, min_age_s: float) -> bool:
        """Remove a blob unless it was put recently; return whether it existed and was old."""

    def _problem(self, error: Exception) -> str:
        """Return in one line why an error makes the store unusable."""
        return getattr(error, "strerror", None) or type(error).__name__

    # --- common to all stores; runs in threads ---------------------------------------------

    async def _each(self, work: Callable[[_A], _T], items: Sequence[_A]) -> list[_T]:
        """Distribute items over the threads, which apply `work` to each; wait for all.

        Each thread gets a share of the items: scheduling thousands of single items would cost the
        event loop more than the files cost the disk. A failure ends the share of its thread.
        """
        loop = asyncio.get_running_loop()
        size = -(-len(items) // self.threads) or 1
        calls = [
            loop.run_in_executor(
                self._pool,
                lambda share: [work(item) for item in share],
                items[start : start + size],
            )
            for start in range(0, len(items), size)
        ]
        await asyncio.gather(*calls, return_exceptions=True)
        try:
            return [result for call in calls for result in call.result()]
        except self.troubles as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: Exception) -> Refusal:
        problem = self._problem(error)
        return Refusal(Reason.BLOB_UNAVAILABLE, backend=self.backend, problem=problem)

    def _write(self, members: Sequence[BlobMember]) -> list[BlobLocation]:
        """Store members as one blob and return their locations.

        An existing blob is stored again: this repairs a damaged blob, and restarts its age.
        """
        first = members[0]
        pieces, digest, packed = [first.data], first.sha256, False
        # A single member that looks like a pack is wrapped in a pack of one member.
        if len(members) > 1 or first.data.startswith(MAGIC):
            pieces, packed = pack_pieces(members), True
            hasher = hashlib.sha256()
            for piece in pieces:
                hasher.update(piece)
            digest = hasher.digest()
        blob_id = blob_name(digest)
        self._place(blob_id, pieces)
        return [
            BlobLocation(
                member.sha256, len(member.data), blob_id, member.sha256.hex() if packed else ""
            )
            for member in members
        ]

    def _read(
        self, locations: Sequence[BlobLocation], report: Callable[[int], object] | None = None
    ) -> list[bytes]:
        """Return the bytes at locations in one blob, in order, each after checking its hash.

        Reads follow the order of the blob. `report` is called in this thread with the number of
        bytes read so far at the current location.
        """
        blob_id = locations[0].blob_id
        if not blob_id:
            raise Refusal(Reason.BLOB_NOT_FOUND, blob_id=locations[0].sha256.hex())
        packed = any(location.identifier for location in locations)
        likely = pack_bytes([location.size for location in locations])
        # A small pack is usually read whole; in a large pack a member may be anywhere.
        with self._opened(blob_id, min(likely, MIB) if packed else likely) as blob:
            rows = read_rows(blob.read, blob.size) if packed else b""
            contents = [b""] * len(locations)
            spans = sorted(
                (_span(blob, rows, location), number) for number, location in enumerate(locations)
            )
            blob.expect([span for span, _ in spans])
            for span, number in spans:
                data = _read_span(blob, *span, report)
                try:
                    contents[number] = verify_bytes(data, locations[number])
                except Refusal:
                    if packed:
                        read_index(blob.read, blob.size)
                    raise
            return contents

    def _list(self, blob_id: str, *, whole: bool = True) -> list[ListedMember]:
        with self._opened(blob_id, 0) as blob:
            if blob.read(0, len(MAGIC)) != MAGIC:
                return [
                    ListedMember(BlobLocation(digest_of(blob_id) or b"", blob.size, blob_id), "")
                ]
            if whole:
                check_whole(blob)
            return [
                ListedMember(BlobLocation(sha256, size, blob_id, sha256.hex()), kind)
                for sha256, _, size, kind in read_index(blob.read, blob.size)
            ]

    @contextlib.contextmanager
    def _opened(self, blob_id: str, likely: int) -> Iterator[Blob]:
        """Open a blob; if its index is wrong, check the hash to find out whether it is damaged."""
        try:
            if digest_of(blob_id) is None:
                # no blob has such an ID, and the ID must not become part of a path
                raise FileNotFoundError(blob_id)
            with self._open(blob_id, likely) as blob:
                try:
                    yield blob
                except NotAPackError as error:
                    check_whole(blob)
                    raise malformed_bytes(blob_id, str(error)) from None
        except FileNotFoundError:
            raise Refusal(Reason.BLOB_NOT_FOUND, blob_id=blob_id) from None


def check_layout(content: bytes) -> None:
    """Refuse a store whose file `layout` names another layout."""
    if content != LAYOUT:
        shown = content.decode(errors="replace").strip().partition("\n")[0]
        raise UnknownLayoutError(
            f"its layout is '{shown}', and this server knows '{LAYOUT.decode().strip()}'"
        )


def without_layout() -> UnknownLayoutError:
    """Return the refusal of a store that has blobs and no file `layout`."""
    return UnknownLayoutError(
        "it holds blobs, but no file 'layout' that says how they are laid out"
    )


def check_whole(blob: Blob) -> None:
    """Refuse a blob whose hash differs from its ID."""
    if blob.size > _LONGEST_BYTES:
        raise malformed_bytes(blob.blob_id, "it is longer than anything that is stored")
    blob.expect([(0, blob.size)])
    hasher = hashlib.sha256()
    offset = 0
    while chunk := blob.read(offset, MIB):
        hasher.update(chunk)
        offset += len(chunk)
    actual = hasher.digest()
    if blob_name(actual) != blob.blob_id:
        raise hash_mismatch(blob.blob_id, digest_of(blob.blob_id) or b"", actual)


def _span(blob: Blob, rows: bytes, location: BlobLocation) -> tuple[int, int]:
    """Return offset and size, in bytes, of the content at a location."""
    span: tuple[int, int] | None = (0, blob.size)
    if location.identifier:
        span = find(rows, member_hash(location.identifier) or b"")
    if span is None:
        # The member was never in the blob, or the index is damaged.
        check_whole(blob)
        raise Refusal(Reason.BLOB_NOT_FOUND, blob_id=blob.blob_id)
    if span[1] > MAX_MEMBER_READ:
        raise malformed_bytes(
            blob.blob_id,
            f"it has {span[1]} bytes, and {MAX_MEMBER_READ} are the most that are read",
        )
    if sum(span) > blob.size:
        raise NotAPackError(f"its index has a member that ends at byte {sum(span)} of {blob.size}")
    return span


def _read_span(blob: Blob, offset: int, size: int, report: Callable[[int], object] | None) -> bytes:
    """Return the bytes of a span, or fewer if the blob ends before."""
    chunks: list[bytes] = []
    count = 0
    longest = MIB if report else size
    while count < size and (chunk := blob.read(offset + count, min(longest, size - count))):
        chunks.append(chunk)
        count += len(chunk)
        if report:
            report(count)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)
