"""Tokens of OpenID Connect issuers: JWTs, checked against the issuer's published keys.

The keys are read at the start, every ten minutes, and when a token names an unknown key. No call
waits for a read of keys. Meanwhile a token that names an unknown key is refused as unavailable, and
its client retries. Sources: OpenID Connect Discovery 1.0, section 4; RFC 7517 (keys); RFC 7519
(tokens).
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

import httpx
import jwt

from ..core.credentials import Grant, Issuer, Scope, is_safe_url, is_tenant, token_digest
from ..core.errors import Reason, Refusal, Status

ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
"""Accepted signature algorithms; none of them uses a shared secret."""

REFRESH_SECONDS = 600.0
RETRY_SECONDS = 10.0  # least time between two requests of an issuer's keys
LEEWAY_SECONDS = 30.0  # largest difference between the clocks of the server and the issuer
_TIMEOUT_SECONDS = 5.0
_MAX_BYTES = 1 << 20  # largest answer of an issuer
_MAX_KNOWN = 10_000  # accepted tokens in the cache
_MAX_ASKED = 100  # unknown keys of an issuer that wait for the next read
_MAX_NAME = 64  # characters of a subject in logs

# The last three errors come from JSON that is nested too deep, and from times that are not finite
# numbers. Some releases of PyJWT do not catch them.
_NO_TOKEN = (jwt.InvalidTokenError, RecursionError, OverflowError, TypeError)

_log = logging.getLogger(__name__)


class _CheckedToken(NamedTuple):
    """An accepted token."""

    grant: Grant
    issuer: str
    key_id: str


class InvalidAnswerError(Exception):
    """An issuer's answer cannot be used; the text says why."""


@dataclass(slots=True, eq=False)
class OidcIssuers:
    """The issuers whose tokens are accepted, and their keys.

    `changed` is called after keys that accepted tokens may use were removed.
    """

    changed: Callable[[], None] = lambda: None
    _issuers: Mapping[str, Issuer] = field(default_factory=dict)
    _keys: dict[str, dict[str, jwt.PyJWK]] = field(default_factory=dict)  # by issuer and key ID
    _known: dict[bytes, _CheckedToken] = field(default_factory=dict)  # by the SHA-256 of the token
    _asked: dict[str, set[str]] = field(default_factory=dict)  # unknown keys since the last read
    _missing: dict[str, set[str]] = field(default_factory=dict)  # absent from the last read too
    _read_at: dict[str, float] = field(default_factory=dict)  # monotonic, of the last attempt
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    def replace(self, issuers: Mapping[str, Issuer]) -> None:
        """Replace the accepted issuers, and the claims that they need."""
        same_urls = {url for url, issuer in issuers.items() if self._issuers.get(url) == issuer}
        self._issuers = issuers
        self._keys = {url: keys for url, keys in self._keys.items() if url in same_urls}
        self._known = {
            digest: entry for digest, entry in self._known.items() if entry.issuer in same_urls
        }
        self._read_at = {url: read_at for url, read_at in self._read_at.items() if url in same_urls}
        self._wake.set()

    def find(self, digest: bytes) -> Grant | None:
        """Return the grant of an accepted token; `None`: the token is not in the cache."""
        entry = self._known.get(digest)
        return None if entry is None else entry.grant

    def accept(self, token: str) -> Grant | None:
        """Check a token that is not in the cache; `None`: no valid token of these issuers.

        Raises:
            Refusal: `CREDENTIAL_INVALID`: the token has expired, is for another audience or has
                unusable claims, or the keys of its issuer are not read yet.
        """
        try:
            header = jwt.get_unverified_header(token)
            unchecked = jwt.decode(token, options={"verify_signature": False})
        except _NO_TOKEN:
            return None
        url, key_id = unchecked.get("iss"), str(header.get("kid", ""))
        issuer = self._issuers.get(url) if isinstance(url, str) else None
        if issuer is None or not isinstance(url, str):
            return None
        key = self._keys.get(url, {}).get(key_id)
        if key is None:
            self._ask_for(url, key_id)
            return None
        try:
            claims = jwt.decode(
                token,
                key,
                algorithms=ALGORITHMS,
                audience=issuer.audience,
                issuer=url,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud"]},
            )
        except jwt.ExpiredSignatureError:
            raise _invalid_token("it has expired") from None
        except jwt.InvalidAudienceError:
            raise _invalid_token("it is for another audience") from None
        except _NO_TOKEN:
            return None
        if len(self._known) >= _MAX_KNOWN:
            # the oldest entry, which expires first or soon
            self._known.pop(next(iter(self._known)))
        entry = _CheckedToken(_grant(issuer, claims), url, key_id)
        self._known[token_digest(token)] = entry
        return entry.grant

    def _ask_for(self, url: str, key_id: str) -> None:
        """Request a read of an issuer's keys; refuse a token that may be signed with a new key."""
        if key_id in self._missing.get(url, ()):
            return  # a read since the first request did not bring this key
        key_ids = self._asked.setdefault(url, set())
        if len(key_ids) < _MAX_ASKED:
            key_ids.add(key_id)
        self._wake.set()
        raise Refusal(
            Reason.CREDENTIAL_INVALID,
            status=Status.UNAVAILABLE,
            retry_after_s=1.0,
            cause=f"the keys of its issuer are not known yet ({_printable_text(key_id)[:40]})",
            advice="retry soon",
        )

    async def follow(self) -> None:
        """Read the issuers' keys until cancelled: at once, on request, and periodically."""
        async with httpx.AsyncClient(timeout=_TIMEOUT_SECONDS) as http:
            while True:
                self._wake.clear()
                for url in list(self._issuers):
                    if time.monotonic() - self._read_at.get(url, -REFRESH_SECONDS) >= RETRY_SECONDS:
                        await self._read(http, url)
                lacks = self._asked or self._issuers.keys() - self._keys
                waited = RETRY_SECONDS if lacks else REFRESH_SECONDS
                try:
                    async with asyncio.timeout(waited):
                        await self._wake.wait()
                except TimeoutError:
                    continue

    async def _read(self, http: httpx.AsyncClient, url: str) -> None:
        """Read an issuer's keys; if that fails, the keys of the last read stay in use."""
        key_ids = self._asked.pop(url, set())
        try:
            keys = await _keys_of(http, url)
        except (httpx.HTTPError, InvalidAnswerError) as error:
            problem = str(error) or type(error).__name__
            _log.error("the keys of issuer %s cannot be read: %s", url, problem)
            self._read_at[url] = time.monotonic()
            return
        if url not in self._issuers:
            return
        self._keys[url], self._read_at[url] = keys, time.monotonic()
        self._missing[url] = key_ids - keys.keys()
        digests = [
            digest
            for digest, entry in self._known.items()
            if entry.issuer == url and entry.key_id not in keys
        ]
        for digest in digests:
            del self._known[digest]
        if digests:
            self.changed()


