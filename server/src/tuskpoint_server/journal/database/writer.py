"""The one writer: a thread that owns the write transaction.

It takes all changes that wait, decides them one after another against the batch's overlay,
writes each row once and commits; then it answers. The fsync is shared by all of them.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable, Set
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

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

Touched = tuple[str, str]
"""Tenant and thread."""


@dataclass(frozen=True, slots=True)
class _Change:
    """One change in the queue.

    Attributes:
        work: Decides and records it in the batch.
        answer: Resolved in `loop` once the commit is fsynced.
        loop: The caller's event loop.
        size_bytes: About how many bytes it writes.
        alone: It reads and writes rows beside the overlay: it has a savepoint of its own.
    """

    work: Callable[[Batch], Any]
    answer: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop
    size_bytes: int
    alone: bool


@dataclass(frozen=True, slots=True)
class _Outcome:
    """Outcome of a change: its value, or the error that refused it."""

    value: Any = None
    error: BaseException | None = None


class _Broken(Exception):
    """A statement of the batch failed, though the storage works: a change alone is to blame."""


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
        clock_us: Microseconds since the epoch.
        committed: Called in the event loop after each commit with the threads that changed.
        noted: Called in the writer's thread, before the commit, with the digests that the
            batch stored, by family.
    """

    def __init__(
        self,
        engine: Engine,
        clock_us: Callable[[], int],
        committed: Callable[[Set[Touched]], None] = lambda changed: None,
        noted: Callable[[dict[int, set[bytes]]], None] = lambda stored: None,
    ) -> None:
        self._engine = engine
        self._clock_us = clock_us
        self._committed = committed
        self._noted = noted
        self._path = Path(engine.url.database or "")
        self._log_limit = sqlite.LONG_LOG_BYTES
        self._connection: Connection | None = None
        self._numbers: Numbers | None = None
        self._logs = Logs()
        self._queue: queue.SimpleQueue[_Change | None] = queue.SimpleQueue()
        self._carried: _Change | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._serve, name="journal-writer", daemon=True)
        self._thread.start()

    def submit(
        self, work: Callable[[Batch], T], size_bytes: int = 0, *, alone: bool = False
    ) -> asyncio.Future[T]:
        """Enqueue a change; the future is resolved once it is fsynced.

        Cancelling the future does not take the change back.

        Args:
            work: Runs in the writer's thread; must not begin, commit or roll back. It raises
                before it changes anything in the batch, unless it is `alone`.
            size_bytes: About how many bytes it writes; bounds what one batch takes.
            alone: It reads or writes rows beside the batch's own methods. All that the batch
                did before is written out first, and it has a savepoint of its own.

        Returns:
            Its value; or `JOURNAL_UNAVAILABLE`, or what `work` raised: nothing of it is
            stored then.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        answer.add_done_callback(_retrieve)
        if self._closing:
            answer.set_exception(unavailable("it is closed"))
        else:
            self._queue.put(_Change(work, answer, loop, size_bytes, alone))
        return answer

    async def close(self) -> None:
        """Commit what is queued, then release the connection."""
        if not self._closing:
            self._closing = True
            self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    # --- in the writer's thread --------------------------------------------------------

    def _serve(self) -> None:
        ended = False
        while not ended:
            batch, ended = self._take()
            if batch:
                self._answer(batch, *self._commit(batch))
                self._bound_log()
        self._disconnect()

    def _take(self) -> tuple[list[_Change], bool]:
        """Wait for a change; return it with all others that wait, and whether it is the end."""
        first = self._carried or self._queue.get()
        self._carried = None
        if first is None:
            return [], True
        batch, size = [first], first.size_bytes
        while len(batch) < MAX_BATCH_CHANGES:
            try:
                more = self._queue.get_nowait()
            except queue.Empty:
                break
            if more is None:
                return batch, True
            size += more.size_bytes
            if size > MAX_BATCH_BYTES:
                self._carried = more
                break
            batch.append(more)
        return batch, False

    def _commit(self, changes: list[_Change]) -> tuple[list[_Outcome], Set[Touched]]:
        try:
            try:
                return self._run(changes, one_by_one=False)
            except _Broken:
                return self._run(changes, one_by_one=True)
        except Exception as error:  # noqa: BLE001 - every caller of the batch gets it
            self._disconnect()
            refusal = unavailable(sqlite.storage_problem(error) or type(error).__name__)
            refusal.__cause__ = error
            return [_Outcome(error=refusal) for _ in changes], frozenset()

    def _run(
        self, changes: list[_Change], *, one_by_one: bool
    ) -> tuple[list[_Outcome], Set[Touched]]:
        """Run changes in a transaction and commit it.

        Raises:
            _Broken: A statement failed and storage is not the reason; nothing is stored.
        """
        connection = self._connect()
        failpoint("journal.before_begin")
        transaction = connection.begin()
        batch = Batch(connection, self._logs, self._numbering(connection), self._clock_us())
        outcomes = []
        for change in changes:
            if change.alone or one_by_one:
                outcomes.append(self._run_alone(batch, change))
            else:
                outcomes.append(self._run_together(batch, change))
        try:
            batch.write_out()
        except Exception as error:
            raise self._broken(error, one_by_one=one_by_one) from error
        self._noted(batch.noted)
        failpoint("journal.before_commit")
        transaction.commit()
        failpoint("journal.after_commit")
        self._logs.trim()
        return outcomes, batch.changed

    def _run_together(self, batch: Batch, change: _Change) -> _Outcome:
        """Decide a change against the overlay."""
        try:
            return _Outcome(change.work(batch))
        except Refusal as refusal:
            return _Outcome(error=refusal)
        except Exception as error:
            raise self._broken(error, one_by_one=False) from error

    def _run_alone(self, batch: Batch, change: _Change) -> _Outcome:
        """Run a change inside a savepoint; what it raises undoes it alone."""
        try:
            batch.write_out()
        except Exception as error:
            raise self._broken(error, one_by_one=True) from error
        cursor = batch.connection.connection.cursor()
        cursor.execute("SAVEPOINT change")
        try:
            value = change.work(batch)
            batch.write_out()
        except Exception as error:
            if not sqlite.in_transaction(batch.connection):
                raise
            cursor.execute("ROLLBACK TO change")
            cursor.execute("RELEASE change")
            batch.discard()
            self._logs.clear()
            problem = sqlite.storage_problem(error)
            if problem is None:
                return _Outcome(error=error)
            refusal = unavailable(problem)
            refusal.__cause__ = error
            return _Outcome(error=refusal)
        cursor.execute("RELEASE change")
        return _Outcome(value)

    def _broken(self, error: Exception, *, one_by_one: bool) -> Exception:
        """Forget the transaction; return what is to be raised because of its error."""
        self._disconnect()
        if one_by_one or sqlite.storage_problem(error) is not None:
            return error
        _log.warning("a batch is committed change by change, because one failed", exc_info=error)
        return _Broken()

    def _answer(
        self, changes: list[_Change], outcomes: list[_Outcome], changed: Set[Touched]
    ) -> None:
        """Resolve the futures, in as few wake-ups of their loops as there are loops."""
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[_Change, _Outcome]]] = {}
        for change, outcome in zip(changes, outcomes, strict=True):
            by_loop.setdefault(change.loop, []).append((change, outcome))
        for loop, answered in by_loop.items():
            try:
                loop.call_soon_threadsafe(self._resolve, answered, changed)
            except RuntimeError:  # the loop is closed: nobody waits there any more
                _log.debug("answers to a closed event loop are dropped")

    def _resolve(self, answered: list[tuple[_Change, _Outcome]], changed: Set[Touched]) -> None:
        """In the event loop: wake watchers, then the callers."""
        if changed:
            self._committed(changed)
        for change, outcome in answered:
            if change.answer.done():
                continue
            if outcome.error is not None:
                change.answer.set_exception(outcome.error)
            else:
                change.answer.set_result(outcome.value)

    def _bound_log(self) -> None:
        """Begin the database's log anew once it is long; if that fails, once it has doubled."""
        size = sqlite.log_bytes(self._path)
        if size <= self._log_limit:
            return
        try:
            restarted = sqlite.restart_log(self._connect())
        except Exception:  # noqa: BLE001 - the next commit says what is wrong
            _log.warning("the journal's log cannot be begun anew", exc_info=True)
            self._disconnect()
            restarted = False
        self._log_limit = sqlite.LONG_LOG_BYTES if restarted else 2 * size

    def _connect(self) -> Connection:
        if self._connection is None:
            self._connection = sqlite.connect_writer(self._engine)
        return self._connection

    def _numbering(self, connection: Connection) -> Numbers:
        if self._numbers is None:
            self._numbers = Numbers(connection)
        return self._numbers

    def _disconnect(self) -> None:
        """Drop the connection, what it has not committed, and what is known of the rows."""
        connection, self._connection = self._connection, None
        self._numbers = None
        self._logs.clear()
        if connection is not None:
            # A connection that is closed while an error's frames hold one of its cursors lives
            # on, and so would the lock of its transaction.
            with suppress(Exception):
                sqlite.roll_back(connection)
            connection.invalidate()
            connection.close()


def _retrieve(answer: asyncio.Future[Any]) -> None:
    """Mark an error as seen, since the caller may have gone away."""
    if not answer.cancelled():
        answer.exception()
