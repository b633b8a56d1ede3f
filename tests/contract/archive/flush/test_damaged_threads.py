"""Flushes while rows of threads are damaged: the other threads are certified all the same."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from sqlalchemy import update

from tests.contract.archive.renew.test_losses import metric
from tests.contract.archive.test_damaged_keys import rebuild
from tests.kit.archives import House, house
from tests.kit.blobs.stores import MemoryStore
from tests.kit.drafts import TENANT, draft, refused
from tuskpoint_server.archive.flush import one_flush
from tuskpoint_server.archive.rows.damaged_threads import TOLD_AGAIN_S
from tuskpoint_server.blobs.api import BlobMember
from tuskpoint_server.core.errors import Reason
from tuskpoint_server.journal.database.unit_of_work import UnitOfWork
from tuskpoint_server.journal.sql.schema import threads


async def grow(home: House, *names: str) -> None:
    for name in names:
        await home.journal.save_checkpoint(TENANT, draft("1", "", {"x": b"v"}, thread_id=name))


async def damage(home: House, *names: str, **changed: object) -> None:
    """Change rows of threads as somebody without the key could; without values, their agent."""

    def change(batch: UnitOfWork) -> None:
        where = threads.c.thread_id.in_(names)
        values = changed or {"agent_id": "another"}
        batch.connection.execute(update(threads).where(where).values(**values))
        batch.logs.clear()

    home.journal.is_edited = True
    await home.journal.database.transact(change)


async def certified(home: House) -> set[str]:
    """Return the threads of which something is certified."""
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

    def told() -> list[str]:
        """Return what the log says of the thread since the last look."""
        found = [one.getMessage() for one in caplog.records]
        caplog.clear()
        return [one for one in found if "thread 't1' of tenant default" in one]

    async with house(tmp_path, store, meters=MeterProvider([reader])) as home:
        await grow(home, "t1", "t2")
        await damage(home, "t1")
        await failed(home)
        [first] = told()
        assert "the row of the thread was changed" in first
        for name in ("t3", "t4"):
            await grow(home, name)
            await failed(home)
            assert told() == []
            assert "thread 't1' is damaged" in (await home.archive.status(TENANT)).last_error
            assert metric(reader, "tuskpoint.archive.damaged_threads") == 1
        home.clock.advance(TOLD_AGAIN_S)
        await failed(home)
        assert told() == [first]
        await damage(home, "t1", agent_id="")
        await home.flush()
        assert told() == ["thread 't1' of tenant default is no longer damaged"]
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


async def failed(home: House) -> None:
    """Flush, which is refused because of a thread."""
    assert "is damaged" in str(await refused(home.flush(), Reason.CERTIFICATION_FAILED))


async def test_a_rebuilt_catalog_has_no_settings_of_a_damaged_row(home: House) -> None:
    """A retention that nobody set would delete what is recovered."""
    await home.journal.save_checkpoint(TENANT, draft("1", thread_id="t1", agent_id="writer"))
    await home.flush()
    assert (await home.manifest("t1")).setting is not None
    await damage(home, "t1", retention_s=60)
    await rebuild(home)
    found = await home.manifest("t1")
    assert [place for _, place in found.entries] == ["1"]
    assert found.setting is None
