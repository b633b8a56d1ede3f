"""One server has the leader's lease, and a server that lost the lease changes nothing more."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.kit.drafts import draft
from tests.kit.journal import Clock, Journal, Ticks, expire, opened, save
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.journal.lease import (
    SIGNERS,
    Duty,
    Leader,
    Lease,
    LeaseLostError,
    SettingsDifferError,
)


def holds(lease: Lease) -> bool:
    return lease.held


@dataclass
class Servers:
    """Two servers of a journal, and their leases of ten seconds by clocks that tests move."""

    one: Journal
    two: Journal
    ticks: tuple[Ticks, Ticks] = field(default_factory=lambda: (Ticks(), Ticks()))

    def __post_init__(self) -> None:
        self.first = Lease(self.one.database, 10, self.ticks[0])
        self.second = Lease(self.two.database, 10, self.ticks[1])


@pytest.fixture
async def servers(tmp_path: Path, clock: Clock) -> AsyncIterator[Servers]:
    async with opened(tmp_path, clock) as first, opened(tmp_path, clock) as second:
        made = Servers(first, second)
        yield made
        for lease in (made.first, made.second):
            lease.lose()


@pytest.mark.sqlite
async def test_a_journal_of_one_server_is_always_kept(journal: Journal) -> None:
    lease = Lease(journal.database, 0.001)
    assert await lease.acquire()
    assert (holds(lease), lease.fence) == (True, 0)
    await lease.release()
    assert await lease.transact(lambda batch: 5) == 5


@pytest.mark.postgresql
@pytest.mark.parametrize(
    ("ours", "theirs", "refused", "warned"),
    [
        ("new old", "new old", False, False),
        ("new old", "old", False, False),  # during a rotation, one server after another
        ("old", "new old", False, False),
        ("one", "", False, False),  # an older server does not report its key
        ("one", "other", True, False),
        ("generated one", "other", True, False),
        ("one", "generated other", True, False),
        ("generated one", "generated other", False, True),
    ],
)
async def test_signing_keys_are_compared(
    servers: Servers,
    ours: str,
    theirs: str,
    refused: bool,
    warned: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    there = {SIGNERS: theirs} if theirs else {}
    leader = Lease(servers.two.database, 10, servers.ticks[1], settings=there)
    lease = Lease(servers.one.database, 10, servers.ticks[0], settings={SIGNERS: ours})
    assert await leader.acquire()
    if refused:
        with pytest.raises(SettingsDifferError, match=f"--signing-key is {ours} here and {theirs}"):
            await lease.agree()
    else:
        await lease.agree()
        await lease.agree()
    said = [record.message for record in caplog.records if "signs hand-offs with" in record.message]
    assert len(said) == warned
    assert not warned or ("key one" in said[0] and "with other;" in said[0])
    await leader.release()


@pytest.mark.postgresql
async def test_one_server_has_the_lease_until_it_releases_it(servers: Servers) -> None:
    assert await servers.first.acquire()
    assert not await servers.second.acquire()
    assert (holds(servers.first), holds(servers.second)) == (True, False)
    await servers.first.release()
    assert not holds(servers.first)
    assert await servers.second.acquire()
    assert servers.second.fence > servers.first.fence > 0


@pytest.mark.postgresql
async def test_a_release_lets_the_other_server_ask_at_once(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuskpoint_server.journal.lease.POLL_S", 3600.0)
    servers.two.database.waiters.poll_s = 3600.0
    await servers.first.acquire()
    vacant = asyncio.create_task(Lease(servers.two.database, 3600).vacant())
    await asyncio.sleep(0)
    await servers.first.release()
    await asyncio.wait_for(vacant, 30)


@pytest.mark.postgresql
async def test_a_holder_without_renewals_stops_before_the_other_server_begins(
    servers: Servers,
) -> None:
    """The leader's time counts from before its request, and so ends before the database's time."""
    ask = servers.one.database.write_past_batches

    async def slowly(work: Callable[..., object]) -> object:
        answer = await ask(work)
        servers.ticks[0].now += 4
        return answer

    servers.one.database.write_past_batches = slowly  # type: ignore[method-assign, assignment]
    await servers.first.acquire()
    servers.ticks[0].now += 5
    assert holds(servers.first)
    servers.ticks[0].now += 1
    assert not holds(servers.first)
    assert not await servers.second.acquire(), "by the database's clock it has time left"
    with pytest.raises(LeaseLostError):
        servers.first.require()


@pytest.mark.postgresql
async def test_the_lease_is_renewed(servers: Servers) -> None:
    lease = Lease(servers.one.database, 0.06, Ticks())
    await lease.acquire()
    renewed = asyncio.Event()
    ask = servers.one.database.write_past_batches

    async def noted(work: Callable[..., object]) -> object:
        answer = await ask(work)
        renewed.set()
        return answer

    servers.one.database.write_past_batches = noted  # type: ignore[method-assign, assignment]
    before = await _until(servers.two)
    for _ in range(2):
        renewed.clear()
        await renewed.wait()
    assert await _until(servers.two) > before
    assert holds(lease)
    lease.lose()


@pytest.mark.postgresql
async def test_what_a_server_does_that_lost_the_lease_is_void(servers: Servers) -> None:
    await servers.first.acquire()
    await servers.first.transact(lambda batch: None)
    await expire(servers.two.database)
    assert await servers.second.acquire()
    assert holds(servers.first), "it was stopped meanwhile, and its clock too"
    with pytest.raises(LeaseLostError):
        await servers.first.transact(lambda batch: pytest.fail("it must not run"))
    await servers.first.lost.wait()
    assert not holds(servers.first)
    await servers.second.transact(lambda batch: None)
    await save(servers.one, draft("a"))  # the rest of the server is not affected


@pytest.mark.postgresql
async def test_no_server_takes_over_in_the_middle_of_a_change_of_the_leader(
    servers: Servers,
) -> None:
    await servers.first.acquire()
    await expire(servers.two.database)
    begun, going_on = asyncio.Event(), threading.Event()
    loop, order = asyncio.get_running_loop(), list[str]()

    def work(batch: object) -> None:
        loop.call_soon_threadsafe(begun.set)
        going_on.wait(30)
        order.append("changed")

    async def take() -> bool:
        held = await servers.second.acquire()
        order.append("taken")
        return held

    changing = asyncio.ensure_future(servers.first.transact(work))
    await begun.wait()
    taking = asyncio.create_task(take())
    await asyncio.wait({taking}, timeout=0.05)
    assert not taking.done()
    going_on.set()
    await changing
    assert await taking
    assert order == ["changed", "taken"]


@pytest.mark.postgresql
async def test_a_renewal_after_a_takeover_ends_the_holder(servers: Servers) -> None:
    lease = Lease(servers.one.database, 0.06, Ticks())
    await lease.acquire()
    await expire(servers.two.database)
    while not await servers.second.acquire():
        await expire(servers.two.database)
    await lease.lost.wait()
    assert not holds(lease)


class Told:
    """Records which duties start and end."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.changed = asyncio.Event()

    def duty(self, name: str) -> Duty:
        @asynccontextmanager
        async def doing() -> AsyncIterator[None]:
            self.note(f"{name} begins")
            try:
                yield
            finally:
                self.note(f"{name} ends")

        def made() -> AbstractAsyncContextManager[object]:
            return doing()

        return made

    def note(self, event: str) -> None:
        self.events.append(event)
        self.changed.set()

    async def wait_for(self, count: int) -> None:
        while len(self.events) < count:
            self.changed.clear()
            await self.changed.wait()


