"""The token file, which grants callers a tenant and scopes and has quotas, and the command `token`.

docs/security.md describes the file.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import re
import secrets
import tempfile
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ..config.command_line import OneLineParser
from ..core.credentials import (
    DEFAULT_TENANT,
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
    token_digest,
)
from ..core.process import EXIT_DIRECTORY, ConfigError, StartError, read_bytes

TOKEN_BYTES = 32
MAX_NAME_LENGTH = 64

EntryT = TypeVar("EntryT", Grant, Issuer, Quota)

_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_DAYS = re.compile(r"([1-9][0-9]{0,4})d")


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
                called += f" ('{_name(table.get('name'))}')"
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


def _name(value: object) -> str:
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


def _scope(value: Any) -> Scope:
    if value not in list(Scope):
        raise EntryError(f"{_quoted(value)} is no scope; scopes are {', '.join(Scope)}")
    return Scope(value)


def _scopes(value: object) -> frozenset[Scope]:
    if not isinstance(value, list) or not value:
        raise EntryError(f"a list of at least one of {', '.join(Scope)}")
    return frozenset(map(_scope, value))


def _time(value: object) -> datetime:
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
    "name": _name,
    "tenant": tenant_name,
    "scopes": _scopes,
}
_KEYS: dict[str, dict[str, Callable[[Any], object]]] = {
    "token": {**_GRANT, "sha256": _sha256, "expires": _time},
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


def main(arguments: Sequence[str]) -> int:
    """Make a token; it goes to stdout and nowhere else, once. Return the exit code."""
    grant, file = parse(arguments, now=datetime.now(UTC))
    token, entry = new_token(grant)
    if file is not None:
        append(file, entry)
    print(token if file is not None else f"{token}\n\n{entry.rstrip()}")  # noqa: T201 - its purpose
    return 0


def new_token(grant: Grant) -> tuple[str, str]:
    """Return a new random token, and its entry for the token file, which holds its SHA-256."""
    token = TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)
    lines = [
        "[[token]]",
        f"name = {json.dumps(grant.name, ensure_ascii=False)}",
        f'sha256 = "{token_digest(token).hex()}"',
        f'tenant = "{grant.tenant}"',
        f"scopes = {json.dumps([scope for scope in Scope if scope in grant.scopes])}",
    ]
    if grant.expires is not None:
        lines.append(f"expires = {grant.expires.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}")
    return token, "\n".join(lines) + "\n"


def parse(arguments: Sequence[str], *, now: datetime) -> tuple[Grant, Path | None]:
    """Return the grant of the token to make, and the file for its entry, if one is given."""
    parser = OneLineParser(
        prog="tuskpoint-server token",
        description="Make a token. It is printed once; the entry for the file that --tokens "
        "names holds only its SHA-256.",
        epilog="A running server reads a changed file again within a few seconds. To "
        "revoke a token, remove its entry.",
        allow_abbrev=False,
    )
    parser.add_argument("--name", type=_name, required=True, help="Its name in logs; no secret.")
    parser.add_argument(
        "--tenant",
        type=tenant_name,
        default=DEFAULT_TENANT,
        help="Whose data its calls are about. Default: %(default)s.",
    )
    parser.add_argument(
        "--scope",
        type=_scope,
        required=True,
        action="append",
        metavar="SCOPE",
        help=f"What it allows: {', '.join(Scope)}; may be given more than once.",
    )
    parser.add_argument(
        "--expires",
        type=partial(_expiry, now=now),
        metavar="WHEN",
        help="Its expiry: days from now, such as 90d, or a time with an offset, such as "
        "2027-01-01T00:00:00Z. Default: never.",
    )
    parser.add_argument(
        "--append",
        type=Path,
        metavar="FILE",
        help="Add the entry to this token file, or make it, and print the token alone.",
    )
    given = parser.parse_args(arguments)
    return Grant(given.name, given.tenant, frozenset(given.scope), given.expires), given.append


def _expiry(text: str, now: datetime) -> datetime:
    days = _DAYS.fullmatch(text)
    try:
        expires = now + timedelta(days=int(days[1])) if days else datetime.fromisoformat(text)
        expires = _time(expires).astimezone(UTC)  # as the entry has it
    except (ValueError, OverflowError, EntryError):
        raise EntryError(
            f"days from now, such as 90d, or a time with an offset, such as "
            f"2027-01-01T00:00:00Z, not '{text}'"
        ) from None
    if expires <= now:
        raise EntryError(f"{text} is in the past")
    return expires


def append(path: Path, entry: str) -> None:
    """Add an entry to a token file, or make the file; readers see the old or the new content.

    Its owner stays the same, and nobody else can read it afterwards.
    """
    path = Path(os.path.realpath(path))  # a link stays one
    try:
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(directory, fcntl.LOCK_EX)  # of two that append, neither is lost
            _replace(path, entry)
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        raise StartError(
            EXIT_DIRECTORY,
            f"--append {path} cannot be written: {error.strerror or error}; nothing is changed",
        ) from None


def _replace(path: Path, entry: str) -> None:
    there = path.exists()
    before = path.read_bytes() if there else b""
    content = (before.rstrip() + b"\n\n" if before.strip() else b"") + entry.encode()
    parse_tokens(content, f"--append {path}")
    # Readable by its owner alone from the first instant on.
    descriptor, part = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            if there:
                owner = path.stat()
                if (owner.st_uid, owner.st_gid) != (os.geteuid(), os.getegid()):
                    os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(part)
        raise
