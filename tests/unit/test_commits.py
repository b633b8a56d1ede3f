"""A change goes on when its caller goes away."""

from __future__ import annotations

import asyncio

import pytest

from tuskpoint_server.service.commits import Commits


async def test_a_result_and_an_exception_reach_the_caller() -> None:
    commits = Commits()

    async def change(outcome: str) -> str:
        if outcome == "bad":
            raise ValueError(outcome)
        return outcome

    assert await commits.run(change("good")) == "good"
    with pytest.raises(ValueError, match="bad"):
        await commits.run(change("bad"))


async def test_a_cancelled_caller_does_not_cancel_the_change() -> None:
    commits, begun, go_on, done = Commits(), asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def change() -> None:
        begun.set()
        await go_on.wait()
        done.set()

    caller = asyncio.create_task(commits.run(change()))
    await begun.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    draining = asyncio.create_task(commits.drain())
    go_on.set()
    await draining
    assert done.is_set()


async def test_changes_begin_in_the_order_of_the_calls() -> None:
    commits = Commits()
    begun: list[int] = []

    async def change(number: int) -> None:
        begun.append(number)

    await asyncio.gather(*(commits.run(change(number)) for number in range(20)))
    assert begun == list(range(20))
