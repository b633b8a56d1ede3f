"""Queue of the steps that wait to be saved: bounded, in order per thread, shared by workers."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import InvalidRequest, PreconditionFailed, TuskPointError
from .agent_steps import AgentStep


class QueueFull(TuskPointError):
    """The queue is full and the step was not accepted: wait, or drop the step."""


@dataclass(slots=True, eq=False)
class QueuedStep:
    """A waiting step, and the checkpoint that the step becomes.

    Attributes:
        step: The step.
        number: Position of the step in the order of acceptance.
        size: Size of the step in bytes.
        parent: ID of the checkpoint that the step follows; `None` until decided.
        checkpoint_id: ID of the step's checkpoint; `None` until generated.
        ts: Time of the step's checkpoint; empty until the ID is generated.
        failures: Number of failed attempts to save the step.
        done: Whether the step left the queue.
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
    """Steps that wait, in one line per thread of an agent. Thread-safe.

    Methods wait only where documented. A worker that takes a step locks the step's line until it
    puts the step back or finishes it, so the steps of one thread are saved one after another. Lines
    take turns.

    Workers belong to a *shift*. After its end, `take` returns `None`.

    Args:
        max_steps: Maximum number of steps.
        max_bytes: Maximum size of all steps, in bytes.
    """

    def __init__(self, max_steps: int, max_bytes: int) -> None:
        self.max_steps = max_steps
        self.max_bytes = max_bytes
        self._lock = threading.RLock()
        self._work = threading.Condition(self._lock)
        self._done = threading.Condition(self._lock)
        self._over = threading.Condition(self._lock)
        self._lines: dict[str, deque[QueuedStep]] = {}
        self._ready: deque[str] = deque()
        self._shift = 0
        self._on_duty = False
        self._is_closed = False
        self._accepted = 0
        self._steps = 0
        self._bytes = 0

    @property
    def steps(self) -> int:
        """Number of accepted steps that are not finished."""
        return self._steps

    @property
    def bytes(self) -> int:
        """Size of the accepted steps that are not finished, in bytes."""
        return self._bytes

    def accept(self, step: AgentStep) -> None:
        """Accept a step.

        Raises:
            QueueFull: The queue is full.
            InvalidRequest: The step alone is larger than `max_bytes`.
            PreconditionFailed: The queue is closed.
        """
        size = step.size
        with self._lock:
            self._admit(step, size)
            self._accepted += 1
            self._steps += 1
            self._bytes += size
            line = self._lines.setdefault(step.thread_id, deque())
            line.append(QueuedStep(step, self._accepted, size))
            if len(line) == 1:
                self._make_ready(step.thread_id)

    def close(self) -> None:
        """Accept no steps until the next shift starts."""
        with self._lock:
            self._is_closed = True

    def take(self, shift: int) -> QueuedStep | None:
        """Wait for a step and take it; return `None` after the end of the shift."""
        with self._lock:
            self._work.wait_for(lambda: self._ready or not self.lasts(shift))
            if not self.lasts(shift):
                return None
            return self._lines[self._ready.popleft()][0]

    def put_back(self, queued: QueuedStep) -> None:
        """Return a step to its line, to be taken again after the other lines."""
        with self._lock:
            queued.failures += 1
            self._make_ready(queued.step.thread_id)

    def finish(self, queued: QueuedStep) -> None:
        """Remove a step that was taken and release its line."""
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
        """Start a shift; return its number."""
        with self._lock:
            self._shift += 1
            self._on_duty = True
            self._is_closed = False
            return self._shift

    def end_shift(self) -> None:
        """End the shift: `take` returns no more steps. Taken steps may still be finished."""
        with self._lock:
            self._on_duty = False
            for waiting in (self._work, self._done, self._over):
                waiting.notify_all()

    def lasts(self, shift: int) -> bool:
        """Return whether a shift has not ended."""
        return self._on_duty and self._shift == shift

    def rest(self, shift: int, seconds: float) -> None:
        """Wait for a time in seconds, or until the shift ends."""
        with self._lock:
            self._over.wait_for(lambda: not self.lasts(shift), seconds)

    def wait_for_all(self, timeout_s: float | None) -> bool:
        """Wait until all steps accepted so far are finished.

        Returns:
            False if the time passed before all steps were finished, or no shift runs.
        """
        with self._lock:
            # Lines are processed in order, so the last step of a line implies the steps before
            # it.
            last = [line[-1] for line in self._lines.values()]
            self._done.wait_for(lambda: not self._on_duty or _all_done(last), timeout_s)
            return _all_done(last)

    def unfinished(self) -> Sequence[AgentStep]:
        """Return the steps that are not finished, in the order in which they were accepted."""
        with self._lock:
            entries = [entry for line in self._lines.values() for entry in line]
        return [entry.step for entry in sorted(entries, key=lambda entry: entry.number)]

    def _admit(self, step: AgentStep, size: int) -> None:
        if self._is_closed:
            raise PreconditionFailed(
                f"{step} was not accepted: background saving was stopped; call start() first",
                status="FAILED_PRECONDITION",
            )
        if size > self.max_bytes:
            raise InvalidRequest(
                f"{step} was not accepted: it takes {size} bytes, and all waiting steps may take "
                f"{self.max_bytes}; raise max_bytes",
                status="INVALID_ARGUMENT",
            )
        if self._steps >= self.max_steps or self._bytes + size > self.max_bytes:
            raise QueueFull(
                f"{step} was not accepted: {self._steps} steps of {self._bytes} bytes wait to be "
                f"saved, and at most {self.max_steps} steps of {self.max_bytes} bytes may; "
                "try again later, or raise max_steps or max_bytes",
                status="RESOURCE_EXHAUSTED",
            )

    def _make_ready(self, thread_id: str) -> None:
        self._ready.append(thread_id)
        self._work.notify()


def _all_done(steps: list[QueuedStep]) -> bool:
    while steps and steps[-1].done:
        steps.pop()
    return not steps
