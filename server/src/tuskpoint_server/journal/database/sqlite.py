"""What the journal knows of SQLite: connections, settings, transactions, failures.

Durability rests on write-ahead logging with `synchronous=FULL`: a commit returns after
the log is fsynced (https://www.sqlite.org/pragma.html#pragma_synchronous).
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import ConnectionPoolEntry, NullPool

BUSY_TIMEOUT_S = 5.0
LONG_LOG_BYTES = 64 * 1024 * 1024
_RESTART_TIMEOUT_S = 1.0
_FULL = 2  # value of `PRAGMA synchronous`
_PRAGMAS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA fullfsync = ON",  # macOS: flush the drive too; nothing elsewhere
    "PRAGMA wal_autocheckpoint = 4000",
    "PRAGMA journal_size_limit = 67108864",
    "PRAGMA temp_store = MEMORY",
    "PRAGMA cache_size = -32768",
)
_DEFECTS = frozenset(
    {
        sqlite3.SQLITE_ERROR,
        sqlite3.SQLITE_CONSTRAINT,
        sqlite3.SQLITE_MISMATCH,
        sqlite3.SQLITE_MISUSE,
        sqlite3.SQLITE_RANGE,
        sqlite3.SQLITE_TOOBIG,
    }
)


def make_engine(path: Path) -> Engine:
    """Return an engine for a database file; each `connect` opens a connection of its own.

    Nothing begins a transaction but `begin`.
    """
    engine = create_engine(
        f"sqlite:///{path}",
        poolclass=NullPool,
        connect_args={
            "check_same_thread": False,  # closed by another thread than the one that used it
            "isolation_level": None,  # the driver begins nothing by itself
            "timeout": BUSY_TIMEOUT_S,
            "cached_statements": 256,
        },
    )
    event.listen(engine, "connect", _set_pragmas)
    return engine


def _set_pragmas(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
    cursor = connection.cursor()
    for pragma in _PRAGMAS:
        cursor.execute(pragma)
    cursor.close()


def driver_of(connection: Connection) -> sqlite3.Connection:
    """Return the driver's connection."""
    return cast(sqlite3.Connection, connection.connection.driver_connection)


def begin(connection: Connection, *, writes: bool = False) -> None:
    """Begin a transaction; one that writes takes the lock at once."""
    driver_of(connection).execute("BEGIN IMMEDIATE" if writes else "BEGIN")


def commit(connection: Connection) -> None:
    """Commit the open transaction; durable on return."""
    driver_of(connection).commit()


@contextmanager
def transaction(connection: Connection, *, writes: bool = False) -> Iterator[None]:
    """Run the context in a transaction, which an error undoes."""
    begin(connection, writes=writes)
    try:
        yield
    except BaseException:
        driver_of(connection).rollback()
        raise
    commit(connection)


def check_durability(connection: Connection) -> None:
    """Check that commits are fsynced.

    Raises:
        RuntimeError: The file system or the build of SQLite does not take the settings.
    """
    mode, synchronous = _pragma(connection, "journal_mode"), _pragma(connection, "synchronous")
    if mode != "wal" or int(synchronous) < _FULL:
        raise RuntimeError(
            f"SQLite runs with journal_mode={mode} and synchronous={synchronous}; "
            "the journal needs wal and FULL (2): put the data directory on a local file system"
        )


def size_bytes(connection: Connection, path: Path) -> int:
    """Return the bytes of the database and of its log."""
    pages, size = _pragma(connection, "page_count"), _pragma(connection, "page_size")
    return int(pages) * int(size) + log_bytes(path)


def used_bytes(connection: Connection) -> int:
    """Return the bytes of the pages that are in use; the free ones are used again."""
    pages, free = _pragma(connection, "page_count"), _pragma(connection, "freelist_count")
    return (int(pages) - int(free)) * int(_pragma(connection, "page_size"))


def _pragma(connection: Connection, name: str) -> str | int:
    value: str | int = driver_of(connection).execute(f"PRAGMA {name}").fetchone()[0]
    return value


def log_bytes(path: Path) -> int:
    """Return the bytes of a database's log."""
    try:
        return os.stat(f"{path}-wal").st_size
    except FileNotFoundError:
        return 0


def restart_log(connection: Connection) -> bool:
    """Bring the log into the database, so that the next commit begins it anew, if that can be.

    SQLite does so by itself only at a moment at which nobody reads the log; under steady
    reads that never comes, and the log grows without bound
    (https://www.sqlite.org/wal.html#avoiding_excessively_large_wal_files). This waits for
    the reads under way, a second at most; those that begin meanwhile do not count.
    """
    driver = driver_of(connection)
    driver.execute(f"PRAGMA busy_timeout = {int(_RESTART_TIMEOUT_S * 1000)}")
    try:
        row = driver.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
    finally:
        driver.execute(f"PRAGMA busy_timeout = {int(BUSY_TIMEOUT_S * 1000)}")
    return row is not None and row[0] == 0


def storage_problem(error: BaseException) -> str | None:
    """Say what keeps the database from working, or `None` if the error is a defect.

    A full disk, a failed read or write, a lock that is held, a damaged file: those are
    the database's. A statement that is wrong, or a broken constraint, is ours.
    """
    cause = error.orig if isinstance(error, DBAPIError) else error
    code = getattr(cause, "sqlite_errorcode", None)
    if not isinstance(cause, sqlite3.DatabaseError) or code is None or code & 0xFF in _DEFECTS:
        return None
    return f"{cause.sqlite_errorname}: {cause}"
