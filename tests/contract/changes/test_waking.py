"""Each commit with a change of a thread wakes the waiters for this thread."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from tests.contract.changes.kit import events
from tests.kit.archives import house
from tests.kit.blobs.stores import MemoryStore
from tests.kit.drafts import TENANT, draft, refused
from tests.kit.journal import Journal, save
from tuskpoint_server.core.errors import Reason
from tuskpoint_server.journal.sql.notifications import Waiters


@pytest.fixture(autouse=True)
def only_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let only changes wake waiters: notifications would wake all waiters on arrival."""
    monkeypatch.setattr(Waiters, "wake_all", lambda _: None)


async def test_a_waiter_is_woken_by_a_commit(journal: Journal) -> None:
    with journal.events.subscribe(TENANT, "t") as waiter:
        waiting = asyncio.create_task(waiter.wait(60))
        await save(journal, draft("a"))
        assert await waiting
        assert [event.seq for event in await events(journal)] == [1]
        await save(journal, draft("b", "a"))
        assert await waiter.wait(0), "what happened before the wait counts"
        assert not await waiter.wait(0)


async def test_a_waiter_for_any_thread_is_woken_by_each(journal: Journal) -> None:
    with journal.database.waiters.subscribe() as waiter:
        for thread_id in ("t", "u"):
            await save(journal, draft("a", thread_id=thread_id))
            assert await waiter.wait(0)
        await save(journal, draft("a"))
        assert not await waiter.wait(0), "nothing changed"
    await save(journal, draft("b"))
    assert not await waiter.wait(0)


async def test_waiters_of_other_threads_are_not_woken(journal: Journal) -> None:
    subscribe = journal.events.subscribe
    with subscribe(TENANT, "t") as waiter, subscribe("another", "t") as foreign:
        await save(journal, draft("a", thread_id="other"))
        assert not await waiter.wait(0)
        await save(journal, draft("a"))
        assert not await foreign.wait(0)
        assert await waiter.wait(0)


async def test_all_changes_of_a_batch_wake(journal: Journal) -> None:
    subscribe = journal.events.subscribe
    with subscribe(TENANT, "one") as first, subscribe(TENANT, "two") as second:
        saves = [save(journal, draft("a", thread_id=name)) for name in ("one", "two")]
        await asyncio.gather(*saves)
        assert await first.wait(0)
        assert await second.wait(0)


async def test_a_copy_and_a_certification_wake(tmp_path: Path) -> None:
    async with house(tmp_path, MemoryStore()) as home:
        subscribe = home.journal.events.subscribe
        await save(home.journal, draft("a"))
        with subscribe(TENANT, "t") as waiter, subscribe(TENANT, "copy") as of_copy:
            await home.journal.lineage.copy_thread(TENANT, "t", "copy", "")
            assert await of_copy.wait(0)
            assert not await waiter.wait(0)
            await home.flush()
            assert await waiter.wait(0)


async def test_a_commit_that_failed_wakes_nobody(journal: Journal) -> None:
    backend = journal.database._backend
    commit = backend.commit

    def fail(connection: Connection, **more: Any) -> None:
        # the journal's own notifications may pass: waiters are woken if these fail
        if more["changed"]:
            raise RuntimeError("as if")
        commit(connection, **more)

    with journal.events.subscribe(TENANT, "t") as waiter:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(backend, "commit", fail)
            await refused(save(journal, draft("a")), Reason.JOURNAL_UNAVAILABLE)
        await save(journal, draft("a", thread_id="other"))
        assert not await waiter.wait(0)


async def test_a_waiter_that_left_is_forgotten(journal: Journal) -> None:
    waiters, subscribe = journal.database.waiters, journal.events.subscribe
    with subscribe(TENANT, "t"):
        with subscribe(TENANT, "t") as second:
            assert len(waiters) == 2
        await save(journal, draft("a"))
        assert not await second.wait(0)
    assert len(waiters) == 0
