from __future__ import annotations

import asyncio

from tuskpoint_server.domain.pacing import Backoff, pause


def test_pauses_after_failures_double_up_to_a_bound_and_begin_anew_after_a_success() -> None:
    backoff = Backoff(1.0, 6.0)
    for bound in (1.0, 2.0, 4.0, 6.0, 6.0):
        assert bound / 2 <= backoff.failed() <= bound
    for _ in range(2000):
        assert backoff.failed() <= 6.0
    backoff.succeeded()
    assert backoff.failed() <= 1.0


async def test_a_pause_ends_with_its_event_or_its_time() -> None:
    ended = asyncio.Event()
    await pause(0.0, ended)
    waiting = asyncio.create_task(pause(3600, ended))
    await asyncio.sleep(0)
    assert not waiting.done()
    ended.set()
    await asyncio.wait_for(waiting, 30)
