"""Checkpoint IDs: UUID version 6, whose text order is their order in time.

Layout after RFC 9562, section 5.6. A client mints the ID of what it saves, so that a save whose
answer was lost can be sent again without being made twice.
"""

from __future__ import annotations

import secrets
import time
import uuid

from .errors import InvalidRequest

_GREGORIAN_OFFSET = 0x01B21DD213814000  # 100 ns between 1582-10-15 and the Unix epoch


def new_checkpoint_id(above: str) -> str:
    """Return a UUIDv6 of this moment that is lexically greater than `above`.

    Args:
        above: The ID to follow; empty for none.

    Raises:
        InvalidRequest: No UUIDv6 sorts after it.
    """
    return mint(time.time_ns() // 100 + _GREGORIAN_OFFSET, secrets.randbits(62), above)


def mint(ticks: int, entropy: int, above: str) -> str:
    """Return the UUIDv6 of a moment, or the next one above `above` if that is later.

    Args:
        ticks: Time in units of 100 ns since 1582-10-15.
        entropy: 62 random bits.
        above: The ID to follow; empty for none.

    Raises:
        InvalidRequest: No UUIDv6 sorts after it.
    """
    for moment in (ticks, max(ticks, _ticks_of(above) + 1)):
        minted = _uuid6(moment, entropy)
        if minted > above:
            return minted
    raise InvalidRequest(
        f"no UUIDv6 sorts after '{above}': this thread has IDs of its own, so name checkpoint_id",
        status="INVALID_ARGUMENT",
        reason="INVALID_FIELD",
        metadata={"field": "checkpoint_id"},
    )


def _uuid6(ticks: int, entropy: int) -> str:
    ticks &= (1 << 60) - 1
    number = (ticks >> 12) << 80 | 6 << 76 | (ticks & 0xFFF) << 64
    return str(uuid.UUID(int=number | 0b10 << 62 | entropy & ((1 << 62) - 1)))


def _ticks_of(checkpoint_id: str) -> int:
    try:
        number = uuid.UUID(checkpoint_id).int
    except ValueError:
        return 0
    return (number >> 80) << 12 | (number >> 64) & 0xFFF
