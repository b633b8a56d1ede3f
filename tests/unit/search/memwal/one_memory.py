"""The rows of MemWal's deliveries, with a single memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuskpoint_server.core.search import Memory, MemoryState, memory_text
from tuskpoint_server.search.memories import MemoryRows, MemoryTally

POINTER = b"p" * 16


@dataclass
class OneMemory(MemoryRows):
    """The rows of a journal with one summary to send to MemWal."""

    state: MemoryState = MemoryState.WAITING
    due_us: int = 0
    job_id: str = ""

    def _memory(self) -> Memory:
        return Memory(
            number=1,
            tenant="acme",
            pointer=POINTER,
            text=memory_text("the writer starts", POINTER),
            state=self.state,
            unsure=False,
            attempts=0,
            job_id=self.job_id,
        )

    async def take(self, limit: int, *, unsure_first: bool = False) -> list[Memory]:
        del limit, unsure_first
        return [self._memory()]

    async def note(self, progress: Sequence[Memory]) -> None:
        [memory] = progress
        assert memory.state is not MemoryState.REFUSED
        self.state, self.due_us, self.job_id = memory.state, memory.due_us, memory.job_id

    async def underway(self, limit: int) -> list[Memory]:
        del limit
        return [self._memory()]

    async def next_due_us(self, state: MemoryState) -> int | None:
        return self.due_us if self.state is state else None

    async def tallies(self) -> list[MemoryTally]:
        return [MemoryTally("default", self.state, 1)]
