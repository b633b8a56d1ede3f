"""The one writer: a thread that owns the write transaction.

The thread collects all waiting changes, decides one after another against the batch's unit of work,
writes each row once and commits; then it answers. All changes of a batch share one fsync.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Connection

from ...core.errors import Reason, Refusal
from ...core.model import ThreadName
from ..failpoints import failpoint
from ..sql.backend import Backend, Numbers, OutcomeUnknownError
from ..sql.journal_metadata import follow_sealing
from ..sql.sealing import seal_of
from ..sql.statements import driver_of
from .thread_cache import ThreadCache
from .unit_of_work import UnitOfWork
from .witness import Witness

T = TypeVar("T")

_log = logging.getLogger(__name__)

MAX_BATCH_CHANGES = 256
MAX_BATCH_BYTES = 16 * 1024 * 1024
# PostgreSQL ends the session of a server that hangs in a transaction before that time.
_LONGEST_DEFERRAL_S = 12.0
_ATTEMPTS = 5  # attempts of a batch in a shared database, before its changes run one by one


@dataclass(eq=False, slots=True)
class QueuedChange:
    """A change in the queue, and its outcome: a value, or the error of the refusal."""

    work: Callable[[UnitOfWork], object]
    answer: asyncio.Future[Any]
    size_bytes: int
    alone: bool
    keeps_heads: bool = True
    thread: ThreadName | None = None
    deferred_s: float = 0.0  # time of the first deferral, by a monotonic clock
    value: Any = None
    error: BaseException | None = None


class CommittedChanges(NamedTuple):
    """The effects of a commit."""

    threads: Set[tuple[str, str]] = frozenset()  # tenant and name of the changed threads
    # tenant to the number of its changes and the bytes of their new content
    added: Mapping[str, tuple[int, int]] = {}
    events: int = 0  # number of events for webhooks


class _BatchError(Exception):
    """A statement of the batch failed, though the storage works: one change caused the failure."""


class _ThreadLockedError(Exception):
    """Another server has held the lock of a thread for too long."""


class _ConflictError(Exception):
    """A transaction of another server conflicted, or the connection broke before the commit."""


def _answer(change: QueuedChange) -> None:
    """Resolve the future of a change, unless its caller is gone."""
    if change.answer.done():
        return
    if change.error is None:
        change.answer.set_result(change.value)
    else:
        change.answer.set_exception(change.error)
        change.answer.exception()  # so that asyncio logs nothing if the caller drops the future


def journal_unavailable(problem: str) -> Refusal:
    """Return the refusal that names the journal's problem."""
    return Refusal(Reason.JOURNAL_UNAVAILABLE, problem=problem)


def raise_unavailable(backend: Backend, error: Exception) -> None:
    """Raise a refusal if the database caused the error; otherwise return."""
    if isinstance(error, OutcomeUnknownError):
        raise Refusal(Reason.OUTCOME_UNKNOWN, problem=error) from error
    problem = backend.storage_problem(error)
    if problem is not None:
        raise journal_unavailable(problem) from error


