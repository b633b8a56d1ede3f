"""Checks of the SQLite files that a killed server leaves."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

SQLITE_HEADER = b"SQLite format 3\0"


def broken_databases(data_dir: Path) -> list[str]:
    """Return the errors that SQLite finds in a copy of the files that a killed server left.

    A copy, because opening the files themselves would do part of the next server's recovery.
    """
    problems = []
    for path in sorted(data_dir.rglob("*")):
        if not path.is_file() or not is_database(path):
            continue
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / path.name
            shutil.copy(path, copy)
            log = path.with_name(path.name + "-wal")
            if log.exists():
                shutil.copy(log, copy.with_name(log.name))
            with closing(sqlite3.connect(copy)) as database:
                report = [row[0] for row in database.execute("PRAGMA integrity_check")]
        if report != ["ok"]:
            problems.append(f"{path.name}: {report}")
    return problems


def is_database(path: Path) -> bool:
    """Return whether a file is a SQLite database."""
    with path.open("rb") as file:
        return file.read(len(SQLITE_HEADER)) == SQLITE_HEADER
