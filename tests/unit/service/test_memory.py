"""The memory of calls is bounded: further calls wait, and stalled readers are ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.features import call_memory as memories
from tuskpoint_server.features.call_memory import WHOLE, CallMemory, Holder

MAX = 2 * WHOLE


class Reader(Holder):
    """A call whose reader has stalled for ages, or has not stalled."""

    def __init__(self, memory: CallMemory, *, stalled: bool = False) -> None:
        super().__init__(memory=memory)
        self.ended: Refusal | None = None
        if stalled:
            self.writing_since = -1e9

    def end(self, why: Refusal) -> None:
        self.ended = why
        self.close()


async def size(bytes_: int) -> int:
    return bytes_


async def test_a_load_holds_what_it_loaded_until_its_call_ends() -> None:
    memory = CallMemory(MAX)
    call = Reader(memory)
    assert await call.whole(lambda: size(1000), int) == 1000
    assert memory.held_bytes == call.held_bytes == 1000
    call.close()
    assert memory.held_bytes == 0


async def test_a_load_that_fails_holds_nothing() -> None:
    memory = CallMemory(MAX)

    async def fail() -> int:
        raise ValueError

    with pytest.raises(ValueError, match=r"^$"):
        await Reader(memory).whole(fail, int)
    assert memory.held_bytes == 0


async def test_a_listing_holds_one_at_a_time() -> None:
    memory = CallMemory(MAX)

    async def sizes() -> AsyncGenerator[int]:
        for number in (5, 7):
            yield number

    held = [memory.held_bytes async for _ in Reader(memory).one_by_one(sizes(), int)]
    assert (held, memory.held_bytes) == ([5, 7], 0)


async def test_loads_wait_in_their_order_and_never_hold_more_than_the_bound() -> None:
    memory = CallMemory(MAX)
    order: list[int] = []
    highest = 0
    gate = asyncio.Event()

    async def load(number: int) -> None:
        async def begin() -> int:
            nonlocal highest
            order.append(number)
            highest = max(highest, memory.held_bytes)
            await gate.wait()
            return 0

        await Reader(memory).whole(begin, int)

    tasks = [asyncio.create_task(load(number)) for number in range(6)]
    while len(order) < 2:  # noqa: ASYNC110 - no event
        await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(*tasks)
    assert order == sorted(order)
    assert (highest, memory.held_bytes) == (MAX, 0)


async def test_a_call_that_stands_still_is_ended_for_one_that_waits() -> None:
    memory = CallMemory(MAX)
    stalled, moving = Reader(memory, stalled=True), Reader(memory)
    stalled.keep(WHOLE)
    moving.keep(WHOLE)
    await Reader(memory).whole(lambda: size(1), int)
    assert moving.ended is None
    assert stalled.ended is not None
    assert stalled.ended.reason is Reason.READER_TOO_SLOW
    assert stalled.ended.metadata == {"held_bytes": str(WHOLE)}


async def test_without_a_call_that_stands_still_the_wait_ends_with_a_refusal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memories, "WAIT_SECONDS", 0.01)
    memory = CallMemory(MAX)
    moving = Reader(memory)
    moving.keep(MAX)
    with pytest.raises(Refusal) as refused:
        await Reader(memory).whole(lambda: size(1), int)
    assert refused.value.reason is Reason.MEMORY_FULL
    assert memory.held_bytes == MAX
    moving.close()
    assert await Reader(memory).whole(lambda: size(1), int) == 1


async def test_a_cancelled_wait_gives_its_turn_to_the_next() -> None:
    memory = CallMemory(MAX)
    holder = Reader(memory)
    holder.keep(WHOLE + 1)
    large = asyncio.create_task(memory.room(WHOLE))
    small = asyncio.create_task(memory.room(1))
    await asyncio.sleep(0)
    assert not small.done()
    large.cancel()
    await small
    assert large.cancelled() or large.cancelling()
