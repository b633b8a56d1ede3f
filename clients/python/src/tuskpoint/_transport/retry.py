"""The only retry policy: which failures are retried, when, and how long.

Nothing here does I/O or reads a clock; callers pass the time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

# Refusals which mean that nothing was stored: even a call that must not be applied twice may be
# sent again.
_NOTHING_STORED = frozenset({"DRAINING", "JOURNAL_UNAVAILABLE", "BACKLOG_FULL"})


class Repeat(Enum):
    """Whether a call may be sent again when it is unknown if the first attempt was applied."""

    SAFE = "safe"
    """The call is idempotent."""

    UNSAFE = "unsafe"
    """The call is not idempotent."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential backoff with full jitter.

    Attributes:
        max_attempts: Maximum number of attempts of one call, the first included; at least 1.
        initial_delay_s: Upper bound of the first pause, in seconds.
        multiplier: Factor from one bound to the next.
        max_delay_s: Largest bound, in seconds.
    """

    max_attempts: int = 64
    initial_delay_s: float = 0.1
    multiplier: float = 2.0
    max_delay_s: float = 2.0

    def bound_s(self, failures: int) -> float:
        """Return the upper bound of the pause after this number of failures, in seconds."""
        # The exponent is capped because a float overflows long before an attempt counter does.
        growth = self.multiplier ** min(failures - 1, 64)
        return min(self.max_delay_s, self.initial_delay_s * growth)


def worth_repeating(status: str, reason: str, retry_after_s: float | None, repeat: Repeat) -> bool:
    """Return whether a failed call may be sent again and can succeed later.

    `UNAVAILABLE` is retried (AIP-194, google.aip.dev/194). So is `CANCELLED`: this client never
    reads the status of a call that it cancelled, so the other side dropped it.
    `RESOURCE_EXHAUSTED` is retried only if the server names a time. `ABORTED` and
    `DEADLINE_EXCEEDED` are never retried: the first needs a decision of the caller, and the second
    has no time left.
    """
    if repeat is Repeat.UNSAFE and reason not in _NOTHING_STORED:
        return False
    if status in ("UNAVAILABLE", "CANCELLED"):
        return True
    return status == "RESOURCE_EXHAUSTED" and retry_after_s is not None


class Attempts:
    """The attempts of one call: the start of the next attempt, and its longest time.

    Args:
        policy: The schedule.
        now_s: Time of the call's start on a monotonic clock, in seconds.
        give_up_s: Seconds after the start after which no new attempt starts.
        deadline_s: Seconds after the start at which a running attempt ends.
        repeat: Whether the call may be sent twice.
    """

    __slots__ = ("_deadline", "_failures", "_give_up", "_policy", "repeat")

    def __init__(
        self, policy: RetryPolicy, now_s: float, give_up_s: float, deadline_s: float, repeat: Repeat
    ) -> None:
        self._policy = policy
        self._give_up = now_s + give_up_s
        self._deadline = now_s + deadline_s
        self.repeat = repeat
        self._failures = 0

    @property
    def is_safe(self) -> bool:
        """Whether the call is idempotent."""
        return self.repeat is Repeat.SAFE

    def remaining_s(self, now_s: float) -> float:
        """Return the seconds that the next attempt may take."""
        return max(0.0, self._deadline - now_s)

    def delay_s(
        self,
        now_s: float,
        status: str,
        reason: str,
        retry_after_s: float | None,
        random: Callable[[], float],
    ) -> float | None:
        """Return the pause in seconds before the next attempt, or `None` to give up.

        A pause that the server requests is a minimum to which jitter is added, so that clients that
        were refused together do not return together.

        Args:
            now_s: Time of the failure.
            status: Name of the canonical status.
            reason: Name of the reason; empty for no reason.
            retry_after_s: The server's `RetryInfo`, if it sent one.
            random: Returns a number in [0, 1).
        """
        self._failures += 1
        if self._failures >= self._policy.max_attempts:
            return None
        if not worth_repeating(status, reason, retry_after_s, self.repeat):
            return None
        pause = (retry_after_s or 0.0) + random() * self._policy.bound_s(self._failures)
        if now_s + pause >= min(self._give_up, self._deadline):
            return None
        return pause


WARN_S = 2.0
"""Seconds without any answer after which a warning is due."""

_LAST_ATTEMPT_S = 0.5


class FirstAnswer:
    """The attempts to reach a target that never answered: their starts, and when to warn.

    The last attempt starts exactly when the time is up, so that a server which starts in time is
    reached.

    Args:
        policy: The schedule.
        now_s: Time of the start on a monotonic clock, in seconds.
        give_up_s: Seconds after the start at which the last attempt starts.

    Attributes:
        is_last: Whether the next attempt is the last one.
    """

    __slots__ = ("_failures", "_give_up", "_policy", "_warn", "is_last")

    def __init__(self, policy: RetryPolicy, now_s: float, give_up_s: float) -> None:
        self._policy = policy
        self._warn = now_s + WARN_S
        self._give_up = now_s + give_up_s
        self._failures = 0
        self.is_last = False

    def timeout_s(self, now_s: float) -> float:
        """Return the seconds that the next attempt may take: until the warning, or the end."""
        if self.is_last:
            return _LAST_ATTEMPT_S
        return max(self._next_mark(now_s) - now_s, 0.001)

    def is_warning_due(self, now_s: float) -> bool:
        """Return whether the caller has waited long enough for a warning."""
        return now_s >= self._warn and not self.is_last

    def delay_s(self, now_s: float, random: Callable[[], float]) -> float | None:
        """Return the pause in seconds before the next attempt, or `None` to give up.

        Args:
            now_s: Time of the failure.
            random: Returns a number in [0, 1).
        """
        self._failures += 1
        if self.is_last or self._failures >= self._policy.max_attempts:
            return None
        pause = random() * self._policy.bound_s(self._failures)
        pause = max(0.0, min(pause, self._next_mark(now_s) - now_s))
        self.is_last = now_s + pause >= self._give_up
        return pause

    def _next_mark(self, now_s: float) -> float:
        return min(self._warn, self._give_up) if now_s < self._warn else self._give_up
