"""The token file, which grants callers a tenant and scopes, and sets quotas.

docs/security/tokens.md describes the file.
"""

from __future__ import annotations

import argparse
import re
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from ..core.credentials import (
    EACH_OTHER_TENANT,
    TENANT_RULE,
    TOKEN_PREFIX,
    Credentials,
    Grant,
    Issuer,
    Quota,
    Scope,
    is_safe_url,
    is_tenant,
)
from ..core.process import ConfigError, read_bytes

MAX_NAME_LENGTH = 64

KeyT = TypeVar("KeyT", bytes, str)
ValueT = TypeVar("ValueT")
OtherT = TypeVar("OtherT")

_SHA256 = re.compile(r"[0-9a-fA-F]{64}")


class EntryError(argparse.ArgumentTypeError):
    """A value of an entry or a flag cannot be used; the text never quotes a possible token."""


class Entry:
    """An entry of a file, read key by key."""

    def __init__(self, table: Mapping[str, object]) -> None:
        self._table = table
        self._keys: list[str] = []

    def __contains__(self, key: str) -> bool:
        """Return whether the entry has a key."""
        self._keys.append(key)
        return key in self._table

    def take(self, key: str, check: Callable[[object], ValueT]) -> ValueT:
        """Return the value of a key, converted by `check`; raise `EntryError`."""
        if key not in self:
            raise EntryError(f"{key} is missing")
        try:
            return check(self._table[key])
        except EntryError as error:
            raise EntryError(f"{key}: {error}") from None

    def take_or(
        self, key: str, check: Callable[[object], ValueT], otherwise: OtherT
    ) -> ValueT | OtherT:
        """Return the value of a key that may be missing; raise `EntryError`."""
        return self.take(key, check) if key in self else otherwise

    def end(self) -> None:
        """Raise `EntryError` if the entry has a key that was not read."""
        if unknown_keys := self._table.keys() - self._keys:
            keys = ", ".join(sorted({*self._keys}))
            raise EntryError(f"{_quote(min(unknown_keys))} is not a key; keys are {keys}")


def read_tokens(path: Path, *, certificates: bool) -> Credentials:
    """Return the credentials in a token file; entries for certificates need a client CA."""
    return parse_tokens(read_bytes("--tokens", path), f"--tokens {path}", certificates=certificates)


def parse_tokens(content: bytes, file: str, *, certificates: bool = True) -> Credentials:
    """Return the credentials in the content of a token file, which errors call `file`."""
    try:
        document = tomllib.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file} is not TOML: {error}") from None
    unknown_kinds = document.keys() - {"token", "certificate", "issuer", "quota"}
    if unknown_kinds:
        raise ConfigError(
            f"{file}: {_quote(min(unknown_kinds))} is not a kind of entry; those are [[token]], "
            "[[certificate]], [[issuer]] and [[quota]]"
        )
    if "certificate" in document and not certificates:
        raise ConfigError(
            f"{file} has entries [[certificate]], which need --tls-client-ca: without it no "
            "client is asked for one"
        )
    tokens = _entries(file, document, "token", "sha256", _token)
    subjects = _entries(file, document, "certificate", "subject", _certificate)
    issuers = _entries(file, document, "issuer", "url", _issuer)
    for url, issuer in issuers.items():
        if bool(issuer.tenant) == bool(issuer.tenant_claim):
            raise ConfigError(f"{file}: issuer {url} needs either tenant or tenant_claim")
        if bool(issuer.scopes) == bool(issuer.scope_claim):
            raise ConfigError(f"{file}: issuer {url} needs either scopes or scope_claim")
    quotas = _entries(file, document, "quota", "tenant", _quota)
    if not tokens and not subjects and not issuers:
        raise ConfigError(
            f"{file} lets nobody call; `tuskpoint-server token --append FILE` adds a token"
        )
    return Credentials(tokens, subjects, quotas, issuers)


