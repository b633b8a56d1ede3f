"""PostgreSQL as a backend: connections, transactions, the single server, failures.

A commit returns after the write-ahead log is flushed, whatever default `synchronous_commit` the
server has (https://www.postgresql.org/docs/current/wal-async-commit.html).
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Collection, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any, NamedTuple

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.types.numeric import NumericBinaryLoader
from sqlalchemy import Connection, create_engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import ConnectionPoolEntry, NullPool

from ...core.model import ThreadName
from .backend import Backend, OutcomeUnknownError
from .older_writers import OLDEST_WRITER, name_layout, refuse_before
from .pipelined import PipelinedConnection
from .pulse import PROBE_S, Pulse, patience
from .schema import NUMBERS, NUMBERS_AT_ONCE, changes, journal_info
from .sealing import PREFIX
from .statements import driver_of

_log = logging.getLogger(__name__)

OLDEST = 13
"""Oldest supported major version of PostgreSQL."""

_CONNECTING: dict[str, Any] = {
    "connect_timeout": PROBE_S,
    "application_name": "tuskpoint-server",
    # A thread must not wait long for a machine that is gone.
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "keepalives_count": 2,
    "tcp_user_timeout": 15_000,
}
_OWN_TIMEOUT_S = 5
# longest wait for a thread's lock; the other changes of the batch wait meanwhile
_LOCK_TIMEOUT_MS = 100
_OUTCOME_TIMEOUT_S = 11  # seconds from the commit on; a call must end within 15
_OUTCOME_PAUSE_S = 0.1
# First keys of the advisory locks; the second key is the hash of the schema.
_TABLES, _USE = 0x7475736B, 0x7475736C
# Besides `_USE`, a server takes a lock for each layout that it knows.
_LAYOUTS = {2: 0x7475736D, 3: 0x7475736E, 4: 0x7475736F}
_OWN_LAYOUT = max(_LAYOUTS)
_HAS_OLDER = (
    "SELECT count(*) FILTER (WHERE classid::bigint = $1)"
    " > count(*) FILTER (WHERE classid::bigint = $2) FROM pg_locks"
    " WHERE locktype = 'advisory' AND granted AND objsubid = 2"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND objid::bigint = hashtext(current_schema())::bigint & 4294967295"
)
# Every change writes a row of this table. Older rows are fixed later, and not checked here, because
# the check would block others.
_REFUSE_UNBOUND = (
    "ALTER TABLE {table} DROP CONSTRAINT IF EXISTS changes_bound,"
    " ADD CONSTRAINT changes_bound CHECK (mac IS NOT NULL) NOT VALID"
)
# A wait for this lock blocks all other users of the table, and a dump of the database takes hours.
# An autovacuum gives way, but only to a session that has waited longer than `deadlock_timeout` (1
# s).
_TABLE_TIMEOUT, _VACUUMED_TIMEOUT = "500ms", "2s"
_IS_VACUUMED = (
    "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE granted AND locktype = 'relation'"
    " AND relation = $1::text::regclass AND mode = 'ShareUpdateExclusiveLock'"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))"
)
_REFUSE_UNPLACED = (
    "ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {table}_sealed, ADD CONSTRAINT {table}_sealed"
    " CHECK ({column} IS NULL OR substring({column} FROM 1 FOR {size}) = '\\x{prefix}') NOT VALID"
)
# Classes of SQLSTATE that name a statement or a value, and so a defect of this server
# (https://www.postgresql.org/docs/current/errcodes-appendix.html).
_DEFECTS = frozenset({"0A", "21", "22", "23", "42"})
_CONFLICTS = (
    psycopg.errors.UniqueViolation,
    psycopg.errors.SerializationFailure,
    psycopg.errors.DeadlockDetected,
)
# Files keep the space that vacuum has freed, so their sizes do not show the used bytes. The added
# numbers estimate the other columns of a row and its indexes.
_USED = (
    "SELECT (SELECT coalesce(sum(octet_length(data) + 200), 0) FROM contents)"
    " + (SELECT coalesce(sum(octet_length(data) + 300), 0) FROM writes)"
    " + (SELECT coalesce(sum(octet_length(state) + octet_length(metadata) + 500), 0)"
    " FROM checkpoints)"
)
_RESET = "SELECT stats_reset::text FROM pg_stat_bgwriter"
_OUTCOME = f"SELECT pg_xact_status($1::xid8), ({_RESET})"
# Whether a transaction wrote rows of `changes` in one of these threads at this time.
_STORED = (
    "SELECT EXISTS (SELECT 1 FROM changes JOIN threads ON threads.number = changes.thread"
    " WHERE tenant = ANY($1) AND thread_id = ANY($2) AND changes.created_us = $3::bigint"
    " AND changes.xmin::text::bigint = $4::bigint)"
)
_SETTINGS = (
    # A server that was stopped in the middle of a transaction must not keep its locks for long.
    "SET idle_in_transaction_session_timeout = '10s'",
    "SET synchronous_commit = on",
    "SET client_min_messages = warning",
    "SET timezone = 'UTC'",
    name_layout(_OWN_LAYOUT),
    # A server whose machine is gone must not keep its lock for long.
    "SET tcp_keepalives_idle = 5",
    "SET tcp_keepalives_interval = 5",
    "SET tcp_keepalives_count = 2",
)


class Postgres(Backend):
    """A database of a PostgreSQL server.

    Args:
        url: A URL of libpq: `postgresql://user@host/database?sslmode=...`.
    """

    name = "postgresql"
    is_local = False
    is_shared = True
    reader_threads = 8  # each spends most of its time waiting for the network
    _begin_read = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
    # Each statement sees all earlier commits, also after a wait for a row's lock.
    _begin_write = "BEGIN ISOLATION LEVEL READ COMMITTED"

    def __init__(self, url: str) -> None:
        self._url = url
        self._pulse = Pulse(lambda: connect(url))
        self.engine = create_engine(
            "postgresql+psycopg://",
            creator=self._pulse.connect,
            poolclass=NullPool,
            isolation_level="AUTOCOMMIT",
            paramstyle="numeric_dollar",
            use_native_hstore=False,
        )
        event.listen(self.engine, "connect", _set_up)
        event.listen(self.engine, "engine_disposed", lambda _: self._pulse.stop())

    def begin(self, connection: Connection, *, writes: bool = False) -> None:
        """Begin a transaction; a write transaction reads its ID, to query its outcome."""
        super().begin(connection, writes=writes)
        if writes:
            driver = driver_of(connection)
            connection.info["xid"] = driver.execute("SELECT pg_current_xact_id()::text")

    def commit(
        self, connection: Connection, *, changed: Collection[ThreadName] = (), at_us: int = 0
    ) -> None:
        """Commit in one round trip, with all statements sent before."""
        driver = driver_of(connection)
        [xid] = connection.info["xid"].fetchone()
        until = time.monotonic() + _OUTCOME_TIMEOUT_S
        try:
            driver.commit()
        except psycopg.Error as error:
            # the error of a statement, which undid the transaction
            if error.diag.severity_nonlocalized == "ERROR":
                raise
            driver.close()
            lost = _UnansweredCommit(int(xid), connection.info["reset"], changed, at_us)
            if not self._committed(lost, until):
                raise

    def problem(self) -> str:
        """Return the reason why PostgreSQL cannot be used; empty while it answers."""
        return f"PostgreSQL: {self._pulse.problem}" if self._pulse.problem else ""

    def end(self, connection: Connection) -> None:
        """End a read transaction; no caller waits for the answer."""
        driver = driver_of(connection)
        driver.execute("COMMIT")
        driver.send()

    @contextmanager
    def statement(self, connection: Connection) -> Iterator[None]:
        """Run one read statement, which sees one moment in PostgreSQL without a transaction."""
        try:
            yield
        except BaseException:
            with suppress(Exception):  # the connection may be lost
                driver_of(connection).rollback()
            raise

    def receive(self, connection: Connection) -> None:
        """Wait for the answers of all statements that were sent."""
        driver_of(connection).receive()

    def is_conflict(self, error: BaseException) -> bool:
        """Return whether two servers created the same thread, or waited for each other."""
        return isinstance(_cause(error), _CONFLICTS)

    def is_busy(self, error: BaseException) -> bool:
        """Return whether another server held a lock for longer than `waiting` allows."""
        return isinstance(_cause(error), psycopg.errors.LockNotAvailable)

    @contextmanager
    def waiting(self, connection: Connection) -> Iterator[None]:
        """Let the statements of the context wait a short time for locks of other servers."""
        driver = driver_of(connection)
        driver.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT_MS}ms'")
        yield
        driver.execute("SET LOCAL lock_timeout = 0")

    def numbers(self, connection: Connection) -> Iterator[int]:
        """Return the next numbers of the sequence, which this server alone uses."""
        [first] = driver_of(connection).execute(f"SELECT nextval('{NUMBERS}')").fetchone()
        return iter(range(first, first + NUMBERS_AT_ONCE))

    def _committed(self, lost: _UnansweredCommit, until: float) -> bool:
        """Connect again, and find out the outcome of a transaction."""
        problem: psycopg.Error | None = None
        while (left_s := until - time.monotonic()) > 0:
            try:
                with closing(connect(self._url, min(PROBE_S, left_s))) as connection:
                    connection.on_silence = patience(PROBE_S)
                    [[status, reset]] = connection.execute(_OUTCOME, (str(lost.xid),)).fetchall()
                    if status == "aborted":
                        return False
                    if status == "committed":
                        return reset == lost.reset or _is_stored(connection, lost)
            except psycopg.OperationalError as error:
                problem = error
            time.sleep(_OUTCOME_PAUSE_S)
        raise OutcomeUnknownError(
            f"the connection to PostgreSQL was lost while transaction {lost.xid} was committed, "
            "and the server does not say whether it was"
        ) from problem

    def in_transaction(self, connection: Connection) -> bool:
        """Return whether a transaction is open, failed or not."""
        driver = driver_of(connection)
        with suppress(psycopg.Error):  # the status shows the failure
            driver.receive()
        status = driver.info.transaction_status
        return status in (TransactionStatus.INTRANS, TransactionStatus.INERROR)

    def is_lost(self, connection: Connection) -> bool:
        """Return whether PostgreSQL, or the network, has ended a connection."""
        return connection.invalidated or bool(driver_of(connection).closed)

    def check(self, connection: Connection) -> None:
        """Check the server's version and encoding.

        Raises:
            RuntimeError: PostgreSQL is too old, or the database cannot store every text.
        """
        driver = driver_of(connection)
        version = driver.info.server_version // 10000
        if version < OLDEST:
            raise RuntimeError(f"PostgreSQL {version} is too old; use {OLDEST} or newer")
        [encoding] = driver.execute("SHOW server_encoding").fetchone()
        if encoding != "UTF8":
            raise RuntimeError(f"the database has the encoding {encoding}; make one with UTF8")

    def warn(self, connection: Connection) -> None:
        """Log a warning if PostgreSQL is configured not to fsync commits."""
        [fsync] = driver_of(connection).execute("SHOW fsync").fetchone()
        if fsync != "on":
            _log.warning(
                "PostgreSQL runs with fsync=%s: what was acknowledged is lost if its machine fails",
                fsync,
            )

    def own(self, connection: Connection) -> None:
        """Take an advisory lock of the schema; wait a short time for another server.

        Raises:
            psycopg.errors.LockNotAvailable: Another server has the lock.
        """
        _lock(connection, "pg_advisory_lock", _TABLES)

    def use(self, connection: Connection, *, alone: bool = False) -> None:
        """Take another advisory lock, which servers share; wait a short time for others.

        Raises:
            psycopg.errors.LockNotAvailable: Another server, or a command that runs alone, has the
                lock.
        """
        name = "pg_advisory_lock" if alone else "pg_advisory_lock_shared"
        _lock(connection, name, _USE)
        for key in _LAYOUTS.values():
            _lock(connection, "pg_advisory_lock_shared", key)
        # no server waits for a command's transactions, and the command may pause inside them
        if alone:
            driver_of(connection).execute("SET idle_in_transaction_session_timeout = 0")

    def has_older(self, connection: Connection, layout: int) -> bool:
        """Return whether servers that do not know a layout use the journal, too."""
        keys = (_USE, _LAYOUTS[layout])
        return bool(driver_of(connection).execute(_HAS_OLDER, keys).fetchone()[0])

    def oldest_writer(self, connection: Connection) -> int:
        """Return the first layout whose servers can change the journal; 0: every layout."""
        return int(driver_of(connection).execute(OLDEST_WRITER).fetchone()[0])

    def refuse_older(self, connection: Connection) -> int:
        """Refuse all changes by older servers, unless such a server uses the journal.

        Returns the first layout whose servers can change the journal from now on.

        Raises:
            psycopg.errors.LockNotAvailable: A batch takes too long.
        """
        oldest = self.oldest_writer(connection)
        if oldest >= _OWN_LAYOUT or self.has_older(connection, _OWN_LAYOUT):
            return oldest
        # Changes that began before have ended once this lock is granted. Dumps continue.
        self._alter(connection, changes.name, "LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE")
        if self.has_older(connection, _OWN_LAYOUT):
            return oldest
        if self.oldest_writer(connection) < _OWN_LAYOUT:
            for statement in refuse_before(_OWN_LAYOUT):
                driver_of(connection).execute(statement)
        return _OWN_LAYOUT

    def definitions(self) -> tuple[str, ...]:
        """Return the statements that create the tables; no older server changes them."""
        return (*super().definitions(), *refuse_before(_OWN_LAYOUT))

    def lock_facts(self, connection: Connection) -> None:
        """Make the batches of servers that read the sealing format wait for this transaction.

        A lock of the row would never be granted while batches overlap that share the row's lock.

        Raises:
            psycopg.errors.LockNotAvailable: A batch takes too long.
        """
        self._alter(connection, journal_info.name, "LOCK TABLE {table} IN EXCLUSIVE MODE")

    def refuse_unbound(self, connection: Connection) -> None:
        """Refuse all writes by servers that know only the first layout.

        Raises:
            psycopg.errors.LockNotAvailable: The table is in use for too long.
        """
        self._alter(connection, changes.name, _REFUSE_UNBOUND)

    def refuse_unplaced(self, connection: Connection, table: str, column: str) -> None:
        """Refuse all writes of sealed bytes to a column that are not bound to their place.

        Raises:
            psycopg.errors.LockNotAvailable: The table is in use for too long.
        """
        fields = {"column": column, "size": len(PREFIX), "prefix": PREFIX.hex()}
        self._alter(connection, table, _REFUSE_UNPLACED, **fields)

    def _alter(self, connection: Connection, table: str, statement: str, **fields: object) -> None:
        """Run a statement that waits, a short time, for all users of a table."""
        driver = driver_of(connection)
        [is_vacuumed] = driver.execute(_IS_VACUUMED, (table,)).fetchone()
        timeout = _VACUUMED_TIMEOUT if is_vacuumed else _TABLE_TIMEOUT
        driver.execute(f"SET LOCAL lock_timeout = '{timeout}'")
        driver.execute(statement.format(table=table, **fields))

    def notify(self, connection: Connection, channel: str, payload: str) -> None:
        """Send a text of less than 8000 bytes to every server that listens to a channel."""
        driver = driver_of(connection)
        # Polling makes up for a notification that a crash loses; flushing the log for each
        # notification would delay the commits of batches.
        driver.execute("SET LOCAL synchronous_commit = off")
        driver.execute("SELECT pg_notify($1, $2)", (channel, payload))

    async def notices(self, channel: str) -> AsyncGenerator[str]:
        """Yield the empty text once this server listens to a channel, then the channel's texts.

        Raises:
            psycopg.OperationalError: The connection is lost.
        """
        connection = await psycopg.AsyncConnection.connect(
            self._url, autocommit=True, **_CONNECTING
        )
        async with connection:
            await connection.execute(f'LISTEN "{channel}"')
            yield ""
            async for notice in connection.notifies():
                yield notice.payload

    def size_bytes(self, connection: Connection) -> int:
        """Return the size of the database in bytes."""
        query = "SELECT pg_database_size(current_database())"
        return int(driver_of(connection).execute(query).fetchone()[0])

    def used_bytes(self, connection: Connection) -> int:
        """Return about how many bytes the rows have."""
        return int(driver_of(connection).execute(_USED).fetchone()[0])

    def storage_problem(self, error: BaseException) -> str | None:
        """Return the problem of the database, or `None` if the error is a defect of the server."""
        cause = _cause(error)
        if not isinstance(cause, psycopg.Error):
            return None
        if isinstance(cause, psycopg.errors.LockNotAvailable):
            return "another server uses it, or a command, a dump or a vacuum holds a lock"
        state = cause.sqlstate
        if state is None and not isinstance(cause, psycopg.OperationalError):
            return None
        if state is not None and state[:2] in _DEFECTS:
            return None
        return f"PostgreSQL: {str(cause).partition(chr(10))[0] or type(cause).__name__}"


class _UnansweredCommit(NamedTuple):
    """A transaction whose commit got no answer."""

    xid: int
    # Start of PostgreSQL's statistics. A crash starts them again, and PostgreSQL forgets the IDs of
    # transactions that had written nothing: another transaction may get the same ID.
    reset: str
    changed: Collection[ThreadName]
    at_us: int


def _is_stored(connection: PipelinedConnection, lost: _UnansweredCommit) -> bool:
    """Look for the changes of a transaction whose ID another transaction may have."""
    if not lost.changed:
        raise OutcomeUnknownError(
            f"PostgreSQL crashed while transaction {lost.xid} was committed, and may have given "
            "that number to another one"
        )
    tenants, threads = (sorted(set(names)) for names in zip(*lost.changed, strict=True))
    parameters = (tenants, threads, lost.at_us, lost.xid % (1 << 32))
    [[stored]] = connection.execute(_STORED, parameters).fetchall()
    return bool(stored)


def _cause(error: BaseException) -> BaseException | None:
    """Return the driver's error, which SQLAlchemy wraps."""
    return error.orig if isinstance(error, DBAPIError) else error


