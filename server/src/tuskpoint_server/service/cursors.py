"""Cursors of a watch: opaque to callers, good for one thread only."""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass

from ..domain.errors import invalid_field

_LAYOUT = struct.Struct(">B16sQQQ16s")
_FORMAT = 2
_CHECKED = _LAYOUT.size - 16


@dataclass(frozen=True, slots=True)
class Position:
    """Where a watch stands: after this number of the thread's sequence.

    Attributes:
        incarnation: Incarnation of the thread then.
        seq: Position in its sequence.
        certified_seq: The watermark that was delivered last.
    """

    incarnation: int
    seq: int
    certified_seq: int


class Cursors:
    """Seals positions in a thread's sequence.

    A cursor grants nothing; the checksum is there so that one of another thread, or one that
    was mangled, is refused instead of misread. It outlives a restart.
    """

    def __init__(self, journal_id: str) -> None:
        self._journal = hashlib.sha256(journal_id.encode()).digest()[:16]

    def seal(self, tenant: str, thread_id: str, at: Position) -> bytes:
        """Return the cursor of a position."""
        position = (at.incarnation, at.seq, at.certified_seq)
        unchecked = _LAYOUT.pack(_FORMAT, self._journal, *position, b"")[:_CHECKED]
        return unchecked + _checksum(tenant, thread_id, unchecked)

    def open(self, tenant: str, thread_id: str, cursor: bytes) -> Position | None:
        """Return the position in a cursor; `None` if it is of another journal.

        Raises:
            Refusal: `INVALID_FIELD` if it is not a cursor of this thread.
        """
        unchecked, checksum = cursor[:_CHECKED], cursor[_CHECKED:]
        if (
            cursor[:1] != bytes([_FORMAT])
            or len(cursor) != _LAYOUT.size
            or not hmac.compare_digest(checksum, _checksum(tenant, thread_id, unchecked))
        ):
            raise invalid_field("cursor", "must be the cursor of an event of this thread")
        _, journal, *position, _ = _LAYOUT.unpack(cursor)
        return Position(*position) if journal == self._journal else None


def _checksum(tenant: str, thread_id: str, unchecked: bytes) -> bytes:
    bound = "\0".join(("tuskpoint watch cursor", tenant, thread_id, "")).encode()
    return hashlib.sha256(bound + unchecked).digest()[:16]
