"""The clock of jobs, limits, nonces and lifetimes."""

from __future__ import annotations

import time
from collections.abc import Callable


class Clock:
    """A source of seconds, plus the time that a test advanced.

    Signatures use another clock, of `Gate`: a test cannot move a caller's clock.

    Args:
        source: Seconds since 1970; a constant makes a clock that only `advance` moves.
    """

    def __init__(self, source: Callable[[], float] = time.time) -> None:
        self._source = source
        self._ahead_s = 0.0

    def now(self) -> float:
        """Return the seconds since 1970."""
        return self._source() + self._ahead_s

    def advance(self, seconds: float) -> float:
        """Advance the clock and return the new time.

        Raises:
            ValueError: The step is negative, or longer than 30 years.
        """
        if not 0 <= seconds < 1e9:
            raise ValueError("time advances by 0 to 1e9 seconds")
        self._ahead_s += seconds
        return self.now()
