"""`tuskpoint-server token`: make a token, and the entry that lets the server know it.

The token goes to stdout and nowhere else, once; the entry holds only its SHA-256.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import re
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

from .config import ConfigError
from .domain.credentials import DEFAULT_TENANT, Grant, Scope
from .exits import EXIT_DIRECTORY, StartError
from .flags import OneLineParser
from .reloading import UnusableFileError
from .tokens import EntryError, check_name, check_scopes, check_tenant, new_token, parse_tokens

T = TypeVar("T")

_DAYS = re.compile(r"([1-9][0-9]{0,4})d")


@dataclass(frozen=True, slots=True)
class Order:
    """What is asked for: a token that stands for this, and where its entry goes, if anywhere."""

    grant: Grant
    file: Path | None


def main(arguments: Sequence[str]) -> int:
    """Make a token and return the exit code.

    Args:
        arguments: The arguments behind `token`.

    Raises:
        ConfigError: An argument cannot be used, or the file is no token file.
        StartError: The file cannot be written.
    """
    order = parse(arguments, now=datetime.now(UTC))
    token, made = new_token(order.grant)
    if order.file is None:
        print(f"{token}\n\n{made.entry()}", end="")  # noqa: T201 - what it is for
        return 0
    append(order.file, made.entry())
    print(token)  # noqa: T201 - what it is for
    return 0


def parse(arguments: Sequence[str], *, now: datetime) -> Order:
    """Return what the arguments behind `token` ask for.

    Raises:
        ConfigError: They cannot be used.
    """
    given = _parser().parse_args(arguments)
    try:
        expires = None if given.expires is None else _expiry(given.expires, now)
        grant = Grant(
            _checked("--name", check_name, given.name),
            _checked("--tenant", check_tenant, given.tenant),
            _checked("--scope", check_scopes, given.scope),
            expires,
        )
    except EntryError as error:
        raise ConfigError(str(error)) from None
    return Order(grant, given.append)


def append(path: Path, entry: str) -> None:
    """Add an entry to a token file, or make one; readers see the old or the new content.

    The file is then readable by its owner alone, who stays the same.

    Raises:
        ConfigError: It is no token file, or would not be one with the entry.
        StartError: It cannot be written; the old content stays.
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
    gap = b"" if not before.strip() else b"\n" if before.endswith(b"\n") else b"\n\n"
    content = before + gap + entry.encode()
    try:
        parse_tokens(content, f"--append {path}")
    except UnusableFileError as error:
        raise ConfigError(str(error)) from None
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


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="tuskpoint-server token",
        description="Make a token. It is printed once; the entry for the file that --tokens "
        "names holds only its SHA-256.",
        epilog="A running server takes up a changed file by itself, within a few seconds. To "
        "revoke a token, remove its entry.",
        allow_abbrev=False,
    )
    parser.add_argument("--name", required=True, help="What logs call it; no secret.")
    parser.add_argument(
        "--tenant",
        default=DEFAULT_TENANT,
        help="Whose data its calls are about. Default: %(default)s.",
    )
    parser.add_argument(
        "--scope",
        required=True,
        action="append",
        metavar="SCOPE",
        help=f"What it allows: {', '.join(Scope)}; may be given more than once.",
    )
    parser.add_argument(
        "--expires",
        metavar="WHEN",
        help="When it ends: days from now, such as 90d, or a time with an offset, such as "
        "2027-01-01T00:00:00Z. Default: never.",
    )
    parser.add_argument(
        "--append",
        type=Path,
        metavar="FILE",
        help="Add the entry to this token file, or make it, and print the token alone.",
    )
    return parser


def _checked(flag: str, check: Callable[[object], T], value: object) -> T:
    try:
        return check(value)
    except EntryError as error:
        raise EntryError(f"{flag}: {error}") from None


def _expiry(text: str, now: datetime) -> datetime:
    """Return the time that `--expires` means."""
    days = _DAYS.fullmatch(text)
    try:
        expires = now + timedelta(days=int(days[1])) if days else datetime.fromisoformat(text)
        if expires.tzinfo is None:
            raise ValueError("a time without an offset")
        expires = expires.astimezone(UTC)  # as the entry has it
    except (ValueError, OverflowError):
        raise EntryError(
            f"--expires: days from now, such as 90d, or a time with an offset, such as "
            f"2027-01-01T00:00:00Z, not '{text}'"
        ) from None
    if expires <= now:
        raise EntryError(f"--expires: {text} is past")
    return expires
