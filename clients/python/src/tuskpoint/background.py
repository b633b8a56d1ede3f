"""`BackgroundSaver`: saves the steps of agents that do not wait for the server."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, TypeGuard

from ._background.agent_steps import STEP_COMPLETE, AgentStep, agent_step
from ._background.step_queue import QueuedStep, QueueFull, StepQueue
from ._messages import requests
from ._messages.arguments import invalid_field
from ._messages.checkpoints.ids import new_checkpoint_id
from ._messages.checkpoints.saving import Draft, KnownCheckpoint, Memory, now
from ._messages.records import DurabilityName
from ._sync.calls import SyncCalls
from ._sync.saving import save_draft
from ._transport.retry import Repeat, RetryPolicy, worth_repeating
from ._transport.settings.options import Options
from ._transport.settings.token import FilePath
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
_ONCE = RetryPolicy(max_attempts=1)  # a retry here has a pause that `stop` can interrupt
_PAUSES = RetryPolicy()
_REMEMBERED_THREADS = 10_000
_NAMED = 5  # most steps that a message names


class StepsNotSaved(TuskPointError):
    """The timeout passed before all accepted steps were saved. The saver still has these steps.

    Attributes:
        steps: The steps, in the order in which they were accepted. A step with an unfinished save
            may have been saved.
    """

    def __init__(self, steps: Sequence[AgentStep]) -> None:
        super().__init__(f"not saved: {_names(steps)}", status="DEADLINE_EXCEEDED")
        self.steps = tuple(steps)


class _DoneAwaitable:
    """An awaitable of something that has already happened. Callers may ignore it."""

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


class BackgroundSaver:
    """Saves each finished step of agents as a checkpoint without blocking the agents.

    `handle_agent_step` copies the step and returns; workers save it. The steps of one thread are
    saved in the order in which they were accepted, each as the successor of the one before; the
    steps of different threads are saved concurrently. While the server does not answer, or rejects
    the token, steps wait.

    Each accepted step is saved, passed to `on_error` because the server refused it, or reported by
    `stop`. If the process ends without `stop`, or a saver that does not run is garbage-collected,
    the number of lost steps is logged. The workers keep a running saver alive.

    All methods may be called from any thread; `handle_agent_step` also from an event loop. As a
    context manager, sync or async, a saver starts and stops itself. A saver belongs to the process
    that created it and does not work in a forked child.

    Args:
        target: `host:port` of the server, or several with commas between. Default: the
            environment variable `TUSKPOINT_TARGET`, else `127.0.0.1:7390`.
        on_error: Called in a worker with a step and the permanent error of its save. Default: the
            error is logged.
        max_steps: Maximum number of waiting steps.
        max_bytes: Maximum size of the waiting steps in memory, in bytes, approximately.
        workers: Number of agent threads that are saved concurrently.
        agent_id: Name of the agent, recorded with each thread.
        durability: "journaled", or "certified" to keep a step until it is in the blob store.
        searchable: Whether search finds the threads of the saved steps. Default: unchanged; a new
            thread is searchable.
        auto_checkpoint: Whether the saver accepts steps; see the property.
        timeout_s: Deadline of an attempt to save, in seconds; another attempt follows.
        token: Bearer token. `Client` describes this argument and the following ones.
        ca_file: Trusted CA certificates.
        cert_file: The client's certificate.
        key_file: The private key of that certificate.
        tls: Whether to use TLS.

    Raises:
        InvalidRequest: An argument is out of range or malformed.
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
        auto_checkpoint: bool = True,
        timeout_s: float = 30.0,
        token: str | None = None,
        ca_file: FilePath | None = None,
        cert_file: FilePath | None = None,
        key_file: FilePath | None = None,
        tls: bool | None = None,
    ) -> None:
        if min(max_steps, max_bytes, workers) < 1:
            raise InvalidRequest("max_steps, max_bytes and workers must be above 0")
        options = Options.of(
            target,
            timeout_s=timeout_s,
            token=token,
            ca_file=ca_file,
            cert_file=cert_file,
            key_file=key_file,
            tls=tls,
        )
        self._options = replace(options, retry=_ONCE, value_cache_bytes=0)
        self._on_error = on_error
        self._workers = workers
        self._agent_id = agent_id
        self._durability = requests.durability(durability)
        self._searchable = requests.flag("searchable", searchable)
        self.auto_checkpoint = auto_checkpoint
        self._queue = StepQueue(max_steps, max_bytes)
        self._calls: SyncCalls | None = None
        self._memory = Memory()
        self._heads = Memory(_REMEMBERED_THREADS)
        self._forgetting = threading.Lock()
        self._forgotten = 0  # number of calls of `forget` for each thread
        self._is_delayed = False
        self._life = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._process = os.getpid()
        weakref.finalize(self, _log_lost, self._queue, self._process)

    @property
    def target(self) -> str:
        """Address of the server, normalized."""
        return self._options.target

    @property
    def is_running(self) -> bool:
        """Whether workers run: from `start` until the end of `stop`."""
        return bool(self._threads) and os.getpid() == self._process

    @property
    def auto_checkpoint(self) -> bool:
        """Whether `handle_agent_step` accepts steps. Settable at any time, in any thread.

        While it is off, `handle_agent_step` drops each step and returns False. Steps that were
        accepted before are still saved.
        """
        return self._auto_checkpoint

    @auto_checkpoint.setter
    def auto_checkpoint(self, is_on: bool) -> None:
        if not isinstance(is_on, bool):
            raise invalid_field("auto_checkpoint", f"it must be True or False, not {is_on!r:.80}")
        self._auto_checkpoint = is_on

    def get_queue_size(self) -> int:
        """Return the number of accepted steps that are not saved yet."""
        return self._queue.steps

    def handle_agent_step(self, event: Any) -> bool:
        """Accept the step of an event. Never waits for the server.

        The state is encoded as JSON before the method returns, so the caller may change it
        afterwards. Steps accepted before the first `start` wait for it.

        Args:
            event: A mapping, an object with attributes, or a JSON object as text or bytes, with
                `topic` "agent/step_complete" and `payload`; or the payload alone. The payload, in
                any of these forms, has `thread_id`, `step` (a whole number), `state` (channel to a
                value that JSON can express), and may have `timestamp` (text, number or datetime;
                default: now), `summary`, and `vector` (the numbers with which `search_similar`
                finds it).

        Returns:
            True if the step was accepted, False if the event has another topic or
            `auto_checkpoint` is off.

        Raises:
            QueueFull: `max_steps` or `max_bytes` is reached. The step was not accepted.
            InvalidRequest: The event or its payload is text that is not a JSON object, the payload
                lacks a field, the state is not JSON, the vector is malformed, or the step alone is
                larger than `max_bytes`.
            PreconditionFailed: `stop` was called, or this is a forked child.
        """
        self._check_process()
        if not self._auto_checkpoint:
            return False
        step = agent_step(event)
        if step is None:
            return False
        self._queue.accept(step)
        return True

    def start(self) -> Awaitable[None]:
        """Start the workers. Do nothing if they run.

        Returns:
            A completed awaitable, so that `await saver.start()` works too.

        Raises:
            PreconditionFailed: This is a forked child, or a worker.
        """
        self._check_caller()
        with self._life:
            if self._threads:
                return _DoneAwaitable()
            self._calls = SyncCalls(self._options)
            shift = self._queue.begin_shift()
            self._threads = [
                threading.Thread(
                    target=self._work,
                    args=(shift, self._calls),
                    name=f"tuskpoint-background-{number}",
                    daemon=True,
                )
                for number in range(self._workers)
            ]
            for thread in self._threads:
                thread.start()
        return _DoneAwaitable()

    def flush(self, timeout_s: float | None = 30.0) -> None:
        """Wait until all steps accepted so far are saved or refused.

        Args:
            timeout_s: Maximum time to wait, in seconds; `None` for no limit.

        Raises:
            StepsNotSaved: The timeout passed, or the saver is not running.
            PreconditionFailed: This is a forked child, or a worker.
        """
        self._check_caller()
        if not self._queue.wait_for_all(timeout_s):
            raise StepsNotSaved(self._queue.unfinished())

    async def aflush(self, timeout_s: float | None = 30.0) -> None:
        """Do what `flush` does, without blocking the event loop."""
        await asyncio.to_thread(self.flush, timeout_s)

    def stop(self, timeout_s: float | None = 30.0) -> Awaitable[None]:
        """Accept no more steps, save the accepted steps, and stop. Do nothing if already stopped.

        Steps that could not be saved are kept: `start` continues with them and with the same
        checkpoint IDs, so that nothing is saved twice.

        Args:
            timeout_s: Maximum time to wait, in seconds; `None` for no limit.

        Returns:
            An awaitable. Where an event loop runs, `stop` does not block it: await the result to
            wait for the end. Elsewhere `stop` returns when the workers have stopped.

        Raises:
            StepsNotSaved: The timeout passed, or the saver was not running. The saver has stopped,
                unless another `stop` still waits.
            PreconditionFailed: This is a forked child, or a worker.
        """
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._stop(timeout_s)
            return _DoneAwaitable()
        return loop.run_in_executor(None, self._stop, timeout_s)

    def _stop(self, timeout_s: float | None = 30.0) -> None:
        self._check_caller()
        until = None if timeout_s is None else time.monotonic() + timeout_s
        if not self._life.acquire(timeout=-1 if timeout_s is None else max(timeout_s, 0.0)):
            raise StepsNotSaved(self._queue.unfinished())
        try:
            self._queue.close()
            remaining_s = None if until is None else max(until - time.monotonic(), 0.0)
            done = self._queue.wait_for_all(remaining_s)
        finally:
            try:
                self._end_shift()
            finally:
                self._life.release()
        if not done:
            raise StepsNotSaved(self._queue.unfinished())

    async def astop(self, timeout_s: float | None = 30.0) -> None:
        """Do what `stop` does, without blocking the event loop."""
        await self.stop(timeout_s)

    def forget(self, thread_id: str) -> None:
        """Let the next step of a thread follow the thread's latest checkpoint.

        Call this to continue a thread that was deleted or rolled back. A deleted thread refuses
        successors of its old checkpoints, so that late steps do not restore the thread.
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
            self._stop()
        except StepsNotSaved as unsaved:
            if error is None:
                raise
            _report_unsaved(error, unsaved)

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
            _report_unsaved(error, unsaved)

    def _end_shift(self) -> None:
        self._queue.end_shift()
        self._threads = []
        calls, self._calls = self._calls, None
        if calls is not None:
            calls.close()

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise PreconditionFailed(
                "this process was forked from the one that created this BackgroundSaver and has no "
                "workers: create another one here",
                status="FAILED_PRECONDITION",
            )

    def _check_caller(self) -> None:
        self._check_process()
        if threading.current_thread() in self._threads:
            raise PreconditionFailed(
                "on_error runs in a worker, which cannot wait for itself: call start, flush and "
                "stop elsewhere",
                status="FAILED_PRECONDITION",
            )

    # --- run by the workers ----------------------------------------------------------

    def _work(self, shift: int, calls: SyncCalls) -> None:
        while (queued := self._queue.take(shift)) is not None:
            pause_s = self._attempt(queued, shift, calls)
            if pause_s is None:
                self._queue.finish(queued)
            else:
                self._queue.put_back(queued)
                self._queue.rest(shift, pause_s)

    def _attempt(self, queued: QueuedStep, shift: int, calls: SyncCalls) -> float | None:
        """Try to save a step; return the seconds before a retry, or `None` for no retry."""
        try:
            self._save(queued, calls)
        except Exception as error:  # noqa: BLE001 - a worker outlives every step and reports the error
            if not self._queue.lasts(shift):
                # The connection was closed during the attempt; the step itself may be fine.
                return 0.0
            if _passes(error):
                return self._pause_s(queued, error)
            self._report(queued.step, error)
        else:
            self._note_success()
        return None

    def _save(self, queued: QueuedStep, calls: SyncCalls) -> None:
        thread_id, forgotten = queued.step.thread_id, self._forgotten
        if queued.checkpoint_id is None:
            # Decided once: every attempt saves the same checkpoint.
            queued.parent = self._head(thread_id, calls)
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
        checkpoint_id = save_draft(calls, draft, self._memory)
        with self._forgetting:
            # A thread that was forgotten during the save stays forgotten.
            if self._forgotten == forgotten:
                self._heads.put(thread_id, "", KnownCheckpoint(checkpoint_id))

    def _head(self, thread_id: str, calls: SyncCalls) -> str:
        head = self._heads.get(thread_id, "")
        if head is not None:
            return head.checkpoint_id
        checkpoint = calls.get_checkpoint(requests.ref(thread_id, "", None), view=VIEW_ENTRY)
        return "" if checkpoint is None else checkpoint.ref.checkpoint_id

    def _pause_s(self, queued: QueuedStep, error: TuskPointError) -> float:
        if not self._is_delayed:
            self._is_delayed = True
            _log.warning("saving is delayed, %s waiting: %s", _count(self.get_queue_size()), error)
        jitter = random.random()  # noqa: S311 - jitter, not security
        return (error.retry_after_s or 0.0) + jitter * _PAUSES.bound_s(queued.failures + 1)

    def _note_success(self) -> None:
        if self._is_delayed:
            self._is_delayed = False
            _log.info("saving works again")

    def _report(self, step: AgentStep, error: Exception) -> None:
        if self._on_error is None:
            unexpected = None if isinstance(error, TuskPointError) else error
            _log.error("%s was not saved: %s", step, error, exc_info=unexpected)
            return
        try:
            self._on_error(step, error)
        except BaseException:  # noqa: BLE001 - code of the caller must not end a worker
            _log.exception("on_error failed for a step that was not saved (%s: %s)", step, error)


def _passes(error: Exception) -> TypeGuard[TuskPointError]:
    """Return whether a retry can help. Retries are safe, because saves are idempotent."""
    if isinstance(error, DeadlineExceeded | Unauthenticated):
        return True  # a token may be replaced in its file or added at the server
    return isinstance(error, TuskPointError) and worth_repeating(
        error.status, error.reason, error.retry_after_s, Repeat.SAFE
    )


def _report_unsaved(error: BaseException, unsaved: StepsNotSaved) -> None:
    """Report unsaved steps at the end of a block that already ends with an exception."""
    _log.error("%s", unsaved)
    error.add_note(str(unsaved))


def _names(steps: Sequence[AgentStep]) -> str:
    text = "; ".join(str(step) for step in steps[:_NAMED])
    more = f"; and {len(steps) - _NAMED} more" if len(steps) > _NAMED else ""
    return f"{_count(len(steps))}: {text}{more}"


def _count(steps: int) -> str:
    return "1 step" if steps == 1 else f"{steps} steps"


def _log_lost(queue: StepQueue, process: int) -> None:
    # A forked child has a copy of the parent's steps; the parent saves them.
    if os.getpid() == process and queue.steps:
        _log.error("lost, because stop() did not finish: %s", _names(queue.unfinished()))
