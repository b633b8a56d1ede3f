"""The token file: who may call, whose data that is about, and what for.

```toml
[[token]]
name = "research"
sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
tenant = "default"
scopes = ["read", "write"]
expires = 2027-01-01T00:00:00Z   # optional

[[certificate]]                  # with a client CA: a certificate in place of a token
name = "indexer"
subject = "indexer.example"      # a DNS name of the certificate, or its common name
tenant = "default"
scopes = ["read"]
```
"""

from __future__ import annotations

import json
import re
import secrets
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .domain.credentials import (
    TENANT_RULE,
    TOKEN_PREFIX,
    Credentials,
    Grant,
    Scope,
    is_tenant,
    token_digest,
)
from .reloading import UnusableFileError, read_bytes

TOKEN_BYTES = 32
MAX_NAME_LENGTH = 64

_SHA256 = re.compile(r"[0-9a-fA-F]{64}")


class EntryError(ValueError):
    """A part of an entry that cannot be used; its text says which key and why.

    It never quotes a value that could be a token.
    """


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token that was just made; only its holder ever sees it.

    Attributes:
        digest: Its SHA-256.
        grant: What it stands for.
    """

    digest: bytes
    grant: Grant

    def entry(self) -> str:
        """Return its entry for the token file."""
        grant = self.grant
        scopes = ", ".join(f'"{scope}"' for scope in Scope if scope in grant.scopes)
        lines = [
            "[[token]]",
            f"name = {json.dumps(grant.name, ensure_ascii=False)}",
            f'sha256 = "{self.digest.hex()}"',
            f'tenant = "{grant.tenant}"',
            f"scopes = [{scopes}]",
        ]
        if grant.expires is not None:
            at = grant.expires.astimezone(UTC).replace(microsecond=0, tzinfo=None)
            lines.append(f"expires = {at.isoformat()}Z")
        return "\n".join(lines) + "\n"


def new_token(grant: Grant) -> tuple[str, NewToken]:
    """Return a new random token, and what the server is to know of it."""
    token = TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)
    return token, NewToken(token_digest(token), grant)


def read_tokens(path: Path, *, certificates: bool) -> Credentials:
    """Return the credentials in a token file.

    Args:
        path: The file.
        certificates: Whether clients show certificates, so that there may be entries for them.

    Raises:
        UnusableFileError: It cannot be read, or `parse_tokens` refuses it.
    """
    return parse_tokens(read_bytes("--tokens", path), f"--tokens {path}", certificates=certificates)


def parse_tokens(content: bytes, file: str, *, certificates: bool = True) -> Credentials:
    """Return the credentials that the content of a token file holds.

    Args:
        content: The content.
        file: How to call the file in errors.
        certificates: Whether there may be entries for certificates.

    Raises:
        UnusableFileError: It is no token file, or holds no credential.
    """
    try:
        document = tomllib.loads(content.decode("utf-8"))
    except UnicodeDecodeError:
        raise UnusableFileError(f"{file} is not TOML: it is not UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise UnusableFileError(f"{file} is not TOML: {error}") from None
    except (ValueError, RecursionError):
        raise UnusableFileError(f"{file} is not TOML that can be read") from None
    unknown = document.keys() - {"token", "certificate"}
    if unknown:
        raise UnusableFileError(
            f"{file}: {_quoted(min(unknown))} is no kind of entry; those are [[token]] and "
            "[[certificate]]"
        )
    if "certificate" in document and not certificates:
        raise UnusableFileError(
            f"{file} has entries [[certificate]], which need --tls-client-ca: without it no "
            "client is asked for one"
        )
    tokens = _entries(file, document, "token", "sha256", _sha256)
    subjects = _entries(file, document, "certificate", "subject", _subject)
    if not tokens and not subjects:
        raise UnusableFileError(
            f"{file} has no entry; `tuskpoint-server token --append FILE` makes one"
        )
    return Credentials(tokens, subjects)


def _entries(
    file: str,
    document: Mapping[str, Any],
    kind: str,
    key: str,
    read_key: Callable[[object], Any],
) -> dict[Any, Grant]:
    """Return the grants of one kind of entry by what they are found by."""
    tables = document.get(kind, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise UnusableFileError(f"{file}: write each entry as [[{kind}]]")
    grants: dict[Any, Grant] = {}
    for number, table in enumerate(tables, start=1):
        try:
            grant = _grant(table, {key} | ({"expires"} if kind == "token" else set()))
            found_by = _value(table, key, read_key)
            if found_by in grants:
                raise EntryError(f"{key}: an entry before has the same")
        except EntryError as error:
            raise UnusableFileError(f"{file}: {kind} {_called(number, table)}: {error}") from None
        grants[found_by] = grant
    return grants


def _called(number: int, table: Mapping[str, Any]) -> str:
    """Return how to call an entry: its number, and its name if that can be one."""
    try:
        return f"{number} ('{check_name(table.get('name'))}')"
    except EntryError:
        return str(number)


def _grant(table: Mapping[str, Any], other_keys: set[str]) -> Grant:
    known = {"name", "tenant", "scopes"} | other_keys
    unknown = table.keys() - known
    if unknown:
        raise EntryError(f"{_quoted(min(unknown))} is no key; keys are {', '.join(sorted(known))}")
    return Grant(
        name=_value(table, "name", check_name),
        tenant=_value(table, "tenant", check_tenant),
        scopes=_value(table, "scopes", check_scopes),
        expires=_value(table, "expires", check_expiry) if "expires" in table else None,
    )


def _value(table: Mapping[str, Any], key: str, read: Callable[[object], Any]) -> Any:
    if key not in table:
        raise EntryError(f"{key} is missing")
    try:
        return read(table[key])
    except EntryError as error:
        raise EntryError(f"{key}: {error}") from None


def check_name(value: object) -> str:
    """Return a value that can be the name of a credential.

    Raises:
        EntryError: It cannot.
    """
    if not isinstance(value, str) or not value.isprintable():
        raise EntryError("a name is a printable text")
    if not 1 <= len(value) <= MAX_NAME_LENGTH:
        raise EntryError(f"a name has 1 to {MAX_NAME_LENGTH} characters")
    if value.startswith(TOKEN_PREFIX):
        raise EntryError("a name is shown in logs, and this one looks like a token")
    return value


def check_tenant(value: object) -> str:
    """Return a value that can be the name of a tenant.

    Raises:
        EntryError: It cannot.
    """
    if not isinstance(value, str) or not is_tenant(value):
        raise EntryError(f"a tenant is {TENANT_RULE}")
    return value


def check_scopes(value: object) -> frozenset[Scope]:
    """Return the scopes that a list names.

    Raises:
        EntryError: It is no list, is empty, or names what is no scope.
    """
    known = ", ".join(Scope)
    if not isinstance(value, list) or not value:
        raise EntryError(f"a list of at least one of {known}")
    for scope in value:
        if scope not in list(Scope):
            raise EntryError(f"{_quoted(scope)} is no scope; scopes are {known}")
    return frozenset(Scope(scope) for scope in value)


def check_expiry(value: object) -> datetime:
    """Return a value that is a time with an offset.

    Raises:
        EntryError: It is not.
    """
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise EntryError("a time with an offset, such as 2027-01-01T00:00:00Z")
    return value


def _quoted(value: object) -> str:
    """Return how to show what somebody wrote: whole if it is too short for a token."""
    return f"'{value}'" if isinstance(value, str) and len(value) <= 20 else "something"


def _sha256(value: object) -> bytes:
    if not isinstance(value, str) or not _SHA256.fullmatch(value):
        raise EntryError("the SHA-256 of the token in 64 hex digits, not the token itself")
    return bytes.fromhex(value)


def _subject(value: object) -> str:
    if not isinstance(value, str) or not value.isprintable() or not value:
        raise EntryError("a DNS name or a common name")
    return value
