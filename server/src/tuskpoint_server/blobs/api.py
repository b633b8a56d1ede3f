"""What a blob store does, whatever it is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ..domain.model import BlobLocation


@dataclass(frozen=True, slots=True)
class Member:
    """One piece of content of a pack. `sha256` is the hash of `data`."""

    sha256: bytes
    data: bytes


class BlobStore(Protocol):
    """Content-addressed storage of immutable bytes."""

    @property
    def backend(self) -> str:
        """Kind of store, such as "directory"."""

    def predict(self, sha256: bytes, size: int) -> BlobLocation:
        """Return the location that these bytes will have.

        Its `blob_id` is empty if only storing tells; then members of one pack refer to
        one another by an empty blob ID ("this quilt").
        """

    async def put(self, members: Sequence[Member]) -> Sequence[BlobLocation]:
        """Store a pack; return the location of each member, in order.

        Durable on return. Storing the same members again is allowed and changes
        nothing.

        Raises:
            Refusal: `BLOB_UNAVAILABLE`; the members may or may not be stored.
        """

    async def get(self, location: BlobLocation) -> bytes:
        """Return the bytes at a location, after checking their SHA-256.

        Raises:
            Refusal: `BLOB_NOT_FOUND`, `BLOB_UNAVAILABLE`, or `BLOB_HASH_MISMATCH` with
                both hashes.
        """

    async def close(self) -> None:
        """Release what the store holds."""
