"""Checkpoint IDs that the server makes. They sort, by code point, after all others of a namespace.

Such an ID is a UUID of version 6 (RFC 9562, section 5.6), whose text order is its order in time.
Where a caller chose an ID that no UUIDv6 sorts after, such as `cp-001`, it is that ID, a dash and a
UUIDv6: `cp-001-1f0c7a02-52b1-6e40-9c3d-2f60a1b426ae`. What follows keeps `cp-001-` and has a later
UUIDv6, so that IDs do not grow, and the caller's own `cp-002` sorts after all of them.
"""

from __future__ import annotations

import re
import uuid

from .errors import invalid_field
from .limits import LIMITS

_GREGORIAN_OFFSET = 0x01B21DD213814000  # 100 ns between 1582-10-15 and the Unix epoch
_UUID6_BEHIND = re.compile(
    r"(.*-)([0-9a-f]{8}-[0-9a-f]{4}-6[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12})", re.DOTALL
)


def mint_checkpoint_id(
    now_us: int, entropy: int, above: str, *, field: str = "checkpoint.ref.checkpoint_id"
) -> str:
    """Return an ID of now that is lexically greater than `above`.

    Args:
        now_us: Time in microseconds since the Unix epoch.
        entropy: 62 random bits or more.
        above: Greatest ID of the namespace; empty if it has none.
        field: Field of the request that the refusal names.

    Raises:
        Refusal: `INVALID_FIELD` if such an ID would be longer than an ID may be.
    """
    ticks = now_us * 10 + _GREGORIAN_OFFSET
    prefix, last = _split(above)
    for minted in (
        _uuid6(ticks, entropy),
        _uuid6(max(ticks, _ticks_of(above) + 1), entropy),
        prefix + _uuid6(max(ticks, _ticks_of(last) + 1), entropy),
        f"{above}-{_uuid6(ticks, entropy)}",
    ):
        if minted > above and len(minted.encode()) <= LIMITS.max_checkpoint_id:
            return minted
    raise invalid_field(
        field,
        f"no ID of at most {LIMITS.max_checkpoint_id} bytes can be made that sorts after the "
        f"namespace's greatest, '{above}'; save under an ID of your own that does",
    )


def mint_next_checkpoint_id(now_us: int, entropy: int, above: str, *, field: str) -> str:
    """Return the ID that comes next after `above`; arguments as above.

    Not one of now: an agent whose clock is behind this one would make IDs below it, and
    its checkpoints would not become the latest.

    Raises:
        Refusal: `INVALID_FIELD` if such an ID would be longer than an ID may be.
    """
    prefix, last = _split(above)
    ticks = _ticks_of(last)
    minted = prefix + _uuid6(ticks + 1, entropy) if ticks else ""
    return minted if minted > above else mint_checkpoint_id(now_us, entropy, above, field=field)


def _split(checkpoint_id: str) -> tuple[str, str]:
    """Return what stands before the UUIDv6 at the end of an ID, and that; else "" and the ID."""
    found = _UUID6_BEHIND.fullmatch(checkpoint_id)
    return (found[1], found[2]) if found else ("", checkpoint_id)


def _uuid6(ticks: int, entropy: int) -> str:
    ticks &= (1 << 60) - 1
    number = (ticks >> 12) << 80 | 6 << 76 | (ticks & 0xFFF) << 64
    number |= 0b10 << 62 | entropy & ((1 << 62) - 1)
    return str(uuid.UUID(int=number))


def _ticks_of(checkpoint_id: str) -> int:
    try:
        number = uuid.UUID(checkpoint_id).int
    except ValueError:
        return 0
    return (number >> 80) << 12 | (number >> 64) & 0xFFF
