"""Delivers memories: one task sends waiting ones, and asks for the outcome of sent ones.

A batch cannot be repeated: it would be stored twice. So a memory that may have been stored already
is sent alone from then on, under a key that is always the same: it is stored at most twice, once by
the batch and once by the key. The next step of each memory is always in the journal.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from ...core.errors import Refusal
from ...core.pacing import Backoff, doubled_pause, pause
from ...core.search import Memory, MemoryState
from ..memories import MemoryRows
from ..pacing import DEFECT
from . import api
from .api import Budget, Job, JobState, MemWalSettings, RelayerError, RelayerHealth, RelayerTrouble
from .relayer import Relayer

_log = logging.getLogger(__name__)

STOP_GRACE_S = 2.0  # time that a call under way has to end when the server stops
LIMITED_S = 60.0  # pause after a refusal by the rate limit that names no time


@dataclass(eq=False)
class MemoryDelivery:
    """Brings memories to the relayer, from its making to `stop`."""

    _memories: MemoryRows  # the memories to deliver; nothing else changes its rows
    _relayer: Relayer  # the task closes it at its end
    _budget: Budget
    _settings: MemWalSettings
    _health: RelayerHealth
    _clock_us: Callable[[], int]  # that of `memories`
    _keeps: Callable[[], bool] = lambda: True  # whether this server is the leader, which delivers

    def __post_init__(self) -> None:
        """Begin with the memories that are due in the journal."""
        settings = self._settings
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._sending = Backoff(settings.first_retry_s, settings.longest_retry_s)
        self._asking = Backoff(settings.first_retry_s, settings.longest_retry_s)
        # By number of the memory. Of one that was sent before the start, since the start.
        self._sent_at: dict[int, float] = {}
        # After a failure, one memory finds out whether the relayer is back.
        self._probing = False
        self._stopping = False
        self._task = asyncio.create_task(self._run(), name="memwal-delivery")

    async def stop(self) -> None:
        """End; a call under way has a moment, then it is given up."""
        self._stopping = True
        self._wake.set()
        await asyncio.wait({self._task}, timeout=STOP_GRACE_S)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def wake(self) -> None:
        """Look for memories now: there are new ones."""
        self._wake.set()

    async def _run(self) -> None:
        try:
            while not self._stopping:
                self._wake.clear()
                if not self._keeps():
                    await self._wake.wait()
                    continue
                asked_in = await self._guarded(self._ask, self._asking)
                sent_in = await self._guarded(self._send, self._sending)
                waits = [wait_s for wait_s in (asked_in, sent_in) if wait_s is not None]
                if not waits:
                    self._health.last_error = ""  # the failed memories are not needed any more
                await pause(min(waits, default=None), self._wake)
        finally:
            await self._relayer.close()

    async def _guarded(
        self, work: Callable[[], Awaitable[float | None]], backoff: Backoff
    ) -> float | None:
        """Do a piece of work if it is time; return the seconds until the next, if there is one."""
        now = self._loop.time()
        if self._stopping or backoff.until > now:
            return backoff.until - now
        try:
            return await work()
        except Refusal as refusal:
            _log.warning("deliveries to MemWal are delayed: %s", refusal.message)
        except Exception:  # noqa: BLE001 - a defect must not end the task; it is logged and retried
            _log.exception("a delivery to MemWal failed")
            self._health.failed(RelayerError(RelayerTrouble.UNAVAILABLE, DEFECT))
        self._probing = True
        backoff.until = max(backoff.until, self._loop.time() + backoff.failed())
        return 0.0

    async def _due_in_s(self, state: MemoryState) -> float | None:
        due_us = await self._memories.next_due_us(state)
        return None if due_us is None else (due_us - self._clock_us()) / 1e6

    def _pause_after(self, failures: int) -> float:
        return doubled_pause(self._settings.first_retry_s, self._settings.longest_retry_s, failures)

    def _succeeded(self, backoff: Backoff) -> None:
        """Note that a call succeeded; while others fail, that alone is no good health."""
        backoff.succeeded()
        if not (self._sending.failures or self._asking.failures):
            self._health.answered()

    def _troubled(self, error: RelayerError, backoff: Backoff) -> None:
        self._health.failed(error)
        if error.trouble is RelayerTrouble.LIMITED:
            self._budget.pause(LIMITED_S if error.retry_after_s is None else error.retry_after_s)
            return
        now = self._loop.time()
        backoff.until = max(backoff.until, now + backoff.failed())
        if error.trouble is RelayerTrouble.DENIED:
            self._sending.until = self._asking.until = now + self._settings.longest_retry_s

    async def _send(self) -> float | None:
        """Make one call that sends, if there is anything to send and points are left."""
        due_s = await self._due_in_s(MemoryState.WAITING)
        if due_s is None:
            return None
        wait_s = due_s + self._settings.gather_s
        probing = self._probing
        if wait_s <= 0:
            wait_s = self._budget.wait_delivery(api.COST_REMEMBER if probing else api.COST_BATCH)
        if wait_s > 0:
            return wait_s
        memories = await self._memories.take(1 if probing else api.MAX_BATCH, unsure_first=probing)
        if not memories:
            return self._settings.gather_s
        if self._budget.take_delivery(api.COST_REMEMBER if len(memories) == 1 else api.COST_BATCH):
            await self._memories.note(list(map(self._waiting, memories)))  # a recall came first
            return 0.0
        try:
            job_ids = await self._call(memories)
        except Exception as error:  # noqa: BLE001 - a defect, perhaps of one text: others go on
            if not isinstance(error, RelayerError):
                _log.exception("sending to MemWal failed")
                error = RelayerError(RelayerTrouble.UNAVAILABLE, DEFECT, unsure=True)
            await self._memories.note(self._unsent(memories, error))
            return 0.0
        self._probing = False
        self._succeeded(self._sending)
        now = self._loop.time()
        self._sent_at.update((memory.number, now) for memory in memories)
        due_us = self._ask_us(self._settings.first_ask_s)
        await self._memories.note(
            [
                replace(memory, state=MemoryState.SENT, job_id=job_id, due_us=due_us)
                for memory, job_id in zip(memories, job_ids, strict=True)
            ]
        )
        return 0.0

    async def _call(self, memories: Sequence[Memory]) -> list[str]:
        namespace = self._settings.namespace_of(memories[0].tenant)
        texts = [memory.text for memory in memories]
        if len(texts) == 1:
            return [await self._relayer.remember(namespace, texts[0], key_of(namespace, texts[0]))]
        job_ids = await self._relayer.remember_batch(namespace, texts)
        job_count = len(set(job_ids))
        if not len(job_ids) == len(texts) == job_count:
            problem = f"MemWal returned {job_count} jobs for {len(texts)} memories"
            raise RelayerError(RelayerTrouble.UNAVAILABLE, problem, unsure=True)
        return job_ids

    def _unsent(self, memories: Sequence[Memory], error: RelayerError) -> list[Memory]:
        pause_s, unsure, failed = 0.0, error.unsure, False
        if error.trouble is RelayerTrouble.REFUSED:
            self._probing = False
            self._sending.succeeded()
            if len(memories) == 1:
                _log.error(
                    "MemWal refuses the summary of the checkpoint with pointer %s and will not "
                    "recall it: %s",
                    memories[0].pointer.hex(),
                    error,
                )
                return [replace(memories[0], state=MemoryState.REFUSED, unsure=False)]
            # Nothing was stored, but unsure memories are sent alone, which shows the bad one.
            unsure = True
        else:
            self._probing = True
            self._troubled(error, self._sending)
            if error.trouble is RelayerTrouble.UNAVAILABLE:
                # The next probe comes sooner than these, and so with another memory: the trouble
                # may be one of these. If nothing can have been stored, no memory was at fault.
                failed = unsure
                attempts = max(memory.attempts for memory in memories) + 1 if failed else 0
                pause_s = self._pause_after(max(attempts, self._sending.failures))
        return [self._waiting(memory, pause_s, unsure=unsure, failed=failed) for memory in memories]

    def _waiting(
        self, memory: Memory, pause_s: float = 0.0, *, unsure: bool = False, failed: bool = False
    ) -> Memory:
        """Return a memory that is to be sent again; an unsure one stays unsure."""
        self._sent_at.pop(memory.number, None)
        return replace(
            memory,
            state=MemoryState.WAITING,
            job_id="",
            due_us=self._clock_us() + int(pause_s * 1e6),
            unsure=memory.unsure or unsure,
            attempts=memory.attempts + failed,
        )

    def _ask_us(self, seconds: float) -> int:
        """Return when to ask, a little later than in so many seconds: together with others."""
        together_us = max(1, int(self._settings.ask_together_s * 1e6))
        return -(-(self._clock_us() + int(seconds * 1e6)) // together_us) * together_us

    async def _ask(self) -> float | None:
        """Make one call that asks for jobs, if any are due and points are left."""
        wait_s = await self._due_in_s(MemoryState.SENT)
        if wait_s is None:
            self._sent_at.clear()
            return None
        if wait_s <= 0:
            wait_s = self._budget.take_delivery(api.COST_ASK)
        if wait_s > 0:
            return wait_s
        memories = await self._memories.underway(api.MAX_BATCH)
        if not memories:
            return self._settings.first_ask_s
        jobs: dict[str, Job] = {}
        try:
            answer = await self._relayer.jobs([memory.job_id for memory in memories])
            jobs = {job.job_id: job for job in answer}
            self._succeeded(self._asking)
        except RelayerError as error:
            self._troubled(error, self._asking)
            if error.trouble is RelayerTrouble.UNAVAILABLE:
                # Others are asked for next: the trouble may be one of these.
                due_us = self._ask_us(self._pause_after(self._asking.failures))
                await self._memories.note([replace(memory, due_us=due_us) for memory in memories])
            if error.trouble is not RelayerTrouble.REFUSED:
                return 0.0
            # Refused: nothing was learnt of them; after a while they count as lost.
        settled = [self._settled(memory, jobs.get(memory.job_id)) for memory in memories]
        await self._memories.note(settled)
        failed = [job.error for job in jobs.values() if job.state is JobState.FAILED]
        if failed:
            reason = failed[0] or "it gives no reason"
            _log.warning("MemWal failed to store %d memories: %s", len(failed), reason)
        lost_count = sum(memory.state is MemoryState.WAITING for memory in settled) - len(failed)
        if lost_count:
            _log.warning("MemWal lost %d memories; they are sent again", lost_count)
        return 0.0

    def _settled(self, memory: Memory, job: Job | None) -> Memory:
        """Return a memory after an answer; a job that the answer leaves out counts as running."""
        settings = self._settings
        state = job.state if job is not None else JobState.RUNNING
        if job is not None and state is JobState.DONE:
            self._sent_at.pop(memory.number, None)
            return replace(memory, state=MemoryState.DELIVERED, unsure=False, blob_id=job.blob_id)
        pause_s = self._pause_after(memory.attempts + 1)
        if state is JobState.FAILED:
            # The first time in a batch, which costs the least: failures come in crowds. After
            # that under its key, which resumes the job that failed.
            pause_s = max(settings.restart_s, pause_s)
            return self._waiting(memory, pause_s, unsure=memory.attempts > 0, failed=True)
        if state is JobState.RUNNING:
            now = self._loop.time()
            age_s = now - self._sent_at.setdefault(memory.number, now)
            if age_s < settings.lost_after_s:
                again_s = min(max(age_s, settings.first_ask_s), settings.longest_ask_s)
                return replace(memory, due_us=self._ask_us(again_s))
        # MemWal accepted it and does not know it, or does not finish.
        return self._waiting(memory, pause_s, unsure=True, failed=True)


def key_of(namespace: str, text: str) -> str:
    """Return the idempotency key of a memory; its text names checkpoint and summary."""
    content = namespace.encode() + b"\0" + text.encode()
    return f"tuskpoint-{hashlib.sha256(content).hexdigest()}"