def _entries(
    file: str,
    document: Mapping[str, object],
    kind: str,
    found_by: str,
    read: Callable[[Entry], tuple[KeyT, ValueT]],
) -> dict[KeyT, ValueT]:
    tables = document.get(kind, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ConfigError(f"{file}: write each entry as [[{kind}]]")
    entries: dict[KeyT, ValueT] = {}
    for number, table in enumerate(tables, start=1):
        try:
            entry = Entry(table)
            key, value = read(entry)
            entry.end()
            if key in entries:
                raise EntryError(f"{found_by}: an earlier entry has the same")
        except EntryError as error:
            label = str(number)
            with suppress(EntryError):
                label += f" ('{token_name(table.get('name'))}')"
            raise ConfigError(f"{file}: {kind} {label}: {error}") from None
        entries[key] = value
    return entries


def _token(entry: Entry) -> tuple[bytes, Grant]:
    grant = replace(_grant(entry), expires=entry.take_or("expires", time_of, None))
    return entry.take("sha256", _sha256), grant


def _certificate(entry: Entry) -> tuple[str, Grant]:
    return entry.take("subject", _subject), _grant(entry)


def _grant(entry: Entry) -> Grant:
    return Grant(
        entry.take("name", token_name),
        entry.take("tenant", tenant_name),
        entry.take("scopes", _scopes),
    )


def _issuer(entry: Entry) -> tuple[str, Issuer]:
    return entry.take("url", _issuer_url), Issuer(
        entry.take("audience", _claim),
        tenant=entry.take_or("tenant", tenant_name, ""),
        tenant_claim=entry.take_or("tenant_claim", _claim, ""),
        scopes=entry.take_or("scopes", _scopes, frozenset[Scope]()),
        scope_claim=entry.take_or("scope_claim", _claim, ""),
    )


def _quota(entry: Entry) -> tuple[str, Quota]:
    return entry.take("tenant", _quota_tenant), Quota(
        calls_per_second=entry.take_or("calls_per_second", _limit, None),
        bytes_per_second=entry.take_or("bytes_per_second", _limit, None),
        open_streams=entry.take_or("open_streams", _limit, None),
        threads=entry.take_or("threads", _limit, None),
        stored_bytes=entry.take_or("stored_bytes", _limit, None),
    )


def token_name(value: object) -> str:
    """Return the name of a token, or raise an `EntryError`."""
    if not isinstance(value, str) or not value.isprintable():
        raise EntryError("a name is a printable text")
    if not 1 <= len(value) <= MAX_NAME_LENGTH:
        raise EntryError(f"a name has 1 to {MAX_NAME_LENGTH} characters")
    if value.startswith(TOKEN_PREFIX):
        raise EntryError("a name is shown in logs, and this one looks like a token")
    return value


def tenant_name(value: object) -> str:
    """Return the name of a tenant; raise `EntryError` if no credential could name it."""
    if not isinstance(value, str) or not is_tenant(value):
        raise EntryError(f"a tenant is {TENANT_RULE}")
    return value


def scope_of(value: object) -> Scope:
    """Return the scope of a name, or raise an `EntryError`."""
    for scope in Scope:
        if value == scope:
            return scope
    raise EntryError(f"{_quote(value)} is not a scope; scopes are {', '.join(Scope)}")


def _scopes(value: object) -> frozenset[Scope]:
    if not isinstance(value, list) or not value:
        raise EntryError(f"a list of at least one of {', '.join(Scope)}")
    return frozenset(map(scope_of, value))


def time_of(value: object) -> datetime:
    """Return a time with an offset, or raise an `EntryError`."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise EntryError("a time with an offset, such as 2027-01-01T00:00:00Z")
    return value


def _sha256(value: object) -> bytes:
    if not isinstance(value, str) or not _SHA256.fullmatch(value):
        raise EntryError("the SHA-256 of the token in 64 hex digits, not the token itself")
    return bytes.fromhex(value)


def _subject(value: object) -> str:
    if not isinstance(value, str) or not value.isprintable() or not value:
        raise EntryError("a DNS name, a URI, an e-mail address or a common name")
    return value


def _quote(value: object) -> str:
    """Return a value for an error message: quoted only if it is too short for a token."""
    return f"'{value}'" if isinstance(value, str) and len(value) <= 20 else "something"


def _claim(value: object) -> str:
    if not isinstance(value, str) or not value.isprintable() or not value:
        raise EntryError("a text that is not empty")
    return value


def _issuer_url(value: object) -> str:
    if not isinstance(value, str) or not is_safe_url(value):
        raise EntryError("the issuer's https URL, as its tokens have it in `iss`")
    return value


def _quota_tenant(value: object) -> str:
    return EACH_OTHER_TENANT if value == EACH_OTHER_TENANT else tenant_name(value)


def _limit(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise EntryError("a whole number above 0; leave the key out for no limit")
    return value
