"""Where the content of a copied checkpoint lies: in segments of the thread it came from."""

from __future__ import annotations

from collections.abc import Sequence

from ...domain.digests import DIGEST_BYTES


def encode_held(segments: Sequence[bytes]) -> bytes:
    """Return the stored form of the hashes of segments, that of the state first."""
    return b"".join(segments)


def decode_held(stored: bytes) -> tuple[bytes, ...]:
    """Return the hashes that `encode_held` joined."""
    return tuple(
        stored[start : start + DIGEST_BYTES] for start in range(0, len(stored), DIGEST_BYTES)
    )
