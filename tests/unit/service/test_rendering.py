"""Views are rendered a few at a time, outside the shared thread pool."""

from __future__ import annotations

import asyncio
import threading

from tuskpoint_server.features.checkpoints.completing import THREADS, in_pool

WAIT_S = 30.0


async def test_views_are_made_a_few_at_a_time() -> None:
    begun, finish = threading.Semaphore(0), threading.Event()

    def render(number: int, text: str) -> tuple[int, str]:
        begun.release()
        assert finish.wait(WAIT_S)
        return number, text

    making = [asyncio.create_task(in_pool(render, number, "x")) for number in range(20)]
    try:
        for _ in range(THREADS):
            assert await asyncio.to_thread(begun.acquire, timeout=WAIT_S)
        making[-1].cancel()
        thread_calls = [asyncio.to_thread(threading.current_thread) for _ in range(20)]
        assert await asyncio.wait_for(asyncio.gather(*thread_calls), WAIT_S)
        assert not begun.acquire(blocking=False)
    finally:
        finish.set()
    made = await asyncio.gather(*making, return_exceptions=True)
    assert made[:-1] == [(number, "x") for number in range(19)]
    assert isinstance(made[-1], asyncio.CancelledError)
