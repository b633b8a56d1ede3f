"""The journal's database: opened, read in snapshots, changed by its one writer."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_mock_engine, insert, inspect, select

from ...domain.pacing import pause
from . import sqlite
from .overlay import Batch
from .schema import journal_info, metadata
from .statements import Statement
from .writer import Committed, Writer, raise_unavailable, unavailable

__all__ = ["LAYOUT", "READER_THREADS", "Connection", "Database", "Waiter", "Waiters"]

T = TypeVar("T")

READER_THREADS = 2
"""Threads that read: one more than may be kept by a long read; further ones only contend for
the interpreter's lock."""

LAYOUT = "1"
"""Layout of the tables; a database says in `journal_info` which one it has."""

_JOURNAL_ID, _LAYOUT, _GENERATION = "journal_id", "layout", "generation"
_FIRST_VERSION = "alembic_version"


class Waiter:
    """Waits for changes of threads. Not to be shared between tasks.

    It is woken when there is something to read, and reads it from the journal: so one that is
    slow, or gone, costs a flag.
    """

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    def wake(self) -> None:
        """Say that a thread changed."""
        self._changed.set()

    async def wait(self, timeout_s: float) -> bool:
        """Wait for a change since the last wait; return whether there was one."""
        await pause(timeout_s, self._changed)
        changed = self._changed.is_set()
        self._changed.clear()
        return changed


