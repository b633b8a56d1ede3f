"""Cursors: positions of listings and watches, as tokens with a checksum.

A cursor grants nothing. The checksum lets the server refuse a damaged cursor, or a cursor of
another scope, instead of misreading it. Cursors stay valid after a restart. The scope is the kind
of call and the parameters that must not change between pages.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from ..core.errors import Reason, Refusal
from ..core.limits import LIMITS

_CHECKSUM_DIGITS = 32

Parts = Sequence[str | int]
ItemT = TypeVar("ItemT")


def encode_cursor(scope: Parts, position: Parts) -> str:
    """Return a position as a token."""
    payload = urlsafe_b64encode(json.dumps(position).encode()).decode().rstrip("=")
    return _checksum(scope, payload) + payload


def decode_cursor(scope: Parts, cursor: str, *kinds: type) -> list[Any]:
    """Return the parts of a position, of these kinds; refuse a position of another scope."""
    digits, payload = cursor[:_CHECKSUM_DIGITS], cursor[_CHECKSUM_DIGITS:]
    if hmac.compare_digest(digits.encode(), _checksum(scope, payload).encode()):
        # The checksum has no secret, so callers can forge one: parts may hold halves of surrogate
        # pairs and numbers of more than 64 bits, which the journal cannot store either.
        with suppress(ValueError, RecursionError, OverflowError):
            position = json.loads(urlsafe_b64decode(payload + "=="))
            if isinstance(position, list) and tuple(map(type, position)) == kinds:
                for part in position:
                    part.encode() if isinstance(part, str) else part.to_bytes(8, signed=True)
                return position
    raise Refusal(Reason.PAGE_TOKEN_INVALID)


def _checksum(scope: Parts, payload: str) -> str:
    text = json.dumps(["tuskpoint position", *scope, payload])
    return hashlib.sha256(text.encode()).hexdigest()[:_CHECKSUM_DIGITS]


async def page(
    scope: Parts,
    size: int,
    token: str,
    read: Callable[[Any, int], Awaitable[Sequence[ItemT]]],
    place: Callable[[ItemT], Parts],
    *kinds: type,
) -> tuple[Sequence[ItemT], str]:
    """Return a page of items, and the token of the next page.

    `read` gets the place before the page, empty for the first page, and the number of items. A
    place has parts of these `kinds`; a place of one text is passed as a text.
    """
    position: Any = ()
    if token:
        position = tuple(decode_cursor(scope, token, *(kinds or (str,))))
    size = page_size(size)
    rows = await read(position if kinds else "".join(position), size + 1)
    items = rows[:size]
    return items, encode_cursor(scope, place(items[-1])) if len(rows) > size else ""


def page_size(asked: int) -> int:
    """Return the size of a page; 0 asks for the default."""
    return min(asked or LIMITS.default_page, LIMITS.max_page)
