"""The one writer: requests that wait are committed together, with one fsync.

A task takes all requests that are queued and runs them in a thread of its own, in one
transaction, each inside a savepoint; then it commits, and only then answers. A request
sees what earlier ones of its batch did. One that raises is undone alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine

from ..domain.errors import Reason, Refusal
from ..domain.failpoints import failpoint
from . import sqlite
from .events import TOUCHED
from .waking import Watched

T = TypeVar("T")

_log = logging.getLogger(__name__)

MAX_BATCH_REQUESTS = 256
MAX_BATCH_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Request:
    work: Callable[[Connection], Any]
    answer: asyncio.Future[Any]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class _Done:
    value: Any


@dataclass(frozen=True, slots=True)
class _Failed:
    error: BaseException


_Outcome = _Done | _Failed


def unavailable(problem: str) -> Refusal:
    """Return the refusal that says what is wrong with the journal."""
    return Refusal(Reason.JOURNAL_UNAVAILABLE, problem=problem)


def raise_unavailable(error: Exception) -> None:
    """Raise `JOURNAL_UNAVAILABLE` if the error is the database's; else return.

    Raises:
        Refusal: `JOURNAL_UNAVAILABLE`.
    """
    problem = sqlite.storage_problem(error)
    if problem is not None:
        raise unavailable(problem) from error


class Writer:
    """Owns the write transaction of a database.

    Args:
        engine: The database.
        committed: Told after each commit, in the event loop, which threads have new events.
    """

    def __init__(
        self, engine: Engine, committed: Callable[[Set[Watched]], None] = lambda changed: None
    ) -> None:
        self._engine = engine
        self._committed = committed
        self._path = Path(engine.url.database or "")
        self._log_limit = sqlite.LONG_LOG_BYTES
        self._connection: Connection | None = None
        self._queue: deque[_Request] = deque()
        self._wake = asyncio.Event()
        self._closing = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="journal-writer")
        self._task = asyncio.create_task(self._serve(), name="journal-writer")

    async def submit(self, work: Callable[[Connection], T], size_bytes: int = 0) -> T:
        """Run `work` in a write transaction and return its result once that is fsynced.

        Cancelling the caller does not take the request back.

        Args:
            work: Runs in the writer's thread; must not begin, commit or roll back.
            size_bytes: About how many bytes it writes; bounds what one batch takes.

        Raises:
            Refusal: `JOURNAL_UNAVAILABLE`; nothing of the request is stored.
            Exception: Whatever `work` raised; nothing of the request is stored.
        """
        if self._closing:
            raise unavailable("it is closed")
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(_retrieve)
        self._queue.append(_Request(work, answer, size_bytes))
        self._wake.set()
        return await asyncio.shield(answer)

    async def close(self) -> None:
        """Finish what is queued, then release the connection."""
        self._closing = True
        self._wake.set()
        await asyncio.wait([self._task])
        await asyncio.get_running_loop().run_in_executor(self._thread, self._disconnect)
        self._thread.shutdown()

    async def _serve(self) -> None:
        try:
            while True:
                while not self._queue:
                    if self._closing:
                        return
                    self._wake.clear()
                    await self._wake.wait()
                await self._commit_batch(self._take_batch())
                await self._bound_log()
        finally:
            self._closing = True
            for request in self._queue:
                request.answer.set_exception(unavailable("it was stopped"))
            self._queue.clear()

    async def _commit_batch(self, batch: list[_Request]) -> None:
        works = [request.work for request in batch]
        loop = asyncio.get_running_loop()
        try:
            outcomes, changed = await loop.run_in_executor(self._thread, self._commit, works)
        except BaseException:
            for request in batch:
                request.answer.set_exception(unavailable("it was stopped; the outcome is unknown"))
            raise
        self._committed(changed)
        for request, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, _Done):
                request.answer.set_result(outcome.value)
            else:
                request.answer.set_exception(outcome.error)

    async def _bound_log(self) -> None:
        """Begin the database's log anew once it is long; if that fails, once it has doubled."""
        size = sqlite.log_bytes(self._path)
        if size <= self._log_limit:
            return
        restarted = await asyncio.get_running_loop().run_in_executor(
            self._thread, self._restart_log
        )
        self._log_limit = sqlite.LONG_LOG_BYTES if restarted else 2 * size

    def _take_batch(self) -> list[_Request]:
        batch = [self._queue.popleft()]
        size = batch[0].size_bytes
        while self._queue and len(batch) < MAX_BATCH_REQUESTS:
            size += self._queue[0].size_bytes
            if size > MAX_BATCH_BYTES:
                break
            batch.append(self._queue.popleft())
        return batch

    # --- in the writer's thread ------------------------------------------------------

    def _commit(
        self, works: list[Callable[[Connection], Any]]
    ) -> tuple[list[_Outcome], Set[Watched]]:
        try:
            connection = self._connect()
            failpoint("journal.before_begin")
            transaction = connection.begin()
            outcomes = [self._run(connection, work) for work in works]
            failpoint("journal.before_commit")
            transaction.commit()
        except Exception as error:  # noqa: BLE001 - every caller of the batch is told
            self._disconnect()
            problem = sqlite.storage_problem(error) or f"{type(error).__name__}"
            return [_failed(problem, error) for _ in works], frozenset()
        failpoint("journal.after_commit")
        return outcomes, connection.info.pop(TOUCHED, frozenset())

    def _run(self, connection: Connection, work: Callable[[Connection], Any]) -> _Outcome:
        cursor = connection.connection.cursor()
        cursor.execute("SAVEPOINT request")
        try:
            value = work(connection)
        except Exception as error:
            if not sqlite.in_transaction(connection):
                raise
            cursor.execute("ROLLBACK TO request")
            cursor.execute("RELEASE request")
            problem = sqlite.storage_problem(error)
            return _Failed(error) if problem is None else _failed(problem, error)
        cursor.execute("RELEASE request")
        return _Done(value)

    def _restart_log(self) -> bool:
        try:
            return sqlite.restart_log(self._connect())
        except Exception:  # noqa: BLE001 - the next commit tells what is wrong
            _log.warning("the journal's log cannot be begun anew", exc_info=True)
            self._disconnect()
            return False

    def _connect(self) -> Connection:
        if self._connection is None:
            self._connection = sqlite.connect_writer(self._engine)
        return self._connection

    def _disconnect(self) -> None:
        """Drop the connection and what it has not committed; the next batch opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.invalidate()
            connection.close()


def _retrieve(answer: asyncio.Future[Any]) -> None:
    """Mark an error as seen, since the caller may have gone away."""
    if not answer.cancelled():
        answer.exception()


def _failed(problem: str, error: Exception) -> _Failed:
    refusal = unavailable(problem)
    refusal.__cause__ = error
    return _Failed(refusal)
