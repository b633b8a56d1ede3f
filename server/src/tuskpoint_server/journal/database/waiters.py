"""Waking those who wait for changes of a thread.

Nothing is handed over: a waiter is told that there is something to read, and reads it from
the journal. So one that is slow, or gone, costs a flag.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from contextlib import contextmanager

Watched = tuple[str, str]
"""Tenant and thread."""


class Waiter:
    """Waits for changes of one thread. Not to be shared between tasks."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    def wake(self) -> None:
        """Say that the thread changed."""
        self._changed.set()

    async def wait(self, timeout_s: float) -> bool:
        """Wait for a change since the last wait; tell whether there was one.

        Args:
            timeout_s: Seconds to wait at most; a change that happened already counts even
                if they are none.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            if not self._changed.is_set():
                return False
        self._changed.clear()
        return True


class Waiters:
    """Who waits for which thread. Used in the event loop only."""

    def __init__(self) -> None:
        self._waiting: dict[Watched, set[Waiter]] = {}
        self._listening: set[Waiter] = set()

    @contextmanager
    def listen(self) -> Iterator[Waiter]:
        """Be woken by changes of any thread that are committed inside the context."""
        waiter = Waiter()
        self._listening.add(waiter)
        try:
            yield waiter
        finally:
            self._listening.discard(waiter)

    @contextmanager
    def subscribe(self, tenant: str, thread_id: str) -> Iterator[Waiter]:
        """Be woken by changes of a thread that are committed inside the context.

        Whoever reads after entering, and again after each wake, misses none.
        """
        place, waiter = (tenant, thread_id), Waiter()
        self._waiting.setdefault(place, set()).add(waiter)
        try:
            yield waiter
        finally:
            left = self._waiting[place]
            left.discard(waiter)
            if not left:
                del self._waiting[place]

    def wake(self, changed: Collection[Watched]) -> None:
        """Wake who waits for these threads."""
        if changed:
            for waiter in self._listening:
                waiter.wake()
        for place in changed:
            for waiter in self._waiting.get(place, ()):
                waiter.wake()

    def __len__(self) -> int:
        """Return how many wait for a thread."""
        return sum(len(waiting) for waiting in self._waiting.values())
