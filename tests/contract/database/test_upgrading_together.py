"""Servers that share a journal bind its rows and seal its values again while others save."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
import pytest

from tests.kit.databases import place
from tests.kit.drafts import TENANT, draft, refused
from tests.kit.journal import Clock, Journal, opened, seals, unbind
from tuskpoint_server.core.errors import Reason
from tuskpoint_server.journal import rebinding
from tuskpoint_server.journal.database.database import Database
from tuskpoint_server.journal.resealing import reseal
from tuskpoint_server.journal.sql.sealing import BY_PLACE, BY_VALUE

pytestmark = pytest.mark.postgresql

SECONDS = 20.0  # time limit of each test


@pytest.fixture
async def journal(tmp_path: Path, clock: Clock) -> AsyncIterator[Journal]:
    async with opened(tmp_path, clock) as journal:
        for name in ("t1", "t2"):
            await journal.save_checkpoint(TENANT, draft("1", "", {"x": b"v"}, thread_id=name))
        await unbind(journal.database)
        yield journal


@asynccontextmanager
async def another(directory: Path) -> AsyncIterator[psycopg.AsyncConnection[tuple[object, ...]]]:
    """Open a transaction of another program that uses the journal, for instance a server."""
    url = str(place(directory / "journal.db"))
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield connection


async def is_waited_for(directory: Path) -> None:
    """Wait until a transaction waits for a lock of the journal."""
    async with another(directory) as connection, asyncio.timeout(SECONDS):
        await connection.set_autocommit(True)
        while True:
            cursor = await connection.execute("SELECT 1 FROM pg_locks WHERE NOT granted")
            if await cursor.fetchone():
                return


async def test_a_thread_that_another_server_changes_keeps_no_other_from_being_bound(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Binding never holds one thread while it waits for another, which could cause a deadlock."""
    bound = asyncio.Event()

    def note(failpoint: str) -> None:
        if failpoint == "journal.after_binding_some":
            bound.set()

    monkeypatch.setattr(rebinding, "failpoint", note)
    async with another(tmp_path) as other:
        await other.execute("SELECT 1 FROM threads WHERE thread_id = 't2' FOR UPDATE")
        binding = asyncio.create_task(rebinding.bind_rows(journal.database))
        async with asyncio.timeout(SECONDS):
            await bound.wait()
        query = "SELECT thread_id FROM threads WHERE binding IS NULL"
        cursor = await other.execute(query)
        assert await cursor.fetchall() == [("t2",)]
        await other.commit()
        done = await asyncio.wait_for(binding, SECONDS)
    assert (done.threads, done.is_complete) == (2, True)


async def test_a_dump_of_the_database_delays_binding_and_no_save(
    journal: Journal, tmp_path: Path
) -> None:
    async with another(tmp_path) as dump:
        await dump.execute("LOCK TABLE changes IN ACCESS SHARE MODE")
        async with asyncio.timeout(SECONDS):
            binding = asyncio.create_task(rebinding.bind_rows(journal.database))
            await journal.save_checkpoint(TENANT, draft("2", "1", {"x": b"w"}, thread_id="t1"))
            await refused(binding, Reason.JOURNAL_UNAVAILABLE)
            await journal.save_checkpoint(TENANT, draft("3", "2", {"x": b"w"}, thread_id="t1"))
    assert (await rebinding.bind_rows(journal.database)).is_complete


async def test_binding_waits_until_a_vacuum_gives_way(journal: Journal, tmp_path: Path) -> None:
    """PostgreSQL ends an autovacuum when a transaction has waited a second for its table."""
    async with another(tmp_path) as vacuum:
        await vacuum.execute("LOCK TABLE changes IN SHARE UPDATE EXCLUSIVE MODE")
        binding = asyncio.create_task(rebinding.bind_rows(journal.database))
        await is_waited_for(tmp_path)
        await asyncio.sleep(1.0)
        await vacuum.rollback()
        assert (await asyncio.wait_for(binding, SECONDS)).is_complete


async def test_servers_that_seal_again_at_once_do_not_wait_for_each_other(
    tmp_path: Path, clock: Clock
) -> None:
    """A batch locks the fact that names the sealing, so the fact cannot change during a batch."""
    where = place(tmp_path / "journal.db")
    database = await Database.open(where, open_key=seals, clock_us=clock)
    try:
        assert database.seal is not None
        database.seal.state = BY_VALUE
        is_fact = "WHERE name = 'sealing'"
        async with another(tmp_path) as other:
            await other.execute(f"UPDATE journal_info SET value = '{BY_VALUE}' {is_fact}")
            await other.commit()
            await other.execute(f"SELECT value FROM journal_info {is_fact} FOR SHARE")
            sealing = asyncio.create_task(reseal(database))
            await is_waited_for(tmp_path)
            await other.execute("SET LOCAL lock_timeout = '300ms'")
            await other.execute(f"UPDATE journal_info SET value = value {is_fact}")
            await other.commit()
            done = await asyncio.wait_for(sealing, SECONDS)
            cursor = await other.execute(f"SELECT value FROM journal_info {is_fact}")
            assert (done.is_complete, await cursor.fetchall()) == (True, [(BY_PLACE,)])
    finally:
        await database.close()
