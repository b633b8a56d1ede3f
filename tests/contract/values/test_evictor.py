"""The evictor keeps a journal within its bound."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import Connection, func, select

from tests.kit.values import Home, text
from tuskpoint_server.archive.evict.eviction import EvictionSettings, Evictor
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.journal.removal.garbage_collection import FreedValues
from tuskpoint_server.journal.sql.schema import contents


def evictor(home: Home, journal_bytes: int, grace_s: float = 0) -> Evictor:
    settings = EvictionSettings(journal_bytes=journal_bytes, grace_s=grace_s)
    return Evictor(home.database, settings)


async def grow(home: Home, thread: str, count: int) -> None:
    for number in range(count):
        data = text(1000 * len(thread) + number, 100_000)
        await home.save(f"{number:02}", {"x": data}, parent=f"{number - 1:02}", thread=thread)
    await home.certify(thread)


@pytest.mark.parametrize(("grace_s", "pause_s"), [(0, 0.1), (10, 5), (60, 30), (86_400, 30)])
def test_a_long_grace_does_not_put_off_the_next_look(grace_s: float, pause_s: float) -> None:
    assert EvictionSettings(grace_s=grace_s).pause_s == pause_s


async def test_a_journal_within_its_bound_keeps_its_values(home: Home) -> None:
    await grow(home, "t", 3)
    home.clock.advance(1)
    used = await home.database.used_bytes()
    assert await evictor(home, used).evict() == FreedValues()


async def test_eviction_ends_within_the_bound_and_begins_with_idle_families(home: Home) -> None:
    await grow(home, "idling", 10)
    await grow(home, "busy", 10)
    home.clock.advance(1)
    bound = await home.database.used_bytes() - 300_000
    gone = await evictor(home, bound).evict()
    assert await home.database.used_bytes() <= bound
    assert 3 <= gone.values < 9
    kept = [await home.here(f"{number:02}", "idling") for number in range(10)]
    assert [len(values) for values in kept] == [0] * gone.values + [1] * (10 - gone.values)
    assert all([await home.here(f"{number:02}", "busy") for number in range(10)])


async def test_a_family_that_gave_all_is_left_alone_until_its_log_goes_on(home: Home) -> None:
    await grow(home, "t", 3)
    home.clock.advance(1)
    eviction = evictor(home, 0)
    assert (await eviction.evict()).values == 2
    seen = []

    async def count() -> None:
        seen.append(1)

    home.database.between = count
    assert await eviction.evict() == FreedValues()
    assert len(seen) == 1  # it listed the families, and entered none of them
    home.database.between = None
    await home.save("03", {"x": b"new"}, parent="02", thread="t")
    await home.certify("t")
    home.clock.advance(1)
    assert (await eviction.evict()).values == 1


async def test_young_changes_are_asked_again_later(home: Home) -> None:
    await grow(home, "t", 3)
    eviction = evictor(home, 0, grace_s=60)
    assert await eviction.evict() == FreedValues()
    home.clock.advance(61)
    assert (await eviction.evict()).values == 2


async def ended(running: asyncio.Task[None]) -> None:
    running.cancel()
    await asyncio.wait({running})


async def test_the_evictor_works_by_itself_and_stops(home: Home) -> None:
    await grow(home, "t", 3)
    home.clock.advance(1)
    eviction = evictor(home, 0)

    def evicted(connection: Connection) -> int:
        chosen = select(func.count()).where(contents.c.data.is_(None))
        return int(connection.execute(chosen).scalar_one())

    running = asyncio.create_task(eviction.run())
    while await home.database.query(evicted) < 2:
        pass
    await ended(running)


async def test_failures_do_not_end_it(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    await grow(home, "t", 3)
    home.clock.advance(1)
    failures: list[Exception] = [
        Refusal(Reason.JOURNAL_UNAVAILABLE, problem="no"),
        RuntimeError("a defect"),
    ]
    went_on = asyncio.Event()

    async def fail() -> None:
        if failures:
            raise failures.pop(0)
        went_on.set()

    home.database.between = fail
    settings = EvictionSettings(journal_bytes=0, grace_s=0)
    eviction = Evictor(home.database, settings)
    running = asyncio.create_task(eviction.run())
    await asyncio.wait_for(went_on.wait(), 30)
    await ended(running)
    logged = [record.message for record in caplog.records if record.name.endswith("eviction")]
    assert logged[0].startswith("eviction is delayed: ")
    assert logged[1] == "eviction failed"
