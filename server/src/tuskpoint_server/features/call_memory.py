"""The bound on the memory that calls hold: requests, contents that were loaded, unsent answers.

A call reserves room for the largest checkpoint before it loads one, and gives back what the
checkpoint does not need. While the memory is full, loads and reading of streams wait, and calls
whose client has stopped reading are ended, the longest stalled first. So slow readers cost other
slow readers their calls, and neither the server its memory nor other callers their answers.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeVar

from ..core.errors import Reason, Refusal
from ..core.limits import LIMITS

WHOLE = LIMITS.max_checkpoint  # reserved for a checkpoint whose size is not known yet
STALL_SECONDS = 5.0  # without progress, after which a call may be ended to make room
WAIT_SECONDS = 20.0  # that a call waits for room
_LOOK_SECONDS = 0.5  # between two looks for stalled calls while others wait

LoadedT = TypeVar("LoadedT")


class CallMemory:
    """Bytes that calls hold, and the calls that wait for room; `max_bytes` is at least `WHOLE`."""

    def __init__(self, max_bytes: int = sys.maxsize) -> None:
        self.max_bytes = max_bytes
        self.held_bytes = 0
        self._holders: set[Holder] = set()
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._look: asyncio.TimerHandle | None = None

    @property
    def is_full(self) -> bool:
        """Return whether more than the bound is held."""
        return self.held_bytes > self.max_bytes

    def change(self, holder: Holder, by: int) -> None:
        """Count bytes that a call holds from now on, or does not hold any more."""
        self.held_bytes += by
        if holder.held_bytes:
            self._holders.add(holder)
        else:
            self._holders.discard(holder)
        if by < 0:
            self._admit()

    async def room(self, size: int) -> None:
        """Wait until so many bytes more may be held, or refuse with `MEMORY_FULL`."""
        if not self._waiting and self.held_bytes + size <= self.max_bytes:
            return
        entry = (size, asyncio.get_running_loop().create_future())
        self._waiting.append(entry)
        if self._look is None:
            self._find_stalled()
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await entry[1]
        except TimeoutError:
            raise Refusal(Reason.MEMORY_FULL, maximum=self.max_bytes) from None
        finally:
            if entry in self._waiting:
                self._waiting.remove(entry)
            self._admit()

    def _admit(self) -> None:
        """Let calls go on for which there is room, in the order in which they came."""
        free_bytes = self.max_bytes - self.held_bytes
        while self._waiting and self._waiting[0][0] <= free_bytes:
            size, admitted = self._waiting.popleft()
            if not admitted.done():
                free_bytes -= size
                admitted.set_result(None)

    def _find_stalled(self) -> None:
        """End stalled calls while others wait, until these have room."""
        loop = asyncio.get_running_loop()
        self._look = None
        if not self._waiting:
            return
        self._look = loop.call_later(_LOOK_SECONDS, self._find_stalled)
        cutoff = loop.time() - STALL_SECONDS
        stalled = [holder for holder in self._holders if holder.writing_since < cutoff]
        shortfall = self._waiting[0][0] - (self.max_bytes - self.held_bytes)
        for holder in sorted(stalled, key=lambda holder: holder.writing_since):
            if shortfall <= 0:
                return
            holder.end(Refusal(Reason.READER_TOO_SLOW, held_bytes=holder.held_bytes))
            shortfall -= holder.held_bytes


UNBOUNDED = CallMemory()
NOT_WRITING = float("inf")


@dataclass(slots=True, eq=False, kw_only=True)
class Holder:
    """Something that holds memory of the server until it is closed: a call."""

    memory: CallMemory = UNBOUNDED
    held_bytes: int = 0
    kept_bytes: int = 0  # the part that `keep` sets
    writing_since: float = NOT_WRITING  # time of the event loop since which a message is on its way

    def end(self, why: Refusal) -> None:
        """End it, so that it gives back its memory soon."""

    async def take(self, size: int, what: str = "") -> None:
        """Hold bytes once there is room for them; refuses with `MEMORY_FULL`.

        With `what`, their name for people, it refuses at once with `LIMIT_EXCEEDED` what never
        fits: the memory is too small for these bytes and those that are held already.
        """
        max_bytes = self.memory.max_bytes
        if what and self.held_bytes + size > max_bytes:
            advice = "start the server with a larger --memory-bytes"
            limit = "the memory that calls may hold"
            raise Refusal(
                Reason.LIMIT_EXCEEDED, advice=advice, what=what, limit=limit, maximum=max_bytes
            )
        await self.memory.room(size)
        self._change(size)

    def give(self, size: int) -> None:
        """Do not hold bytes any more."""
        self._change(-size)

    def keep(self, size: int) -> None:
        """Hold so many bytes besides those that were taken, without waiting for room."""
        change, self.kept_bytes = size - self.kept_bytes, size
        if change:
            self._change(change)

    def close(self) -> None:
        """Give back all that is held."""
        if self.held_bytes:
            self._change(-self.held_bytes)

    def _change(self, size: int) -> None:
        self.held_bytes += size
        self.memory.change(self, size)

    async def whole(
        self, load: Callable[[], Awaitable[LoadedT]], size_of: Callable[[LoadedT], int]
    ) -> LoadedT:
        """Load something as large as a checkpoint, and hold its size until the call ends."""
        await self.take(WHOLE)
        size = 0
        try:
            loaded = await load()
            size = min(size_of(loaded), WHOLE)
        finally:
            self.give(WHOLE - size)
        return loaded

    async def one_by_one(
        self, found: AsyncGenerator[LoadedT], size_of: Callable[[LoadedT], int]
    ) -> AsyncGenerator[LoadedT]:
        """Yield what a listing yields, and hold the size of one until the next is asked for."""
        async with aclosing(found):
            while True:
                await self.take(WHOLE)
                size = 0
                try:
                    loaded = await anext(found, None)
                    if loaded is None:
                        return
                    size = min(size_of(loaded), WHOLE)
                finally:
                    self.give(WHOLE - size)
                yield loaded
                self.give(size)
