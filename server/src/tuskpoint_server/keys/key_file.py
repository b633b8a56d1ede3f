"""Key files: creates them, and adds and removes keys.

A file is replaced as a whole, readable by its owner only, so a crash leaves the old or the new
file.
"""

from __future__ import annotations

import base64
import os
import time
from pathlib import Path

from ..core.process import sync
from .identities import new_identity, parse_identities
from .local import KEY_BYTES, key_id, parse_keys


def make(path: Path) -> bytes:
    """Create a file with one key; return the key's name. Raises `OSError`, also if it exists."""
    name, line = _new_key()
    part = _write_beside(path, line)
    try:
        os.link(part, path)
    finally:
        part.unlink()
    sync(path.parent)
    return name


def rotate(path: Path) -> bytes:
    """Put a new key first in the file; return its name. Raises `OSError` or `ValueError`."""
    name, line = _new_key()
    old_lines = read(path)
    _write_beside(path, line + old_lines).replace(path)
    sync(path.parent)
    return name


def drop(path: Path) -> None:
    """Remove every key except the first. Raises `OSError` or `ValueError`."""
    first, *_ = parse_keys(read(path))
    _write_beside(path, f"{base64.b64encode(first).decode()} # {key_id(first).hex()}\n").replace(
        path
    )
    sync(path.parent)


def add_identity(path: Path) -> str:
    """Put a new identity first in a file, and create a missing file; return its public key.

    Raises `OSError`, `ValueError`, or `ImportError` if the package `pyrage` is missing.
    """
    secret, public = new_identity()
    lines = f"# created: {_today()}\n# public key: {public}\n{secret}\n"
    if path.exists():
        old_lines = path.read_text(encoding="ascii")
        parse_identities(old_lines)
        lines += old_lines
    _write_beside(path, lines).replace(path)
    sync(path.parent)
    return public


def read(path: Path) -> str:
    """Return the text of a key file. Raises `OSError` or `ValueError`."""
    text = path.read_text(encoding="ascii")
    parse_keys(text)
    return text


def _new_key() -> tuple[bytes, str]:
    """Return the name of a new key, and its line in a key file."""
    key = os.urandom(KEY_BYTES)
    name = key_id(key)
    return name, f"{base64.b64encode(key).decode()} # {name.hex()}, {_today()}\n"


def _write_beside(path: Path, text: str) -> Path:
    """Write a new file beside a path, durably and for its owner only; return the new path."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    return part


def _today() -> str:
    return time.strftime("%Y-%m-%d", time.gmtime())
