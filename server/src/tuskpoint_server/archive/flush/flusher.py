"""Loop that flushes one tenant, and the callers that wait for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import astuple, dataclass
from functools import partial

from ...blobs.api import StoreLostError
from ...core.errors import Reason, Refusal, checkpoint_missing
from ...core.model import BlobLocation, CheckpointKey
from ...core.pacing import Backoff, doubled_pause, pause
from ...journal.database.database import KEEPING, POLL_S, Connection
from ...journal.lease import LeaseLostError
from ..read.read import DAMAGE
from ..rows import gaps, status
from ..rows.damaged_threads import find_damaged
from ..rows.gaps import Gap
from ..rows.status import AwaitedChange, NewestCatalog
from . import flush_requests
from .backlog import FlushBacklog
from .one_flush import ArchiveParts, Flush, FlushResult
from .waiting import (
    CertificationState,
    FlushOutcome,
    FlushWaiter,
    answer_waiter,
    gap_reason,
    gaps_text,
)

_log = logging.getLogger(__name__)

_FIRST_LOOKS_S = 0.25  # pause between checks of the leader's progress, while a caller is new
# flushes in a row that certify nothing, after which the next flush waits a little
_IDLE_FLUSHES = 16


@dataclass(frozen=True, slots=True)
class FlushTrouble:
    """Last error: text for people, and its time in microseconds since the epoch."""

    message: str
    at_us: int


@dataclass(eq=False)
class TenantFlusher:
    """Flushes a tenant by age, size, count, or because a caller waits.

    A server that is not the leader runs no flusher (`start` was not called, or `end` was); its
    callers wait for the leader's flushes (`follow`).

    No flush starts while `turn` is held. `_on_damage` is called with the tenant if stored bytes
    that a flush needs cannot be read.
    """

    tenant: str
    _parts: ArchiveParts
    flush: Flush
    _on_damage: Callable[[str], None]

    def __post_init__(self) -> None:
        self.backlog = FlushBacklog(self._parts.settings)
        self.trouble: FlushTrouble | None = None
        self.turn = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self._waiters: dict[FlushWaiter, None] = {}  # waiting callers, in the order of arrival
        self._wake = asyncio.Event()
        self._urgent = self._ending = self._stopped = False
        self._backoff = Backoff(
            self._parts.settings.first_retry_s, self._parts.settings.longest_retry_s
        )
        self._idle = 0
        self._retry_at, self._store_lost = 0.0, False
        self._look_at: float | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start to flush."""
        self._ending = False
        self._retry_at = 0.0
        self._backoff.succeeded()
        for waiter in self._waiters:
            waiter.request = None
            if waiter.wanted is None:
                self.flush.retry_gaps()
        self._task = asyncio.create_task(self._run(), name=f"archive-{self.tenant}")

    async def end(self) -> None:
        """End: give a running flush its grace, then cancel it; the next leader continues.

        A leader that lost its lease gets no grace. Callers continue to wait.
        """
        self._ending = True
        self._wake.set()
        if self._task is not None:
            grace_s = self._parts.settings.stop_grace_s if self._parts.lease.held else 0.0
            _, running = await asyncio.wait({self._task}, timeout=grace_s)
            for task in running:
                task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self.flush.forget()

    def refuse(self) -> None:
        """Refuse all waiting and future callers: the server stops."""
        self._stopped = True
        self.fail(Refusal(Reason.DRAINING))

    def fail(self, error: Exception) -> None:
        """Answer all waiting callers with an error."""
        self._refuse(self._waiters, error)

    @property
    def now(self) -> float:
        """Current time of the clock that sets when flushes are due."""
        return self._loop.time()

    async def count_backlog(self) -> None:
        """Count the backlog in the journal; only storable changes make a flush due."""
        damaged = self.flush.damaged.numbers
        counted = await self._parts.database.query(
            partial(status.backlog, tenant=self.tenant, damaged=damaged)
        )
        self.backlog.size_bytes = counted.size_bytes
        if counted.threads and self.backlog.since is None:
            self.backlog.since = self.now

    def counted(self, backlog: status.CertificationBacklog) -> None:
        """Adopt the journal's backlog, unless a flush runs, which counts for itself."""
        if not self.turn.locked():
            due_at = self.backlog.due_at()
            self.backlog.counted(backlog, self.now)
            if self.backlog.due_at() != due_at:
                self._wake.set()

    def added(self, changes: int, added_bytes: int) -> None:
        """Note changes and the bytes of their new content."""
        due_at = self.backlog.due_at()
        self.backlog.added(changes, added_bytes, self.now)
        if self.backlog.due_at() != due_at:
            self._wake.set()

    def flush_soon(self) -> None:
        """Flush as soon as possible, whether or not a flush is due."""
        self._urgent = True
        self._wake.set()

    def retry_lost(self) -> None:
        """Flush at once if the last flush failed because the store was lost."""
        if self._store_lost:
            self._retry_at = 0.0
            self._wake.set()

    async def certified(self, key: CheckpointKey, seq: int) -> BlobLocation:
        """Wait until a change is certified, as `Archive.certify`; return a catalog with it."""

        def look(
            connection: Connection,
        ) -> tuple[tuple[AwaitedChange, int] | None, NewestCatalog | None, list[Gap]]:
            return (
                status.awaited_change(connection, self.tenant, key, seq),
                status.catalog(connection, self.tenant),
                gaps.unstored_checkpoints(connection, self.tenant),
            )

        try:
            change, catalog, unstored = await self._parts.database.query(look)
        except Refusal as refusal:
            if refusal.reason is not Reason.JOURNAL_DAMAGED or not await self.flush.mend_catalog():
                raise
            change, catalog, unstored = await self._parts.database.query(look)
        if change is None:
            raise checkpoint_missing(*astuple(key))
        wanted, certified_seq = change
        if certified_seq >= seq and catalog is not None:
            if problem := gap_reason(wanted, unstored):
                raise Refusal(Reason.CERTIFICATION_FAILED, problem=problem)
            return catalog.location
        self.retry_lost()  # the caller learns at once that the store is lost
        outcome = await self._wait({wanted.thread: wanted.seq}, wanted, key)
        assert outcome.catalog is not None  # noqa: S101 - every certified change is in one
        return outcome.catalog

    async def flush_all(self, concerns: Callable[[str], bool]) -> FlushOutcome:
        """Wait until some threads are certified up to now; retry gaps and failures at once.

        Raises the refusal of the first flush that fails, and `CERTIFICATION_FAILED` if one of the
        threads has a gap.
        """
        waiting, unstored = await self._parts.database.query(
            lambda connection: (
                status.waiting_threads(connection, self.tenant, concerns),
                gaps.unstored_checkpoints(connection, self.tenant),
            )
        )
        gap_marks = {gap.thread: gap.seq for gap in unstored if concerns(gap.thread_id)}
        self._retry_at = 0.0
        self.flush.retry_gaps()
        return await self._wait({**gap_marks, **waiting})

    async def _wait(
        self,
        marks: Mapping[int, int],
        wanted: AwaitedChange | None = None,
        key: CheckpointKey | None = None,
    ) -> FlushOutcome:
        if self._stopped:
            raise Refusal(Reason.DRAINING)
        waiter = FlushWaiter(self._loop.create_future(), marks, wanted, key, came=self.now)
        self._waiters[waiter] = None
        self.flush_soon()
        if not self._parts.lease.held:
            self._parts.database.waiters.wake({KEEPING})
        try:
            return await waiter.answer
        finally:
            self._waiters.pop(waiter, None)

    async def follow(self) -> float | None:
        """Request flushes of the leader; answer callers here whose changes it has certified.

        Returns the seconds to the next check; `None`: nobody waits.
        """
        waiting = list(self._waiters)
        if not waiting:
            return None
        new = [waiter for waiter in waiting if waiter.request is None]
        if new:
            everything = any(waiter.wanted is None for waiter in new)
            number = await self._parts.database.write_past_batches(
                partial(flush_requests.ask, tenant=self.tenant, everything=everything)
            )
            for waiter in new:
                waiter.request = number
            self._parts.database.announce({KEEPING})
        state, row = await self._parts.database.query(
            lambda connection: (
                self._certification_state(connection, waiting),
                flush_requests.of_tenant(connection, self.tenant),
            )
        )
        for waiter in waiting:
            if waiter.wanted is not None:
                answer_waiter(waiter, state)
            elif row.all_tried >= (waiter.request or 0):
                self._tried(waiter, state, flush_requests.outcome_of(row))
        newest = max(waiter.came for waiter in waiting)
        return _FIRST_LOOKS_S if self.now - newest < POLL_S else POLL_S

    def _tried(
        self, waiter: FlushWaiter, state: CertificationState, outcome: int | Refusal
    ) -> None:
        """Answer a caller after the leader tried to certify everything."""
        waiter.retried = True
        if not isinstance(outcome, Refusal):
            waiter.certified += outcome
        answer_waiter(waiter, state)
        if isinstance(outcome, Refusal):
            self._refuse([waiter], outcome)
        # a caller without an answer sends a new request: its thread changed meanwhile
        waiter.request = None

    async def _run(self) -> None:
        while await self._due():
            self._urgent = False
            self._look_at = None
            waiting = list(self._waiters)
            try:
                if self.backlog.warning():  # a part of the backlog may have been deleted meanwhile
                    await self.count_backlog()
                async with self.turn:
                    flushed = await self.flush.once(self.backlog.collecting)
                await self._settle(flushed, waiting)
            except LeaseLostError:
                return
            except (Refusal, OSError) as error:
                self._failed(error, waiting)
            except Exception as error:  # noqa: BLE001 - a defect must not end the loop; it is retried
                _log.exception("a flush failed")
                self._failed(error, waiting)

    async def _due(self) -> bool:
        """Wait until a flush is due; return false if the flusher stops."""
        while not self._ending:
            self._wake.clear()
            due_at = 0.0 if self._urgent else self.backlog.due_at()
            if due_at is not None:
                due_at = max(due_at, self._retry_at)
            if self._look_at is not None:
                due_at = self._look_at if due_at is None else min(due_at, self._look_at)
            if due_at is not None and due_at <= self.now:
                return True
            await pause(None if due_at is None else due_at - self.now, self._wake)
        return False

    def _failed(self, error: Exception, waiting: Collection[FlushWaiter]) -> None:
        came_since = any(
            waiter.wanted is None and waiter not in waiting for waiter in self._waiters
        )
        pause_s = self._backoff.failed()
        # callers that came during the flush wait for a new attempt
        self._retry_at = 0.0 if came_since else self.now + pause_s
        self.flush_soon()
        reason = error.reason if isinstance(error, Refusal) else None
        self.trouble = FlushTrouble(text_of(error), self._parts.clock_us())
        name = reason.name if reason else type(error).__name__
        self._parts.instruments.retries.add(1, {"reason": name})
        if reason is Reason.BLOB_HASH_MISMATCH:
            self._parts.instruments.mismatches.add(1)
        if reason in DAMAGE:
            self._on_damage(self.tenant)
        _log.warning("certification of tenant %s is delayed: %s", self.tenant, self.trouble.message)
        self._refuse([waiter for waiter in waiting if waiter.wanted is None], error)
        self._store_lost = isinstance(error, StoreLostError)
        if self._store_lost:  # waiting does not bring a lost store back, so no caller waits for it
            self._refuse(waiting, Refusal(Reason.CERTIFICATION_FAILED, problem=text_of(error)))

    def _refuse(self, waiters: Iterable[FlushWaiter], error: Exception) -> None:
        for waiter in waiters:
            if not waiter.answer.done():
                waiter.answer.set_exception(error)

    async def _settle(self, flushed: FlushResult, waiting: Iterable[FlushWaiter]) -> None:
        """Answer the waiters whose changes are certified, and count the backlog."""
        self._backoff.succeeded()
        self._retry_at, self._store_lost = 0.0, False
        if not flushed.complete:
            self._urgent = True
            self.backlog.size_bytes = max(0, self.backlog.size_bytes - flushed.size_bytes)
        else:
            await self.count_backlog()
        flush_requests = list(self._waiters)
        state = await self._parts.database.query(
            partial(self._certification_state, waiters=flush_requests)
        )
        problem = self.flush.damaged.text or gaps_text(state.gaps)
        problem = flushed.pointer_problem or problem
        self.trouble = FlushTrouble(problem, self._parts.clock_us()) if problem else None
        pauses = [self._parts.settings.longest_retry_s] if flushed.pointer_problem else []
        pauses += [max(1.0, self._first_retry_s(state.gaps))] if state.gaps else []
        pauses += [self._pause_of_damaged_s()] if self.flush.damaged else []
        self._look_at = self.now + min(pauses) if pauses else None
        for waiter in waiting:
            waiter.certified += flushed.checkpoints
            waiter.retried = waiter.retried or flushed.retried
        for waiter in flush_requests:
            answer_waiter(waiter, state)
        if waiters := [waiter for waiter in self._waiters if not waiter.answer.done()]:
            self._urgent = True
            is_forgotten = any(waiter.wanted is None and not waiter.retried for waiter in waiters)
            if is_forgotten and not self.flush.retries_gaps:
                # callers that came while gaps were retried need one more retry
                self.flush.retry_gaps()
            self._idle = 0 if flushed.checkpoints else self._idle + 1
            if self._idle > _IDLE_FLUSHES:
                self._retry_at = self.now + self._parts.settings.first_retry_s

    def _pause_of_damaged_s(self) -> float:
        """Return the seconds to the next check of damaged threads, more after each failed check."""
        interval_s, looks = self._parts.settings.flush_interval_s, self.flush.damaged.looks
        return doubled_pause(interval_s, gaps.RETRY_US / 1e6, looks)

    def _first_retry_s(self, unstored: Iterable[Gap]) -> float:
        """Return the seconds to the first retry of a gap; gaps of damaged threads wait in full."""
        now_us, damaged = self._parts.clock_us(), self.flush.damaged.numbers
        retries_us = (
            now_us + gaps.RETRY_US if gap.thread in damaged else gap.retry_us for gap in unstored
        )
        return (min(retries_us) - now_us) / 1e6

    def _certification_state(
        self, connection: Connection, waiters: Collection[FlushWaiter]
    ) -> CertificationState:
        catalog = status.catalog(connection, self.tenant) if waiters else None
        marks = {thread for waiter in waiters for thread in waiter.marks}
        return CertificationState(
            status.watermarks(connection, marks),
            gaps.unstored_checkpoints(connection, self.tenant),
            status.missing_changes(
                connection, {waiter.wanted for waiter in waiters if waiter.wanted is not None}
            ),
            catalog.location if catalog is not None else None,
            find_damaged(connection, marks),
        )


def text_of(error: Exception) -> str:
    """Return an error for people; the text of an unexpected exception is only logged."""
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    defect = "internal error; see the server's log"
    return error.message if isinstance(error, Refusal) else defect
