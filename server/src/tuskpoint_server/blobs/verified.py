"""The one place where stored bytes are compared with their recorded hash."""

from __future__ import annotations

from ..domain.errors import Reason, Refusal
from ..domain.model import BlobLocation
from ..domain.values import blob_digest


def verified(data: bytes, location: BlobLocation) -> bytes:
    """Return the bytes if they have the SHA-256 of the location.

    Raises:
        Refusal: `BLOB_HASH_MISMATCH` with both hashes.
    """
    actual = blob_digest(data)
    if actual != location.sha256:
        raise Refusal(
            Reason.BLOB_HASH_MISMATCH,
            blob_id=location.blob_id,
            expected=location.sha256.hex(),
            actual=actual.hex(),
        )
    return data
