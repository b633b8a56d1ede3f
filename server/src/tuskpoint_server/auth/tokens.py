"""The token file, which grants callers a tenant and scopes and has quotas.

docs/security.md describes the file.
"""

from __future__ import annotations

import argparse
import re
import tomllib
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

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

EntryT = TypeVar("EntryT", Grant, Issuer, Quota)

_SHA256 = re.compile(r"[0-9a-fA-F]{64}")


class EntryError(argparse.ArgumentTypeError):
    """A value of an entry or a flag cannot be used; the text never quotes a possible token."""


def read_tokens(path: Path, *, certificates: bool) -> Credentials:
    """Return the credentials in a token file; entries for certificates need a client CA."""
    return parse_tokens(read_bytes("--tokens", path), f"--tokens {path}", certificates=certificates)


def parse_tokens(content: bytes, file: str, *, certificates: bool = True) -> Credentials:
    """Return the credentials in the content of a token file, which errors call `file`."""
    try:
        document = tomllib.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file} is not TOML: {error}") from None
    unknown = document.keys() - _KEYS.keys()
    if unknown:
        raise ConfigError(
            f"{file}: {_quoted(min(unknown))} is no kind of entry; those are [[token]], "
            "[[certificate]], [[issuer]] and [[quota]]"
        )
    if "certificate" in document and not certificates:
        raise ConfigError(
            f"{file} has entries [[certificate]], which need --tls-client-ca: without it no "
            "client is asked for one"
        )
    tokens = _entries(file, document, "token", "sha256", Grant)
    subjects = _entries(file, document, "certificate", "subject", Grant)
    issuers = _entries(file, document, "issuer", "url", Issuer)
    for url, issuer in issuers.items():
        for fixed, claim in (("tenant", "tenant_claim"), ("scopes", "scope_claim")):
            if bool(getattr(issuer, fixed)) == bool(getattr(issuer, claim)):
                raise ConfigError(f"{file}: issuer {url} needs either {fixed} or {claim}")
    quotas = _entries(file, document, "quota", "tenant", Quota)
    if not tokens and not subjects and not issuers:
        raise ConfigError(
            f"{file} lets nobody call; `tuskpoint-server token --append FILE` adds a token"
        )
    return Credentials(tokens, subjects, quotas, issuers)


def _entries(
    file: str, document: Mapping[str, Any], kind: str, found_by: str, made: type[EntryT]
) -> dict[Any, EntryT]:
    tables = document.get(kind, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ConfigError(f"{file}: write each entry as [[{kind}]]")
    entries: dict[Any, EntryT] = {}
    for number, table in enumerate(tables, start=1):
        try:
            values = checked(table, _KEYS[kind], _OPTIONAL[kind])
            key = values.pop(found_by)
            if key in entries:
                raise EntryError(f"{found_by}: an earlier entry has the same")
        except EntryError as error:
            called = str(number)
            with suppress(EntryError):
                called += f" ('{token_name(table.get('name'))}')"
            raise ConfigError(f"{file}: {kind} {called}: {error}") from None
        entries[key] = made(**values)
    return entries


def checked(
    table: Mapping[str, Any],
    checks: Mapping[str, Callable[[Any], object]],
    optional: Collection[str],
) -> dict[str, Any]:
    """Return the values of an entry, each as its check returns it; raise `EntryError`."""
    if unknown := table.keys() - checks:
        raise EntryError(f"{_quoted(min(unknown))} is no key; keys are {', '.join(sorted(checks))}")
    values = {}
    for key, check in checks.items():
        if key in table:
            try:
                values[key] = check(table[key])
            except EntryError as error:
                raise EntryError(f"{key}: {error}") from None
        elif key not in optional:
            raise EntryError(f"{key} is missing")
    return values


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


def scope_of(value: Any) -> Scope:
    """Return the scope of a name, or raise an `EntryError`."""
    if value not in list(Scope):
        raise EntryError(f"{_quoted(value)} is no scope; scopes are {', '.join(Scope)}")
    return Scope(value)


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


def _quoted(value: object) -> str:
    """Return a value for an error message: quoted only if it is too short for a token."""
    return f"'{value}'" if isinstance(value, str) and len(value) <= 20 else "something"


def _claim(value: object) -> str:
    if not isinstance(value, str) or not value.isprintable() or not value:
        raise EntryError("a text that is not empty")
    return value


def _issuer(value: object) -> str:
    if not isinstance(value, str) or not is_safe_url(value):
        raise EntryError("the issuer's https URL, as its tokens have it in `iss`")
    return value


def _quota_tenant(value: object) -> str:
    return EACH_OTHER_TENANT if value == EACH_OTHER_TENANT else tenant_name(value)


def _limit(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise EntryError("a whole number above 0; leave the key out for no limit")
    return value


_LIMITS: dict[str, Callable[[Any], object]] = {field.name: _limit for field in fields(Quota)}
_GRANT: dict[str, Callable[[Any], object]] = {
    "name": token_name,
    "tenant": tenant_name,
    "scopes": _scopes,
}
_KEYS: dict[str, dict[str, Callable[[Any], object]]] = {
    "token": {**_GRANT, "sha256": _sha256, "expires": time_of},
    "certificate": {**_GRANT, "subject": _subject},
    "issuer": {
        "url": _issuer,
        "audience": _claim,
        "tenant": tenant_name,
        "tenant_claim": _claim,
        "scopes": _scopes,
        "scope_claim": _claim,
    },
    "quota": {"tenant": _quota_tenant, **_LIMITS},
}
_OPTIONAL: dict[str, Collection[str]] = {
    "token": {"expires"},
    "certificate": (),
    "issuer": {"tenant", "tenant_claim", "scopes", "scope_claim"},
    "quota": set(_LIMITS),
}
