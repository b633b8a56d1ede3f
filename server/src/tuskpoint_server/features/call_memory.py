"""The bound on the memory of calls: requests, loaded contents, unsent answers.

A call reserves the size of the largest checkpoint before a load, and then releases the part that
the checkpoint does not need. While the memory is full, loads and reading of streams wait, and calls
whose client has stopped reading are ended, the longest stalled first. So slow readers end the
calls of other slow readers, and neither fill the server's memory nor delay other callers.
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

WHOLE = LIMITS.max_checkpoint  # bytes reserved for a checkpoint of unknown size
STALL_SECONDS = 5.0  # without progress, after which a call may be ended to make room
WAIT_SECONDS = 20.0  # that a call waits for room
_LOOK_SECONDS = 0.5  # between two looks for stalled calls while others wait

LoadedT = TypeVar("LoadedT")


class CallMemory:
    """Bytes that calls hold, and the calls that wait; `max_bytes` is at least `WHOLE`."""

    def __init__(self, max_bytes: int = sys.maxsize) -> None:
        self.max_bytes = max_bytes
        self.held_bytes = 0
        self._holders: set[Holder] = set()
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._look: asyncio.TimerHandle | None = None

    @property
    def is_full(self) -> bool:
        """Return whether calls hold more than the bound."""
        return self.held_bytes > self.max_bytes

    def change(self, holder: Holder, by: int) -> None:
        """Add bytes that a call holds, or subtract released bytes."""
        self.held_bytes += by
        if holder.held_bytes:
            self._holders.add(holder)
        else:
            self._holders.discard(holder)
        if by < 0:
            self._admit()

    async def room(self, size: int) -> None:
        """Wait until the bound allows more bytes, or refuse with `MEMORY_FULL`."""
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
        """Continue waiting calls for which memory is free, in the order of their arrival."""
        free_bytes = self.max_bytes - self.held_bytes
        while self._waiting and self._waiting[0][0] <= free_bytes:
            size, admitted = self._waiting.popleft()
            if not admitted.done():
                free_bytes -= size
                admitted.set_result(None)

    def _find_stalled(self) -> None:
        """End stalled calls while other calls wait for memory."""
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
    """A holder of the server's memory until it is closed: a call."""

    memory: CallMemory = UNBOUNDED
    held_bytes: int = 0
    kept_bytes: int = 0  # bytes set by `keep`
    writing_since: float = NOT_WRITING  # start of sending a message, by the clock of the event loop

    def end(self, why: Refusal) -> None:
        """End the call, so that it soon releases its memory."""

    async def take(self, size: int, what: str = "") -> None:
        """Wait for memory and hold the bytes; refuse with `MEMORY_FULL`.

        With `what`, the name of the bytes for people, bytes that never fit beside the held bytes
        are refused at once with `LIMIT_EXCEEDED`.
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
        """Release bytes."""
        self._change(-size)

    def keep(self, size: int) -> None:
        """Set the number of bytes that are held besides the taken ones, without waiting."""
        change, self.kept_bytes = size - self.kept_bytes, size
        if change:
            self._change(change)

    def close(self) -> None:
        """Release all bytes."""
        if self.held_bytes:
            self._change(-self.held_bytes)

    def _change(self, size: int) -> None:
        self.held_bytes += size
        self.memory.change(self, size)

    async def whole(
        self, load: Callable[[], Awaitable[LoadedT]], size_of: Callable[[LoadedT], int]
    ) -> LoadedT:
        """Load a checkpoint or less, and hold its size until the call ends."""
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
        """Yield the results of a listing, and hold the size of each until the next is requested."""
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
