from __future__ import annotations

import asyncio

import pytest

from tuskpoint_server.recall.pacing import MAX_ASIDE, Aside, Backoff, pause, rest_after


@pytest.mark.parametrize(
    ("share", "rest"), [(0.25, 6.0), (0.5, 2.0), (1.0, 0.0), (7.0, 0.0), (0.0, 1998.0)]
)
def test_rest_leaves_work_its_share_of_time(share: float, rest: float) -> None:
    assert rest_after(2.0, share) == pytest.approx(rest)


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


def test_what_is_set_aside_is_held_for_a_while_and_told_once() -> None:
    now = 0.0
    aside: Aside[str] = Aside(60.0, lambda: now)
    assert aside.put("a", "no")
    assert aside.holds("a")
    assert not aside.holds("b")
    assert aside.problem == "no"
    now = 60.0
    assert not aside.holds("a")
    assert len(aside) == 1
    assert not aside.put("a", "no")
    assert aside.put("a", "never")
    aside.put("b", "no")
    aside.release(["a"])
    assert len(aside) == 1
    aside.keep(["c"])
    assert len(aside) == 0
    assert aside.problem == ""


def test_what_is_set_aside_is_bounded() -> None:
    aside: Aside[int] = Aside(60.0, lambda: 0.0)
    for number in range(2 * MAX_ASIDE + 1):
        aside.put(number, "no")
        assert len(aside) <= MAX_ASIDE
    assert aside.holds(2 * MAX_ASIDE)
