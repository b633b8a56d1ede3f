"""SQLite as a backend: connections, settings, transactions, failures.

Durability relies on write-ahead logging with `synchronous=FULL`: a commit returns after the log is
fsynced (https://www.sqlite.org/pragma.html#pragma_synchronous).
"""

from __future__ import annotations

import itertools
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import ConnectionPoolEntry, NullPool

from .backend import Backend
from .files import JournalLostError, OpenFiles, Reserve
from .statements import driver_of

BUSY_TIMEOUT_S = 5.0
OVERWRITES = 1
"""`PRAGMA user_version` of a file in which all removed content is overwritten.

0: an earlier build created the file, and may not have set `secure_delete`.
"""
LONG_LOG_BYTES = 64 * 1024 * 1024
_RESTART_TIMEOUT_S = 1.0
_FULL = 2  # value of `PRAGMA synchronous`
_PRAGMAS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA fullfsync = ON",  # macOS: flush the drive too; no effect elsewhere
    "PRAGMA wal_autocheckpoint = 4000",
    "PRAGMA journal_size_limit = 67108864",
    "PRAGMA temp_store = MEMORY",
    "PRAGMA cache_size = -32768",
    "PRAGMA secure_delete = ON",  # deleted or moved content leaves zeros, and no copy
)
_GREATEST = "SELECT max(coalesce(max(number), 0), coalesce(max(family), 0)) FROM threads"
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


class Sqlite(Backend):
    """A database file. A write transaction takes the lock at its start.

    Args:
        path: The file.
        engine: Opens the file; simulations pass another engine than `make_engine` returns.
    """

    name = "sqlite"
    is_local = True
    is_shared = False  # a lock in the data directory keeps other servers away
    # One more than a long read occupies; further threads would only contend for the
    # interpreter's lock.
    reader_threads = 2
    _begin_read = "BEGIN"
    _begin_write = "BEGIN IMMEDIATE"

    def __init__(self, path: Path, engine: Engine | None = None) -> None:
        self._path = path
        self._log_limit, self._restart = LONG_LOG_BYTES, "RESTART"
        self.engine = engine or make_engine(path)
        self._files = OpenFiles(path, self.engine) if engine is None else None
        self._reserve = Reserve(path)

    def in_transaction(self, connection: Connection) -> bool:
        """Return whether a transaction is open; some errors end it."""
        return bool(driver_of(connection).in_transaction)

    def check(self, connection: Connection) -> None:
        """Check that commits are fsynced.

        Raises:
            RuntimeError: The file system or the build of SQLite does not accept the settings.
        """
        mode, synchronous = _pragma(connection, "journal_mode"), _pragma(connection, "synchronous")
        if mode != "wal" or int(synchronous) < _FULL:
            raise RuntimeError(
                f"SQLite runs with journal_mode={mode} and synchronous={synchronous}; "
                "the journal needs wal and FULL (2): put the data directory on a local file system"
            )

    def check_files(self) -> None:
        """Check that the files at their paths are the files that get the commits.

        Raises:
            JournalLostError: A file was removed or replaced.
        """
        if self._files is not None:
            self._files.check()

    def problem(self) -> str:
        """Return the removed or replaced file with advice; empty if no file was lost."""
        return "" if self._files is None else self._files.lost()

    def make_room(self) -> bool:
        """Free the reserved space beside the file; return whether any was reserved."""
        return self._reserve.use()

    def keep_room(self) -> None:
        """Reserve space for a start on a full disk."""
        self._reserve.keep()

    def numbers(self, connection: Connection) -> Iterator[int]:
        """Return the numbers above all numbers of threads and families."""
        [[greatest]] = driver_of(connection).execute(_GREATEST).fetchall()
        return itertools.count(greatest + 1)

    def remove(self) -> None:
        """Remove the file and its logs."""
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self._path}{suffix}").unlink(missing_ok=True)

    def size_bytes(self, connection: Connection) -> int:
        """Return the size of the database and its log, in bytes."""
        pages, size = _pragma(connection, "page_count"), _pragma(connection, "page_size")
        return int(pages) * int(size) + log_bytes(self._path)

    def used_bytes(self, connection: Connection) -> int:
        """Return the bytes of the used pages; free pages are used again."""
        pages, free = _pragma(connection, "page_count"), _pragma(connection, "freelist_count")
        return (int(pages) - int(free)) * int(_pragma(connection, "page_size"))

    def storage_problem(self, error: BaseException) -> str | None:
        """Return the problem of the database, or `None` if the error is a defect of the server."""
        if isinstance(error, JournalLostError):
            return str(error)
        cause = error.orig if isinstance(error, DBAPIError) else error
        code = getattr(cause, "sqlite_errorcode", None)
        if not isinstance(cause, sqlite3.DatabaseError) or code is None or code & 0xFF in _DEFECTS:
            return None
        return f"{cause.sqlite_errorname}: {cause}"

    def scrub(self) -> bool:
        """Empty the log, which still has deleted bytes; `False`: long reads kept it in use."""
        with self.engine.connect() as connection:
            emptied = restart_log(connection, "TRUNCATE")
        # In that case `tidy` empties the log as soon as it can.
        self._restart, self._log_limit = ("RESTART", LONG_LOG_BYTES) if emptied else ("TRUNCATE", 0)
        return emptied

    def may_keep_removed(self, connection: Connection) -> bool:
        """Return whether free space of the file may have content that older builds removed."""
        return int(_pragma(connection, "user_version")) < OVERWRITES

    def definitions(self) -> tuple[str, ...]:
        """Return the statements that create the tables, and mark the file as overwritten."""
        return (*super().definitions(), f"PRAGMA user_version = {OVERWRITES}")

    def tidy(self, connection: Connection) -> None:
        """Restart the log once it is long; if that fails, once its size has doubled."""
        size = log_bytes(self._path)
        if size > self._log_limit:
            self._log_limit = 2 * size
            if restart_log(connection, self._restart):
                self._restart, self._log_limit = "RESTART", LONG_LOG_BYTES


def make_engine(path: Path) -> Engine:
    """Return an engine for a database file."""
    engine = create_engine(
        f"sqlite:///{path}",
        poolclass=NullPool,
        connect_args={
            "check_same_thread": False,  # another thread than the user of the connection closes it
            "isolation_level": None,  # the driver begins no transaction by itself
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


def _pragma(connection: Connection, name: str) -> str | int:
    value: str | int = driver_of(connection).execute(f"PRAGMA {name}").fetchone()[0]
    return value


def log_bytes(path: Path) -> int:
    """Return the size of a database's log, in bytes."""
    try:
        return os.stat(f"{path}-wal").st_size
    except FileNotFoundError:
        return 0


def restart_log(connection: Connection, mode: str = "RESTART") -> bool:
    """Copy the log into the database, so that the next commit restarts the log, if possible.

    With mode `TRUNCATE` the log's file is then empty.

    SQLite by itself restarts the log only at a moment without readers of the log; under steady
    reads there is no such moment, and the log grows without bound
    (https://www.sqlite.org/wal.html#avoiding_excessively_large_wal_files). This function waits for
    the current reads, a second at most; reads that start meanwhile do not count.
    """
    driver = driver_of(connection)
    driver.execute(f"PRAGMA busy_timeout = {int(_RESTART_TIMEOUT_S * 1000)}")
    try:
        row = driver.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
    finally:
        driver.execute(f"PRAGMA busy_timeout = {int(BUSY_TIMEOUT_S * 1000)}")
    return row is not None and row[0] == 0
