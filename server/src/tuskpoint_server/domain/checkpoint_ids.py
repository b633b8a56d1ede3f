"""Checkpoint IDs: UUID version 6, whose text order is their order in time.

Layout after RFC 9562, section 5.6.
"""

from __future__ import annotations

import uuid

from .errors import invalid_field

_GREGORIAN_OFFSET = 0x01B21DD213814000  # 100 ns between 1582-10-15 and the Unix epoch


def mint_checkpoint_id(
    now_us: int, entropy: int, above: str, *, field: str = "checkpoint.ref.checkpoint_id"
) -> str:
    """Return a UUIDv6 that is lexically greater than `above`.

    Args:
        now_us: Time in microseconds since the Unix epoch.
        entropy: 62 random bits or more.
        above: Greatest ID of the namespace; empty if it has none.
        field: Field of the request that the refusal names.

    Raises:
        Refusal: `INVALID_FIELD` if `above` sorts after every UUIDv6.
    """
    ticks = now_us * 10 + _GREGORIAN_OFFSET
    minted = _uuid6(ticks, entropy)
    if minted > above:
        return minted
    minted = _uuid6(max(ticks, _ticks_of(above) + 1), entropy)
    if minted > above:
        return minted
    raise invalid_field(
        field,
        f"no UUIDv6 sorts after the namespace's greatest ID '{above}'; save under an ID of your "
        "own that does",
    )


def mint_next_checkpoint_id(now_us: int, entropy: int, above: str, *, field: str) -> str:
    """Return the UUIDv6 that comes next after `above`; arguments as above.

    Not one of now: an agent whose clock is behind this one would make IDs below it, and
    its checkpoints would not become the latest.

    Raises:
        Refusal: `INVALID_FIELD` if `above` sorts after every UUIDv6.
    """
    ticks = _ticks_of(above)
    minted = _uuid6(ticks + 1, entropy) if ticks else ""
    return minted if minted > above else mint_checkpoint_id(now_us, entropy, above, field=field)


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
