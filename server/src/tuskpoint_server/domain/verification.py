"""Verdicts on what is stored, and what content is compared by."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import IntEnum

from .model import BlobLocation, CheckpointKey


class VerdictKind(IntEnum):
    """What is said of a checkpoint. Numbers are those of the contract."""

    PASS = 1
    FAIL = 2
    UNVERIFIED = 3
    RETRACTED = 4


@dataclass(frozen=True, slots=True)
class Verdict:
    """What verification says of one checkpoint.

    Attributes:
        key: The checkpoint.
        kind: The verdict.
        location: Where its bytes lie, and the recorded hash; of several blobs the first,
            or the one that is damaged. `None` if nothing of it is stored.
        actual_sha256: Hash of the bytes that were found there; empty if none were, or
            if they were not looked at.
        detail: Why it failed, or why it is not stored, for people; else empty.
    """

    key: CheckpointKey
    kind: VerdictKind
    location: BlobLocation | None = None
    actual_sha256: bytes = b""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class VerificationTotal:
    """The end of a verification.

    Attributes:
        counts: Number of verdicts of each kind.
        chain_problem: What is wrong with the chain of segments, for people; else empty.
    """

    counts: Counter[VerdictKind]
    chain_problem: str

    @property
    def ok(self) -> bool:
        """Tell whether something was proven and nothing is wrong."""
        passed, failed = self.counts[VerdictKind.PASS], self.counts[VerdictKind.FAIL]
        return passed > 0 and not failed and not self.chain_problem


WriteFacts = tuple[str, str, int, str, bytes]
"""Task ID, task path, `idx`, channel and digest of a pending write."""


@dataclass(frozen=True, slots=True)
class RowDigests:
    """What a row and its pending writes hold, by SHA-256: small, whatever their size."""

    state: bytes
    metadata: bytes
    delta_base: bytes
    pending_writes: bytes

    def difference(self, other: RowDigests) -> str:
        """Name what differs, for people; empty if nothing does."""
        different = [
            one.name.replace("_", " ")
            for one in fields(self)
            if getattr(self, one.name) != getattr(other, one.name)
        ]
        return " and ".join(different)


def row_digests(
    state: bytes, metadata: bytes, delta_base: bytes, writes: Iterable[WriteFacts]
) -> RowDigests:
    """Return the digests of what a checkpoint's row and its pending writes hold.

    Args:
        state: The state as it is stored.
        metadata: The metadata's exact bytes.
        delta_base: As `encode_delta_base` made it; empty if there is none.
        writes: Its pending writes, in any order.
    """
    names = [
        json.dumps([task_path, task_id, idx, channel, digest.hex()])
        for task_id, task_path, idx, channel, digest in writes
    ]
    return RowDigests(
        state=hashlib.sha256(state).digest(),
        metadata=hashlib.sha256(metadata).digest(),
        delta_base=hashlib.sha256(delta_base).digest(),
        pending_writes=hashlib.sha256("\n".join(sorted(names)).encode()).digest(),
    )
