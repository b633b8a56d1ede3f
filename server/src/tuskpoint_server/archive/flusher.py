"""The loop that flushes one tenant, and those who wait for it."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..domain.errors import Reason, Refusal
from ..domain.model import BlobLocation, CheckpointKey
from ..journal import archive_status
from ..journal.archive_dirty import Aside
from .backlog import Backlog
from .one_flush import Flush, Flushed
from .ports import ArchiveJournal
from .settings import ArchiveSettings
from .telemetry import Instruments

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FlushOutcome:
    """Outcome of a flush of everything: checkpoints certified, and the newest catalog."""

    certified: int
    catalog: BlobLocation | None


@dataclass(frozen=True, slots=True)
class Trouble:
    """The last error: text for people, and its time in microseconds since the epoch."""

    message: str
    at_us: int


@dataclass(slots=True, eq=False)
class _RevisionWaiter:
    """Waits until a revision of a checkpoint is certified."""

    key: CheckpointKey
    revision: int
    answer: asyncio.Future[BlobLocation]


@dataclass(slots=True, eq=False)
class _AllWaiter:
    """Waits until everything that was journaled when it came, at `at_us`, is certified."""

    answer: asyncio.Future[FlushOutcome]
    at_us: int
    collected: bool = False
    certified: int = 0


class TenantFlusher:
    """Flushes a tenant by age, size, count, or because someone waits.

    Args:
        tenant: The tenant.
        flush: Does one flush.
        journal: Counts what waits.
        settings: Settings.
        instruments: What is measured.
        clock_us: Microseconds since the epoch.
    """

    def __init__(
        self,
        tenant: str,
        flush: Flush,
        journal: ArchiveJournal,
        settings: ArchiveSettings,
        instruments: Instruments,
        clock_us: Callable[[], int],
    ) -> None:
        self.tenant = tenant
        self.backlog = Backlog(settings)
        self.trouble: Trouble | None = None
        self.flush = flush
        self._journal = journal
        self._settings = settings
        self._instruments = instruments
        self._clock_us = clock_us
        self._loop = asyncio.get_running_loop()
        # Dictionaries, because they keep the order in which waiters came.
        self._revisions: dict[_RevisionWaiter, None] = {}
        self._alls: dict[_AllWaiter, None] = {}
        self._wake = asyncio.Event()
        self._urgent = False
        self._failures = 0
        self._retry_at = 0.0
        self._point_at: float | None = None
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to flush."""
        self._task = asyncio.create_task(self._run(), name=f"archive-{self.tenant}")

    async def stop(self) -> None:
        """Let a running flush finish within its grace; then leave it where it is."""
        self._stopping = True
        self._wake.set()
        if self._task is not None:
            _, running = await asyncio.wait({self._task}, timeout=self._settings.stop_grace_s)
            for task in running:
                task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        draining = Refusal(Reason.DRAINING)
        for answer in [w.answer for w in self._revisions] + [w.answer for w in self._alls]:
            if not answer.done():
                answer.set_exception(draining)

    def backlog_age_s(self) -> float:
        """Seconds since the oldest change that waits for a flush; from any thread."""
        return self.backlog.age_s(self.now)

    @property
    def now(self) -> float:
        """Time of the clock that flushes are due by."""
        return self._loop.time()

    async def count_backlog(self) -> None:
        """Let the journal say what waits."""
        counted = await self._journal.query(
            lambda connection: archive_status.backlog(connection, self.tenant)
        )
        self.backlog.counted(counted, self.now)

    def changed(self, stored_bytes: int) -> None:
        """Note a change."""
        before = self.backlog.due_at()
        self.backlog.changed(stored_bytes, self.now)
        if self.backlog.due_at() != before:
            self._wake.set()

    def flush_soon(self) -> None:
        """Flush without waiting for anything to become due."""
        self._urgent = True
        self._wake.set()

    async def certified(self, key: CheckpointKey, revision: int) -> BlobLocation:
        """Wait until a revision is certified; return the catalog that includes it.

        Raises:
            Refusal: `CHECKPOINT_MISSING` if it was deleted; `DRAINING`.
        """
        self._refuse_when_stopping()
        waiter = _RevisionWaiter(key, revision, asyncio.get_running_loop().create_future())
        self._revisions[waiter] = None
        self.flush_soon()
        try:
            return await waiter.answer
        finally:
            self._revisions.pop(waiter, None)

    async def flush_all(self) -> FlushOutcome:
        """Wait until everything journaled so far is certified, retrying at once.

        Raises:
            Refusal: Of the first flush that fails; `DRAINING`.
        """
        self._refuse_when_stopping()
        waiter = _AllWaiter(asyncio.get_running_loop().create_future(), self._clock_us())
        self._alls[waiter] = None
        self._retry_at = 0.0
        self.flush_soon()
        try:
            return await waiter.answer
        finally:
            self._alls.pop(waiter, None)

    def _refuse_when_stopping(self) -> None:
        """Refuse a wait that nothing would end."""
        if self._stopping:
            raise Refusal(Reason.DRAINING)

    # --- the loop --------------------------------------------------------------------

    async def _run(self) -> None:
        while await self._due():
            self._urgent = False
            self._point_at = None
            waiting = list(self._alls)
            try:
                if self.backlog.warning():  # what was deleted waits no longer
                    await self.count_backlog()
                await self._settle(await self.flush.once(self._collecting))
            except (Refusal, OSError) as error:
                self._failed(error, waiting)
            except Exception as error:  # noqa: BLE001 - a defect must not end the loop; it is told and retried
                _log.exception("a flush failed")
                self._failed(error, waiting)

    async def _due(self) -> bool:
        """Wait until a flush is due; false if the flusher stops."""
        while not self._stopping:
            self._wake.clear()
            due_at = 0.0 if self._urgent else self.backlog.due_at()
            if due_at is not None:
                due_at = max(due_at, self._retry_at)
            if self._point_at is not None:
                due_at = self._point_at if due_at is None else min(due_at, self._point_at)
            if due_at is not None and due_at <= self.now:
                return True
            try:
                async with asyncio.timeout(None if due_at is None else due_at - self.now):
                    await self._wake.wait()
            except TimeoutError:
                continue
        return False

    def _collecting(self) -> None:
        self.backlog.collecting()
        if any(not waiter.collected for waiter in self._alls):
            self.flush.retry_aside()
        for waiter in self._alls:
            waiter.collected = True

    def _failed(self, error: Exception, waiting: list[_AllWaiter]) -> None:
        self._failures += 1
        pause = min(
            self._settings.longest_retry_s,
            self._settings.first_retry_s * 2 ** min(self._failures - 1, 20),
        )
        self._retry_at = self.now + pause * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
        self._urgent = True
        self._wake.set()
        reason = error.reason.value if isinstance(error, Refusal) else type(error).__name__
        self.trouble = Trouble(_text(error), self._clock_us())
        self._instruments.retry(reason)
        if reason == Reason.BLOB_HASH_MISMATCH:
            self._instruments.mismatch()
        _log.warning("certification of tenant %s waits: %s", self.tenant, self.trouble.message)
        for waiter in waiting:
            if not waiter.answer.done():
                waiter.answer.set_exception(error)

    async def _settle(self, flushed: Flushed) -> None:
        """Answer those whose wish is fulfilled, and count anew what waits."""
        self._failures = 0
        self._retry_at = 0.0
        problem = flushed.pointer_problem or _aside_text(flushed.aside)
        self.trouble = Trouble(problem, self._clock_us()) if problem else None
        if flushed.pointer_problem:
            self._point_at = self.now + self._settings.longest_retry_s
        if not flushed.complete:
            self._urgent = True
        # Whoever came while the journal is asked waits for the next flush.
        alls = [waiter for waiter in self._alls if waiter.collected]
        if flushed.complete:
            await self.count_backlog()
        else:  # counting takes the longer, the more is left
            self.backlog.certified(flushed.certified_bytes)
        await self._answer_revisions(flushed)
        await self._answer_alls(alls, flushed)

    async def _answer_alls(self, waiters: list[_AllWaiter], flushed: Flushed) -> None:
        """Answer those before whose time nothing is left; more may come all the while."""
        oldest_us = None
        if waiters and not flushed.complete:
            oldest_us = await self._journal.query(
                lambda connection: archive_status.oldest_waiting_us(connection, self.tenant)
            )
        for waiter in waiters:
            waiter.certified += len(flushed.certified)
            if flushed.aside and not waiter.answer.done():
                waiter.answer.set_exception(_set_aside(_aside_text(flushed.aside)))
            done = flushed.complete or (
                flushed.catalog is not None and (oldest_us is None or oldest_us > waiter.at_us)
            )
            if done and not waiter.answer.done():
                waiter.answer.set_result(FlushOutcome(waiter.certified, flushed.catalog))

    async def _answer_revisions(self, flushed: Flushed) -> None:
        left = []
        for waiter in self._revisions:
            if waiter.answer.done():
                continue
            if flushed.catalog and flushed.certified.get(waiter.key, 0) >= waiter.revision:
                waiter.answer.set_result(flushed.catalog)
            else:
                left.append(waiter)
        if not left:
            return
        keys = [waiter.key for waiter in left]
        standing = await self._journal.query(
            lambda connection: archive_status.standing(connection, self.tenant, keys)
        )
        self._answer_by_standing(left, standing, flushed)

    def _answer_by_standing(
        self,
        waiters: list[_RevisionWaiter],
        standing: Mapping[CheckpointKey, archive_status.Standing],
        flushed: Flushed,
    ) -> None:
        catalog = flushed.catalog
        for waiter in waiters:
            if waiter.answer.done():
                continue
            found = standing.get(waiter.key)
            if found is None or found.revision < waiter.revision:
                waiter.answer.set_exception(checkpoint_missing(waiter.key))
            elif found.certified_revision >= waiter.revision and catalog:
                waiter.answer.set_result(catalog)
            elif waiter.key in flushed.aside:
                waiter.answer.set_exception(_set_aside(flushed.aside[waiter.key].problem))
            else:
                self._urgent = True


def _aside_text(aside: Aside) -> str:
    """Say what was set aside, for people; empty if nothing was."""
    for one in aside.values():
        others = f"; so are {len(aside) - 1} more" if len(aside) > 1 else ""
        return (
            f"checkpoint '{one.key.checkpoint_id}' in namespace '{one.key.checkpoint_ns}' of "
            f"thread '{one.key.thread_id}' is set aside: {one.problem}{others}"
        )
    return ""


def _set_aside(problem: str) -> Refusal:
    return Refusal(Reason.CERTIFICATION_FAILED, problem=problem)


def checkpoint_missing(key: CheckpointKey) -> Refusal:
    """Return the refusal to certify a checkpoint that does not exist."""
    return Refusal(
        Reason.CHECKPOINT_MISSING,
        thread_id=key.thread_id,
        checkpoint_ns=key.checkpoint_ns,
        checkpoint_id=key.checkpoint_id,
    )


def _text(error: Exception) -> str:
    """Say what went wrong; the text of an unexpected exception stays in the log."""
    if isinstance(error, Refusal):
        return error.message
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return "a defect of the server; its log tells more"
