"""What the journal asks of a database: connections, transactions, statements, failures.

`sqlite.Sqlite` and `postgres.Postgres` are the two kinds. Nothing begins a transaction but `begin`:
the drivers commit by themselves outside of one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache
from typing import Any, ClassVar

from sqlalchemy import Connection, Engine, create_mock_engine

from ...core.model import ThreadName
from .schema import DROP_TEXT, metadata
from .statements import driver_of


class OutcomeUnknownError(Exception):
    """A transaction may have been committed, or not."""


class Backend(ABC):
    """One database.

    Attributes:
        engine: Each `connect` of it opens a connection of its own.
        name: Kind of database, such as "sqlite".
        is_local: A read of a few rows takes less time than a thread costs.
        is_shared: Other servers change the same journal; a batch locks the threads that it changes.
        reader_threads: How many read at once.
    """

    name: ClassVar[str]
    is_local: ClassVar[bool]
    is_shared: ClassVar[bool]
    reader_threads: ClassVar[int]
    engine: Engine
    _begin_read: ClassVar[str]
    _begin_write: ClassVar[str]

    def begin(self, connection: Connection, *, writes: bool = False) -> None:
        """Begin a transaction; all reads of one that only reads see one moment."""
        driver_of(connection).execute(self._begin_write if writes else self._begin_read)

    def commit(
        self, connection: Connection, *, changed: Collection[ThreadName] = (), at_us: int = 0
    ) -> None:
        """Commit a transaction that wrote; durable on return. If this fails, nothing is stored.

        Args:
            connection: The connection.
            changed: Threads of which it made changes, to look for if the answer is lost.
            at_us: The time of these changes.

        Raises:
            OutcomeUnknownError: The connection broke, and nobody can say what became of it.
        """
        driver_of(connection).commit()

    def check_files(self) -> None:  # noqa: B027 - PostgreSQL has its own
        """Check after a commit that it can be found again, before anybody is told of it.

        Raises:
            JournalLostError: The files of the journal were removed or replaced.
        """

    def make_room(self) -> bool:
        """Free space that was kept back for a journal that cannot be opened; return if it was."""
        return False

    def keep_room(self) -> None:  # noqa: B027 - the disk of PostgreSQL is not ours
        """Keep space back for the next opening, if there is some."""

    def problem(self) -> str:
        """Return what keeps the journal from being used now, for people; empty: nothing known."""
        return ""

    def end(self, connection: Connection) -> None:
        """End a transaction that only read."""
        driver_of(connection).commit()

    def receive(self, connection: Connection) -> None:  # noqa: B027 - SQLite answers at once
        """Wait for the answers of all statements that were sent.

        Raises:
            Exception: Of the first one that failed.
        """

    def is_conflict(self, error: BaseException) -> bool:
        """Return whether a transaction failed because of another server's, and may succeed now."""
        return False

    def is_busy(self, error: BaseException) -> bool:
        """Return whether another server held a lock for longer than `waiting` allows."""
        return False

    def waiting(self, connection: Connection) -> AbstractContextManager[object]:
        """Let the statements of the context wait for locks of other servers, but not long."""
        return nullcontext()

    @abstractmethod
    def numbers(self, connection: Connection) -> Iterator[int]:
        """Return numbers that no thread and no family of threads has had; there may be an end."""

    @contextmanager
    def transaction(self, connection: Connection, *, writes: bool = False) -> Iterator[None]:
        """Run the context in a transaction, which an error undoes."""
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
        """Run the context, which is one statement that reads."""
        with self.transaction(connection):
            yield

    @abstractmethod
    def in_transaction(self, connection: Connection) -> bool:
        """Return whether a transaction is open; some errors end it."""

    def is_lost(self, connection: Connection) -> bool:
        """Return whether a connection cannot be used any more."""
        return False

    @abstractmethod
    def check(self, connection: Connection) -> None:
        """Check that the journal can keep its promises there.

        Raises:
            RuntimeError: It cannot.
        """

    def warn(self, connection: Connection) -> None:  # noqa: B027 - SQLite refuses instead
        """Log what weakens the promises of the journal, and does not keep it from serving."""

    def own(self, connection: Connection) -> None:  # noqa: B027 - a lock in the data directory
        """Let no other server make, fill or remove the tables while this connection is open.

        Raises:
            Exception: Another server does; `storage_problem` describes the error.
        """

    def use(  # noqa: B027 - a lock in the data directory
        self, connection: Connection, *, alone: bool = False
    ) -> None:
        """Use the journal beside other servers, or alone, while this connection is open.

        Raises:
            Exception: Another server does, or one uses it alone; `storage_problem` describes it.
        """

    def has_older(self, connection: Connection, layout: int) -> bool:
        """Return whether servers that do not know a layout use the journal, too."""
        return False

    def lock_facts(self, connection: Connection) -> None:  # noqa: B027 - nobody else writes there
        """Let the batches of other servers that read how values are sealed wait for this one.

        Raises:
            Exception: One of them takes long; `storage_problem` describes the error.
        """

    def refuse_unbound(self, connection: Connection) -> None:  # noqa: B027 - they cannot open it
        """Let nothing be written by servers that know no layout after the first.

        Raises:
            Exception: The table is in use for long; `storage_problem` describes the error.
        """

    def refuse_unplaced(  # noqa: B027 - they cannot open it
        self, connection: Connection, table: str, column: str
    ) -> None:
        """Let sealed bytes of a column be written only if they are bound to their place.

        Raises:
            Exception: The table is in use for long; `storage_problem` describes the error.
        """

    def notify(self, connection: Connection, channel: str, payload: str) -> None:
        """Send a text of less than 8000 bytes to every server that listens to a channel."""
        raise NotImplementedError

    def notices(self, channel: str) -> AsyncGenerator[str]:
        """Yield the empty text once this server listens to a channel, then what is sent there.

        Raises:
            Exception: The connection is lost; `storage_problem` describes it.
        """
        raise NotImplementedError

    def definitions(self) -> tuple[str, ...]:
        """Return the statements that make the tables."""
        return _definitions(f"{self.engine.dialect.name}://")

    def drop(self, connection: Connection) -> None:
        """Drop all tables of a journal."""
        driver = driver_of(connection)
        for table in reversed(metadata.sorted_tables):
            driver.execute(f"DROP TABLE {table.name}")
        for statement in DROP_TEXT[self.name]:
            driver.execute(statement)

    def remove(self) -> None:
        """Remove a journal that nobody uses."""
        with self.engine.connect() as connection:
            self.own(connection)
            with self.transaction(connection, writes=True):
                self.drop(connection)

    @abstractmethod
    def size_bytes(self, connection: Connection) -> int:
        """Return the bytes that the database takes."""

    @abstractmethod
    def used_bytes(self, connection: Connection) -> int:
        """Return the bytes that are in use; what is free is used again."""

    @abstractmethod
    def storage_problem(self, error: BaseException) -> str | None:
        """Return what keeps the database from working, or `None` if the error is a defect.

        A full disk, a lost connection, a failed read or write, a lock that is held: those are
        the database's. A statement that is wrong, or a broken constraint, is ours.
        """

    def scrub(self) -> bool:
        """Empty the database's log of what was deleted; `False`: it will go later.

        Of PostgreSQL's own files nothing is promised.
        """
        return True

    def may_keep_removed(self, connection: Connection) -> bool:
        """Return whether free space in the database's file may have what earlier builds removed.

        Of PostgreSQL's own files nothing is promised.
        """
        return False

    def tidy(self, connection: Connection) -> None:  # noqa: B027 - PostgreSQL has nothing to do
        """Do after a commit what no caller has to wait for."""


@cache
def _definitions(url: str) -> tuple[str, ...]:
    """Return the statements that make the tables; compiling them takes longer than running them."""
    statements: list[str] = []

    def note(statement: Any, *_: object, **__: object) -> None:
        statements.append(str(statement.compile(dialect=mock.dialect)))

    mock = create_mock_engine(url, note)
    metadata.create_all(mock, checkfirst=False)
    return tuple(statements)


class Numbers:
    """Gives numbers to threads and families, each once."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._left: Iterator[int] = iter(())

    def next(self, connection: Connection) -> int:
        """Return the next one."""
        for number in self._left:
            return number
        self._left = self._backend.numbers(connection)
        return next(self._left)
