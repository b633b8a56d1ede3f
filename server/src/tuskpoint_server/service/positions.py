"""Where a listing or a watch goes on: positions that callers carry, sealed."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ..domain.errors import Reason, Refusal
from ..domain.limits import LIMITS

_CHECKSUM_BYTES = 16

Scope = Sequence[str | int]
"""What a position is in: the kind of call, and the parameters that it must not change."""

ItemT = TypeVar("ItemT")


@dataclass(frozen=True, slots=True)
class Page(Generic[ItemT]):
    """A part of a listing; `next_token` is empty on the last page."""

    items: Sequence[ItemT]
    next_token: str


class Seals:
    """Seals positions, bound to their scope and to the journal.

    A position grants nothing; the checksum is there so that one of another scope, or one that
    was mangled, is refused instead of misread. It outlives a restart.
    """

    def __init__(self, journal_id: str) -> None:
        self._journal_id = journal_id

    def seal(self, scope: Scope, position: Scope) -> bytes:
        """Return a position in a form for callers."""
        payload = json.dumps([self._journal_id, *position]).encode()
        return _checksum(scope, payload) + payload

    def open(self, scope: Scope, sealed: bytes, *kinds: type) -> list[Any] | None:
        """Return the position, with parts of these kinds; `None` if it is of another journal.

        Raises:
            ValueError: It was not sealed for this scope.
        """
        checksum, payload = sealed[:_CHECKSUM_BYTES], sealed[_CHECKSUM_BYTES:]
        if not hmac.compare_digest(checksum, _checksum(scope, payload)):
            raise ValueError("sealed for something else")
        journal_id, *position = json.loads(payload)
        if tuple(map(type, position)) != kinds:
            raise ValueError("another kind of position")
        return position if journal_id == self._journal_id else None

    def token(self, scope: Scope, position: Sequence[str]) -> str:
        """Return a position as the token of a page."""
        return base64.urlsafe_b64encode(self.seal(scope, position)).decode().rstrip("=")

    def of_token(self, scope: Scope, token: str, parts: int) -> list[str]:
        """Return the position in the token of a page, which has this number of parts."""
        padded = token + "=" * (-len(token) % 4)
        try:
            sealed = base64.b64decode(padded, altchars=b"-_", validate=True)
            position = self.open(scope, sealed, *[str] * parts)
        except ValueError:
            position = None
        if position is None:
            raise Refusal(Reason.PAGE_TOKEN_INVALID)
        return position

    async def page(
        self,
        scope: Scope,
        size: int,
        token: str,
        read: Callable[[str, int], Awaitable[Sequence[ItemT]]],
        name: Callable[[ItemT], str],
    ) -> Page[ItemT]:
        """Return a page of what is read by name, after a name; a size of 0 means the default."""
        after = self.of_token(scope, token, 1)[0] if token else ""
        size = page_size(size)
        found = await read(after, size + 1)
        items = found[:size]
        return Page(items, self.token(scope, [name(items[-1])]) if len(found) > size else "")


def _checksum(scope: Scope, payload: bytes) -> bytes:
    bound = json.dumps(["tuskpoint position", *scope]).encode()
    return hashlib.sha256(bound + payload).digest()[:_CHECKSUM_BYTES]


def page_size(asked: int) -> int:
    """Return the size of a page; 0 asks for the default."""
    return min(asked or LIMITS.default_page, LIMITS.max_page)
