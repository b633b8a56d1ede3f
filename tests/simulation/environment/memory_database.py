"""The journal's database in memory: the server's own writer and tables, without threads.

A committed transaction survives a crash; an open transaction does not. A commit can fail before or
after it takes effect, and takes virtual time.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import sqlite3
import threading
from collections.abc import Callable, Set
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, create_engine
from sqlalchemy.pool import StaticPool

from tests.simulation.at_rest.edits import Ledger
from tests.simulation.environment.crashes import Crash, Life
from tuskpoint_server.core.model import ThreadName
from tuskpoint_server.journal.database.binding import Binder, options
from tuskpoint_server.journal.database.database import Database, Waiters
from tuskpoint_server.journal.database.thread_cache import ThreadCache
from tuskpoint_server.journal.database.unit_of_work import UnitOfWork
from tuskpoint_server.journal.database.writer import (
    CommittedChanges,
    QueuedChange,
    Writer,
    journal_unavailable,
)
from tuskpoint_server.journal.migrations import LATEST
from tuskpoint_server.journal.sql.backend import Numbers
from tuskpoint_server.journal.sql.journal_metadata import new_facts
from tuskpoint_server.journal.sql.schema import metadata
from tuskpoint_server.journal.sql.sqlite import Sqlite

T = TypeVar("T")


@dataclass
class JournalFaults:
    """Probability that a transaction fails before or after its commit, or takes time."""

    refuses: float = 0.0
    forgets_to_answer: float = 0.0
    takes_time: float = 0.0
    longest_s: float = 0.05


class Disk:
    """A database file in memory.

    Attributes:
        ledger: The edits behind the server's back.
        binder: Binds the rows, with the journal's own key.
    """

    def __init__(self) -> None:
        self.driver = sqlite3.connect(
            ":memory:", isolation_level=None, check_same_thread=False, cached_statements=1000
        )
        self.engine = create_engine(
            "sqlite://",
            creator=lambda: self.driver,
            poolclass=StaticPool,
            pool_reset_on_return=None,
        )
        self.ledger = Ledger(self.driver, lambda: self.binder)
        self.binder = _binder("")

    def format(self, journal_id: str, generation: int = 1) -> None:
        """Replace the content with an empty journal."""
        self.driver.deserialize(_template())
        self.driver.execute("PRAGMA temp_store = MEMORY")
        facts = new_facts(journal_id, generation, finished=True)
        self.driver.executemany("INSERT INTO journal_info VALUES (?, ?)", list(facts.items()))
        self.binder = _binder(journal_id)
        self.ledger.clear()

    def take(self, other: Disk) -> None:
        """Replace the content with the content of another disk."""
        self.driver.deserialize(other.driver.serialize())
        self.binder = other.binder
        self.ledger.edits = list(other.ledger.edits)
        self.ledger.taints = list(other.ledger.taints)

    def ask(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the rows of a query in SQL, without edits at rest."""
        with self.ledger.truth():
            return self.raw(statement, *values)

    def raw(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the rows of a query in SQL, as they are stored."""
        return self.driver.execute(statement, values).fetchall()

    def limit(self, free_pages: int | None) -> None:
        """Limit the number of free pages; `None`: no limit."""
        [[count]] = self.raw("PRAGMA page_count")
        [[free]] = self.raw("PRAGMA freelist_count")
        most = 1 << 30 if free_pages is None else max(1, count + free_pages - free)
        self.driver.execute(f"PRAGMA max_page_count = {most}")


def _binder(journal_id: str) -> Binder:
    return Binder(hashlib.sha256(journal_id.encode()).digest(), is_complete=True)


@cache
def disk(name: str) -> Disk:
    """Return the disk of this name; all schedules of the process use it in turn."""
    return Disk()


@cache
def _template() -> bytes:
    made = Disk()
    with made.engine.begin() as connection:
        metadata.create_all(connection)
    return made.driver.serialize()


class _InlineWriter(Writer):
    """The writer, in the event loop: all units of work submitted before its turn are one batch."""

    # Without super().__init__(), which creates a thread and a queue.
    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database
        self._backend = database.backend_of_disk
        self._clock_us = database.now_us
        self._committed = database._committed
        self._connection = None
        self._numbers = Numbers(self._backend)
        self._logs = database.logs
        self._witness = None
        self._closing = False
        self._loop = asyncio.get_running_loop()
        self._waiting: list[QueuedChange] = []

    def submit(
        self,
        work: Callable[[UnitOfWork], T],
        size_bytes: int = 0,
        *,
        thread: ThreadName | None = None,
        alone: bool = False,
        keeps_heads: bool = True,
    ) -> asyncio.Future[T]:
        self._database.check_open()
        return super().submit(work, size_bytes, thread=thread, alone=alone, keeps_heads=keeps_heads)

    def _enqueue(self, change: QueuedChange) -> None:
        self._waiting.append(change)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_later(self._database.delay_s(), self._turn)

    async def close(self) -> None:
        if self._waiting and self._database.life.alive:
            self._turn()
        self._disconnect()

    def _turn(self) -> None:
        waiting, self._waiting = self._waiting, []
        changes = [change for change in waiting if not change.answer.cancelled()]
        database = self._database
        if not database.life.alive or database.closed:
            return
        try:
            if database.happens("refuses"):
                committed = self._failed(changes)
            else:
                committed = self._commit(changes)
                database.on_commit(committed.threads)
                if database.happens("forgets_to_answer"):
                    self._failed(changes)
        except Crash:
            self._disconnect()
            return
        delay_s = database.delay_s()
        if delay_s:
            asyncio.get_running_loop().call_later(delay_s, self._late, changes, committed)
        else:
            self._resolve(changes, committed)

    def _late(self, changes: list[QueuedChange], committed: CommittedChanges) -> None:
        if self._database.life.alive:
            self._resolve(changes, committed)

    def _failed(self, changes: list[QueuedChange]) -> CommittedChanges:
        for change in changes:
            change.error = journal_unavailable("simulated")
        return CommittedChanges()

    def _connect(self) -> Connection:
        if self._connection is None:
            self._connection = self._backend.engine.connect()
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        self._numbers = Numbers(self._backend)
        self._logs.clear()
        self._database.disk.driver.rollback()
        if connection is not None:
            connection.close()


class MemoryDatabase(Database):
    """`Database` over a disk, for one life of a server.

    Attributes:
        disk: The disk with the journal.
        life: The life of the server.
        on_commit: Called after each commit with the threads that changed.
    """

    def __init__(
        self,
        disk: Disk,
        clock_us: Callable[[], int],
        rng: random.Random,
        life: Life | None = None,
        faults: JournalFaults | None = None,
    ) -> None:
        facts = dict(disk.raw("SELECT name, value FROM journal_info"))
        self.disk = disk
        self.life = life or Life()
        self.on_commit: Callable[[Set[tuple[str, str]]], None] = lambda changed: None
        self._faults = faults or JournalFaults()
        self._rng = rng
        self._backend = self.backend_of_disk = Sqlite(Path("memory"), disk.engine)
        self.binder = disk.binder
        disk.engine.update_execution_options(**options(self.binder))
        self.now_us = clock_us
        self.random_bits = lambda: rng.getrandbits(62)
        self.journal_id = facts["journal_id"]
        self.generation = int(facts["generation"])
        self.waiters = Waiters()
        self.added, self.logs = [], ThreadCache()
        self.full, self.heads = self.logs.full, self.logs.heads
        self.subscriptions = self.logs.subscriptions
        self.heads.now_s = lambda: 0.0
        self._closed = False
        self._understood = LATEST
        self._reader = threading.local()
        self._connections = []
        self._writer = _InlineWriter(self)

    def happens(self, fault: str) -> bool:
        """Return whether a fault happens at this call."""
        chance: float = getattr(self._faults, fault)
        return chance > 0 and self._rng.random() < chance

    def delay_s(self) -> float:
        """Return the seconds that this call takes."""
        return self._rng.uniform(0, self._faults.longest_s) if self.happens("takes_time") else 0.0

    @property
    def closed(self) -> bool:
        """Whether the server has stopped."""
        return self._closed

    def check_open(self) -> None:
        """Raise in a task of a server that has crashed or stopped."""
        self.life.check()
        if self._closed:
            raise journal_unavailable("it is closed")

    def query_inline(self, work: Callable[[Connection], T]) -> T:
        self.check_open()
        return self._read(work)

    async def query(self, work: Callable[[Connection], T]) -> T:
        await asyncio.sleep(self.delay_s())
        self.check_open()
        result = self._read(work)
        delay_s = self.delay_s()
        if delay_s:
            await asyncio.sleep(delay_s)
            self.check_open()
        return result

    async def close(self) -> None:
        await self._writer.close()
        self._closed = True
        for connection in self._connections:
            connection.close()

    async def used_bytes(self) -> int:
        return await self.query(self._backend.used_bytes)