class Writer:
    """Owns the write transaction of a database.

    Args:
        committed: Called in the event loop after each commit, before its changes are answered.
        alone: Whether to keep other servers from the journal while the writer runs.
        witness: Notes the last acknowledged change.
    """

    def __init__(
        self,
        backend: Backend,
        clock_us: Callable[[], int],
        committed: Callable[[CommittedChanges], None],
        logs: ThreadCache,
        *,
        alone: bool,
        witness: Witness | None = None,
    ) -> None:
        self._alone = alone
        self._witness = witness
        self._backend = backend
        self._clock_us = clock_us
        self._committed = committed
        self._connection: Connection | None = None
        self._numbers = Numbers(backend)
        self._logs = logs
        self._queue: queue.SimpleQueue[QueuedChange | None] = queue.SimpleQueue()
        self._carried: QueuedChange | None = None
        self._deferred: list[QueuedChange] = []
        self._closing = False
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._serve, name="journal-writer", daemon=True)
        self._thread.start()

    def submit(
        self,
        work: Callable[[UnitOfWork], T],
        size_bytes: int = 0,
        *,
        thread: ThreadName | None = None,
        alone: bool = False,
        keeps_heads: bool = True,
    ) -> asyncio.Future[T]:
        """Enqueue a change; the future is resolved once it is fsynced.

        The future's error is `JOURNAL_UNAVAILABLE`, or the error that `work` raised: then nothing
        is stored. With `OUTCOME_UNKNOWN` the change is stored or not. Cancelling the future
        withdraws a change that the writer has not started. After that the change continues, and
        only its outcome is dropped.

        Args:
            work: Runs in the writer's thread; must not begin, commit or roll back. An error of
                `work` must come before its first change in the batch, unless the change is `alone`.
            size_bytes: About how many bytes the change writes; bounds the size of a batch.
            thread: Thread that the change changes: a shared database locks the threads of a batch
                at once.
            alone: Whether the change reads or writes rows outside the batch's own methods. The
                batch is then written out first, and the change has its own savepoint.
            keeps_heads: Whether the change leaves all answers to loads as they are, except for
                saves through the batch's own methods.
        """
        answer: asyncio.Future[T] = self._loop.create_future()
        change = QueuedChange(work, answer, size_bytes, alone, keeps_heads, thread)
        if self._closing:
            change.error = journal_unavailable("it is closed")
            _answer(change)
        else:
            self._enqueue(change)
        return answer

    def _enqueue(self, change: QueuedChange) -> None:
        self._queue.put(change)

    async def close(self) -> None:
        """Commit the queued changes, then release the connection."""
        if not self._closing:
            self._closing = True
            self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    def _serve(self) -> None:
        ended = False
        while not ended or self._deferred:
            batch, is_last = self._take()
            ended = ended or is_last
            if batch:
                committed = self._commit(batch)
                decided = [change for change in batch if change not in self._deferred]
                with suppress(RuntimeError):  # the loop is closed: no caller waits there
                    self._loop.call_soon_threadsafe(self._resolve, decided, committed)
                # No caller has to wait for this.
                self._logs.trim()
                self._tidy()
        self._disconnect()

    def _take(self) -> tuple[list[QueuedChange], bool]:
        """Wait for a change; return all waiting changes, and whether the queue has ended.

        Changes that the last batch deferred come first. Withdrawn changes are left out.
        """
        batch, self._deferred = self._deferred, []
        size = sum(change.size_bytes for change in batch)
        if batch and self._carried is None and self._queue.empty():
            return batch, False
        change = self._carried or self._queue.get()
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

    def _commit(self, changes: Sequence[QueuedChange]) -> CommittedChanges:
        """Run changes and commit them."""
        attempts, one_by_one, waits = iter(range(_ATTEMPTS)), False, True
        try:
            while True:
                try:
                    return self._run(changes, one_by_one=one_by_one, waits=waits)
                except _ThreadLockedError:
                    waits = False
                except _ConflictError:
                    one_by_one = next(attempts, None) is None
                except _BatchError:
                    one_by_one = True
        except Exception as error:  # noqa: BLE001 - every caller of the batch gets it
            self._disconnect()
            problem = self._backend.storage_problem(error)
            outcome = journal_unavailable(problem or type(error).__name__)
            # JOURNAL_UNAVAILABLE would promise that nothing was stored
            if isinstance(error, OutcomeUnknownError):
                outcome = Refusal(Reason.OUTCOME_UNKNOWN, problem=error)
            outcome.__cause__ = error
            for change in changes:
                change.error = outcome
            return CommittedChanges()

    def _run(
        self, changes: Sequence[QueuedChange], *, one_by_one: bool, waits: bool
    ) -> CommittedChanges:
        """Run changes in a transaction, except deferred changes.

        `waits`: wait a short time for threads that another server has locked.

        Raises:
            _BatchError: One of the changes caused the failure.
            _ThreadLockedError: A thread stayed locked for the whole wait.
            _ConflictError: Another attempt may succeed.
        """
        connection = self._connect()
        failpoint("journal.before_begin")
        shared = self._backend.is_shared
        batch = UnitOfWork(connection, self._logs, self._numbers, self._clock_us(), shared=shared)
        alone = one_by_one
        try:
            self._backend.begin(connection, writes=True)
            if (seal := seal_of(connection)) is not None and not seal.is_complete:
                follow_sealing(connection, seal)
            late = self._lock(batch, changes, waits=waits)
            for change in changes:
                if change in self._deferred or change in late:
                    continue
                change.value = change.error = None
                if change.alone or one_by_one:
                    batch.write_out()
                    # an earlier statement's failure must not count as this change's failure
                    self._backend.receive(connection)
                    alone = True
                self._decide(batch, change, alone=alone, one_by_one=one_by_one)
                alone = one_by_one
            batch.write_out()
            failpoint("journal.before_commit")
            keeps_heads = all(change.keeps_heads for change in changes)
            if shared:  # loads must see that another server's change replaced the binding
                keeps_heads = keeps_heads and batch.binder.is_complete
            self._withdraw_heads(batch, keeps=keeps_heads)
            self._backend.commit(connection, changed=batch.changed.keys(), at_us=batch.now_us)
            self._backend.check_files()
        except Exception as error:
            if self._backend.is_busy(error):
                driver_of(connection).rollback()
                raise _ThreadLockedError from error
            is_lost = self._backend.is_lost(connection)
            self._disconnect()
            if isinstance(error, OutcomeUnknownError):
                raise
            if not one_by_one and (is_lost or self._backend.is_conflict(error)):
                raise _ConflictError from error
            if alone or self._backend.storage_problem(error) is not None:
                raise
            _log.warning(
                "a change of a batch failed; the batch is run again change by change",
                exc_info=error,
            )
            raise _BatchError from error
        failpoint("journal.after_commit")
        if keeps_heads:
            self._logs.keep_heads(batch.changed)
        if self._witness is not None and batch.last is not None:
            self._witness.note(*batch.last)
        if self._backend.is_lost(connection):
            self._disconnect()
        return CommittedChanges(batch.changed.keys(), batch.added, batch.outbox.count)

    def _withdraw_heads(self, batch: UnitOfWork, *, keeps: bool) -> None:
        """Make loads read from the database the threads that the coming commit may change."""
        if keeps:
            self._logs.heads.withdraw(batch.changed)
        else:
            self._logs.heads.clear()

    def _lock(
        self, batch: UnitOfWork, changes: Sequence[QueuedChange], *, waits: bool
    ) -> list[QueuedChange]:
        """Lock the threads of changes; defer changes of threads that another server has locked.

        With `waits`, the call waits for threads that were deferred before, and if all threads are
        locked. Returns the changes that were deferred for too long; they are refused.
        """
        due_threads = (
            {change.thread for change in changes if change.thread and change.deferred_s}
            if waits
            else set()
        )
        if due_threads:
            with self._backend.waiting(batch.connection):
                locked = batch.locking(due_threads)
        free = batch.locking({change.thread for change in changes if change.thread}, wait=False)
        if due_threads:
            locked()
        busy = free()
        self._deferred = [change for change in changes if change.thread in busy]
        now_s = time.monotonic() if busy else 0.0
        for change in self._deferred:
            change.deferred_s = change.deferred_s or now_s
        if waits and len(self._deferred) == len(changes):
            with self._backend.waiting(batch.connection):
                locked = batch.locking(busy)
            locked()
            self._deferred = []
        late = [
            change for change in self._deferred if now_s - change.deferred_s > _LONGEST_DEFERRAL_S
        ]
        for change in late:
            self._deferred.remove(change)
            change.error = journal_unavailable(
                f"another server has held the lock of the thread for {_LONGEST_DEFERRAL_S:.0f} s"
            )
        return late

    def _decide(
        self, batch: UnitOfWork, change: QueuedChange, *, alone: bool, one_by_one: bool
    ) -> None:
        """Run a change; if alone, inside a savepoint, so that its error undoes this change only."""
        if not alone:
            try:
                change.value = change.work(batch)
            except Refusal as refusal:
                change.error = refusal
            return
        driver, added, last = driver_of(batch.connection), dict(batch.added), batch.last
        driver.execute("SAVEPOINT change")
        try:
            change.value = change.work(batch)
            batch.write_out()
            self._backend.receive(batch.connection)
        except Exception as error:
            # some errors end the transaction
            if not self._backend.in_transaction(batch.connection):
                raise
            if not one_by_one and self._backend.is_conflict(error):
                raise
            driver.execute("ROLLBACK TO change")
            batch.undone()
            batch.added, batch.last = added, last
            problem = self._backend.storage_problem(error)
            change.error = error if problem is None else journal_unavailable(problem)
            change.error.__cause__ = None if problem is None else error
        driver.execute("RELEASE change")

    def _resolve(self, changes: Sequence[QueuedChange], committed: CommittedChanges) -> None:
        """Report the commit, then answer the callers; runs in the event loop."""
        if committed.threads:
            self._committed(committed)
        for change in changes:
            _answer(change)

    def _tidy(self) -> None:
        if self._connection is None:
            return
        try:
            self._backend.tidy(self._connection)
        except Exception:  # noqa: BLE001 - the next commit says what is wrong
            _log.warning("the write-ahead log of the journal cannot be reset", exc_info=True)
            self._disconnect()

    def _connect(self) -> Connection:
        if self._connection is None:
            self._connection = self._backend.engine.connect()
            if self._alone:
                self._backend.own(self._connection)
            self._backend.use(self._connection, alone=self._alone)
        return self._connection

    def _disconnect(self) -> None:
        """Drop the connection, its uncommitted changes, and the cached rows."""
        connection, self._connection = self._connection, None
        self._numbers = Numbers(self._backend)
        self._logs.clear()
        if connection is not None:
            # If frames of an error still hold a cursor, a closed connection lives on, and so does
            # the lock of its transaction.
            with suppress(Exception):
                driver_of(connection).rollback()
            connection.invalidate()
            connection.close()
