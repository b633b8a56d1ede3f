"""The command `tuskpoint-server token`: creates a token, and its entry for the token file."""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from ..auth.tokens import EntryError, parse_tokens, scope_of, tenant_name, time_of, token_name
from ..config.command_line import OneLineParser
from ..core.credentials import (
    DEFAULT_TENANT,
    TOKEN_PREFIX,
    Grant,
    Scope,
    token_digest,
)
from ..core.process import EXIT_DIRECTORY, StartError

TOKEN_BYTES = 32

_DAYS = re.compile(r"([1-9][0-9]{0,4})d")


def main(arguments: Sequence[str], version: str) -> int:
    """Create a token and print it once, to stdout only. Return the exit code."""
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
    """Return the grant of the new token, and the file for its entry, if given."""
    parser = OneLineParser(
        prog="tuskpoint-server token",
        description="Make a token. It is printed once; the entry for the file that --tokens "
        "names holds only its SHA-256.",
        epilog="A running server reads a changed file again within a few seconds. To "
        "revoke a token, remove its entry.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--name", type=token_name, required=True, help="Its name in logs; no secret."
    )
    parser.add_argument(
        "--tenant",
        type=tenant_name,
        default=DEFAULT_TENANT,
        help="Whose data its calls are about. Default: %(default)s.",
    )
    parser.add_argument(
        "--scope",
        type=scope_of,
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
    flags = parser.parse_args(arguments)
    return Grant(flags.name, flags.tenant, frozenset(flags.scope), flags.expires), flags.append


def _expiry(text: str, now: datetime) -> datetime:
    days = _DAYS.fullmatch(text)
    try:
        expires = now + timedelta(days=int(days[1])) if days else datetime.fromisoformat(text)
        expires = time_of(expires).astimezone(UTC)  # in the form of the entry
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

    The owner of the file stays the same, and only the owner can read it.
    """
    path = Path(os.path.realpath(path))  # a link stays a link
    try:
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(directory, fcntl.LOCK_EX)  # so that concurrent commands lose no entry
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
    exists = path.exists()
    old_content = path.read_bytes() if exists else b""
    content = (old_content.rstrip() + b"\n\n" if old_content.strip() else b"") + entry.encode()
    parse_tokens(content, f"--append {path}")
    # From the first instant only the owner can read the file.
    descriptor, part = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            if exists:
                owner = path.stat()
                if (owner.st_uid, owner.st_gid) != (os.geteuid(), os.getegid()):
                    os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(part)
        raise
