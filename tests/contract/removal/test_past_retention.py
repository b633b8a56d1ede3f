"""Threads past their retention are deleted, however many other threads are damaged."""

from __future__ import annotations

import logging

import pytest
from sqlalchemy import update

from tests.kit.archives import House
from tests.kit.drafts import TENANT, draft
from tuskpoint_server.features.removal import removal
from tuskpoint_server.journal.database.unit_of_work import UnitOfWork
from tuskpoint_server.journal.sql.schema import threads


async def test_damaged_threads_keep_no_other_from_being_deleted(
    home: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(removal, "_SWEPT_AT_ONCE", 2)
    names = [f"t{number:02}" for number in range(12)]
    for name in names:
        await home.journal.save_checkpoint(TENANT, draft("1", thread_id=name))
        await home.journal.removal.set_retention(TENANT, name, 60)
        home.clock.advance(1)
    damaged = [*names[:5], names[7]]

    def damage(batch: UnitOfWork) -> None:
        where = threads.c.thread_id.in_(damaged)
        batch.connection.execute(update(threads).where(where).values(agent_id="another"))
        batch.logs.clear()

    home.journal.is_edited = True
    await home.journal.database.transact(damage)
    home.clock.advance(60)
    all_threads = removal.Removal(home.journal.removal, home.archive)
    with caplog.at_level(logging.ERROR):
        assert await all_threads.delete_past_retention() == len(names) - len(damaged)
    rows = await home.ask("SELECT thread_id FROM threads WHERE NOT deleted ORDER BY thread_id")
    assert [name for [name] in rows] == damaged
    for name in damaged:
        assert caplog.text.count(f"thread '{name}' is damaged") == 1
    assert await all_threads.delete_past_retention() == 0
