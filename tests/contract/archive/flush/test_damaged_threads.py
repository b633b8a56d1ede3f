"""Flushes while rows of threads are damaged: the other threads are certified all the same."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest
from sqlalchemy import update

from tests.kit.archives import House
from tests.kit.blobs.stores import MemoryStore
from tests.kit.drafts import TENANT, draft, refused
from tuskpoint_server.archive.flush import one_flush
from tuskpoint_server.blobs.api import BlobMember
from tuskpoint_server.core.errors import Reason
from tuskpoint_server.journal.database.unit_of_work import UnitOfWork
from tuskpoint_server.journal.sql.schema import threads


async def grow(home: House, *names: str) -> None:
    for name in names:
        await home.journal.save_checkpoint(TENANT, draft("1", "", {"x": b"v"}, thread_id=name))


async def damage(home: House, *names: str) -> None:
    """Change rows of threads as somebody without the key could."""

    def change(batch: UnitOfWork) -> None:
        where = threads.c.thread_id.in_(names)
        batch.connection.execute(update(threads).where(where).values(agent_id="another"))
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
