"""Interface of blob stores, names of blobs, and the check of their hashes."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from ..core.errors import Reason, Refusal, foreign_text
from ..core.model import BlobLocation, StoredBlob
from ..core.values import DIGEST_BYTES, blob_digest

_T = TypeVar("_T")

_TOKEN = re.compile(r"[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,}|\b(?:Bearer|Basic)\s+\S+", re.IGNORECASE)

Progress = Callable[[int], None]
"""Called in the event loop with the number of bytes received; the number falls on a new attempt."""


@dataclass(frozen=True, slots=True)
class BlobMember:
    """Piece of content of a pack, and its hash."""

    sha256: bytes
    data: bytes
    kind: str = ""  # finds the member for a reader who knows only the blob ID; empty: no kind


def unique_members(members: Sequence[BlobMember]) -> list[BlobMember]:
    """Return one member for each hash, with a kind if any of them has one, in order of the hash."""
    unique: dict[bytes, BlobMember] = {}
    for member in members:
        known = unique.get(member.sha256)
        if known is None or (member.kind and not known.kind):
            unique[member.sha256] = member
    return [unique[sha256] for sha256 in sorted(unique)]


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """Limits of one put; `None` means no limit. Sizes are in bytes."""

    max_members: int | None = None
    max_put_bytes: int | None = None  # size of all members of a put, as computed by `measure`
    max_member_bytes: int | None = None  # larger content must be cut into several members
    puts_at_once: int = 1
    measure: Callable[[Sequence[int]], int] = sum

    def hold(self, sizes: Sequence[int]) -> bool:
        """Return whether one put can hold members of these sizes."""
        if self.max_members is not None and len(sizes) > self.max_members:
            return False
        return self.max_put_bytes is None or self.measure(sizes) <= self.max_put_bytes


@dataclass(frozen=True, slots=True)
class PutReceipt:
    """Outcome of a put: the location of each member, in order, and the created blobs."""

    locations: tuple[BlobLocation, ...]
    blobs: tuple[StoredBlob, ...] = ()


@dataclass(frozen=True, slots=True)
class ListedMember:
    """Member of a blob: its location (size 0 if unknown) and its kind."""

    location: BlobLocation
    kind: str


class StoreLostError(Refusal):
    """`BLOB_UNAVAILABLE`: the store's place exists, but lacks what was stored in it.

    Causes: a disk that is not mounted, or another store under the same name. The text names what is
    missing.
    """

    def __init__(self, backend: str, problem: str) -> None:
        super().__init__(Reason.BLOB_UNAVAILABLE, backend=backend, problem=problem)


class BlobStore(Protocol):
    """Content-addressed storage of immutable bytes.

    Reads refuse: `BLOB_NOT_FOUND`, `BLOB_UNAVAILABLE`, or `BLOB_HASH_MISMATCH` with both hashes.
    """

    @property
    def backend(self) -> str:
        """Kind of store, such as "directory"."""

    @property
    def limits(self) -> StoreLimits:
        """Limits of one put."""

    @property
    def epoch_s(self) -> float | None:
        """Length of an epoch in seconds; `None` if stored blobs never expire."""

    def predict(self, sha256: bytes, size: int) -> BlobLocation:
        """Return the location that bytes will have; without a blob ID if only a put tells the ID.

        Members of one pack refer to one another by an empty blob ID ("this quilt").
        """

    async def put(self, members: Sequence[BlobMember], *, standalone: bool = False) -> PutReceipt:
        """Store a pack within `limits`, or any number of members as a blob each.

        The members are durable on return. Storing the same members again is allowed and changes
        nothing.

        Raises:
            Refusal: `BLOB_UNAVAILABLE`: the members may or may not be stored; `BLOB_REJECTED`: the
                store would refuse these bytes again.
        """

    async def get(self, location: BlobLocation, *, progress: Progress | None = None) -> bytes:
        """Return the bytes at a location, after checking their SHA-256; the size may be 0."""

    async def get_many(self, locations: Sequence[BlobLocation]) -> list[bytes]:
        """Return the bytes at many locations, in order, each after checking its SHA-256.

        Needs fewer requests than a `get` for each location if a blob has several of them.
        """

    async def list_blob(self, blob_id: str) -> Sequence[ListedMember]:
        """Return the members of a blob; may also refuse with `BLOB_MALFORMED`."""

    async def renew(self, blob_id: str) -> PutReceipt:
        """Make a stored blob last as long as a new one.

        The store reads the blob, checks every member, and stores identical bytes again. The blob
        keeps its ID unless the receipt has another ID. `renew` refuses as `get` and `put` do.
        """

    async def close(self) -> None:
        """Close connections and threads."""


def blob_name(sha256: bytes) -> str:
    """Return 32 bytes as a blob ID: base64url (RFC 4648, section 5) without padding."""
    return base64.urlsafe_b64encode(sha256).rstrip(b"=").decode()


def digest_of(blob_id: str) -> bytes | None:
    """Return the 32 bytes that a blob ID encodes; `None` if no blob can have this ID."""
    try:
        digest = base64.b64decode(blob_id + "=", altchars=b"-_", validate=True)
    except ValueError:
        return None
    return digest if len(digest) == DIGEST_BYTES and blob_name(digest) == blob_id else None


def member_hash(identifier: str) -> bytes | None:
    """Return the hash that names a member, in lowercase hex; `None` if the name is not a hash."""
    try:
        sha256 = bytes.fromhex(identifier)
    except ValueError:
        return None
    return sha256 if len(sha256) == DIGEST_BYTES and sha256.hex() == identifier else None


def verify_bytes(data: bytes, location: BlobLocation) -> bytes:
    """Return the bytes if they have the SHA-256 of the location; all hash comparisons are here."""
    actual = blob_digest(data)
    if actual != location.sha256:
        raise hash_mismatch(location.blob_id, location.sha256, actual)
    return data


def hash_mismatch(blob_id: str, expected: bytes, actual: bytes) -> Refusal:
    """Return the refusal of bytes whose hash differs from the recorded hash."""
    return Refusal(
        Reason.BLOB_HASH_MISMATCH, blob_id=blob_id, expected=expected.hex(), actual=actual.hex()
    )


def printable_line(text: str) -> str:
    """Return another program's text as one short line, with tokens hidden and hashes shown."""
    return foreign_text(text, _TOKEN)


async def gather_all(calls: Iterable[Coroutine[object, object, _T]]) -> list[_T]:
    """Run calls concurrently; if a call fails, cancel the others."""
    tasks = [asyncio.create_task(call) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
