"""The steps that wait to be saved: bounded, in order per thread, shared among workers."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from ._agent_steps import AgentStep
from .errors import InvalidRequest, PreconditionFailed, TuskPointError


class QueueFull(TuskPointError):
    """There is no room for another step, and it was not accepted: wait, or do without it."""


@dataclass(slots=True, eq=False)
class Queued:
    """A step that waits, and what was decided about it.

    Attributes:
        step: The step.
        number: Its place in the order of acceptance.
        size: The bytes that it counts for.
        parent: The checkpoint that it follows; `None` until decided.
        checkpoint_id: The ID that it is saved with; `None` until minted.
        ts: Time of its checkpoint; empty until the ID is minted.
        failures: How often saving it failed.
        done: Whether it left the queue.
    """

    step: AgentStep
    number: int
    size: int
    parent: str | None = None
    checkpoint_id: str | None = None
    ts: str = ""
    failures: int = 0
    done: bool = False


class StepQueue:
    """Steps in one line per thread of an agent. Thread-safe; no method waits but those that say so.

    Whoever takes a step has its line for himself until he puts the step back or finishes it, so
    that the steps of one thread are saved one after another. Lines take turns.

    Workers belong to a *shift*. When it ends, their next `take` says so.

    Args:
        max_steps: Most steps.
        max_bytes: Most bytes of all steps.
    """

    def __init__(self, max_steps: int, max_bytes: int) -> None:
        self.max_steps = max_steps
        self.max_bytes = max_bytes
        self._lock = threading.RLock()
        self._work = threading.Condition(self._lock)
        self._done = threading.Condition(self._lock)
        self._over = threading.Condition(self._lock)
        self._lines: dict[str, deque[Queued]] = {}
        self._ready: deque[str] = deque()
        self._shift = 0
        self._on_duty = False
        self._is_closed = False
        self._accepted = 0
        self._steps = 0
        self._bytes = 0

    @property
    def steps(self) -> int:
        """Number of steps that were accepted and are not finished."""
        return self._steps

    @property
    def bytes(self) -> int:
        """The bytes that they count for."""
        return self._bytes

    def accept(self, step: AgentStep) -> None:
        """Accept a step.

        Raises:
            QueueFull: There is no room for it now.
            InvalidRequest: There will never be room for it.
            PreconditionFailed: The queue is closed.
        """
        size = step.size
        with self._lock:
            self._admit(step, size)
            self._accepted += 1
            self._steps += 1
            self._bytes += size
            line = self._lines.setdefault(step.thread_id, deque())
            line.append(Queued(step, self._accepted, size))
            if len(line) == 1:
                self._make_ready(step.thread_id)

    def close(self) -> None:
        """Accept nothing any more, until the next shift begins."""
        with self._lock:
            self._is_closed = True

    def take(self, shift: int) -> Queued | None:
        """Wait for a step and take it; return `None` when the shift is over."""
        with self._lock:
            self._work.wait_for(lambda: self._ready or not self.lasts(shift))
            if not self.lasts(shift):
                return None
            return self._lines[self._ready.popleft()][0]

    def put_back(self, queued: Queued) -> None:
        """Let a step that was taken be tried again, after the other lines had their turn."""
        with self._lock:
            queued.failures += 1
            self._make_ready(queued.step.thread_id)

    def finish(self, queued: Queued) -> None:
        """Remove a step that was taken; the next of its line may be taken."""
        with self._lock:
            thread_id = queued.step.thread_id
            line = self._lines[thread_id]
            line.popleft()
            queued.done = True
            self._steps -= 1
            self._bytes -= queued.size
            if line:
                self._make_ready(thread_id)
            else:
                del self._lines[thread_id]
            self._done.notify_all()

    def begin_shift(self) -> int:
        """Begin a shift; return its number."""
        with self._lock:
            self._shift += 1
            self._on_duty = True
            self._is_closed = False
            return self._shift

    def end_shift(self) -> None:
        """End the shift: nothing is taken any more. A step that was taken may still be finished."""
        with self._lock:
            self._on_duty = False
            for waiting in (self._work, self._done, self._over):
                waiting.notify_all()

    def lasts(self, shift: int) -> bool:
        """Return whether this shift is not over."""
        return self._on_duty and self._shift == shift

    def rest(self, shift: int, seconds: float) -> None:
        """Wait so long, or until the shift is over."""
        with self._lock:
            self._over.wait_for(lambda: not self.lasts(shift), seconds)

    def wait_for_all(self, timeout_s: float | None) -> bool:
        """Wait until everything accepted so far is finished.

        Returns:
            False if the time is up or nobody works.
        """
        with self._lock:
            # Lines are worked off in order, so that the last of each stands for those before.
            last = [line[-1] for line in self._lines.values()]
            self._done.wait_for(lambda: not self._on_duty or _all_done(last), timeout_s)
            return _all_done(last)

    def unfinished(self) -> Sequence[AgentStep]:
        """Return the steps that are not finished, in the order in which they were accepted."""
        with self._lock:
            waiting = [one for line in self._lines.values() for one in line]
        return [one.step for one in sorted(waiting, key=lambda one: one.number)]

    def _admit(self, step: AgentStep, size: int) -> None:
        if self._is_closed:
            raise PreconditionFailed(
                f"{step} was not accepted: background saving was stopped; start() goes on with it",
                status="FAILED_PRECONDITION",
            )
        if size > self.max_bytes:
            raise InvalidRequest(
                f"{step} was not accepted: it takes {size} bytes, and all steps that wait may take "
                f"{self.max_bytes}; raise max_bytes",
                status="INVALID_ARGUMENT",
            )
        if self._steps >= self.max_steps or self._bytes + size > self.max_bytes:
            raise QueueFull(
                f"{step} was not accepted: {self._steps} steps of {self._bytes} bytes wait to be "
                f"saved, and at most {self.max_steps} steps of {self.max_bytes} bytes may; hand "
                "it over again later, or raise max_steps or max_bytes",
                status="RESOURCE_EXHAUSTED",
            )

    def _make_ready(self, thread_id: str) -> None:
        self._ready.append(thread_id)
        self._work.notify()


def _all_done(steps: list[Queued]) -> bool:
    while steps and steps[-1].done:
        steps.pop()
    return not steps
