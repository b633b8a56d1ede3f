"""Readers of a thread's log, for tests."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import update

from tests.kit.drafts import TENANT
from tests.kit.journal import Journal
from tuskpoint_server.core.threads import Event
from tuskpoint_server.journal.database.unit_of_work import UnitOfWork
from tuskpoint_server.journal.sql import schema


async def events(journal: Journal, thread_id: str = "t", after: int = 0) -> list[Event]:
    return list((await journal.events.after(TENANT, thread_id, after, 1000)).events)


class Extent(NamedTuple):
    """The kept part of a thread's log, as its row describes it."""

    incarnation: int
    deleted: bool
    begun_seq: int
    compacted_seq: int
    certified_seq: int
    seq: int


async def settle_index(journal: Journal) -> None:
    """Pretend that search has indexed every change."""
    threads = schema.threads

    def settle(batch: UnitOfWork) -> None:
        batch.connection.execute(
            update(threads).values(indexed_seq=threads.c.seq, unindexed_since_us=None)
        )
        batch.logs.clear()

    await journal.database.transact(settle)
