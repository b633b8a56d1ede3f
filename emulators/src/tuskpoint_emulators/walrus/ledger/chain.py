"""Invented identities of a chain: addresses, object IDs and events."""

from __future__ import annotations

import hashlib

from .results import Event

_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


class Chain:
    """A source of identities: each source returns the same identities in the same order."""

    def __init__(self) -> None:
        self._drawn = 0

    def new_id(self) -> str:
        """Return an object ID or address: "0x" and 64 hexadecimal digits."""
        return "0x" + self._draw().hex()

    def new_event(self) -> Event:
        """Return an event of a new transaction."""
        return Event(tx_digest=base58(self._draw()), event_seq="0")

    def _draw(self) -> bytes:
        self._drawn += 1
        return hashlib.blake2b(self._drawn.to_bytes(8, "little"), digest_size=32).digest()


def base58(data: bytes) -> str:
    """Return a transaction's digest in base58."""
    number = int.from_bytes(data, "big")
    digits = ""
    while number:
        number, digit = divmod(number, len(_BASE58))
        digits = _BASE58[digit] + digits
    leading = len(data) - len(data.lstrip(b"\0"))
    return _BASE58[0] * leading + digits
