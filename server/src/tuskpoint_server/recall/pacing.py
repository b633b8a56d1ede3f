"""How the tasks of search go on: pauses, and what is set aside so that others pass."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection
from typing import Generic, TypeVar

from ..domain.errors import Refusal
from .embedders.api import EmbedderError

K = TypeVar("K")

Pause = Callable[[float, asyncio.Event], Awaitable[None]]
"""Waits for seconds, but not longer than until an event."""

MAX_ASIDE = 1000
"""Most that is set aside at once: more is no matter of single ones."""

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


class Aside(Generic[K]):
    """What failed alone while others did not. Each is tried again after a while.

    Args:
        retry_s: Seconds after which one is tried again.
        clock: Seconds of a monotonic clock.
    """

    def __init__(self, retry_s: float, clock: Callable[[], float]) -> None:
        self._retry_s = retry_s
        self._clock = clock
        self._held: dict[K, tuple[float, str]] = {}

    def put(self, key: K, problem: str) -> bool:
        """Set one aside; tell whether that is news."""
        news = key not in self._held or self._held[key][1] != problem
        if len(self._held) >= MAX_ASIDE and key not in self._held:
            self._held.clear()
        self._held[key] = (self._clock() + self._retry_s, problem)
        return news

    def holds(self, key: K) -> bool:
        """Tell whether one is not to be tried now."""
        held = self._held.get(key)
        return held is not None and self._clock() < held[0]

    def release(self, keys: Collection[K]) -> None:
        """Forget what succeeded."""
        for key in keys:
            self._held.pop(key, None)

    def keep(self, keys: Collection[K]) -> None:
        """Forget all but these: the others are gone."""
        self._held = {key: held for key, held in self._held.items() if key in keys}

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._held)

    @property
    def problem(self) -> str:
        """What is wrong with one of them; empty if there is none."""
        return next((problem for _, problem in self._held.values()), "")


def text_of(error: Exception) -> str:
    """Say what went wrong; the text of an unexpected exception stays in the log."""
    if isinstance(error, Refusal):
        return error.message
    if isinstance(error, EmbedderError):
        return str(error)
    return "a defect of the server; its log tells more"
