"""Flushes certify the other threads while rows of some threads are damaged."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from sqlalchemy import delete, insert, update

from tests.contract.archive.renew.test_losses import metric
from tests.contract.archive.test_damaged_keys import rebuild
from tests.integration.archive.recover.recovered import newest, recover
from tests.kit.archives import House, house
from tests.kit.blobs.stores import MemoryStore
from tests.kit.drafts import TENANT, draft, refused
from tuskpoint_server.archive.flush import one_flush
from tuskpoint_server.archive.rows.damaged_threads import TOLD_AGAIN_S
from tuskpoint_server.blobs.api import BlobMember
from tuskpoint_server.core.errors import Reason
from tuskpoint_server.journal.database.unit_of_work import UnitOfWork
from tuskpoint_server.journal.sql.schema import checkpoints, threads


async def grow(home: House, *names: str) -> None:
    for name in names:
        await home.journal.save_checkpoint(TENANT, draft("1", "", {"x": b"v"}, thread_id=name))


async def damage(home: House, *names: str, **changed: object) -> None:
    """Change rows of threads as an attacker without the key can; by default change their agent."""

    def change(batch: UnitOfWork) -> None:
        where = threads.c.thread_id.in_(names)
        values = changed or {"agent_id": "another"}
        batch.connection.execute(update(threads).where(where).values(**values))
        batch.logs.clear()

    home.journal.is_edited = True
    await home.journal.database.transact(change)


async def certified(home: House) -> set[str]:
    """Return the threads with certified changes."""
    return {
        name for [name] in await home.ask("SELECT thread_id FROM threads WHERE certified_seq > 0")
    }


async def test_a_pack_on_its_way_is_built_again_without_a_thread_that_was_damaged(
    home: House, store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    await grow(home, "t1", "t2")

    async def change(_members: Sequence[BlobMember]) -> None:
        await damage(home, "t1")

    store.on_put = change
    refusal = await refused(home.flush(), Reason.CERTIFICATION_FAILED)
    assert "thread 't1' is damaged" in str(refusal)
    assert await certified(home) == {"t2"}
    assert "thread 't1' of tenant" in caplog.text


async def test_many_damaged_threads_keep_no_other_from_being_certified(
    home: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(one_flush, "_THREADS_PER_FLUSH", 3)
    names = [f"t{number:02}" for number in range(20)]
    for name in names:
        await grow(home, name)
        home.clock.advance(1)
    await damage(home, *names[:15])
    with caplog.at_level(logging.CRITICAL):
        await refused(home.flush(), Reason.CERTIFICATION_FAILED)
    assert await certified(home) == set(names[15:])


async def test_a_damaged_thread_is_told_once_until_it_is_repaired(
    tmp_path: Path, store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    reader = InMemoryMetricReader()
    caplog.set_level(logging.INFO, "tuskpoint_server.archive.rows.damaged_threads")

    def logged_lines() -> list[str]:
        """Return the log lines about the thread since the last call."""
        messages = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return [message for message in messages if "thread 't1' of tenant default" in message]

    async with house(tmp_path, store, meters=MeterProvider([reader])) as home:
        await grow(home, "t1", "t2")
        await damage(home, "t1")
        await failed(home)
        [first] = logged_lines()
        assert "the row of the thread was changed" in first
        for name in ("t3", "t4"):
            await grow(home, name)
            await failed(home)
            assert logged_lines() == []
            assert "thread 't1' is damaged" in (await home.archive.status(TENANT)).last_error
            assert metric(reader, "tuskpoint.archive.damaged_threads") == 1
        home.clock.advance(TOLD_AGAIN_S)
        await failed(home)
        assert logged_lines() == [first]
        await damage(home, "t1", agent_id="")
        await home.flush()
        assert logged_lines() == ["thread 't1' of tenant default is no longer damaged"]
        assert await certified(home) == {"t1", "t2", "t3", "t4"}
        assert (await home.archive.status(TENANT)).last_error == ""
        assert metric(reader, "tuskpoint.archive.damaged_threads") == 0


async def test_another_damage_of_a_thread_is_told(
    home: House, caplog: pytest.LogCaptureFixture
) -> None:
    await grow(home, "t1")
    await damage(home, "t1")
    await failed(home)
    caplog.clear()
    await damage(home, "t1", binding=None)
    await failed(home)
    assert "thread 't1' of tenant" in caplog.text


async def test_a_damaged_thread_is_looked_at_less_and_less_often(
    tmp_path: Path, store: MemoryStore
) -> None:
    async with house(tmp_path, store, flush_interval_s=0.001) as home:
        await grow(home, "t1")
        await damage(home, "t1")
        for _ in range(21):
            await failed(home)
        flusher = home.archive._flusher(TENANT)
        # Another flush may have started before the last caller got its answer.
        while flusher._look_at is None:  # noqa: ASYNC110 - no event says so
            await asyncio.sleep(0)
        assert flusher._look_at - flusher.now > 500
        assert flusher.backlog.due_at() is None, "nothing waits that a flush could store"
        await home.archive._remote_flush._count()  # as every few seconds
        assert flusher.backlog.due_at() is None, "what other servers saved is no more than that"
        stored = asyncio.Event()

        async def note(_members: Sequence[BlobMember]) -> None:
            stored.set()

        store.on_put = note
        await grow(home, "t2")
        await stored.wait()  # no call asked for a flush


async def failed(home: House) -> None:
    """Flush, and expect a refusal because of a thread."""
    assert "is damaged" in str(await refused(home.flush(), Reason.CERTIFICATION_FAILED))


async def test_a_rebuilt_catalog_has_no_settings_of_a_damaged_row(home: House) -> None:
    """A retention that no user set would delete the recovered checkpoints."""
    await home.journal.save_checkpoint(TENANT, draft("1", thread_id="t1", agent_id="writer"))
    await home.flush()
    assert (await home.manifest("t1")).setting is not None
    await damage(home, "t1", retention_s=60)
    await rebuild(home)
    manifest = await home.manifest("t1")
    assert [place for _, place in manifest.entries] == ["1"]
    assert manifest.setting is None


async def row_of(home: House, checkpoint_id: str) -> dict[str, object]:
    """Return the stored row of a checkpoint."""
    query = f"SELECT * FROM checkpoints WHERE checkpoint_id = '{checkpoint_id}'"
    [row] = await home.ask(query)
    return dict(zip([column.name for column in checkpoints.columns], row, strict=True))


async def put(home: House, row: dict[str, object] | None, number: object = None) -> None:
    """Put a row of a checkpoint back; without a row, delete the row with a number."""
    old = checkpoints.c.number == (row or {"number": number})["number"]

    def change(batch: UnitOfWork) -> None:
        batch.connection.execute(delete(checkpoints).where(old))
        if row is not None:
            batch.connection.execute(insert(checkpoints).values(row))
        batch.logs.clear()

    home.journal.is_edited = True
    await home.journal.database.transact(change)


@pytest.mark.parametrize("edit", ["deleted", "older"])
async def test_a_new_checkpoint_whose_row_is_gone_is_not_certified_as_if_it_never_was(
    home: House, tmp_path: Path, edit: str
) -> None:
    await grow(home, "t1", "t2")
    for number in range(3):
        await home.journal.save_checkpoint(TENANT, draft(f"c{number}", "", {"x": b"%d" % number}))
    older = await row_of(home, "c1")
    await home.journal.save_checkpoint(TENANT, draft("c1", "", {"x": b"saved again"}))
    newest_row = await row_of(home, "c1")
    await put(home, older if edit == "older" else None, newest_row["number"])
    await failed(home)
    assert await certified(home) == {"t1", "t2"}
    await put(home, newest_row)
    await home.flush()
    assert await certified(home) == {"t", "t1", "t2"}
    second = await recover(tmp_path / "second", home.store, await newest(home), home.clock)
    assert second.checkpoints == 5


async def test_a_rebuilt_catalog_has_a_gap_where_a_row_was_put_back(
    home: House, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The segment has another state than the row: no recovery could accept both."""
    for number in range(3):
        await home.journal.save_checkpoint(TENANT, draft(f"{number}", "", {"x": b"%d" % number}))
    older = await row_of(home, "1")
    again = draft("1", "", {"x": b"saved again"}, label="again")
    await home.journal.save_checkpoint(TENANT, again)
    await home.flush()

    await put(home, older)
    await rebuild(home)
    assert "others were put in their place" in caplog.text
    manifest = await home.manifest()
    assert sorted(name for _, name in manifest.entries) == ["0", "2"]
    [gap] = manifest.gaps
    assert (gap.checkpoint_id, "another state" in gap.reason) == ("1", True)
    assert (await home.archive.status(TENANT)).gaps == 1
    second = await recover(tmp_path / "second", home.store, await newest(home), home.clock)
    assert second.checkpoints == 2
