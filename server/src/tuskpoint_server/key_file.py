"""`tuskpoint-server keys`: makes a file of keys, and adds a key to one.

The file is replaced as a whole, readable by its owner only, so a crash leaves the old or the new.
"""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Sequence
from pathlib import Path

from .config import OneLineParser
from .keys.local import KEY_BYTES, key_id, parse_keys
from .process import EXIT_DIRECTORY, ConfigError, StartError, sync


def main(arguments: Sequence[str]) -> int:
    """Make or extend a file, as the arguments after `keys` say; return the exit code."""
    parser = OneLineParser(
        prog="tuskpoint-server keys",
        description="Keys that seal what a server stores, for --key-file, or sign its hand-offs, "
        "for --signing-key.",
        epilog="Keep a copy of the file in another place: without it nothing that is sealed can "
        "be read. A running server uses a new key within its next flush.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text in (
        ("create", "make a file with one key; the file must not be there yet"),
        ("rotate", "put a new key first; the others stay and open what they sealed"),
    ):
        commands.add_parser(name, help=text, description=text).add_argument("file", type=Path)
    order = parser.parse_args(arguments)
    path: Path = order.file.resolve()  # what a link leads to
    try:
        key = make(path) if order.command == "create" else _rotate(path)
    except FileExistsError:
        raise ConfigError(f"{path} is there already; `keys rotate` adds a key to it") from None
    except OSError as error:
        problem = f"{path} cannot be written: {error.strerror or error}"
        raise StartError(EXIT_DIRECTORY, problem) from None
    except ValueError as error:  # text that is no text, too
        raise ConfigError(f"{path} is no key file: {error}") from None
    print(f"key {key.hex()} is the first in {path}")  # noqa: T201 - the answer
    return 0


def make(path: Path) -> bytes:
    """Make a file with one key; return the key's name. Raises `OSError`, also if it is there."""
    name, line = _new_key()
    part = _written(path, line)
    try:
        os.link(part, path)
    finally:
        part.unlink()
    sync(path.parent)
    return name


def _rotate(path: Path) -> bytes:
    name, line = _new_key()
    before = path.read_text(encoding="ascii")
    parse_keys(before)
    _written(path, line + before).replace(path)
    sync(path.parent)
    return name


def _new_key() -> tuple[bytes, str]:
    """Return the name of a new key, and its line."""
    key = os.urandom(KEY_BYTES)
    name = key_id(key)
    return name, f"{base64.b64encode(key).decode()} # {name.hex()}, {_today()}\n"


def _written(path: Path, text: str) -> Path:
    """Write a new file beside a path, durably and for its owner only; return it."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    return part


def _today() -> str:
    return time.strftime("%Y-%m-%d", time.gmtime())
