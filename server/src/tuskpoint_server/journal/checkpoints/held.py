"""Where a checkpoint is stored besides the segments whose range has its changes.

A copy lies in segments of the thread it came from; a checkpoint that could not be stored
with its range, or that is a blob of its own, lies in a segment without a range.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...domain.digests import DIGEST_BYTES

_SEQ_BYTES = 8


@dataclass(frozen=True, slots=True)
class Held:
    """What holds the rows of a checkpoint up to a change.

    Attributes:
        seq: The row of the checkpoint and its writes lie there if their own number is not
            above this one.
        segments: Hashes of the segments, that of the state first.
    """

    seq: int
    segments: tuple[bytes, ...]


def encode_held(seq: int, segments: Sequence[bytes]) -> bytes:
    """Return the stored form.

    Args:
        seq: The change up to which they hold the rows; of a copy the change that made it.
        segments: Hashes of the segments, that of the state first.
    """
    return seq.to_bytes(_SEQ_BYTES, "big") + b"".join(segments)


def decode_held(stored: bytes) -> Held:
    """Return what `encode_held` was given."""
    return Held(
        int.from_bytes(stored[:_SEQ_BYTES], "big"),
        tuple(
            stored[start : start + DIGEST_BYTES]
            for start in range(_SEQ_BYTES, len(stored), DIGEST_BYTES)
        ),
    )
