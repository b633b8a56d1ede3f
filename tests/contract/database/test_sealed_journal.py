"""The rows of a sealed journal show no value, and only its key opens the journal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from sqlalchemy import Connection

from tests.kit.databases import place
from tests.kit.drafts import TENANT, data_of, draft, key, write, written
from tuskpoint_server.core.model import DamagedValue, View
from tuskpoint_server.features.checkpoints.checkpoint_rows import CheckpointRows
from tuskpoint_server.journal.database.database import Database
from tuskpoint_server.journal.database.journal_keys import OpenKey
from tuskpoint_server.journal.database.unit_of_work import UnitOfWork
from tuskpoint_server.journal.sql.schema import metadata
from tuskpoint_server.journal.sql.statements import driver_of
from tuskpoint_server.search.index import IndexRows

SECRET = b"xylophone"
LONG = b"".join(SECRET + b"%d" % number for number in range(900))  # is stored as patches
KEY = bytes(range(32))


async def open_key(stored: str) -> tuple[bytes, str]:
    return KEY, stored or "wrapped"


@asynccontextmanager
async def opened(
    file: Path, with_key: OpenKey | None = open_key
) -> AsyncIterator[tuple[Database, CheckpointRows]]:
    database = await Database.open(place(file), open_key=with_key)
    try:
        yield database, CheckpointRows(database)
    finally:
        await database.close()


def rows_with_the_secret(connection: Connection) -> dict[str, int]:
    """Return the number of stored rows in each table that contain the secret."""
    counts = {}
    for name in (*(table.name for table in metadata.sorted_tables), "search_text"):
        rows = driver_of(connection).execute(f"SELECT * FROM {name}").fetchall()
        counts[name] = sum(any(_shows(item) for item in row) for row in rows)
    return {name: count for name, count in counts.items() if count}


def _shows(item: object) -> bool:
    data = item.encode() if isinstance(item, str) else item
    return isinstance(data, bytes | memoryview) and SECRET in bytes(data)


async def fill(journal: CheckpointRows) -> None:
    await journal.save_checkpoint(TENANT, draft("1", "", {"short": SECRET, "long": LONG}))
    more = {"short": SECRET + b"!", "long": LONG + SECRET}
    await journal.save_checkpoint(TENANT, draft("2", "1", more, writes=(write("w", SECRET),)))


async def check(journal: CheckpointRows) -> None:
    loaded = await journal.load(TENANT, key("2"), View.FULL)
    assert data_of(loaded) == {"short": SECRET + b"!", "long": LONG + SECRET}
    assert [row[-1] for row in written(loaded)] == [SECRET]


async def test_no_row_shows_a_value(tmp_path: Path, database: str) -> None:
    async with opened(tmp_path / "sealed.db") as (sealed, journal):
        await fill(journal)
        await check(journal)
        index = IndexRows(sealed)
        stretch = await index.take(10)
        assert [(checkpoint.channels, checkpoint.truncated) for checkpoint in stretch.due] == [
            ((), True)
        ] * 2
        await index.store(stretch, stretch.due, remember=False)
        assert await sealed.query(rows_with_the_secret) == {}
    async with opened(tmp_path / "plain.db", None) as (plain, journal):
        await fill(journal)
        assert set(await plain.query(rows_with_the_secret)) == {"contents", "writes"}


async def test_its_key_opens_it_again(tmp_path: Path, database: str) -> None:
    async with opened(tmp_path / "sealed.db") as (_, journal):
        await fill(journal)
    async with opened(tmp_path / "sealed.db") as (sealed, journal):
        assert sealed.is_sealed
        await check(journal)


async def test_a_key_that_is_wrapped_anew_replaces_the_stored_one(
    tmp_path: Path, database: str
) -> None:
    stored_keys = []

    async def wrap_anew(stored: str) -> tuple[bytes, str]:
        stored_keys.append(stored)
        return KEY, f"wrapped {len(stored_keys)} times"

    async with opened(tmp_path / "sealed.db", wrap_anew) as (_, journal):
        await fill(journal)
    for _ in range(2):
        async with opened(tmp_path / "sealed.db", wrap_anew) as (_, journal):
            await check(journal)
    assert stored_keys == ["", "wrapped 1 times", "wrapped 2 times"]


@pytest.mark.postgresql
async def test_servers_that_begin_at_once_have_one_key(tmp_path: Path, database: str) -> None:
    keys = {"first": bytes(32), "second": bytes([1]) * 32}

    async def first(stored: str) -> tuple[bytes, str]:
        return keys[stored or "first"], stored or "first"

    async def second(stored: str) -> tuple[bytes, str]:
        if not stored:  # another server creates the journal first
            async with opened(tmp_path / "sealed.db", first) as (_, journal):
                await fill(journal)
        return keys[stored or "second"], stored or "second"

    async with opened(tmp_path / "sealed.db", second) as (_, journal):
        await check(journal)


async def test_it_is_opened_only_as_what_it_is(tmp_path: Path, database: str) -> None:
    async with opened(tmp_path / "sealed.db") as (_, journal):
        await fill(journal)
    with pytest.raises(RuntimeError, match="it is sealed: start with --seal-journal"):
        async with opened(tmp_path / "sealed.db", None):
            pass
    async with opened(tmp_path / "plain.db", None) as (_, journal):
        await fill(journal)
    with pytest.raises(RuntimeError, match="it is not sealed, and only a new journal can be"):
        async with opened(tmp_path / "plain.db"):
            pass


OTHER = "other-tenant"


def moved(table: str, source: str, target: str) -> str:
    """Return a statement that copies sealed bytes from one tenant's row to another tenant's."""
    owner = {"contents": "family", "writes": "number"}[table]
    own = {"contents": "family", "writes": "thread"}[table]
    owner_query = f"(SELECT {owner} FROM threads WHERE tenant = '%s')"
    bytes_of = f"SELECT data FROM {table} WHERE {own} = {owner_query % source}"
    return f"UPDATE {table} SET data = ({bytes_of}) WHERE {own} = {owner_query % target}"


@pytest.mark.parametrize("table", ["contents", "writes"])
async def test_the_same_value_of_another_tenant_does_not_open(
    tmp_path: Path, database: str, table: str
) -> None:
    """Digest and bytes are the same, but tenant and thread differ."""
    async with opened(tmp_path / "sealed.db") as (sealed, journal):
        for tenant in (TENANT, OTHER):
            saved = draft("1", "", {"short": SECRET}, writes=(write("w", SECRET),))
            await journal.save_checkpoint(tenant, saved)

        def edit(batch: UnitOfWork) -> None:
            driver_of(batch.connection).execute(moved(table, OTHER, TENANT))

        await sealed.transact(edit)
        loaded = await journal.load(TENANT, key("1"), View.FULL)
        assert loaded is not None
        assert loaded.state is not None
        values = (loaded.state.channels[0].value, loaded.writes[0].value)
        damaged = values[("contents", "writes").index(table)]
        assert isinstance(damaged, DamagedValue)
        assert "does not open it there" in damaged.damage.problem
        assert sum(isinstance(value, DamagedValue) for value in values) == 1
        other = await journal.load(OTHER, key("1"), View.FULL)
        assert data_of(other) == {"short": SECRET}
        assert [row[-1] for row in written(other)] == [SECRET]
