"""The one writer: a thread that owns the write transaction.

It takes all changes that wait, decides them one after another against the batch's overlay,
writes each row once and commits; then it answers. The fsync is shared by all of them.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Connection, Engine

from ...domain.errors import Reason, Refusal
from ...domain.failpoints import failpoint
from . import sqlite
from .logs import Logs
from .overlay import Batch, Numbers

T = TypeVar("T")

_log = logging.getLogger(__name__)

MAX_BATCH_CHANGES = 256
MAX_BATCH_BYTES = 16 * 1024 * 1024


@dataclass(eq=False, slots=True)
class Change:
    """One change in the queue, and its outcome: a value, or the error that refused it."""

    work: Callable[[Batch], Any]
    answer: asyncio.Future[Any]
    size_bytes: int
    alone: bool
    value: Any = None
    error: BaseException | None = None


class Committed(NamedTuple):
    """What a commit did."""

    threads: Set[tuple[str, str]] = frozenset()  # tenant and name of those that changed
    # tenant to the number of its changes and the bytes of their new content
    added: Mapping[str, tuple[int, int]] = {}


class _Broken(Exception):
    """A statement of the batch failed, though the storage works: a change alone is to blame."""


def _answer(change: Change) -> None:
    """Resolve the future of a change, unless its caller went away."""
    if change.answer.done():
        return
    if change.error is None:
        change.answer.set_result(change.value)
    else:
        change.answer.set_exception(change.error)
        change.answer.exception()  # so that asyncio logs nothing if the caller drops the future


def unavailable(problem: str) -> Refusal:
    """Return the refusal that says what is wrong with the journal."""
    return Refusal(Reason.JOURNAL_UNAVAILABLE, problem=problem)


def raise_unavailable(error: Exception) -> None:
    """Raise `JOURNAL_UNAVAILABLE` if the error is the database's; else return."""
    problem = sqlite.storage_problem(error)
    if problem is not None:
        raise unavailable(problem) from error


