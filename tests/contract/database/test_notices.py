"""Servers of one journal wake each other's waiters, by notifications or by polling."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.kit.databases import ask
from tests.kit.drafts import TENANT, draft
from tests.kit.journal import Clock, Journal, opened, save
from tuskpoint_server.journal.database import database as databases
from tuskpoint_server.journal.sql import notifications
from tuskpoint_server.journal.sql.notifications import Notices, decode, encode


@pytest.fixture
async def servers(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Journal, Journal]]:
    """Two servers of a journal, without polling."""
    monkeypatch.setattr(databases, "POLL_S", 3600.0)
    async with opened(tmp_path, clock) as first, opened(tmp_path, clock) as second:
        yield first, second


async def woken(journal: Journal, by: Journal) -> None:
    """Wait until saves of one server wake a waiter of another server, which may not listen yet."""
    with journal.events.subscribe(TENANT, "t") as waiter:
        for number in range(1000):
            await save(by, draft(f"{number:04d}", f"{number - 1:04d}" if number else ""))
            if await waiter.wait(0.1):
                return
    pytest.fail("it was not woken")


@pytest.mark.postgresql
async def test_a_commit_wakes_waiters_of_another_server(servers: tuple[Journal, Journal]) -> None:
    first, second = servers
    await woken(second, by=first)
    with (
        second.events.subscribe(TENANT, "u") as waiter,
        second.database.waiters.subscribe() as each,
    ):
        await save(first, draft("a", thread_id="u"))
        assert await waiter.wait(30)
        assert await each.wait(0)
        assert await second.thread(TENANT, "u")


@pytest.mark.postgresql
async def test_a_lost_connection_is_opened_again_and_wakes_everyone(
    servers: tuple[Journal, Journal],
) -> None:
    first, second = servers
    await woken(second, by=first)
    with second.events.subscribe("nobody", "t") as waiter:
        await first.database.query(
            lambda connection: ask(
                connection,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE query LIKE 'LISTEN%' AND pid <> pg_backend_pid()",
            )
        )
        assert await waiter.wait(30), "it may have missed something"
    with second.events.subscribe(TENANT, "u") as waiter:
        await save(first, draft("a", thread_id="u"))
        assert await waiter.wait(30)


@pytest.mark.postgresql
async def test_a_waiter_polls_where_no_notification_arrives(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(databases, "POLL_S", 0.05)
    monkeypatch.setattr(Notices, "add", lambda *_: None)
    async with opened(tmp_path, clock) as first, opened(tmp_path, clock) as second:
        with second.events.subscribe(TENANT, "t") as waiter:
            await save(first, draft("a"))
            assert await waiter.wait(30)
            assert not await waiter.wait(0.01), "a short wait ends without a change"


@pytest.mark.postgresql
async def test_waiters_poll_often_only_while_notifications_do_not_arrive(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifications, "POLL_S", 0.05)
    async with opened(tmp_path, clock) as journal:
        waiters = journal.database.waiters
        while waiters.poll_s < notifications.RARELY_S:  # noqa: ASYNC110 - no event says so
            await asyncio.sleep(0.01)
        with waiters.subscribe("nobody", "t") as waiter:
            monkeypatch.setattr(Notices, "add", lambda *_: None)
            assert await waiter.wait(30), "it may have missed something"
        assert waiters.poll_s == databases.POLL_S


@pytest.mark.sqlite
def test_a_notification_names_threads_while_they_fit() -> None:
    few = {("tenant", "t"), ("tenant", "'ü\"")}
    sender, threads = decode(encode("me", few))
    assert (sender, set(threads or ())) == ("me", few)
    many = {("tenant", f"{number:04d}" * 10) for number in range(200)}
    assert decode(encode("me", many)) == ("me", None)
    assert len(encode("me", many)) < 8000
