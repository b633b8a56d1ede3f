"""What a blob store does, whatever it is made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..domain.model import BlobLocation, StoredBlob

Progress = Callable[[int], None]
"""Called in the event loop with the bytes that have arrived; falls where a read begins anew."""


@dataclass(frozen=True, slots=True)
class Member:
    """One piece of content of a pack.

    Attributes:
        sha256: Hash of `data`.
        data: The bytes.
        kind: A word that the store keeps beside them, if it can, such as "catalog"; it
            leads whoever knows no more than a blob ID. Empty: none.
    """

    sha256: bytes
    data: bytes
    kind: str = ""


def unique_members(members: Sequence[Member]) -> list[Member]:
    """Return one member for each hash, with a kind if any of them has one, in order of the hash."""
    unique: dict[bytes, Member] = {}
    for member in members:
        known = unique.get(member.sha256)
        if known is None or (member.kind and not known.kind):
            unique[member.sha256] = member
    return [unique[sha256] for sha256 in sorted(unique)]


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """What one put may hold; `None` is no limit. Sizes are in bytes.

    Attributes:
        max_members: Members of a put.
        max_put_bytes: What the members of a put measure together.
        max_member_bytes: One member; what is larger has to be cut.
        puts_at_once: Puts that run beside one another.
        measure: What members of these sizes measure together; their sum, where a store
            does not fill up between them.
    """

    max_members: int | None = None
    max_put_bytes: int | None = None
    max_member_bytes: int | None = None
    puts_at_once: int = 1
    measure: Callable[[Sequence[int]], int] = sum

    def hold(self, sizes: Sequence[int]) -> bool:
        """Tell whether one put can hold members of these sizes."""
        if self.max_members is not None and len(sizes) > self.max_members:
            return False
        return self.max_put_bytes is None or self.measure(sizes) <= self.max_put_bytes


@dataclass(frozen=True, slots=True)
class Receipt:
    """Outcome of a put: the location of each member, in order, and the blobs made."""

    locations: tuple[BlobLocation, ...]
    blobs: tuple[StoredBlob, ...] = ()


@dataclass(frozen=True, slots=True)
class Listed:
    """What a blob holds: a location (of unknown size: 0) and the member's kind."""

    location: BlobLocation
    kind: str


class BlobStore(Protocol):
    """Content-addressed storage of immutable bytes."""

    @property
    def backend(self) -> str:
        """Kind of store, such as "directory"."""

    @property
    def limits(self) -> StoreLimits:
        """What one put may hold."""

    @property
    def epoch_s(self) -> float | None:
        """Length of an epoch in seconds; `None` if stored blobs never expire."""

    def predict(self, sha256: bytes, size: int) -> BlobLocation:
        """Return the location that these bytes will have.

        Its `blob_id` is empty if only storing tells; then members of one pack refer to
        one another by an empty blob ID ("this quilt").
        """

    async def put(self, members: Sequence[Member], *, apart: bool = False) -> Receipt:
        """Store a pack.

        Durable on return. Storing the same members again is allowed and changes
        nothing.

        Args:
            members: The members, within `limits`.
            apart: Store each member as a blob of its own, however many there are.

        Raises:
            Refusal: `BLOB_UNAVAILABLE`, the members may or may not be stored;
                `BLOB_REJECTED`, the store would not take these bytes next time either.
        """

    async def get(self, location: BlobLocation, *, progress: Progress | None = None) -> bytes:
        """Return the bytes at a location, after checking their SHA-256.

        Args:
            location: The location; its size need not be known.
            progress: Told of bytes as they arrive.

        Raises:
            Refusal: `BLOB_NOT_FOUND`, `BLOB_UNAVAILABLE`, or `BLOB_HASH_MISMATCH` with
                both hashes.
        """

    async def get_many(self, locations: Sequence[BlobLocation]) -> list[bytes]:
        """Return the bytes at many locations, in order, each after checking its SHA-256.

        Takes fewer requests than one for each where many lie in the same blob.

        Raises:
            Refusal: As for `get`, of one that could not be read.
        """

    async def list_blob(self, blob_id: str) -> Sequence[Listed]:
        """Return what a blob holds.

        Raises:
            Refusal: `BLOB_NOT_FOUND`, `BLOB_UNAVAILABLE`, `BLOB_MALFORMED`.
        """

    async def renew(self, blob_id: str) -> Receipt:
        """Make a stored blob last as long as one that is stored now.

        Reads it, checks every member, and stores identical bytes again.

        Returns:
            Locations of all its members, and the blob; its ID stays unless the store
            says otherwise.

        Raises:
            Refusal: As for `get` and `put`.
        """

    async def close(self) -> None:
        """Release what the store holds."""
