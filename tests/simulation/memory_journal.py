"""The journal in memory: the same tables and the same functions, and commits that can fail."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from sqlalchemy import Connection, create_engine
from sqlalchemy.pool import StaticPool

from tests.simulation.crashes import Life
from tuskpoint_server.domain.errors import Reason, Refusal
from tuskpoint_server.journal.schema import metadata

_T = TypeVar("_T")
Work = Callable[[Connection], _T]


@dataclass
class JournalFaults:
    """How likely a transaction is to fail, before or after its commit, and to take time."""

    refuses: float = 0.0
    forgets_to_answer: float = 0.0
    takes_time: float = 0.0
    longest_s: float = 0.05


class Database:
    """One database in memory, emptied for each schedule."""

    def __init__(self) -> None:
        engine = create_engine(
            "sqlite://",
            poolclass=StaticPool,
            connect_args={"isolation_level": None, "cached_statements": 1000},
        )
        metadata.create_all(engine)
        self.connection = engine.connect()
        driver = self.connection.connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        self._driver = driver
        self._tables = [table.name for table in metadata.sorted_tables]

    def empty(self) -> None:
        """Remove every row."""
        for name in (*self._tables, "sqlite_sequence"):
            self._driver.execute(f"DELETE FROM {name}")

    def transact(self, work: Work[_T], before_commit: Callable[[], None]) -> _T:
        """Run work in a transaction of its own."""
        self._driver.execute("BEGIN")
        try:
            result = work(self.connection)
            before_commit()
        except BaseException:
            self._driver.execute("ROLLBACK")
            raise
        self._driver.execute("COMMIT")
        return result

    def ask(self, statement: str, **values: object) -> list[tuple[Any, ...]]:
        """Return the rows of a query in SQL."""
        return self._driver.execute(statement, values).fetchall()


@cache
def database(name: str = "main") -> Database:
    """Return the database of this name, which all schedules of the process share."""
    return Database()


class MemoryJournal:
    """`archive.ports.ArchiveJournal` over a database, for one life of the server."""

    def __init__(
        self, base: Database, life: Life, faults: JournalFaults, rng: random.Random
    ) -> None:
        self.database = base
        self._life = life
        self.faults = faults
        self._rng = rng
        self.on_commit: Callable[[], None] = lambda: None

    async def transact(
        self, work: Work[_T], then: Callable[[_T], None] | None = None, *, size_bytes: int = 0
    ) -> _T:
        """Run work in a transaction; `then` runs at the commit, whoever hears of it.

        Cancelling the caller does not take it back.
        """
        self._life.check()
        if self._rng.random() >= self.faults.takes_time:
            result = self._commit(work, then)
            await asyncio.sleep(0)
            return result
        task = asyncio.ensure_future(self._slowly(work, then))
        task.add_done_callback(_retrieved)
        return await asyncio.shield(task)

    async def query(self, work: Work[_T]) -> _T:
        """Run work on a snapshot."""
        self._life.check()
        slow = self._rng.random() < self.faults.takes_time
        await asyncio.sleep(self._rng.uniform(0, self.faults.longest_s) if slow else 0)
        self._life.check()
        result = work(self.database.connection)
        if self._rng.random() < self.faults.takes_time:
            await asyncio.sleep(self._rng.uniform(0, self.faults.longest_s))
            self._life.check()
        return result

    async def _slowly(self, work: Work[_T], then: Callable[[_T], None] | None) -> _T:
        await asyncio.sleep(self._rng.uniform(0, self.faults.longest_s))
        self._life.check()
        result = self._commit(work, then)
        await asyncio.sleep(self._rng.uniform(0, self.faults.longest_s))
        self._life.check()
        return result

    def _commit(self, work: Work[_T], then: Callable[[_T], None] | None) -> _T:
        if self._rng.random() < self.faults.refuses:
            raise Refusal(Reason.JOURNAL_UNAVAILABLE, problem="simulated")
        result = self.database.transact(work, lambda: self._life.point("journal.before_commit"))
        if then is not None:
            then(result)
        self.on_commit()
        self._life.point("journal.after_commit")
        if self._rng.random() < self.faults.forgets_to_answer:
            raise Refusal(Reason.JOURNAL_UNAVAILABLE, problem="simulated, outcome unknown")
        return result


def _retrieved(task: asyncio.Task[object]) -> None:
    """Look at how a task ended: its caller may be gone, and then nobody else does."""
    if not task.cancelled():
        task.exception()
