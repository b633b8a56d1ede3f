"""Work that a caller who goes away must not interrupt."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class Commits:
    """Runs changes in tasks of their own.

    A caller that is cancelled stops waiting; the change and what follows from it in the
    same coroutine go on to their end.
    """

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    async def run(self, change: Coroutine[Any, Any, Result]) -> Result:
        """Start a change and wait for its result."""
        task = asyncio.get_running_loop().create_task(change)
        self._running.add(task)
        task.add_done_callback(self._finished)
        return await asyncio.shield(task)

    async def drain(self) -> None:
        """Wait until no change is running."""
        while self._running:
            await asyncio.wait(self._running)

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # a caller that went away never asks for it