class Writer:
    """Owns the write transaction of a database.

    Args:
        committed: Called in the event loop after each commit, before its changes are answered.
        noted: Called as `Database.noted` says.
    """

    def __init__(
        self,
        engine: Engine,
        path: Path,
        clock_us: Callable[[], int],
        committed: Callable[[Committed], None],
        noted: Sequence[Callable[[dict[int, set[bytes]]], None]],
    ) -> None:
        self._engine = engine
        self._path = path
        self._clock_us = clock_us
        self._committed = committed
        self._noted = noted
        self._log_limit = sqlite.LONG_LOG_BYTES
        self._connection: Connection | None = None
        self._numbers: Numbers | None = None
        self._logs = Logs()
        self._queue: queue.SimpleQueue[Change | None] = queue.SimpleQueue()
        self._carried: Change | None = None
        self._closing = False
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._serve, name="journal-writer", daemon=True)
        self._thread.start()

    def submit(
        self, work: Callable[[Batch], T], size_bytes: int = 0, *, alone: bool = False
    ) -> asyncio.Future[T]:
        """Enqueue a change; the future is resolved once it is fsynced.

        Its error is `JOURNAL_UNAVAILABLE`, or what `work` raised: nothing is stored then.
        Cancelling the future withdraws a change that the writer has not begun with. After that
        the change goes on, and only its outcome is dropped.

        Args:
            work: Runs in the writer's thread; must not begin, commit or roll back. It raises
                before it changes anything in the batch, unless it is `alone`.
            size_bytes: About how many bytes it writes; bounds what one batch takes.
            alone: It reads or writes rows beside the batch's own methods, so what the batch did
                before is written out first, and it has a savepoint of its own.
        """
        answer: asyncio.Future[T] = self._loop.create_future()
        change = Change(work, answer, size_bytes, alone)
        if self._closing:
            change.error = unavailable("it is closed")
            _answer(change)
        else:
            self._enqueue(change)
        return answer

    def _enqueue(self, change: Change) -> None:
        self._queue.put(change)

    async def close(self) -> None:
        """Commit what is queued, then release the connection."""
        if not self._closing:
            self._closing = True
            self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    def _serve(self) -> None:
        ended = False
        while not ended:
            batch, ended = self._take()
            if batch:
                committed = self._commit(batch)
                with suppress(RuntimeError):  # the loop is closed: nobody waits there any more
                    self._loop.call_soon_threadsafe(self._resolve, batch, committed)
                # What no caller has to wait for.
                self._logs.trim()
                self._bound_log()
        self._disconnect()

    def _take(self) -> tuple[list[Change], bool]:
        """Wait for a change; return it with all others that wait, and whether it is the end.

        Changes that were withdrawn are left out.
        """
        batch: list[Change] = []
        size, change = 0, self._carried or self._queue.get()
        self._carried = None
        while change is not None:
            if not change.answer.cancelled():
                size += change.size_bytes
                if batch and size > MAX_BATCH_BYTES:
                    self._carried = change
                    return batch, False
                batch.append(change)
            if len(batch) == MAX_BATCH_CHANGES:
                return batch, False
            try:
                change = self._queue.get_nowait()
            except queue.Empty:
                return batch, False
        return batch, True

    def _commit(self, changes: Sequence[Change]) -> Committed:
        """Run changes and commit them."""
        try:
            try:
                return self._run(changes, one_by_one=False)
            except _Broken:
                return self._run(changes, one_by_one=True)
        except Exception as error:  # noqa: BLE001 - every caller of the batch gets it
            self._disconnect()
            refusal = unavailable(sqlite.storage_problem(error) or type(error).__name__)
            refusal.__cause__ = error
            for change in changes:
                change.error = refusal
            return Committed()

    def _run(self, changes: Sequence[Change], *, one_by_one: bool) -> Committed:
        """Run changes in a transaction; `_Broken` if one of them is to blame for its failure."""
        connection = self._connect()
        failpoint("journal.before_begin")
        sqlite.begin(connection, writes=True)
        if self._numbers is None:
            self._numbers = Numbers(connection)
        batch = Batch(connection, self._logs, self._numbers, self._clock_us())
        alone = one_by_one
        try:
            for change in changes:
                change.value = change.error = None
                alone = change.alone or one_by_one
                self._decide(batch, change, alone=alone)
            alone = one_by_one
            batch.write_out()
        except Exception as error:
            self._disconnect()
            if alone or sqlite.storage_problem(error) is not None:
                raise
            _log.warning(
                "a change of a batch failed; the batch is run again change by change",
                exc_info=error,
            )
            raise _Broken from error
        for callback in self._noted:
            callback(batch.noted)
        failpoint("journal.before_commit")
        sqlite.commit(connection)
        failpoint("journal.after_commit")
        return Committed(batch.changed, batch.added)

    def _decide(self, batch: Batch, change: Change, *, alone: bool) -> None:
        """Run a change; if alone, inside a savepoint, so that what it raises undoes it alone."""
        if not alone:
            try:
                change.value = change.work(batch)
            except Refusal as refusal:
                change.error = refusal
            return
        batch.write_out()
        driver, added = sqlite.driver_of(batch.connection), dict(batch.added)
        driver.execute("SAVEPOINT change")
        try:
            change.value = change.work(batch)
            batch.write_out()
        except Exception as error:
            if not driver.in_transaction:  # some errors end it
                raise
            driver.execute("ROLLBACK TO change")
            batch.discard()
            batch.added = added
            self._logs.clear()
            problem = sqlite.storage_problem(error)
            change.error = error if problem is None else unavailable(problem)
            change.error.__cause__ = None if problem is None else error
        driver.execute("RELEASE change")

    def _resolve(self, changes: Sequence[Change], committed: Committed) -> None:
        """In the event loop: say what was committed, then answer the callers."""
        if committed.threads:
            self._committed(committed)
        for change in changes:
            _answer(change)

    def _bound_log(self) -> None:
        """Begin the database's log anew once it is long; if that fails, once it has doubled."""
        size = sqlite.log_bytes(self._path)
        if size <= self._log_limit:
            return
        try:
            restarted = sqlite.restart_log(self._connect())
        except Exception:  # noqa: BLE001 - the next commit says what is wrong
            _log.warning("the write-ahead log of the journal cannot be reset", exc_info=True)
            self._disconnect()
            restarted = False
        self._log_limit = sqlite.LONG_LOG_BYTES if restarted else 2 * size

    def _connect(self) -> Connection:
        if self._connection is None:
            self._connection = self._engine.connect()
        return self._connection

    def _disconnect(self) -> None:
        """Drop the connection, what it has not committed, and what is known of the rows."""
        connection, self._connection = self._connection, None
        self._numbers = None
        self._logs.clear()
        if connection is not None:
            # A connection that is closed while an error's frames hold one of its cursors lives
            # on, and so would the lock of its transaction.
            with suppress(Exception):
                sqlite.driver_of(connection).rollback()
            connection.invalidate()
            connection.close()
