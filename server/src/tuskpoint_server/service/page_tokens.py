"""Page tokens: opaque to callers, good for one listing only."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Sequence

from ..domain.errors import Reason, Refusal
from ..domain.limits import LIMITS

_MAC_BYTES = 16


def page_size(asked: int) -> int:
    """Return the size of a page; 0 asks for the default."""
    return min(asked or LIMITS.default_page, LIMITS.max_page)


class PageTokens:
    """Seals positions in a listing, bound to the listing's parameters.

    A token grants nothing; the seal is there so that one from another listing, server or
    version is refused instead of misread. The key is therefore derived from the journal's
    identity, and tokens outlive a restart.
    """

    def __init__(self, journal_id: str) -> None:
        self._key = hashlib.sha256(b"tuskpoint page token\0" + journal_id.encode()).digest()

    def seal(self, listing: Sequence[str | int], position: Sequence[str]) -> str:
        """Return the token of a position in the listing with these parameters."""
        payload = json.dumps(position).encode()
        return base64.urlsafe_b64encode(self._mac(listing, payload) + payload).decode().rstrip("=")

    def open(self, listing: Sequence[str | int], token: str, parts: int) -> tuple[str, ...]:
        """Return the position in a token, which has this number of parts.

        Raises:
            Refusal: `PAGE_TOKEN_INVALID` if it was not sealed for these parameters.
        """
        try:
            sealed = base64.b64decode(
                token + "=" * (-len(token) % 4), altchars=b"-_", validate=True
            )
        except (binascii.Error, ValueError):
            raise Refusal(Reason.PAGE_TOKEN_INVALID) from None
        mac, payload = sealed[:_MAC_BYTES], sealed[_MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(listing, payload)):
            raise Refusal(Reason.PAGE_TOKEN_INVALID)
        position = json.loads(payload)
        if not (isinstance(position, list) and len(position) == parts):
            raise Refusal(Reason.PAGE_TOKEN_INVALID)
        return tuple(map(str, position))

    def _mac(self, listing: Sequence[str | int], payload: bytes) -> bytes:
        bound = json.dumps(listing).encode() + b"\0" + payload
        return hmac.digest(self._key, bound, "sha256")[:_MAC_BYTES]
