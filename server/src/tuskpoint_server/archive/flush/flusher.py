"""The loop that flushes one tenant, and those who wait for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import astuple, dataclass
from functools import partial
from typing import NamedTuple

from ...domain.errors import Reason, Refusal, checkpoint_missing
from ...domain.model import BlobLocation, CheckpointKey
from ...domain.pacing import Backoff, pause
from ...journal.archiving import holes, status
from ...journal.archiving.holes import Hole
from ...journal.archiving.status import Wanted
from ...journal.database.database import Connection, Database
from ..read import DAMAGE
from .one_flush import ArchiveSettings, Flush, Flushed
from .telemetry import Instruments

_log = logging.getLogger(__name__)

_IDLE_FLUSHES = 16  # in a row that certify nothing, after which the next one waits a little


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
class _Waiter:
    """Waits until threads are certified up to what they had when it came."""

    answer: asyncio.Future[FlushOutcome]
    marks: Mapping[int, int]  # up to where each thread has to be certified
    # the one change that is waited for, through failures; `None`: all changes
    wanted: Wanted | None = None
    key: CheckpointKey | None = None  # the checkpoint that it is of
    certified: int = 0
    retried: bool = False  # every hole was tried again since


class _Standing(NamedTuple):
    """What a journal says of what is waited for."""

    watermarks: dict[int, int]
    holes: list[Hole]
    gone: set[Wanted]
    catalog: BlobLocation | None


class Backlog:
    """What waits, set right by the journal at every flush; times are of a monotonic clock."""

    def __init__(self, settings: ArchiveSettings) -> None:
        self._settings = settings
        self.size_bytes = self._fresh_bytes = self._fresh_changes = 0
        self.since: float | None = None

    def age_s(self, now: float) -> float:
        """Seconds since the oldest change that no flush has read."""
        return 0.0 if self.since is None else now - self.since

    def added(self, changes: int, added_bytes: int, now: float) -> None:
        """Note changes and the bytes of their new content."""
        self.size_bytes += added_bytes
        self._fresh_bytes += added_bytes
        self._fresh_changes += changes
        if self.since is None:
            self.since = now

    def due_at(self) -> float | None:
        """Return the time at which a flush is due, 0 for now, `None` for not at all."""
        if self.since is None:
            return None
        chosen = self._settings
        is_large = self._fresh_bytes >= chosen.max_pack_bytes
        if is_large or self._fresh_changes >= chosen.max_pack_checkpoints:
            return 0.0
        return self.since + chosen.flush_interval_s

    def collecting(self) -> None:
        """Note that a flush reads everything noted so far."""
        self._fresh_bytes = self._fresh_changes = 0
        self.since = None

    def admit(self) -> None:
        """Refuse with `BACKLOG_FULL` if the hard limit is passed."""
        maximum = self._settings.hard_limit_bytes
        if self.size_bytes > maximum:
            raise Refusal(Reason.BACKLOG_FULL, backlog_bytes=self.size_bytes, maximum=maximum)

    def warning(self) -> bool:
        """Return whether the soft limit is passed."""
        return self.size_bytes > self._settings.soft_limit_bytes


@dataclass(eq=False)
class TenantFlusher:
    """Flushes a tenant by age, size, count, or because someone waits.

    No flush begins while `turn` is held. `_on_damage` is called with the tenant if
    stored bytes that a flush needs cannot be read.
    """

    tenant: str
    _database: Database
    _settings: ArchiveSettings
    _instruments: Instruments
    _clock_us: Callable[[], int]
    flush: Flush
    _on_damage: Callable[[str], None]

    def __post_init__(self) -> None:
        self.backlog = Backlog(self._settings)
        self.trouble: Trouble | None = None
        self.turn = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self._waiters: dict[_Waiter, None] = {}  # in the order in which they came
        self._wake = asyncio.Event()
        self._urgent = self._stopping = False
        self._backoff = Backoff(self._settings.first_retry_s, self._settings.longest_retry_s)
        self._idle = 0
        self._retry_at = 0.0
        self._look_at: float | None = None
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
        self._refuse(self._waiters, Refusal(Reason.DRAINING))

    @property
    def now(self) -> float:
        """Time of the clock that flushes are due by."""
        return self._loop.time()

    async def count_backlog(self) -> None:
        """Let the journal say what waits."""
        counted = await self._database.query(partial(status.backlog, tenant=self.tenant))
        self.backlog.size_bytes = counted.size_bytes
        if counted.threads and self.backlog.since is None:
            self.backlog.since = self.now

    def added(self, changes: int, added_bytes: int) -> None:
        """Note changes and the bytes of their new content."""
        before = self.backlog.due_at()
        self.backlog.added(changes, added_bytes, self.now)
        if self.backlog.due_at() != before:
            self._wake.set()

    def flush_soon(self) -> None:
        """Flush without waiting for anything to become due."""
        self._urgent = True
        self._wake.set()

    async def certified(self, key: CheckpointKey, seq: int) -> BlobLocation:
        """Wait until a change is certified, as `Archive.certify`; return a catalog with it."""
        found, known, unstored = await self._database.query(
            lambda connection: (
                status.wanted(connection, self.tenant, key, seq),
                status.catalog(connection, self.tenant),
                holes.unstored(connection, self.tenant),
            )
        )
        if found is None:
            raise checkpoint_missing(*astuple(key))
        wanted, certified_seq = found
        if certified_seq >= seq and known is not None:
            if problem := _hole_reason(wanted, unstored):
                raise Refusal(Reason.CERTIFICATION_FAILED, problem=problem)
            return known.location
        outcome = await self._wait({wanted.thread: wanted.seq}, wanted, key)
        assert outcome.catalog is not None  # noqa: S101 - what is certified is in one
        return outcome.catalog

    async def flush_all(self, concerns: Callable[[str], bool]) -> FlushOutcome:
        """Wait until all that was journaled so far in some threads is certified, retrying at once.

        Refuses as the first flush that fails; with `CERTIFICATION_FAILED` if some of it is a hole.
        """
        waiting, unstored = await self._database.query(
            lambda connection: (
                status.waiting(connection, self.tenant, concerns),
                holes.unstored(connection, self.tenant),
            )
        )
        found = {hole.thread: hole.seq for hole in unstored if concerns(hole.thread_id)}
        self._retry_at = 0.0
        self.flush.retry_holes()
        return await self._wait({**found, **waiting})

    async def _wait(
        self,
        marks: Mapping[int, int],
        wanted: Wanted | None = None,
        key: CheckpointKey | None = None,
    ) -> FlushOutcome:
        if self._task is None or self._stopping:
            raise Refusal(Reason.DRAINING)
        waiter = _Waiter(self._loop.create_future(), marks, wanted, key)
        self._waiters[waiter] = None
        self.flush_soon()
        try:
            return await waiter.answer
        finally:
            self._waiters.pop(waiter, None)

    async def _run(self) -> None:
        while await self._due():
            self._urgent = False
            self._look_at = None
            waiting = list(self._waiters)
            try:
                if self.backlog.warning():  # what was deleted waits no longer
                    await self.count_backlog()
                async with self.turn:
                    flushed = await self.flush.once(self.backlog.collecting)
                await self._settle(flushed, waiting)
            except (Refusal, OSError) as error:
                self._failed(error, waiting)
            except Exception as error:  # noqa: BLE001 - a defect must not end the loop; it is retried
                _log.exception("a flush failed")
                self._failed(error, waiting)

    async def _due(self) -> bool:
        """Wait until a flush is due; false if the flusher stops."""
        while not self._stopping:
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

    def _failed(self, error: Exception, waiting: Iterable[_Waiter]) -> None:
        self._retry_at = self.now + self._backoff.failed()
        self.flush_soon()
        reason = error.reason if isinstance(error, Refusal) else None
        self.trouble = Trouble(_text(error), self._clock_us())
        name = reason.name if reason else type(error).__name__
        self._instruments.retries.add(1, {"reason": name})
        if reason is Reason.BLOB_HASH_MISMATCH:
            self._instruments.mismatches.add(1)
        if reason in DAMAGE:
            self._on_damage(self.tenant)
        _log.warning("certification of tenant %s is delayed: %s", self.tenant, self.trouble.message)
        self._refuse([waiter for waiter in waiting if waiter.wanted is None], error)

    def _refuse(self, waiters: Iterable[_Waiter], error: Exception) -> None:
        for waiter in waiters:
            if not waiter.answer.done():
                waiter.answer.set_exception(error)

    async def _settle(self, flushed: Flushed, waiting: Iterable[_Waiter]) -> None:
        """Answer those whose wish is fulfilled, and count anew what waits."""
        self._backoff.succeeded()
        self._retry_at = 0.0
        if not flushed.complete:
            self._urgent = True
            self.backlog.size_bytes = max(0, self.backlog.size_bytes - flushed.size_bytes)
        else:
            await self.count_backlog()
        asking = list(self._waiters)
        standing = await self._database.query(partial(self._standing, waiters=asking))
        problem = flushed.pointer_problem or _holes_text(standing.holes)
        self.trouble = Trouble(problem, self._clock_us()) if problem else None
        if flushed.pointer_problem:
            self._look_at = self.now + self._settings.longest_retry_s
        elif standing.holes:
            soonest = min(hole.retry_us for hole in standing.holes) - self._clock_us()
            self._look_at = self.now + max(1.0, soonest / 1e6)
        for waiter in waiting:
            waiter.certified += flushed.checkpoints
            waiter.retried = waiter.retried or flushed.retried
        for waiter in asking:
            _answer(waiter, standing)
        if not all(waiter.answer.done() for waiter in self._waiters):
            self._urgent = True
            self._idle = 0 if flushed.checkpoints else self._idle + 1
            if self._idle > _IDLE_FLUSHES:
                self._retry_at = self.now + self._settings.first_retry_s

    def _standing(self, connection: Connection, waiters: Collection[_Waiter]) -> _Standing:
        known = status.catalog(connection, self.tenant) if waiters else None
        return _Standing(
            status.watermarks(connection, {thread for one in waiters for thread in one.marks}),
            holes.unstored(connection, self.tenant),
            status.missing(connection, {one.wanted for one in waiters if one.wanted is not None}),
            known.location if known is not None else None,
        )


def _answer(waiter: _Waiter, standing: _Standing) -> None:
    """Answer who waits, if there is an answer by now."""
    if waiter.answer.done():
        return
    wanted = waiter.wanted
    if wanted in standing.gone and waiter.key is not None:
        waiter.answer.set_exception(checkpoint_missing(*astuple(waiter.key)))
        return
    marks, through = waiter.marks, standing.watermarks
    if any(through.get(thread, seq) < seq for thread, seq in marks.items()):
        return
    if wanted is not None and standing.catalog is None:
        return
    if wanted is not None:
        problem = _hole_reason(wanted, standing.holes)
    else:
        unstored = [hole for hole in standing.holes if hole.seq <= marks.get(hole.thread, -1)]
        if unstored and not waiter.retried:
            return
        problem = _holes_text(unstored)
    if problem:
        waiter.answer.set_exception(Refusal(Reason.CERTIFICATION_FAILED, problem=problem))
    else:
        waiter.answer.set_result(FlushOutcome(waiter.certified, standing.catalog))


def _hole_reason(wanted: Wanted, unstored: Iterable[Hole]) -> str:
    """Return why a change is a hole, or one up to it if it is of no checkpoint; empty: none is."""
    place = (wanted.checkpoint_ns, wanted.checkpoint_id)
    for hole in unstored:
        is_in = hole.place == place if wanted.checkpoint_id else hole.seq <= wanted.seq
        if hole.thread == wanted.thread and is_in:
            return hole.reason
    return ""


def _holes_text(unstored: list[Hole]) -> str:
    """Say what is not stored, for people; empty if everything is."""
    for hole in unstored:
        others = f"; nor are {len(unstored) - 1} more" if len(unstored) > 1 else ""
        return (
            f"checkpoint '{hole.checkpoint_id}' in namespace '{hole.checkpoint_ns}' of "
            f"thread '{hole.thread_id}' is not stored: {hole.reason}{others}"
        )
    return ""


def _text(error: Exception) -> str:
    """Say what went wrong; the text of an unexpected exception stays in the log."""
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    defect = "internal error; see the server's log"
    return error.message if isinstance(error, Refusal) else defect
