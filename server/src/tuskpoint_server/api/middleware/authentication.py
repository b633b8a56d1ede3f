"""Authentication: the tenant and the scopes of a call, from its credential.

A token arrives as `authorization: Bearer TOKEN` (RFC 6750) and is looked up by its SHA-256 in a
mapping; `core.credentials` explains why that is safe. No call waits for a file: another task
replaces the credentials after a change of their file.

Addresses that send many different unknown tokens are slowed down (`guessing`).

A call lives no longer than its credential. A call whose credential expires, is revoked or loses a
scope is ended, so that a watch does not run for weeks.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from ...core.credentials import (
    EVERYTHING,
    Credentials,
    Grant,
    Issuer,
    Presented,
    token_digest,
)
from ...core.errors import Reason, Refusal
from .guessing import Guesses, address_of
from .quotas import Quotas

if TYPE_CHECKING:
    from .pipeline import Call


_BEARER = re.compile(r"bearer +([A-Za-z0-9._~+/-]+=*) *", re.IGNORECASE)
"""The scheme of https://www.rfc-editor.org/rfc/rfc6750#section-2.1, in any case."""

_log = logging.getLogger(__name__)


class Issuers(Protocol):
    """Other issuers of tokens, which `tuskpoint_server.auth.oidc` implements."""

    def replace(self, issuers: Mapping[str, Issuer]) -> None:
        """Replace the issuers whose tokens are accepted."""

    def find(self, digest: bytes) -> Grant | None:
        """Return the grant of an accepted token, by its SHA-256."""

    def accept(self, token: str) -> Grant | None:
        """Check a token; `None` if no issuer knows it. Refuses with `CREDENTIAL_INVALID`."""


