"""Checkpoint IDs: UUID version 6, whose text order is their order in time.

RFC 9562, section 5.6, defines the layout. The client generates the ID of a checkpoint, so that a
retry after a lost answer does not create a second checkpoint. If no UUIDv6
sorts after the caller's own ID, such as `cp-001`, the next ID is that ID, a dash and a UUIDv6.
"""

from __future__ import annotations

import re
import secrets
import time
import uuid

from ...errors import InvalidRequest

_GREGORIAN_OFFSET = 0x01B21DD213814000  # 100 ns between 1582-10-15 and the Unix epoch
_MAX_BYTES = 128
_UUID6_BEHIND = re.compile(
    r"(.*-)([0-9a-f]{8}-[0-9a-f]{4}-6[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12})", re.DOTALL
)


def new_checkpoint_id(above: str) -> str:
    """Return an ID of the current time that is lexically greater than `above`.

    Args:
        above: ID to follow; empty for any ID.

    Raises:
        InvalidRequest: Such an ID would be longer than an ID may be.
    """
    return mint(time.time_ns() // 100 + _GREGORIAN_OFFSET, secrets.randbits(62), above)


def mint(ticks: int, entropy: int, above: str) -> str:
    """Return the ID of a time, or the next ID above `above` if that ID is greater.

    Args:
        ticks: Time in units of 100 ns since 1582-10-15.
        entropy: 62 random bits.
        above: ID to follow; empty for any ID.

    Raises:
        InvalidRequest: Such an ID would be longer than an ID may be.
    """
    behind = _UUID6_BEHIND.fullmatch(above)
    prefix, last = (behind[1], behind[2]) if behind else ("", above)
    for minted in (
        _uuid6(ticks, entropy),
        _uuid6(max(ticks, _ticks_of(above) + 1), entropy),
        prefix + _uuid6(max(ticks, _ticks_of(last) + 1), entropy),
        f"{above}-{_uuid6(ticks, entropy)}",
    ):
        if minted > above and len(minted.encode()) <= _MAX_BYTES:
            return minted
    raise InvalidRequest(
        f"no ID of at most {_MAX_BYTES} bytes sorts after '{above}': set checkpoint_id",
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
