"""Pauses after failures."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass


async def pause(seconds: float | None, ended: asyncio.Event) -> None:
    """Wait for seconds (`None`: without a limit), or until an event."""
    try:
        async with asyncio.timeout(seconds):
            await ended.wait()
    except TimeoutError:
        return


def doubled_pause(first_s: float, longest_s: float, failures: int) -> float:
    """Return a pause that is twice as long after each failure in a row, up to a bound."""
    return min(longest_s, first_s * 2.0 ** min(failures - 1, 20))


@dataclass
class Backoff:
    """Pauses after failures in a row: each pause is twice the previous one, up to a bound."""

    _first_s: float
    _longest_s: float
    failures: int = 0
    until: float = 0.0  # end of the pause, for a task that stores the time here

    def failed(self) -> float:
        """Count a failure; return the pause in seconds, shortened at random by up to a half."""
        self.failures += 1
        bound = doubled_pause(self._first_s, self._longest_s, self.failures)
        return bound * random.uniform(0.5, 1.0)  # noqa: S311 - no secret

    def succeeded(self) -> None:
        """Reset the pause after a success."""
        self.failures = 0