class Waiters:
    """Who waits for which thread. Used in the event loop only."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, str] | None, set[Waiter]] = {}

    @contextmanager
    def subscribe(self, *thread: str) -> Iterator[Waiter]:
        """Be woken by changes of a thread (its tenant and ID; none: any) inside the context.

        Whoever reads after entering, and again after each wake, misses none.
        """
        place, waiter = (thread[0], thread[1]) if thread else None, Waiter()
        self._waiting.setdefault(place, set()).add(waiter)
        try:
            yield waiter
        finally:
            left = self._waiting[place]
            left.discard(waiter)
            if not left:
                del self._waiting[place]

    def wake(self, changed: Collection[tuple[str, str]]) -> None:
        """Wake who waits for these threads."""
        for place in (*changed, None) if changed else ():
            for waiter in self._waiting.get(place, ()):
                waiter.wake()

    def __len__(self) -> int:
        """Return how many wait."""
        return sum(map(len, self._waiting.values()))


class Database:
    """A journal in a database file. Made by `open`; every call can raise `JOURNAL_UNAVAILABLE`.

    Attributes:
        waiters: Who waits for changes of threads.
        added: Called in the event loop after each commit, for each tenant of which something
            changed, with the number of changes and the bytes of their new content.
        noted: Called in the writer's thread before each commit, with the digests of the values
            that it stored, by family.
        journal_id: Identity of this journal; a recovered one has another.
        generation: Raised by each recovery; with `seq` it orders what was stored.
    """

    def __init__(
        self,
        path: Path,
        engine: Engine,
        facts: dict[str, str],
        clock_us: Callable[[], int],
        entropy: Callable[[], int],
    ) -> None:
        self._path = path
        self._engine = engine
        self.now_us = clock_us  # microseconds since the Unix epoch
        self.random_bits = entropy  # 62 of them
        self.journal_id = facts[_JOURNAL_ID]
        self.generation = int(facts[_GENERATION])
        self.waiters = Waiters()
        self.added: list[Callable[[str, int, int], None]] = []
        self.noted: list[Callable[[dict[int, set[bytes]]], None]] = []
        self._writer = Writer(engine, path, clock_us, self._committed, self.noted)
        self._readers = ThreadPoolExecutor(READER_THREADS, thread_name_prefix="journal-reader")
        self._reader = threading.local()
        self._connections: list[Connection] = []
        self._closed = False

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        generation: int = 1,
        clock_us: Callable[[], int] = lambda: time.time_ns() // 1000,
        entropy: Callable[[], int] = lambda: secrets.randbits(62),
    ) -> Database:
        """Open a journal, making its tables, of a generation, if there are none.

        Raises:
            RuntimeError: Commits would not be fsynced there, or another program or another
                version of the server wrote it.
            Refusal: `JOURNAL_UNAVAILABLE`: the file cannot be used.
        """
        engine = sqlite.make_engine(path)
        try:
            facts = await asyncio.to_thread(_prepare, engine, generation)
        except Exception as error:
            engine.dispose()
            raise_unavailable(error)
            raise
        return cls(path, engine, facts, clock_us, entropy)

    @property
    def backend(self) -> str:
        """Kind of database, such as "sqlite"."""
        return self._engine.dialect.name

    async def close(self) -> None:
        """Finish running transactions and release the database."""
        if self._closed:
            return
        self._closed = True
        await self._writer.close()
        await asyncio.to_thread(self._readers.shutdown)
        for connection in self._connections:
            connection.close()
        self._engine.dispose()

    def change(self, work: Callable[[Batch], T], size_bytes: int = 0) -> asyncio.Future[T]:
        """Enqueue a change that goes through the batch's overlay; see `Writer.submit`."""
        return self._writer.submit(work, size_bytes)

    def transact(self, work: Callable[[Batch], T], size_bytes: int = 0) -> asyncio.Future[T]:
        """Enqueue a change with a savepoint of its own; see `Writer.submit`."""
        return self._writer.submit(work, size_bytes, alone=True)

    async def query(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in a read transaction, in which all reads see one moment."""
        if self._closed:
            raise unavailable("it is closed")
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read, work)

    async def rows(self, statement: Statement, **values: object) -> Sequence[Any]:
        """Return the rows of one statement, as `query` does."""
        return await self.query(lambda connection: statement.run(connection, **values).fetchall())

    def glance(self, work: Callable[[Connection], T]) -> T:
        """Run what reads a few rows as `query` does, but here: for those a thread costs more."""
        if self._closed:
            raise unavailable("it is closed")
        return self._read(work)

    async def size_bytes(self) -> int:
        """Return the bytes that the database and its log take."""
        return await self.query(lambda connection: sqlite.size_bytes(connection, self._path))

    async def used_bytes(self) -> int:
        """Return the bytes of the pages that are in use."""
        return await self.query(sqlite.used_bytes)

    def _committed(self, committed: Committed) -> None:
        self.waiters.wake(committed.threads)
        for tenant, added in committed.added.items():
            for callback in self.added:
                callback(tenant, *added)

    def _read(self, work: Callable[[Connection], T]) -> T:
        try:
            connection: Connection | None = getattr(self._reader, "connection", None)
            if connection is None:
                connection = self._reader.connection = self._engine.connect()
                self._connections.append(connection)
            with sqlite.transaction(connection):
                return work(connection)
        except Exception as error:
            raise_unavailable(error)
            raise


@cache
def _definitions() -> tuple[str, ...]:
    """Return the statements that make the tables; compiling them takes longer than running them."""
    statements: list[str] = []

    def note(statement: Any, *_: object, **__: object) -> None:
        statements.append(str(statement.compile(dialect=mock.dialect)))

    mock = create_mock_engine("sqlite://", note)
    metadata.create_all(mock, checkfirst=False)
    return tuple(statements)


def _prepare(engine: Engine, generation: int) -> dict[str, str]:
    """Make the tables if there are none; return what the journal says of itself."""
    with engine.connect() as connection:
        sqlite.check_durability(connection)
        with sqlite.transaction(connection, writes=True):
            tables = inspect(connection).get_table_names()
            if not tables:
                for definition in _definitions():
                    sqlite.driver_of(connection).execute(definition)
                facts = {_JOURNAL_ID: uuid.uuid4().hex, _LAYOUT: LAYOUT, _GENERATION: generation}
                rows = [{"name": name, "value": str(value)} for name, value in facts.items()]
                connection.execute(insert(journal_info), rows)
            if _FIRST_VERSION in tables:
                raise RuntimeError(
                    "it was written by the first version of TuskPoint, "
                    "which this server does not read"
                )
            known: dict[str, str] = {}
            if not tables or journal_info.name in tables:
                found = connection.execute(select(journal_info.c.name, journal_info.c.value))
                known = {str(name): str(value) for name, value in found}
            if _LAYOUT not in known:
                raise RuntimeError("it is a database of another program")
            if known[_LAYOUT] != LAYOUT:
                raise RuntimeError(
                    f"it has layout {known[_LAYOUT]} and this server knows layout {LAYOUT}: "
                    "a newer server wrote it"
                )
            return known