class _WholeLoader(NumericBinaryLoader):
    """Returns a sum of integers as an integer; PostgreSQL returns it as `numeric`."""

    def load(self, data: Any) -> Any:
        return int(super().load(data))


def connect(url: str, timeout_s: float = PROBE_S) -> PipelinedConnection:
    """Open a connection that begins no transaction by itself.

    Raises:
        psycopg.OperationalError: The server does not answer, or refuses the account.
    """
    # libpq accepts no shorter timeout
    options = {**_CONNECTING, "connect_timeout": max(2, round(timeout_s))}
    connection = PipelinedConnection.connect(
        url, autocommit=True, cursor_factory=psycopg.RawCursor, **options
    )
    connection.adapters.register_loader("numeric", _WholeLoader)
    return connection


def _lock(connection: Connection, function: str, key: int) -> None:
    driver = driver_of(connection)
    driver.execute(f"SET lock_timeout = '{_OWN_TIMEOUT_S}s'")
    driver.execute(f"SELECT {function}($1, hashtext(current_schema()))", (key,))
    driver.execute("SET lock_timeout = 0")
    driver.receive()


def _set_up(connection: DBAPIConnection, entry: ConnectionPoolEntry) -> None:
    driver: Any = connection
    for setting in _SETTINGS:
        driver.execute(setting)
    session = driver.execute("SELECT pg_backend_pid()")
    [entry.info["reset"]] = driver.execute(_RESET).fetchone()
    [driver.session] = session.fetchone()
