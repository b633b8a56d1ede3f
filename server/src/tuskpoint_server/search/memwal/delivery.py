"""Delivery of memories: one task sends waiting memories, and polls the jobs of sent ones.

A batch cannot be repeated, because MemWal would store it twice. So a memory that may have been
stored already is sent alone from then on, always under the same key. MemWal stores it at most
twice, once from the batch and once under the key. The next step of each memory is always in the
journal.
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

STOP_GRACE_S = 2.0  # time for a running call to finish when the server stops
LIMITED_S = 60.0  # pause after a refusal by the rate limit that names no time


@dataclass(eq=False)
class MemoryDelivery:
    """Delivers memories to the relayer, from its creation to `stop`."""

    _memories: MemoryRows  # the memories to deliver; no other code changes their rows
    _relayer: Relayer  # closed by the task when it ends
    _budget: Budget
    _settings: MemWalSettings
    _health: RelayerHealth
    _clock_us: Callable[[], int]  # the clock of `_memories`
    _keeps: Callable[[], bool] = lambda: True  # whether this server is the leader, which delivers

    def __post_init__(self) -> None:
        """Start with the memories that are due in the journal."""
        settings = self._settings
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._sending = Backoff(settings.first_retry_s, settings.longest_retry_s)
        self._asking = Backoff(settings.first_retry_s, settings.longest_retry_s)
        # Time of sending, by number of the memory; for a memory sent before this start, the time of
        # the first poll.
        self._sent_at: dict[int, float] = {}
        # After a failure, a single memory probes whether the relayer is back.
        self._probing = False
        self._stopping = False
        self._task = asyncio.create_task(self._run(), name="memwal-delivery")

    async def stop(self) -> None:
        """Stop; a running call gets a moment, then it is cancelled."""
        self._stopping = True
        self._wake.set()
        await asyncio.wait({self._task}, timeout=STOP_GRACE_S)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def wake(self) -> None:
        """Check for new memories now."""
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
                    # no memory waits, so the failed memories are no longer needed
                    self._health.last_error = ""
                await pause(min(waits, default=None), self._wake)
        finally:
            await self._relayer.close()

    async def _guarded(
        self, work: Callable[[], Awaitable[float | None]], backoff: Backoff
    ) -> float | None:
        """Run a piece of work if it is due; return the seconds until it is due again, if ever."""
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
        """Note a success; health is good only if neither sending nor polling fails."""
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
        """Send one call of memories, if memories are due and points are free."""
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
            # a recall took the points first
            await self._memories.note(list(map(self._waiting, memories)))
            return 0.0
        try:
            job_ids = await self._call(memories)
        except Exception as error:  # noqa: BLE001 - a defect, perhaps of one text: others continue
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
            # Nothing was stored, but memories marked unsure are sent alone, which singles out the
            # bad one.
            unsure = True
        else:
            self._probing = True
            self._troubled(error, self._sending)
            if error.trouble is RelayerTrouble.UNAVAILABLE:
                # The next probe comes before these memories are due, and so uses another memory:
                # one of these may cause the failure. If nothing can have been stored, no memory was
                # at fault.
                failed = unsure
                attempts = max(memory.attempts for memory in memories) + 1 if failed else 0
                pause_s = self._pause_after(max(attempts, self._sending.failures))
        return [self._waiting(memory, pause_s, unsure=unsure, failed=failed) for memory in memories]

    def _waiting(
        self, memory: Memory, pause_s: float = 0.0, *, unsure: bool = False, failed: bool = False
    ) -> Memory:
        """Return a memory that must be sent again; an unsure memory stays unsure."""
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
        """Return a time to poll, slightly later than in `seconds`, together with other jobs."""
        together_us = max(1, int(self._settings.ask_together_s * 1e6))
        return -(-(self._clock_us() + int(seconds * 1e6)) // together_us) * together_us

    async def _ask(self) -> float | None:
        """Poll jobs with one call, if jobs are due and points are free."""
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
                # Other jobs are polled next: one of these may cause the failure.
                due_us = self._ask_us(self._pause_after(self._asking.failures))
                await self._memories.note([replace(memory, due_us=due_us) for memory in memories])
            if error.trouble is not RelayerTrouble.REFUSED:
                return 0.0
            # Refused: the states of these jobs remain unknown; after a while the jobs count as
            # lost.
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
        """Return a memory after a poll; a job that the answer leaves out counts as running."""
        settings = self._settings
        state = job.state if job is not None else JobState.RUNNING
        if job is not None and state is JobState.DONE:
            self._sent_at.pop(memory.number, None)
            return replace(memory, state=MemoryState.DELIVERED, unsure=False, blob_id=job.blob_id)
        pause_s = self._pause_after(memory.attempts + 1)
        if state is JobState.FAILED:
            # First retry in a batch, which costs the least, because failures come in crowds.
            # Further retries alone under the memory's key, which resumes the failed job.
            pause_s = max(settings.restart_s, pause_s)
            return self._waiting(memory, pause_s, unsure=memory.attempts > 0, failed=True)
        if state is JobState.RUNNING:
            now = self._loop.time()
            age_s = now - self._sent_at.setdefault(memory.number, now)
            if age_s < settings.lost_after_s:
                again_s = min(max(age_s, settings.first_ask_s), settings.longest_ask_s)
                return replace(memory, due_us=self._ask_us(again_s))
        # MemWal accepted the memory but does not know the job, or does not finish it.
        return self._waiting(memory, pause_s, unsure=True, failed=True)


def key_of(namespace: str, text: str) -> str:
    """Return the idempotency key of a memory, whose text names checkpoint and summary."""
    content = namespace.encode() + b"\0" + text.encode()
    return f"tuskpoint-{hashlib.sha256(content).hexdigest()}"