class Authentication:
    """Gives calls their tenant and scopes.

    Attributes:
        running: The admitted calls that have not ended.
        quotas: Limits of each tenant.
    """

    def __init__(
        self,
        credentials: Credentials | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        issuers: Issuers | None = None,
    ) -> None:
        self._credentials = credentials
        self._issuers = issuers
        self.quotas = Quotas()
        self._guesses = Guesses()
        if credentials is not None:
            self.quotas.replace(credentials.quotas)
        self._now = now
        self._expiry: asyncio.TimerHandle | None = None  # ends the next expiring calls
        self.running: set[Call] = set()

    def admit(self, call: Call) -> None:
        """Give a call the grant of its credential, and add the call to `running`."""
        call.grant = grant = self.grant(call)
        call.usage = self.quotas.usage(grant.tenant)
        self.running.add(call)
        if grant.expires is not None:
            self._end_expired()

    def grant(self, call: Call) -> Grant:
        """Return the grant of a call's credential.

        Raises:
            Refusal: `CREDENTIAL_INVALID`, or `QUOTA_EXCEEDED` for an unknown token from an address
                that has sent many unknown tokens.
        """
        if self._credentials is None:
            return EVERYTHING
        call.presented, token = _presented_credential(call, self._credentials)
        if isinstance(call.presented, bytes):
            grant = self._grant_of_token(call, self._credentials, call.presented, token)
        elif (certificate_grant := self._find(self._credentials, call.presented)) is not None:
            grant = certificate_grant
        else:
            raise _refusal(
                call, "missing", "the call has none", "send metadata 'authorization: Bearer TOKEN'"
            )
        if grant.expires is not None and self._now() >= grant.expires:
            raise _refusal(call, "expired", "it has expired", "ask for another token")
        return grant

    def knows(self, metadata: Iterable[tuple[str, str | bytes]]) -> bool:
        """Return whether metadata has a known token.

        The method admits no call and counts no guess: `admit` decides about the call.
        """
        if self._credentials is None:
            return True
        headers = [value for name, value in metadata if name == "authorization"]
        if len(headers) != 1 or not isinstance(headers[0], str):
            return False
        bearer = _BEARER.fullmatch(headers[0])
        grant = self._find(self._credentials, token_digest(bearer[1])) if bearer else None
        return grant is not None and (grant.expires is None or self._now() < grant.expires)

    def _grant_of_token(
        self, call: Call, credentials: Credentials, digest: bytes, token: str
    ) -> Grant:
        """Return the grant of a token, expired or not; slow guesses down."""
        address = address_of(call.context.peer())
        try:
            self._guesses.check(address, digest)
        except Refusal:
            call.denied = "slowed"
            raise
        grant = self._find(credentials, digest)
        if grant is None and self._issuers is not None:
            grant = self._accept(call, token)
        if grant is None:
            self._guesses.unknown(address, digest)
            raise _refusal(call, "unknown", "the server does not know it")
        self._guesses.accepted(address, digest)
        return grant

    def _find(self, credentials: Credentials, presented: Presented) -> Grant | None:
        grant = credentials.find(presented)
        if grant is None and self._issuers is not None and isinstance(presented, bytes):
            return self._issuers.find(presented)
        return grant

    def _accept(self, call: Call, token: str) -> Grant | None:
        assert self._issuers is not None  # noqa: S101 - asked only then
        try:
            return self._issuers.accept(token)
        except Refusal:
            call.denied = "unknown"
            raise

    def dismiss(self, call: Call) -> None:
        """Remove a call that has ended."""
        self.running.discard(call)

    def replace(self, credentials: Credentials) -> None:
        """Replace the credentials, and end the calls that the new credentials do not allow."""
        self._credentials = credentials
        self.quotas.replace(credentials.quotas)
        if self._issuers is not None:
            self._issuers.replace(credentials.issuers)
        self.check()

    def check(self) -> None:
        """End the calls that the present credentials do not allow."""
        if self._credentials is None:
            return
        counts: Counter[str] = Counter()
        for call in self.running:
            grant = self._find(self._credentials, call.presented)
            if grant is not None and grant.covers(call.grant):
                call.grant = grant
            elif call.ended is None:
                counts[call.grant.name] += 1
                call.end(_refusal(call, "revoked", "it was revoked while the call ran"))
        for name, count in counts.items():
            _log.info("credential '%s' is no longer valid: %d calls were ended", name, count)
        self._end_expired()

    def _end_expired(self) -> None:
        """End the calls with an expired credential; check again at the next expiry."""
        now, next_expiry = self._now(), None
        for call in self.running:
            expires = call.grant.expires
            if expires is None or call.ended is not None:
                continue
            if expires <= now:
                call.end(_refusal(call, "expired", "it expired while the call ran"))
            elif next_expiry is None or expires < next_expiry:
                next_expiry = expires
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        if next_expiry is not None:
            wait_s = (next_expiry - now).total_seconds()
            self._expiry = asyncio.get_running_loop().call_later(wait_s, self._end_expired)


def _presented_credential(call: Call, credentials: Credentials) -> tuple[Presented, str]:
    """Return the credential of a call, and the token if the call has one."""
    metadata = call.context.invocation_metadata() or ()
    headers = [value for name, value in metadata if name == "authorization"]
    if not headers:
        # The handshake has checked the names in the client's certificate.
        names = call.context.auth_context() if credentials.subjects else {}
        kinds = ("peer_dns", "peer_uri", "peer_email", "x509_common_name")
        certificate_names = (
            name.decode(errors="replace") for kind in kinds for name in names.get(kind, ())
        )
        return tuple(certificate_names), ""
    if len(headers) > 1:
        raise _refusal(call, "malformed", "it is sent twice", "send metadata 'authorization' once")
    bearer = _BEARER.fullmatch(headers[0]) if isinstance(headers[0], str) else None
    if bearer is None:
        problem = "metadata 'authorization' is malformed"
        raise _refusal(call, "malformed", problem, "send 'Bearer TOKEN' in it")
    return token_digest(bearer[1]), bearer[1]


def _refusal(call: Call, kind: str, cause: str, advice: str = "") -> Refusal:
    call.denied = kind
    return Refusal(Reason.CREDENTIAL_INVALID, cause=cause, advice=advice)
