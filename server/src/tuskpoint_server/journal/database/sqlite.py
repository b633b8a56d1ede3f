"""What the journal knows of SQLite: connections, settings, transactions, failures.

Durability rests on write-ahead logging with `synchronous=FULL`: a commit returns after
the log is fsynced (https://www.sqlite.org/pragma.html#pragma_synchronous).
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import ConnectionPoolEntry, NullPool

BUSY_TIMEOUT_S = 5.0
LONG_LOG_BYTES = 64 * 1024 * 1024
_RESTART_TIMEOUT_S = 1.0
_FULL = 2  # value of `PRAGMA synchronous`
_BEGIN = "tuskpoint_begin"
_PRAGMAS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA fullfsync = ON",  # macOS: flush the drive too; nothing elsewhere
    "PRAGMA wal_autocheckpoint = 4000",
    "PRAGMA journal_size_limit = 67108864",
    "PRAGMA temp_store = MEMORY",
    "PRAGMA cache_size = -32768",
)


def make_engine(path: Path) -> Engine:
    """Return an engine for a database file; each `connect` opens a connection of its own.

    Transactions begin explicitly: with plain `BEGIN`, or with `BEGIN IMMEDIATE` on a
    connection from `connect_writer`.
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
    event.listen(engine, "begin", _begin)
    return engine


def connect_writer(engine: Engine) -> Connection:
    """Open a connection whose transactions take the write lock when they begin."""
    return engine.connect().execution_options(**{_BEGIN: "BEGIN IMMEDIATE"})


def check_durability(connection: Connection) -> None:
    """Check that commits are fsynced.

    Raises:
        RuntimeError: The file system or the build of SQLite does not take the settings.
    """
    mode = connection.exec_driver_sql("PRAGMA journal_mode").scalar_one()
    synchronous = connection.exec_driver_sql("PRAGMA synchronous").scalar_one()
    if mode != "wal" or synchronous < _FULL:
        raise RuntimeError(
            f"SQLite runs with journal_mode={mode} and synchronous={synchronous}; "
            "the journal needs wal and FULL (2): put the data directory on a local file system"
        )


def in_transaction(connection: Connection) -> bool:
    """Tell whether a transaction is open; some errors end it behind the caller's back."""
    driver = connection.connection.driver_connection
    return isinstance(driver, sqlite3.Connection) and driver.in_transaction


def roll_back(connection: Connection) -> None:
    """Undo the open transaction, if there is one, and release its lock.

    Raises:
        sqlite3.Error: The database cannot do it.
    """
    driver = connection.connection.driver_connection
    if isinstance(driver, sqlite3.Connection):
        driver.rollback()


def size_bytes(connection: Connection, path: Path) -> int:
    """Return the bytes of the database and of its log."""
    return _pragma(connection, "page_count") * _pragma(connection, "page_size") + log_bytes(path)


def used_bytes(connection: Connection) -> int:
    """Return the bytes of the pages that are in use; the free ones are used again."""
    used = _pragma(connection, "page_count") - _pragma(connection, "freelist_count")
    return used * _pragma(connection, "page_size")


def _pragma(connection: Connection, name: str) -> int:
    return int(connection.exec_driver_sql(f"PRAGMA {name}").scalar_one())


def log_bytes(path: Path) -> int:
    """Return the bytes of a database's log."""
    try:
        return path.with_name(path.name + "-wal").stat().st_size
    except FileNotFoundError:
        return 0


def restart_log(connection: Connection) -> bool:
    """Bring the log into the database, so that the next commit begins it anew.

    SQLite does so by itself only at a moment at which nobody reads the log; under steady
    reads that never comes, and the log grows without bound
    (https://www.sqlite.org/wal.html#avoiding_excessively_large_wal_files). This waits for
    the reads under way, a second at most; those that begin meanwhile do not count.

    Returns:
        Whether it was done.
    """
    cursor = connection.connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {int(_RESTART_TIMEOUT_S * 1000)}")
    try:
        cursor.execute("PRAGMA wal_checkpoint(RESTART)")
        row = cursor.fetchone()
    finally:
        cursor.execute(f"PRAGMA busy_timeout = {int(BUSY_TIMEOUT_S * 1000)}")
        cursor.close()
    return row is not None and row[0] == 0


def storage_problem(error: BaseException) -> str | None:
    """Say what keeps the database from working, or `None` if the error is a defect.

    A full disk, a failed read or write, a lock that is held, a damaged file: those are
    the database's. A statement that is wrong, or a broken constraint, is ours.
    """
    cause = error.orig if isinstance(error, DBAPIError) else error
    if not isinstance(cause, sqlite3.DatabaseError):
        return None
    code = getattr(cause, "sqlite_errorcode", None)
    if code is None or code & 0xFF in _DEFECTS:
        return None
    return f"{cause.sqlite_errorname}: {cause}"


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


def _set_pragmas(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
    cursor = connection.cursor()
    for pragma in _PRAGMAS:
        cursor.execute(pragma)
    cursor.close()


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get(_BEGIN, "BEGIN"))
