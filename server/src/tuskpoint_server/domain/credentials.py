"""Who may call, and whose data it is: credentials, tenants, and the hosts of this machine.

Of a token only its SHA-256 is known. Tokens are 32 random bytes, so neither salt nor a slow
hash would add anything, and the timing of a lookup by digest reveals nothing that helps to guess.

A tenant comes from the credential of a call, never from a request. Its name ends up in the
file name of its catalog pointer and in its namespace in MemWal.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

DEFAULT_TENANT = "default"  # the tenant of callers without a credential

TENANT_RULE = "1 to 64 of the characters a-z, 0-9, - and _, beginning with a letter or a digit"
"""What a tenant's name may be: file names that differ in case are one on some systems."""

_TENANT = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")

TOKEN_PREFIX = "tusk_"  # noqa: S105 - no secret
"""What tokens begin with: scanners find lost ones by it, and errors do not repeat them."""


class Scope(StrEnum):
    """What a credential allows."""

    READ = "read"
    WRITE = "write"
    HANDOFF = "handoff"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Grant:
    """What one credential stands for."""

    name: str  # for logs; it is no secret
    tenant: str
    scopes: frozenset[Scope]
    expires: datetime | None = None  # refused from then on

    def covers(self, other: Grant) -> bool:
        """Return whether it allows all that another grant does, on the same data."""
        return self.tenant == other.tenant and self.scopes >= other.scopes


EVERYTHING = Grant("", DEFAULT_TENANT, frozenset(Scope))
"""What everybody may where credentials are not asked for."""

NOTHING = Grant("", "", frozenset())
"""What a call may before it was authenticated."""


Presented = bytes | tuple[str, ...]
"""What a call came with: the SHA-256 of its token, else the names in the client's certificate."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """All credentials in force: grants by the SHA-256 of a token, or by a certificate's name."""

    tokens: Mapping[bytes, Grant] = field(default_factory=dict)
    subjects: Mapping[str, Grant] = field(default_factory=dict)

    def find(self, presented: Presented) -> Grant | None:
        """Return what a credential stands for, expired or not; names of several grants: none."""
        if isinstance(presented, bytes):
            return self.tokens.get(presented)
        grants = {self.subjects[name] for name in presented if name in self.subjects}
        return grants.pop() if len(grants) == 1 else None


def token_digest(token: str) -> bytes:
    """Return the SHA-256 that a token is known by."""
    return hashlib.sha256(token.encode()).digest()


def is_tenant(name: str) -> bool:
    """Return whether a tenant may have this name."""
    return _TENANT.fullmatch(name) is not None


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a host, so that no proxy does either.

    Names below `localhost` count, as https://www.rfc-editor.org/rfc/rfc6761#section-6.3 says.
    Addresses have no brackets.
    """
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
