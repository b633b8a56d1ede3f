"""The journal's interface to a database: connections, transactions, statements, failures.

`sqlite.Sqlite` and `postgres.Postgres` are the two kinds. Only `begin` begins a transaction:
outside of a transaction the drivers commit each statement.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache
from typing import Any, ClassVar

from sqlalchemy import Connection, Engine, create_mock_engine

from ...core.model import ThreadName
from ..migrations import LATEST
from .schema import DROP_TEXT, metadata
from .statements import driver_of


class OutcomeUnknownError(Exception):
    """A transaction may or may not have been committed."""


class Backend(ABC):
    """One database.

    Attributes:
        engine: Opens a new connection at each `connect`.
        name: Kind of database, such as "sqlite".
        is_local: Whether a read of a few rows takes less time than a switch of threads costs.
        is_shared: Whether other servers change the same journal; a batch then locks its threads.
        reader_threads: Number of threads that read at once.
    """

    name: ClassVar[str]
    is_local: ClassVar[bool]
    is_shared: ClassVar[bool]
    reader_threads: ClassVar[int]
    engine: Engine
    _begin_read: ClassVar[str]
    _begin_write: ClassVar[str]

    def begin(self, connection: Connection, *, writes: bool = False) -> None:
        """Begin a transaction; all reads of a read transaction see the same moment."""
        driver_of(connection).execute(self._begin_write if writes else self._begin_read)

    def commit(
        self, connection: Connection, *, changed: Collection[ThreadName] = (), at_us: int = 0
    ) -> None:
        """Commit a write transaction; durable on return. If this fails, nothing is stored.

        Args:
            connection: The connection.
            changed: Threads with changes of the transaction, to look for if the answer is lost.
            at_us: The time of the changes.

        Raises:
            OutcomeUnknownError: The connection broke, and the outcome cannot be determined.
        """
        driver_of(connection).commit()

    def check_files(self) -> None:  # noqa: B027 - PostgreSQL has its own
        """Check after a commit, and before its answer, that a later start can find the commit.

        Raises:
            JournalLostError: The files of the journal were removed or replaced.
        """

    def make_room(self) -> bool:
        """Free space that is reserved for a failed opening; return whether any was freed."""
        return False

    def keep_room(self) -> None:  # noqa: B027 - the disk of PostgreSQL is not ours
        """Reserve space for the next opening, if space is free."""

    def problem(self) -> str:
        """Return the reason why the journal cannot be used, for people; empty: none is known."""
        return ""

    def end(self, connection: Connection) -> None:
        """End a read transaction."""
        driver_of(connection).commit()

    def receive(self, connection: Connection) -> None:  # noqa: B027 - SQLite answers at once
        """Wait for the answers of all statements that were sent.

        Raises:
            Exception: The error of the first failed statement.
        """

    def is_conflict(self, error: BaseException) -> bool:
        """Return whether a conflict with another server caused the error; a retry may succeed."""
        return False

    def is_busy(self, error: BaseException) -> bool:
        """Return whether another server held a lock for longer than `waiting` allows."""
        return False

    def waiting(self, connection: Connection) -> AbstractContextManager[object]:
        """Let the statements of the context wait a short time for locks of other servers."""
        return nullcontext()

    @abstractmethod
    def numbers(self, connection: Connection) -> Iterator[int]:
        """Return new numbers for threads and families; the iterator may end."""

    @contextmanager
    def transaction(self, connection: Connection, *, writes: bool = False) -> Iterator[None]:
        """Run the context in a transaction; an error undoes the transaction."""
        self.begin(connection, writes=writes)
        try:
            yield
            (self.commit if writes else self.end)(connection)
        except BaseException:
            with suppress(Exception):  # the connection may be lost
                driver_of(connection).rollback()
            raise

    @contextmanager
    def statement(self, connection: Connection) -> Iterator[None]:
        """Run the context, which executes one read statement."""
        with self.transaction(connection):
            yield

    @abstractmethod
    def in_transaction(self, connection: Connection) -> bool:
        """Return whether a transaction is open; some errors end it."""

    def is_lost(self, connection: Connection) -> bool:
        """Return whether a connection can no longer be used."""
        return False

    @abstractmethod
    def check(self, connection: Connection) -> None:
        """Check that the journal can keep its promises in this database.

        Raises:
            RuntimeError: The journal cannot keep its promises.
        """

    def warn(self, connection: Connection) -> None:  # noqa: B027 - SQLite refuses instead
        """Log settings that weaken the promises of the journal, but allow it to serve."""

    def own(self, connection: Connection) -> None:  # noqa: B027 - a lock in the data directory
        """Keep other servers from creating, filling or removing tables while connected.

        Raises:
            Exception: Another server does so; `storage_problem` describes the error.
        """

    def use(  # noqa: B027 - a lock in the data directory
        self, connection: Connection, *, alone: bool = False
    ) -> None:
        """Use the journal beside other servers, or alone, while this connection is open.

        Raises:
            Exception: Another server uses the journal, or uses it alone; `storage_problem`
                describes the error.
        """

    def has_older(self, connection: Connection, layout: int) -> bool:
        """Return whether servers that do not know a layout use the journal, too."""
        return False

    def oldest_writer(self, connection: Connection) -> int:
        """Return the first layout whose servers can change the journal; 0: every layout."""
        return LATEST

    def refuse_older(self, connection: Connection) -> int:
        """Refuse all changes by older servers, unless such a server uses the journal.

        Returns the first layout whose servers can change the journal from now on.

        Raises:
            Exception: A table is in use for too long; `storage_problem` describes the error.
        """
        return LATEST

    def lock_facts(self, connection: Connection) -> None:  # noqa: B027 - nobody else writes there
        """Make the batches of servers that read the sealing format wait for this transaction.

        Raises:
            Exception: A batch takes too long; `storage_problem` describes the error.
        """

    def refuse_unbound(self, connection: Connection) -> None:  # noqa: B027 - they cannot open it
        """Refuse all writes by servers that know only the first layout.

        Raises:
            Exception: The table is in use for too long; `storage_problem` describes the error.
        """

    def refuse_unplaced(  # noqa: B027 - they cannot open it
        self, connection: Connection, table: str, column: str
    ) -> None:
        """Refuse all writes of sealed bytes to a column that are not bound to their place.

        Raises:
            Exception: The table is in use for too long; `storage_problem` describes the error.
        """

    def notify(self, connection: Connection, channel: str, payload: str) -> None:
        """Send a text of less than 8000 bytes to every server that listens to a channel."""
        raise NotImplementedError

    def notices(self, channel: str) -> AsyncGenerator[str]:
        """Yield the empty text once this server listens to a channel, then the channel's texts.

        Raises:
            Exception: The connection is lost; `storage_problem` describes it.
        """
        raise NotImplementedError

    def definitions(self) -> tuple[str, ...]:
        """Return the statements that create the tables."""
        return _definitions(f"{self.engine.dialect.name}://")

    def drop(self, connection: Connection) -> None:
        """Drop all tables of a journal."""
        driver = driver_of(connection)
        for table in reversed(metadata.sorted_tables):
            driver.execute(f"DROP TABLE {table.name}")
        for statement in DROP_TEXT[self.name]:
            driver.execute(statement)

    def remove(self) -> None:
        """Remove a journal that no server uses."""
        with self.engine.connect() as connection:
            self.own(connection)
            with self.transaction(connection, writes=True):
                self.drop(connection)

    @abstractmethod
    def size_bytes(self, connection: Connection) -> int:
        """Return the size of the database in bytes."""

    @abstractmethod
    def used_bytes(self, connection: Connection) -> int:
        """Return the used bytes; free space is used again."""

    @abstractmethod
    def storage_problem(self, error: BaseException) -> str | None:
        """Return the problem of the database, or `None` if the error is a defect of the server.

        A full disk, a lost connection, a failed read or write, and a lock held too long are
        problems of the database. A wrong statement or a broken constraint is a defect of the
        server.
        """

    def scrub(self) -> bool:
        """Empty the database's log of deleted bytes; `False`: the log is emptied later.

        For PostgreSQL's own files there is no promise.
        """
        return True

    def may_keep_removed(self, connection: Connection) -> bool:
        """Return whether free space of the file may have content that older builds removed.

        For PostgreSQL's own files there is no promise.
        """
        return False

    def tidy(self, connection: Connection) -> None:  # noqa: B027 - PostgreSQL has nothing to do
        """Do work after a commit that no caller has to wait for."""


@cache
def _definitions(url: str) -> tuple[str, ...]:
    """Return the statements that create the tables; compiling them takes longer than running."""
    statements: list[str] = []

    def note(statement: Any, *_: object, **__: object) -> None:
        statements.append(str(statement.compile(dialect=mock.dialect)))

    mock = create_mock_engine(url, note)
    metadata.create_all(mock, checkfirst=False)
    return tuple(statements)


class Numbers:
    """Gives each number once, to a thread or a family."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._left: Iterator[int] = iter(())

    def next(self, connection: Connection) -> int:
        """Return the next number."""
        for number in self._left:
            return number
        self._left = self._backend.numbers(connection)
        return next(self._left)
