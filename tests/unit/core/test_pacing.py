"""Pauses after failures grow to their bound, differ between callers, and can end early."""

from __future__ import annotations

import asyncio

from tuskpoint_server.core.pacing import Backoff, pause


def test_each_pause_is_up_to_twice_the_one_before_and_begins_anew_after_a_success() -> None:
    backoff = Backoff(1.0, 5.0)
    for bound in (1.0, 2.0, 4.0, 5.0, 5.0):
        assert bound / 2 <= backoff.failed() <= bound
    backoff.succeeded()
    assert backoff.failed() <= 1.0


def test_callers_that_failed_together_do_not_come_back_together() -> None:
    assert len({Backoff(1.0, 5.0).failed() for _ in range(20)}) > 1


def test_no_number_of_failures_is_too_many() -> None:
    backoff = Backoff(0.25, 30.0, failures=10_000)
    assert 15.0 <= backoff.failed() <= 30.0


async def test_a_pause_ends_with_its_event_or_its_time() -> None:
    ended = asyncio.Event()
    await pause(0.0, ended)
    waiting = asyncio.create_task(pause(3600, ended))
    await asyncio.sleep(0)
    assert not waiting.done()
    ended.set()
    await asyncio.wait_for(waiting, 30)
