"""Credentials, tenants, and the hosts that are this machine.

The server knows only the SHA-256 of a token. Tokens are 32 random bytes, so a salt or a slow hash
would add nothing, and the timing of a lookup by digest reveals nothing that helps to guess one.

A tenant comes from the credential of a call, never from a request. Its name becomes a part of the
file name of its catalog pointer, and of its namespace in MemWal.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from urllib.parse import urlsplit

DEFAULT_TENANT = "default"  # tenant of callers without a credential

TENANT_RULE = "1 to 64 of the characters a-z, 0-9, - and _, beginning with a letter or a digit"
"""Rule for a tenant's name. Only lower case: some file systems ignore case."""

_TENANT = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")

TOKEN_PREFIX = "tusk_"  # noqa: S105 - no secret
"""Prefix of tokens: scanners find leaked ones by it, and errors never repeat them."""


class Scope(StrEnum):
    """A permission of a credential."""

    READ = "read"
    WRITE = "write"
    HANDOFF = "handoff"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Grant:
    """The tenant and the permissions of one credential."""

    name: str  # name for logs; not a secret
    tenant: str
    scopes: frozenset[Scope]
    expires: datetime | None = None  # time from which the credential is refused

    def covers(self, other: Grant) -> bool:
        """Return whether this grant allows all that another grant allows, on the same data."""
        return self.tenant == other.tenant and self.scopes >= other.scopes


EVERYTHING = Grant("", DEFAULT_TENANT, frozenset(Scope))
"""Grant of every caller if the server asks for no credentials."""

NOTHING = Grant("", "", frozenset())
"""Grant of a call that is not authenticated yet."""


@dataclass(frozen=True, slots=True)
class Issuer:
    """Grants of the tokens of an OpenID Connect issuer: fixed, or taken from claims."""

    audience: str
    tenant: str = ""
    tenant_claim: str = ""
    scopes: frozenset[Scope] = frozenset()
    scope_claim: str = ""


@dataclass(frozen=True, slots=True)
class Quota:
    """Limits of one tenant; `None`: no limit."""

    calls_per_second: int | None = None
    bytes_per_second: int | None = None  # of requests and answers
    open_streams: int | None = None
    threads: int | None = None
    stored_bytes: int | None = None  # of content, before compression


UNLIMITED = Quota()

EACH_OTHER_TENANT = "*"
"""Key of the quota of every tenant without a quota of its own."""

Presented = bytes | tuple[str, ...]
"""Credential of a call: the SHA-256 of its token, or the names in the client's certificate."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """All credentials in force: grants by the SHA-256 of a token, or by a certificate's name.

    With them come the quotas of tenants, by name or for `EACH_OTHER_TENANT`, and the issuers of
    other tokens, by their URL.
    """

    tokens: Mapping[bytes, Grant] = field(default_factory=dict)
    subjects: Mapping[str, Grant] = field(default_factory=dict)
    quotas: Mapping[str, Quota] = field(default_factory=dict)
    issuers: Mapping[str, Issuer] = field(default_factory=dict)

    def find(self, presented: Presented) -> Grant | None:
        """Return the grant of a credential, expired or not; `None` if names lead to several."""
        if isinstance(presented, bytes):
            return self.tokens.get(presented)
        grants = {self.subjects[name] for name in presented if name in self.subjects}
        return grants.pop() if len(grants) == 1 else None


def token_digest(token: str) -> bytes:
    """Return the SHA-256 of a token, which the server stores."""
    return hashlib.sha256(token.encode()).digest()


def is_tenant(name: str) -> bool:
    """Return whether a tenant may have this name."""
    return _TENANT.fullmatch(name) is not None


def is_safe_url(url: str) -> bool:
    """Return whether a connection to a URL is protected: HTTPS, or HTTP on this machine."""
    try:
        parts = urlsplit(url)
    except ValueError:  # such as brackets without an address in them
        return False
    host = parts.hostname
    if not host:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))


def is_loopback(host: str) -> bool:
    """Return whether a host is reachable only from this machine, so through no proxy either.

    Names below `localhost` count (https://www.rfc-editor.org/rfc/rfc6761#section-6.3). Addresses
    have no brackets.
    """
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