_BEGUN = ["a begins", "b begins"]
_ENDED = ["b ends", "a ends"]


async def test_duties_begin_with_the_lease_and_end_with_it(journal: Journal) -> None:
    told = Told()
    leader = Leader(Lease(journal.database), [told.duty("a"), told.duty("b")])
    await leader.start()
    assert told.events == _BEGUN
    await leader.stop()
    assert told.events == _BEGUN + _ENDED


@pytest.mark.postgresql
async def test_duties_move_to_another_server_and_back(servers: Servers) -> None:
    first_told, second_told = Told(), Told()
    first = Leader(servers.first, [first_told.duty("a"), first_told.duty("b")])
    second = Leader(servers.second, [second_told.duty("a"), second_told.duty("b")])
    await first.start()
    await second.start()
    assert (first_told.events, second_told.events) == (_BEGUN, [])
    await expire(servers.two.database)
    await second_told.wait_for(2)
    servers.first.lose()  # the server learns that it could not renew its lease
    await first_told.wait_for(4)
    await second.stop()
    await first_told.wait_for(6)
    await first.stop()
    assert first_told.events == 2 * (_BEGUN + _ENDED)
    assert second_told.events == _BEGUN + _ENDED


@pytest.mark.postgresql
async def test_a_duty_that_cannot_begin_leaves_the_lease_to_others(servers: Servers) -> None:
    @asynccontextmanager
    async def failing() -> AsyncIterator[None]:
        if told.events:
            raise Refusal(Reason.BLOB_UNAVAILABLE, backend="s3", problem="it is broken")
        yield

    told = Told()
    with pytest.raises(Refusal):
        await Leader(servers.first, [told.duty("a"), failing]).start()
    assert told.events == ["a begins", "a ends"]
    assert await servers.second.acquire()


async def test_duties_that_cannot_write_the_journal_begin_once_they_can(servers: Servers) -> None:
    @asynccontextmanager
    async def failing() -> AsyncIterator[None]:
        if len(told.events) == 1:
            raise Refusal(Reason.JOURNAL_UNAVAILABLE, problem="the disk is full")
        yield

    told = Told()
    leader = Leader(servers.first, [told.duty("a"), failing])
    await leader.start()
    await told.wait_for(3)
    await leader.stop()
    assert told.events == 2 * ["a begins", "a ends"]


async def _until(journal: Journal) -> int:
    [[until_us]] = await journal.database.query(
        lambda connection: connection.exec_driver_sql("SELECT until_us FROM leases").fetchall()
    )
    return int(until_us)
