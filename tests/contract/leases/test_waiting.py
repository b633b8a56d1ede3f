"""Callers that wait for the lease of another driver."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.contract.leases.kit import acquire, release
from tests.kit.drafts import TENANT, draft, refused
from tests.kit.journal import Clock, Journal, opened, save
from tuskpoint_server.core.errors import Reason
from tuskpoint_server.core.leases import Lease, LeaseRequest
from tuskpoint_server.features.leases import leases as feature

LONG_S = 60.0


async def waiters(journal: Journal, count: int) -> None:
    """Return once this many callers wait, and the first of them was refused."""
    while True:
        line = journal.leases._lines.get((TENANT, "t"))
        if line is not None and line.count == count and line.refusal is not None:
            return
        await asyncio.sleep(0.001)


async def test_waiting_callers_are_served_in_the_order_of_their_calls(journal: Journal) -> None:
    held, order = await acquire(journal), list[str]()

    async def drive(name: str) -> None:
        lease = await acquire(journal, name, wait_s=LONG_S)
        order.append(name)
        await save(journal, draft(name, lease_id=lease.lease_id))
        await release(journal, lease)

    tasks = []
    for number in range(5):
        tasks.append(asyncio.create_task(drive(str(number))))
        await waiters(journal, number + 1)
    assert await release(journal, held)
    async with asyncio.timeout(LONG_S):
        await asyncio.gather(*tasks)
    assert order == ["0", "1", "2", "3", "4"]
    assert not journal.leases._lines
    assert not len(journal.database.waiters)


async def test_a_caller_that_leaves_lets_the_next_one_in(journal: Journal) -> None:
    held = await acquire(journal)
    first = asyncio.create_task(acquire(journal, "first", wait_s=LONG_S))
    await waiters(journal, 1)
    second = asyncio.create_task(acquire(journal, "second", wait_s=LONG_S))
    await waiters(journal, 2)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    await release(journal, held)
    assert (await asyncio.wait_for(second, LONG_S)).owner == "second"


async def test_a_wait_ends_with_the_driver_that_it_waited_for(journal: Journal) -> None:
    await acquire(journal, "driver")
    first = asyncio.create_task(acquire(journal, "first", wait_s=LONG_S))
    await waiters(journal, 1)
    for wait_s in (0, 0.05):
        busy = await refused(acquire(journal, wait_s=wait_s), Reason.THREAD_BUSY)
        assert busy.metadata["owner"] == "driver"
        assert 29 < (busy.retry_after_s or 0) <= 30
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    for wait_s in (0, 0.05):
        await refused(acquire(journal, wait_s=wait_s), Reason.THREAD_BUSY)


async def test_waiting_callers_are_bounded(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feature, "MAX_WAITING", 2)
    await acquire(journal)
    tasks = [asyncio.create_task(acquire(journal, wait_s=LONG_S)) for _ in range(2)]
    await waiters(journal, 2)
    many = await refused(acquire(journal, wait_s=LONG_S), Reason.THREAD_BUSY)
    assert "2 callers wait for it already" in str(many)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_busy_thread_costs_a_waiting_caller_few_attempts(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = await acquire(journal)
    waiting = asyncio.create_task(acquire(journal, "next", wait_s=LONG_S))
    await waiters(journal, 1)
    attempts = 0
    attempt = journal.leases._attempt

    async def counted(tenant: str, thread_id: str, request: LeaseRequest) -> tuple[Lease, bool]:
        nonlocal attempts
        attempts += 1
        return await attempt(tenant, thread_id, request)

    monkeypatch.setattr(journal.leases, "_attempt", counted)
    start = asyncio.get_running_loop().time()
    for number in range(50):
        await save(journal, draft(f"{number:03}", lease_id=held.lease_id))
    seconds = asyncio.get_running_loop().time() - start
    assert attempts <= 1 + seconds / feature._GAP_S
    await release(journal, held)
    assert (await asyncio.wait_for(waiting, LONG_S)).owner == "next"


async def test_a_wait_ends_when_the_time_of_the_lease_is_over(tmp_path: Path) -> None:
    async with opened(tmp_path, lambda: time.time_ns() // 1000) as journal:
        lease = await acquire(journal, ttl_s=0.2)
        other = await asyncio.wait_for(acquire(journal, "other", wait_s=LONG_S), LONG_S)
        assert other.acquired_us >= lease.until_us
        gone = draft("1", lease_id=lease.lease_id)
        await refused(journal.save_checkpoint(TENANT, gone), Reason.LEASE_LOST)


@pytest.fixture
async def servers(tmp_path: Path, clock: Clock) -> AsyncIterator[list[Journal]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(opened(tmp_path, clock)) for _ in range(3)]


@pytest.mark.postgresql
async def test_another_server_lets_a_waiting_caller_in(servers: list[Journal]) -> None:
    server, other, third = servers
    held = await acquire(server)
    waiting = asyncio.create_task(acquire(other, "waiter", wait_s=LONG_S))
    await waiters(other, 1)
    await refused(third.save_checkpoint(TENANT, draft("1")), Reason.THREAD_BUSY)
    assert await release(third, held)
    lease = await asyncio.wait_for(waiting, LONG_S)
    await refused(
        server.save_checkpoint(TENANT, draft("1", lease_id=held.lease_id)), Reason.LEASE_LOST
    )
    await save(third, draft("1", lease_id=lease.lease_id))
    # An extension takes no number of the thread, and other servers must see it all the same.
    await server.leases.keep(TENANT, "t", lease.lease_id, 90_000_000)
    detail = await third.thread(TENANT, "t")
    assert detail is not None
    assert detail.thread.lease is not None
    assert detail.thread.lease.ttl_us == 90_000_000
