"""How the tasks of search go on: pauses, and what is told of failures."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from ..domain.errors import Refusal
from .embedders.api import EmbedderError

Pause = Callable[[float, asyncio.Event], Awaitable[None]]
"""Waits for seconds, but not longer than until an event."""

_LEAST_SHARE = 0.001


async def pause(seconds: float, ended: asyncio.Event) -> None:
    """Wait for seconds, but not longer than until an event."""
    try:
        async with asyncio.timeout(seconds):
            await ended.wait()
    except TimeoutError:
        return


def rest_after(worked_s: float, busy_share: float) -> float:
    """Return how long to rest after work, so that work takes no more than a share of time."""
    share = min(max(busy_share, _LEAST_SHARE), 1.0)
    return worked_s * (1 / share - 1)


class Backoff:
    """Pauses after failures in a row: each twice as long as the one before, up to a bound.

    Args:
        first_s: The first pause.
        longest_s: The bound.
    """

    def __init__(self, first_s: float, longest_s: float) -> None:
        self.first_s = first_s
        self._longest_s = longest_s
        self.failures = 0

    def failed(self) -> float:
        """Count a failure; return how long to wait, shortened at random by up to a half."""
        self.failures += 1
        bound = min(self._longest_s, self.first_s * 2.0 ** min(self.failures - 1, 20))
        return bound * random.uniform(0.5, 1.0)  # noqa: S311 - no secret

    def succeeded(self) -> None:
        """Begin anew."""
        self.failures = 0


def text_of(error: Exception) -> str:
    """Say what went wrong; the text of an unexpected exception stays in the log."""
    if isinstance(error, Refusal):
        return error.message
    if isinstance(error, EmbedderError):
        return str(error)
    return "a defect of the server; its log tells more"
