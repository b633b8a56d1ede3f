"""The clock that jobs, limits, nonces and lifetimes go by."""

from __future__ import annotations

import time
from collections.abc import Callable


class Clock:
    """Says what time it is: a source of seconds, and how far a test is ahead of it.

    Signatures are not judged by it: a caller's clock cannot be moved, so `Gate` has its own.

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
        """Let time pass at once and return the new time.

        Raises:
            ValueError: Time would go back, or on by more than 30 years.
        """
        if not 0 <= seconds < 1e9:
            raise ValueError("time goes on by 0 to 1e9 seconds")
        self._ahead_s += seconds
        return self.now()
