"""A journal that is filled beside its place and moved there once it is whole."""

from __future__ import annotations

import os
from pathlib import Path

from ...domain.failpoints import failpoint
from ..database import sqlite

SUFFIX = ".recovering"
_LOGS = ("-wal", "-shm")


def beside(path: Path) -> Path:
    """Return where the journal of a path is filled."""
    return path.with_name(path.name + SUFFIX)


def remains(path: Path) -> list[Path]:
    """Return the files of a journal that are there, its logs among them."""
    return [file for file in _files(path) if os.path.lexists(file)]


def remove(path: Path) -> None:
    """Remove a journal that is not open, if it is there.

    Raises:
        OSError: It cannot be removed.
    """
    for file in _files(path):
        file.unlink(missing_ok=True)


def publish(path: Path) -> None:
    """Move the journal that was filled beside a path to it; durable on return.

    The journal must be closed. Nothing may be at the path, no log either: SQLite would
    replay it on the new file.

    Raises:
        RuntimeError: Its log cannot be brought into it.
        FileExistsError: There is a journal at the path.
        OSError: The disk fails.
    """
    filled = beside(path)
    _settle(filled)
    _sync(filled)
    there = remains(path)
    if there:
        raise FileExistsError(f"{there[0]} is there already")
    failpoint("journal.before_publish")
    filled.rename(path)
    failpoint("journal.after_publish")
    remove(filled)  # logs that held nothing
    _sync(path.parent)


def _settle(path: Path) -> None:
    """Bring the log into the database file, so that the file alone is the journal."""
    engine = sqlite.make_engine(path)
    try:
        with engine.connect() as connection:
            cursor = connection.connection.cursor()
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            row = cursor.fetchone()
            cursor.close()
    finally:
        engine.dispose()
    if row is None or row[0] != 0 or sqlite.log_bytes(path):
        raise RuntimeError(f"the log of {path} cannot be brought into it")


def _files(path: Path) -> list[Path]:
    return [path, *(path.with_name(path.name + log) for log in _LOGS)]


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
