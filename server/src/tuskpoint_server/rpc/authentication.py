"""Who calls: the layer that takes a call's tenant and scopes from its credential.

A token comes as `authorization: Bearer TOKEN` (RFC 6750) and is known by its SHA-256, which
is looked up in a mapping; `domain.credentials` says why that is safe. No call waits for a
file: the credentials in force are replaced from outside when their file has changed.

A call lives no longer than its credential. One that is running when its credential expires,
is taken away or loses a scope is cut off, so that a watch does not go on for weeks.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from ..domain.credentials import EVERYTHING, Credentials, Grant, Presented, token_digest
from ..domain.errors import Reason, Refusal
from .calls import Call

HEADER = "authorization"

_BEARER = re.compile(r"bearer +([A-Za-z0-9._~+/-]+=*) *", re.IGNORECASE)
"""https://www.rfc-editor.org/rfc/rfc6750#section-2.1; schemes are compared without case."""

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Open:
    """A call that is running, what it runs on, and whether that was taken away."""

    presented: Presented
    grant: Grant
    lifetime: asyncio.Timeout
    is_revoked: bool = False


class Authentication:
    """The layer that says whose data a call is about, and what it may do.

    Args:
        credentials: Those in force; `None` if none are asked for, so that every caller is
            tenant `default` and may do everything.
        now: Returns the time of the clock on the wall.
    """

    def __init__(
        self,
        credentials: Credentials | None = None,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._credentials = credentials
        self._now = now
        self._open: set[_Open] = set()

    @asynccontextmanager
    async def __call__(self, call: Call) -> AsyncIterator[None]:
        """Run a call as its credential allows.

        Raises:
            Refusal: `CREDENTIAL_INVALID`, also in the middle of a call.
        """
        if self._credentials is None:
            call.tenant, call.scopes = EVERYTHING.tenant, EVERYTHING.scopes
            yield
            return
        presented = _presented(call, self._credentials)
        grant = self._granted(call, presented, self._credentials)
        call.tenant, call.scopes = grant.tenant, grant.scopes
        try:
            async with asyncio.timeout_at(self._end(grant)) as lifetime:
                running = _Open(presented, grant, lifetime)
                self._open.add(running)
                try:
                    yield
                finally:
                    self._open.discard(running)
        except TimeoutError:
            if not lifetime.expired():
                raise
            if running.is_revoked:
                raise _refused(call, "revoked", "it was revoked while the call ran") from None
            raise _refused(call, "expired", "it expired while the call ran") from None

    def replace(self, credentials: Credentials) -> None:
        """Put other credentials in force, and cut off calls that they do not allow any more."""
        self._credentials = credentials
        cut_off: Counter[str] = Counter()
        for running in self._open:
            if running.lifetime.expired():
                continue  # it is on its way out
            grant = credentials.find(running.presented)
            if grant is None or not grant.covers(running.grant):
                cut_off[running.grant.name] += 1
                running.is_revoked = True
                running.lifetime.reschedule(asyncio.get_running_loop().time())
            else:
                running.grant = grant
                running.lifetime.reschedule(self._end(grant))
        for name, count in cut_off.items():
            _log.info("credential '%s' is not in force any more: %d calls cut off", name, count)

    def _granted(self, call: Call, presented: Presented, credentials: Credentials) -> Grant:
        grant = credentials.find(presented)
        if grant is not None and not self._is_over(grant):
            return grant
        if grant is not None:
            raise _refused(call, "expired", "it has expired; ask for another")
        if presented.token is not None:
            raise _refused(call, "unknown")
        raise _refused(call, "missing", "send metadata 'authorization: Bearer TOKEN'")

    def _is_over(self, grant: Grant) -> bool:
        return grant.expires is not None and self._now() >= grant.expires

    def _end(self, grant: Grant) -> float | None:
        """Return the time of the event loop at which a grant expires."""
        if grant.expires is None:
            return None
        left = (grant.expires - self._now()).total_seconds()
        return asyncio.get_running_loop().time() + left


def _presented(call: Call, credentials: Credentials) -> Presented:
    """Return what a call came with.

    Raises:
        Refusal: `CREDENTIAL_INVALID` if its metadata is malformed.
    """
    metadata = call.context.invocation_metadata() or ()
    sent = [value for name, value in metadata if name == HEADER]
    if not sent:
        return Presented(names=_certified_names(call) if credentials.subjects else ())
    if len(sent) > 1:
        raise _refused(call, "malformed", "send metadata 'authorization' once")
    found = _BEARER.fullmatch(sent[0]) if isinstance(sent[0], str) else None
    if found is None:
        raise _refused(call, "malformed", "metadata 'authorization' has to be 'Bearer TOKEN'")
    return Presented(token_digest(found[1]))


def _certified_names(call: Call) -> list[str]:
    """Return the names in the client's certificate, which the handshake has checked."""
    names = call.context.auth_context()
    return [
        name.decode(errors="replace")
        for kind in ("peer_dns", "x509_common_name")
        for name in names.get(kind, ())
    ]


def _refused(call: Call, why: str, advice: str = "") -> Refusal:
    call.denied = why
    return Refusal(Reason.CREDENTIAL_INVALID, advice=advice)
