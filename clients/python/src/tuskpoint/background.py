"""`BackgroundSaver`: saves the steps of agents that do not wait for it."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, TypeGuard

from . import _requests as requests
from ._agent_steps import STEP_COMPLETE, AgentStep, agent_step
from ._calls import SyncCalls
from ._checkpoint_ids import new_checkpoint_id
from ._faces.checkpoints import SyncCheckpoints
from ._options import Options
from ._records import DurabilityName
from ._retry import Repeat, RetryPolicy, worth_repeating
from ._saving import Draft, Known, Memory, now, save_steps
from ._step_queue import Queued, QueueFull, StepQueue
from ._token import FilePath
from .errors import (
    DeadlineExceeded,
    InvalidRequest,
    PreconditionFailed,
    TuskPointError,
    Unauthenticated,
)
from .v1.checkpoint_pb2 import VIEW_ENTRY

__all__ = ["STEP_COMPLETE", "AgentStep", "BackgroundSaver", "QueueFull", "StepsNotSaved"]

OnError = Callable[[AgentStep, Exception], object]

_log = logging.getLogger(__name__)
_ONCE = RetryPolicy(max_attempts=1)  # tried again here, where `stop` is heard
_PAUSES = RetryPolicy()
_REMEMBERED_THREADS = 10_000
_NAMED = 5  # most steps that a message names


class _Service(SyncCheckpoints):
    """The service, as the workers of one shift call it."""

    def __init__(self, options: Options, memory: Memory) -> None:
        self._calls = SyncCalls(options)
        self._memory = memory

    def latest(self, thread_id: str) -> str:
        """Return the latest checkpoint of a thread; empty if it has none."""
        found = self._calls.get_checkpoint(requests.ref(thread_id, "", None), view=VIEW_ENTRY)
        return "" if found is None else found.ref.checkpoint_id

    def save_draft(self, draft: Draft) -> str:
        """Save a draft; return the ID of the checkpoint."""
        return self._perform(save_steps(draft, self._memory))

    def close(self) -> None:
        """Let go of the connection."""
        self._calls.close()


class StepsNotSaved(TuskPointError):
    """The time was up before everything accepted was saved. The service still has these steps.

    Attributes:
        steps: Which, in the order in which they were accepted. One that was on its way just then
            may have arrived.
    """

    def __init__(self, steps: Sequence[AgentStep]) -> None:
        super().__init__(f"not saved: {_names(steps)}", status="DEADLINE_EXCEEDED")
        self.steps = tuple(steps)


class BackgroundSaver:
    """Saves each finished step of agents as a checkpoint, without keeping the agents waiting.

    `handle_agent_step` takes a snapshot and returns; workers save it. The steps of one thread
    are saved in the order in which they were accepted, each following the one before; those of
    different threads go side by side. While the server does not answer, or does not know the
    token, they wait.

    What was accepted is saved, or refused by the server and told to `on_error`, or told by
    `stop`. If the process ends without `stop`, the log says how many steps went with it; so it
    does if an object that is not running is forgotten with steps in it. A running one is kept
    alive by its workers.

    All methods may be called from any thread; `handle_agent_step` also from an event loop. As a
    context manager, sync or async, it starts and stops itself. It belongs to the process that
    made it and does not work in a forked child.

    Args:
        target: `host:port` of the server. Default: the environment variable `TUSKPOINT_TARGET`,
            else `127.0.0.1:7390`.
        on_error: Called in a worker with a step and the error that keeps it from ever being
            saved. Default: the log tells.
        max_steps: Most steps that wait.
        max_bytes: Most bytes that they take in memory, about.
        workers: How many threads of agents are saved side by side.
        agent_id: Name of the agent, recorded with each thread.
        durability: "journaled", or "certified" to hold on to a step until it is on the blob
            store.
        searchable: Whether search finds the threads that it saves to. Default: as before; a new
            thread is searchable.
        timeout_s: Seconds after which an attempt to save gives up; another follows.
        token: This and what follows is as in `Client`.
        ca_file: Certificates that the server's may be signed by.
        cert_file: The client's own certificate.
        key_file: The key of that certificate.
        tls: Whether to use TLS.

    Raises:
        InvalidRequest: An argument is out of range, or cannot be used.
    """

    def __init__(
        self,
        target: str | None = None,
        *,
        on_error: OnError | None = None,
        max_steps: int = 10_000,
        max_bytes: int = 64 * 1024 * 1024,
        workers: int = 4,
        agent_id: str = "",
        durability: DurabilityName = "journaled",
        searchable: bool | None = None,
        timeout_s: float = 30.0,
        token: str | None = None,
        ca_file: FilePath | None = None,
        cert_file: FilePath | None = None,
        key_file: FilePath | None = None,
        tls: bool | None = None,
    ) -> None:
        if min(max_steps, max_bytes, workers) < 1:
            raise InvalidRequest("max_steps, max_bytes and workers are numbers above 0")
        options = Options.of(
            target,
            timeout_s=timeout_s,
            token=token,
            ca_file=ca_file,
            cert_file=cert_file,
            key_file=key_file,
            tls=tls,
        )
        self._options = replace(options, retry=_ONCE)
        self._on_error = on_error
        self._workers = workers
        self._agent_id = agent_id
        self._durability = requests.durability(durability)
        self._searchable = requests.flag("searchable", searchable)
        self._queue = StepQueue(max_steps, max_bytes)
        self._service: _Service | None = None
        self._memory = Memory()
        self._heads = Memory(_REMEMBERED_THREADS)
        self._forgetting = threading.Lock()
        self._forgotten = 0  # how often a thread was
        self._in_trouble = False
        self._life = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._process = os.getpid()
        weakref.finalize(self, _tell_lost, self._queue, self._process)

    @property
    def target(self) -> str:
        """Where the server is."""
        return self._options.target

    @property
    def is_running(self) -> bool:
        """Whether steps are being saved: from `start` until `stop` is done."""
        return bool(self._threads) and os.getpid() == self._process

    def get_queue_size(self) -> int:
        """Return how many accepted steps are not saved yet."""
        return self._queue.steps

    def handle_agent_step(self, event: Any) -> bool:
        """Accept the step that an event tells of. Never waits for the server.

        The state is written as JSON before this returns, so that it may be changed afterwards.
        Steps accepted before the first `start` wait for it.

        Args:
            event: A mapping, or an object with attributes, with `topic` "agent/step_complete"
                and `payload`; or the payload alone. A payload, a mapping or object too, has
                `thread_id`, `step` (a whole number), `state` (channel to a value that JSON can
                express), and may have `timestamp` (text, number or datetime; default: now),
                `summary`, and `vector` (the numbers by which `search_similar` finds it).

        Returns:
            True if the step was accepted, False if the event has another topic.

        Raises:
            QueueFull: `max_steps` or `max_bytes` is reached. The step was not accepted.
            InvalidRequest: The payload lacks something, the state is not JSON, the vector is
                none, or the step alone is larger than `max_bytes`.
            PreconditionFailed: `stop` was called, or this is a forked child.
        """
        self._check_process()
        step = agent_step(event)
        if step is None:
            return False
        self._queue.accept(step)
        return True

    def start(self) -> None:
        """Begin to save. Does nothing if it is running.

        Raises:
            PreconditionFailed: This is a forked child, or a worker.
        """
        self._check_caller()
        with self._life:
            if self._threads:
                return
            self._service = _Service(self._options, self._memory)
            shift = self._queue.begin_shift()
            self._threads = [
                threading.Thread(
                    target=self._work,
                    args=(shift, self._service),
                    name=f"tuskpoint-background-{number}",
                    daemon=True,
                )
                for number in range(self._workers)
            ]
            for one in self._threads:
                one.start()

    def flush(self, timeout_s: float | None = 30.0) -> None:
        """Wait until everything accepted so far is saved, or refused and told.

        Args:
            timeout_s: Seconds to wait at most; `None` waits as long as it takes.

        Raises:
            StepsNotSaved: The time was up, or the service is not running.
            PreconditionFailed: This is a forked child, or a worker.
        """
        self._check_caller()
        if not self._queue.wait_for_all(timeout_s):
            raise StepsNotSaved(self._queue.unfinished())

    def stop(self, timeout_s: float | None = 30.0) -> None:
        """Accept no more, save what was accepted, and end. Does nothing if all of that is done.

        What could not be saved is kept: `start` goes on with it, and with the same checkpoint
        IDs, so that nothing is saved twice.

        Args:
            timeout_s: Seconds to wait at most; `None` waits as long as it takes.

        Raises:
            StepsNotSaved: The time was up, or the service was not running. It has ended, unless
                another `stop` goes on waiting.
            PreconditionFailed: This is a forked child, or a worker.
        """
        self._check_caller()
        until = None if timeout_s is None else time.monotonic() + timeout_s
        if not self._life.acquire(timeout=-1 if timeout_s is None else max(timeout_s, 0.0)):
            raise StepsNotSaved(self._queue.unfinished())
        try:
            self._queue.close()
            left = None if until is None else max(until - time.monotonic(), 0.0)
            done = self._queue.wait_for_all(left)
        finally:
            try:
                self._end_shift()
            finally:
                self._life.release()
        if not done:
            raise StepsNotSaved(self._queue.unfinished())

    async def astop(self, timeout_s: float | None = 30.0) -> None:
        """Do as `stop`, without holding up the event loop."""
        await asyncio.to_thread(self.stop, timeout_s)

    def forget(self, thread_id: str) -> None:
        """Let the next step of a thread follow the thread's latest checkpoint.

        Needed to go on with a thread that was deleted or rolled back: a deleted one refuses
        what follows its old checkpoints, so that late steps do not bring it back.
        """
        with self._forgetting:
            self._forgotten += 1
            self._heads.forget(thread_id)
        self._memory.forget(thread_id)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.stop()
        except StepsNotSaved as unsaved:
            if error is None:
                raise
            _tell_beside(error, unsaved)

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self.astop()
        except StepsNotSaved as unsaved:
            if error is None:
                raise
            _tell_beside(error, unsaved)

    def _end_shift(self) -> None:
        self._queue.end_shift()
        self._threads = []
        service, self._service = self._service, None
        if service is not None:
            service.close()

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise PreconditionFailed(
                "this process was forked from the one that made this BackgroundSaver, and its "
                "workers stayed there: make another one here",
                status="FAILED_PRECONDITION",
            )

    def _check_caller(self) -> None:
        self._check_process()
        if threading.current_thread() in self._threads:
            raise PreconditionFailed(
                "on_error runs in a worker, which cannot wait for itself: start, flush and stop "
                "belong elsewhere",
                status="FAILED_PRECONDITION",
            )

    # --- in the workers --------------------------------------------------------------

    def _work(self, shift: int, service: _Service) -> None:
        while (queued := self._queue.take(shift)) is not None:
            pause_s = self._attempt(queued, shift, service)
            if pause_s is None:
                self._queue.finish(queued)
            else:
                self._queue.put_back(queued)
                self._queue.rest(shift, pause_s)

    def _attempt(self, queued: Queued, shift: int, service: _Service) -> float | None:
        """Try to save a step; return the seconds until it may be tried again, if it may."""
        try:
            self._save(queued, service)
        except Exception as error:  # noqa: BLE001 - a worker outlives every step, and tells
            if not self._queue.lasts(shift):
                # The calls were closed under it, which says nothing about the step.
                return 0.0
            if _passes(error):
                return self._pause_s(queued, error)
            self._tell(queued.step, error)
        else:
            self._note_success()
        return None

    def _save(self, queued: Queued, service: _Service) -> None:
        thread_id, forgotten = queued.step.thread_id, self._forgotten
        if queued.checkpoint_id is None:
            # Decided once: whatever comes of an attempt, the next one saves the same checkpoint.
            queued.parent = self._head(thread_id, service)
            queued.checkpoint_id = new_checkpoint_id(queued.parent)
            queued.ts = now()
        draft = Draft(
            thread_id=thread_id,
            checkpoint_ns="",
            values=queued.step.values,
            checkpoint_id=queued.checkpoint_id,
            parent=queued.parent,
            expected_head=None,
            metadata_json=queued.step.metadata_json,
            summary=queued.step.summary,
            label="",
            agent_id=self._agent_id,
            durability=self._durability,
            ts=queued.ts,
            vector=queued.step.vector,
            searchable=self._searchable,
        )
        saved = service.save_draft(draft)
        with self._forgetting:
            # What was forgotten while this was on its way stays so; the next step asks.
            if self._forgotten == forgotten:
                self._heads.put(thread_id, "", Known(saved))

    def _head(self, thread_id: str, service: _Service) -> str:
        known = self._heads.get(thread_id, "")
        return service.latest(thread_id) if known is None else known.checkpoint_id

    def _pause_s(self, queued: Queued, error: TuskPointError) -> float:
        if not self._in_trouble:
            self._in_trouble = True
            _log.warning(
                "saving is held up, with %s to go: %s", _count(self.get_queue_size()), error
            )
        jitter = random.random()  # noqa: S311 - spreads retries, guards nothing
        return (error.retry_after_s or 0.0) + jitter * _PAUSES.bound_s(queued.failures + 1)

    def _note_success(self) -> None:
        if self._in_trouble:
            self._in_trouble = False
            _log.info("steps are saved again")

    def _tell(self, step: AgentStep, error: Exception) -> None:
        if self._on_error is None:
            unexpected = None if isinstance(error, TuskPointError) else error
            _log.error("%s was not saved: %s", step, error, exc_info=unexpected)
            return
        try:
            self._on_error(step, error)
        except BaseException:  # noqa: BLE001 - another's code, which must not end a worker
            _log.exception("on_error failed, told that %s was not saved: %s", step, error)


def _passes(error: Exception) -> TypeGuard[TuskPointError]:
    """Tell whether waiting helps. What is sent twice is saved once, so that a lost answer does."""
    if isinstance(error, DeadlineExceeded | Unauthenticated):
        return True  # a token that expired is replaced in its file, or made known to the server
    return isinstance(error, TuskPointError) and worth_repeating(
        error.status, error.reason, error.retry_after_s, Repeat.SAFE
    )


def _tell_beside(error: BaseException, unsaved: StepsNotSaved) -> None:
    """Tell what was not saved at the end of a block that an exception ends already."""
    _log.error("%s", unsaved)
    error.add_note(str(unsaved))


def _names(steps: Sequence[AgentStep]) -> str:
    named = "; ".join(str(one) for one in steps[:_NAMED])
    more = f"; and {len(steps) - _NAMED} more" if len(steps) > _NAMED else ""
    return f"{_count(len(steps))}: {named}{more}"


def _count(steps: int) -> str:
    return "1 step" if steps == 1 else f"{steps} steps"


def _tell_lost(queue: StepQueue, process: int) -> None:
    # A forked child has a copy of the parent's steps, which are the parent's to save.
    if os.getpid() == process and queue.steps:
        _log.error("never saved, because nobody waited for it: %s", _names(queue.unfinished()))
