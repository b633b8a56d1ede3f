"""What MemWal is told of a checkpoint, and how far the telling got.

A memory is text and nothing else: MemWal keeps no fields beside it. So the text carries its
pointer: the summary first, then one short opaque token that this server resolves. The
summary comes first and alone because that is what is embedded.

Whoever holds a key of the account can write memories. Text that comes back is compared with
what this server would have written; a token alone proves nothing.
"""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from enum import IntEnum

POINTER_BYTES = 16
_MARK = "ckpt:"
_TEXT = re.compile(rf"(?P<summary>[^\n]+) {_MARK}(?P<token>[A-Za-z0-9_-]{{22}})")


class MemoryState(IntEnum):
    """How far a memory got."""

    WAITING = 1
    """To be sent."""
    SENDING = 2
    """A call that sends it was begun; if nothing more is known, it may have arrived."""
    SENT = 3
    """Accepted: MemWal has a job for it."""
    DELIVERED = 4
    """It can be recalled."""
    REFUSED = 5
    """MemWal will not take it; it is not tried again."""


@dataclass(frozen=True, slots=True)
class Memory:
    """A summary for MemWal.

    Attributes:
        number: Its row.
        tenant: Whose it is.
        pointer: Of the checkpoint.
        text: What MemWal is told.
        state: How far it got.
        unsure: It may have been stored already, by a call whose outcome is not known.
        attempts: That failed.
        job_id: MemWal's; empty: none.
        due_us: Time of the next step.
        blob_id: Where MemWal stored it; empty: unknown.
    """

    number: int
    tenant: str
    pointer: bytes
    text: str
    state: MemoryState
    unsure: bool
    attempts: int
    job_id: str = ""
    due_us: int = 0
    blob_id: str = ""


def pointer_of(tenant: str, checkpoint_ns: str, checkpoint_id: str) -> bytes:
    """Return the pointer of a checkpoint, 16 bytes.

    It does not name the thread: forks and copies keep a checkpoint's ID, and one memory
    serves them all. It is computed, not assigned, so that a recovered server knows it.
    """
    named = b"".join(
        len(part).to_bytes(4) + part
        for part in (text.encode() for text in (tenant, checkpoint_ns, checkpoint_id))
    )
    return hashlib.sha256(b"tuskpoint.pointer\0" + named).digest()[:POINTER_BYTES]


def memory_text(summary: str, pointer: bytes) -> str:
    """Return what MemWal is told: the summary on one line, then the pointer."""
    token = base64.urlsafe_b64encode(pointer).decode().rstrip("=")
    return f"{one_line(summary)} {_MARK}{token}"


def one_line(summary: str) -> str:
    """Return a summary as it stands in a memory: each run of white space is one space."""
    return " ".join(summary.split())


def parse_memory(text: str) -> tuple[str, bytes] | None:
    """Return summary and pointer of a memory, or `None` if it is none of this server's form."""
    match = _TEXT.fullmatch(text)
    if match is None:
        return None
    pointer = base64.urlsafe_b64decode(match["token"] + "==")
    # The last character of a token has bits to spare: only one spelling is ours.
    if memory_text(match["summary"], pointer) != text:
        return None
    return match["summary"], pointer