def _grant(issuer: Issuer, claims: Mapping[str, Any]) -> Grant:
    """Return the grant in the claims of a token."""
    tenant = claims.get(issuer.tenant_claim) if issuer.tenant_claim else issuer.tenant
    if not isinstance(tenant, str) or not is_tenant(tenant):
        raise _invalid_token(f"its claim '{issuer.tenant_claim}' names no tenant")
    scopes = issuer.scopes
    if issuer.scope_claim:
        claim = claims.get(issuer.scope_claim, ())
        words = claim.split() if isinstance(claim, str) else claim
        words = words if isinstance(words, list) else []
        scopes = frozenset(scope for scope in Scope if scope in words)
        if not scopes:
            raise _invalid_token(f"its claim '{issuer.scope_claim}' names no scope")
    name = _printable_text(str(claims.get("sub", "")))[:_MAX_NAME]
    try:
        expires = datetime.fromtimestamp(claims["exp"] + LEEWAY_SECONDS, UTC)
    except (OverflowError, TypeError, ValueError, OSError):
        raise _invalid_token("its claim 'exp' is not a timestamp") from None
    return Grant(name, tenant, scopes, expires)


def _printable_text(text: str) -> str:
    """Return a text of a token without characters that messages cannot have, such as surrogates."""
    return "".join(character for character in text if character.isprintable())


def _invalid_token(cause: str) -> Refusal:
    advice = "ask the issuer for another token"
    return Refusal(Reason.CREDENTIAL_INVALID, cause=cause, advice=advice)


async def _keys_of(http: httpx.AsyncClient, url: str) -> dict[str, jwt.PyJWK]:
    """Return the keys that an issuer publishes, by their IDs."""
    described = await _object(http, f"{url.rstrip('/')}/.well-known/openid-configuration")
    if described.get("issuer") != url:
        raise InvalidAnswerError("its description is of another issuer")
    keys_url = described.get("jwks_uri")
    if not isinstance(keys_url, str) or not is_safe_url(keys_url):
        raise InvalidAnswerError("its jwks_uri is not an https URL")
    return usable_keys((await _object(http, keys_url)).get("keys"))


def usable_keys(published: object) -> dict[str, jwt.PyJWK]:
    """Return the usable keys of a JWK Set, by their IDs; `published` is its `keys`.

    Raises:
        InvalidAnswerError: The set has no usable key.
    """
    keys = {}
    for entry in published if isinstance(published, list) else []:
        try:
            key = jwt.PyJWK(entry)
        except (jwt.PyJWTError, LookupError, TypeError, ValueError, AttributeError):
            continue  # a key of an unknown kind, or a malformed one
        if key.key_type != "oct" and entry.get("use", "sig") == "sig":
            keys[str(entry.get("kid", ""))] = key
    if not keys:
        raise InvalidAnswerError("it publishes no key that can be used")
    return keys


async def _object(http: httpx.AsyncClient, url: str) -> dict[str, Any]:
    """Return the JSON object at a URL; refuse one that is too large."""
    async with http.stream("GET", url) as answer:
        if answer.status_code != httpx.codes.OK:
            raise InvalidAnswerError(f"{url} answered {answer.status_code}")
        data = b""
        async for piece in answer.aiter_bytes():
            data += piece
            if len(data) > _MAX_BYTES:
                raise InvalidAnswerError(f"{url} answered more than {_MAX_BYTES} bytes")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise InvalidAnswerError(f"{url} did not answer JSON") from None
    if not isinstance(document, dict):
        raise InvalidAnswerError(f"{url} answered no object")
    return document
