"""Changes: what a caller who goes away must not interrupt, and what the archive takes up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from ..archive.archive import Archive
from ..domain.model import CheckpointKey, Durability, Saved, Value
from ..journal.lineage import Supplied, ValuesEvicted
from .completing import Completer

Result = TypeVar("Result")


class Commits:
    """Makes changes in tasks of their own.

    A caller that is cancelled stops waiting; the change goes on to its end, and the archive
    learns of it.
    """

    def __init__(self, archive: Archive, completer: Completer) -> None:
        self._archive = archive
        self._completer = completer
        self._running: set[asyncio.Task[Any]] = set()

    async def run(self, tenant: str, change: Coroutine[Any, Any, Result]) -> Result:
        """Make a change and return its result."""
        task = asyncio.get_running_loop().create_task(self._noted(tenant, change))
        self._running.add(task)
        task.add_done_callback(self._finished)
        return await asyncio.shield(task)

    async def run_supplied(
        self, tenant: str, change: Callable[[Supplied], Awaitable[Result]]
    ) -> Result:
        """Make a change that may need evicted values; it is called until it has them all.

        Raises:
            Refusal: The change's, and what `Completer.values` raises.
        """
        return await self.run(tenant, self.supplied(tenant, change))

    async def supplied(self, tenant: str, call: Callable[[Supplied], Awaitable[Result]]) -> Result:
        """Return the result of a call that may need evicted values, as `run_supplied` does."""
        supplied: dict[bytes, Value] = {}
        while True:
            try:
                return await call(supplied)
            except ValuesEvicted as lack:
                supplied |= await self._completer.values(tenant, lack, supplied)

    async def reach(self, tenant: str, concerns: Callable[[str], bool], wanted: Durability) -> None:
        """Wait until all changes of some threads so far have the durability asked for.

        Raises:
            Refusal: What `Archive.certify_all` raises; the changes stay journaled.
        """
        if wanted is Durability.CERTIFIED:
            await self._archive.certify_all(tenant, concerns)

    async def reach_change(self, tenant: str, saved: Saved, wanted: Durability) -> None:
        """Wait until a thread up to a change of it has the durability asked for.

        Raises:
            Refusal: What `Archive.certify` raises; the change stays journaled.
        """
        if wanted is Durability.CERTIFIED:
            thread = CheckpointKey(saved.key.thread_id, "", "")
            await self._archive.certify(tenant, thread, saved.seq)

    async def drain(self) -> None:
        """Wait until no change is running."""
        while self._running:
            await asyncio.wait(self._running)

    async def _noted(self, tenant: str, change: Coroutine[Any, Any, Result]) -> Result:
        result = await change
        self._archive.changed(tenant, _new_bytes(result))
        return result

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # a caller that went away never asks for it


def _new_bytes(result: object) -> int:
    """Return the bytes of content that a change stored, as far as its result says."""
    if isinstance(result, Saved):
        return result.stored_bytes
    return sum(map(_new_bytes, result)) if isinstance(result, tuple) else 0
