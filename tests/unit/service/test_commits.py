"""A change goes on when its caller goes away."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Any

import pytest

from tuskpoint_server.domain.model import BlobLocation, CheckpointKey, Saved, Value
from tuskpoint_server.journal.lineage.copies import Supplied, ValuesEvicted
from tuskpoint_server.service.completing import Commits, Completer

TENANT = "default"
PLACE = BlobLocation(b"0" * 32, 10, "blob")


class Archive:
    """Notes what changed, and holds one value per digest."""

    def __init__(self) -> None:
        self.changes: list[int] = []
        self.values: dict[bytes, Value] = {}

    def changed(self, tenant: str, stored_bytes: int) -> None:
        self.changes.append(stored_bytes)

    async def read_values(
        self, places: Sequence[BlobLocation], digests: Collection[bytes]
    ) -> dict[bytes, Value]:
        assert places == (PLACE,)
        return {one: self.values[one] for one in digests}


def opened(archive: Archive | None = None) -> Commits:
    room: Any = archive or Archive()
    return Commits(room, Completer(room, room))


async def test_a_result_and_an_exception_reach_the_caller() -> None:
    commits = opened()

    async def change(outcome: str) -> str:
        if outcome == "bad":
            raise ValueError(outcome)
        return outcome

    assert await commits.run(TENANT, change("good")) == "good"
    with pytest.raises(ValueError, match="bad"):
        await commits.run(TENANT, change("bad"))


async def test_a_cancelled_caller_does_not_cancel_the_change() -> None:
    commits, begun, go_on, done = opened(), asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def change() -> None:
        begun.set()
        await go_on.wait()
        done.set()

    caller = asyncio.create_task(commits.run(TENANT, change()))
    await begun.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    draining = asyncio.create_task(commits.drain())
    go_on.set()
    await draining
    assert done.is_set()


async def test_changes_begin_in_the_order_of_the_calls() -> None:
    commits = opened()
    begun: list[int] = []

    async def change(number: int) -> None:
        begun.append(number)

    await asyncio.gather(*(commits.run(TENANT, change(number)) for number in range(20)))
    assert begun == list(range(20))


async def test_the_archive_learns_of_what_was_stored() -> None:
    archive = Archive()
    saved = Saved(CheckpointKey("t", "", "1"), 1, 1, 10)

    async def change(result: object) -> object:
        return result

    for result in (saved, (saved, saved), 7, None):
        await opened(archive).run(TENANT, change(result))
    assert archive.changes == [10, 20, 0, 0]


async def test_a_change_is_made_again_until_it_has_every_value() -> None:
    archive = Archive()
    archive.values = {b"a": Value("json", b"1"), b"b": Value("json", b"2")}
    tried: list[set[bytes]] = []

    async def change(supplied: Supplied) -> str:
        tried.append(set(supplied))
        for digest in archive.values:
            if digest not in supplied:
                raise ValuesEvicted([digest], [PLACE])
        return "done"

    commits = opened(archive)
    assert await commits.run(TENANT, commits.supplied(change)) == "done"
    assert tried == [set(), {b"a"}, {b"a", b"b"}]
    assert archive.changes == [0]
