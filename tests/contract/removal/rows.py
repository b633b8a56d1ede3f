"""Threads for the tests of removal, and readers of rows."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Table, select

from tests.kit.drafts import TENANT, channel, draft, key, write
from tests.kit.journal import Journal, row_of, rows_of, save
from tuskpoint_server.core.model import CheckpointQuery, View
from tuskpoint_server.core.threads import EventKind
from tuskpoint_server.journal.database.unit_of_work import UnitOfWork
from tuskpoint_server.journal.sql.schema import changes, threads

FOREVER = 1e9


async def ids(journal: Journal, thread_id: str = "t") -> list[tuple[str, str]]:
    """Return (namespace, ID) of the checkpoints of a thread that readers see."""
    page = await journal.read_page(
        TENANT,
        CheckpointQuery(thread_id=thread_id),
        View.ENTRY,
        None,
        max_count=10_000,
        max_bytes=10**9,
    )
    keys = [checkpoint.entry.key for checkpoint in page.checkpoints]
    return sorted((k.checkpoint_ns, k.checkpoint_id) for k in keys)


async def rows(journal: Journal, table: Table, *columns: str) -> list[tuple[Any, ...]]:
    """Return some columns of all rows of a table, sorted."""
    table_rows = await rows_of(journal, table, *columns)
    return sorted(table_rows, key=lambda row: [(item is not None, item) for item in row])


async def logged(journal: Journal, thread_id: str = "t") -> list[tuple[str, str, int]]:
    """Return kind, checkpoint and number of deleted checkpoints of each change of a thread."""
    number = (await row_of(journal, thread_id)).number
    log_rows = await rows(journal, changes, "thread", "seq", "kind", "checkpoint_id", "deleted")
    return [(EventKind(row[2]).name, *row[3:]) for row in log_rows if row[0] == number]


async def certify_all(journal: Journal, *, indexed: bool = True) -> None:
    """Pretend that everything is stored, and that search has indexed it."""

    def settle(batch: UnitOfWork) -> None:
        every = select(threads.c.tenant, threads.c.thread_id)
        for tenant, thread_id in batch.connection.execute(every).all():
            log = batch.find(tenant, thread_id)
            assert log is not None
            log.row.certified_seq = log.row.seq
            log.row.dirty_since_us, log.row.dirty_bytes = None, 0
            if indexed:
                log.row.indexed_seq = log.row.seq
                log.row.unindexed_since_us = None
            batch.store(log)

    await journal.database.transact(settle)


async def chain(journal: Journal, *, seed_at: int, length: int) -> None:
    """Save checkpoints "00", "01", ... whose delta channel is stored at one of them."""
    for n in range(length):
        channels = (channel("log", b"seed", n),) if n == seed_at else ()
        await save(
            journal,
            draft(
                f"{n:02}",
                f"{n - 1:02}" if n else "",
                (*channels, channel("other", b"state %d" % n, n)),
                delta=("log",),
                label=f"label {n}",
                writes=(write("log", b"%d" % n),),
            ),
        )


async def history(
    journal: Journal, checkpoint_id: str = "", *, ns: str = "", name: str = "log"
) -> tuple[bytes | None, list[bytes]]:
    """Return the seed and the writes of a delta channel."""
    (channel_history,) = await journal.delta_history(TENANT, key(checkpoint_id, "t", ns), [name])
    seed = (
        channel_history.seed.value.data
        if channel_history.seed and channel_history.seed.value
        else None
    )
    return seed, [write.value.data for write in channel_history.writes]
