"""Recovers a journal from the newest catalog of another journal, and compares the two."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.kit.archives import House, house, keys_of, shown
from tests.kit.databases import place
from tests.kit.drafts import TENANT, draft, write
from tests.kit.journal import Clock
from tuskpoint_server.archive.formats.stored_json import Kind
from tuskpoint_server.blobs.api import BlobStore
from tuskpoint_server.core.model import EVICTED, View
from tuskpoint_server.features.recovery.recovery import (
    Recovery,
    RecoveryCounts,
    RecoverySource,
    read_source,
)
from tuskpoint_server.journal.database.database import Database

THREADS = (
    "SELECT thread_id, incarnation, deleted, deleted_through, checkpoint_count,"
    " CASE WHEN deleted THEN '' ELSE agent_id END, CASE WHEN deleted THEN 0 ELSE state END,"
    " CASE WHEN deleted THEN '' ELSE head_id END,"
    " CASE WHEN deleted THEN 0 ELSE retention_s END,"
    " CASE WHEN deleted THEN FALSE ELSE unsearchable END FROM threads ORDER BY thread_id"
)
# Writes that wait for their checkpoint are stored with it, so recovery ignores them.
NOTHING = (
    "SELECT thread_id, incarnation, deleted_through FROM threads"
    " WHERE NOT deleted AND retention_s = 0 AND NOT unsearchable"
    " AND NOT EXISTS (SELECT 1 FROM checkpoints AS c WHERE c.thread = threads.number)"
)
CHECKPOINTS = (
    "SELECT t.thread_id, c.checkpoint_ns, c.checkpoint_id, c.seq, c.parent_id, c.state,"
    " c.metadata, c.run_id, c.root_id, c.delta_channels, c.delta_base, c.label, c.summary,"
    " c.forked_from, c.rolled_back_from, c.adopted_from, c.created_us"
    " FROM checkpoints AS c JOIN threads AS t ON t.number = c.thread ORDER BY 1, 2, 3"
)
ITEMS = (
    "SELECT t.thread_id, i.checkpoint_id, i.created_us, i.updated_us, i.ttl_us, i.expire_us,"
    " i.more"
    " FROM items AS i JOIN threads AS t ON t.number = i.thread ORDER BY 1, 2"
)
WRITES = (
    "SELECT t.thread_id, w.checkpoint_ns, w.checkpoint_id, w.task_id, w.idx, w.task_path,"
    " w.channel, w.type, w.digest, w.size, w.seq"
    " FROM writes AS w JOIN threads AS t ON t.number = w.thread"
    " WHERE w.early_us IS NULL ORDER BY 1, 2, 3, 4, 5"
)


async def newest(home: House) -> RecoverySource:
    """Return the newest certified catalog of a journal, from its blobs."""
    known = await home.archive.catalog(TENANT)
    assert known is not None
    return await read_source(home.store, known.location, Kind.CATALOG, home.keys, TENANT)


async def recover(
    directory: Path,
    store: BlobStore,
    source: RecoverySource,
    clock: Clock,
    *,
    skip_damaged: bool = False,
    memory_bytes: int = sys.maxsize,
) -> RecoveryCounts:
    """Fill the journal of a directory as the command does."""
    directory.mkdir(exist_ok=True)  # noqa: ASYNC240 - a test's
    path = place(directory / "journal.db")
    database = await Database.open(path, generation=source.generation, clock_us=clock)
    try:
        recovery = Recovery(
            TENANT, database, store, skip_damaged=skip_damaged, memory_bytes=memory_bytes
        )
        recovered = await recovery.recover(source)
        await database.finish()
    finally:
        await database.close()
    return recovered


@asynccontextmanager
async def recovered_house(
    directory: Path, home: House, *, skip_damaged: bool = False
) -> AsyncIterator[House]:
    """Recover from the newest catalog of a journal, and open the recovered journal."""
    await recover(directory, home.store, await newest(home), home.clock, skip_damaged=skip_damaged)
    async with house(directory, home.store, home.clock, keys=home.keys) as opened:
        yield opened


async def compare(before: House, after: House) -> int:
    """Check that a recovered journal equals the certified state of the first journal.

    All of the first journal must be certified. Returns the number of checkpoints.
    """
    threads = await before.ask(THREADS)
    there = await after.ask(THREADS)
    # An empty thread needs nothing in the blob store: it is as before its start.
    begun = {name: state for name, *state in await before.ask(NOTHING)}
    back = [row for row in there if row[2] and row[0] in begun]
    for name, incarnation, _, through, *_ in back:
        assert (incarnation, through) == (begun[name][0] - 1, begun[name][1])
    kept = [row for row in there if row not in back]
    assert [row for row in threads if row in there or row[2] or row[4]] == kept
    rows = await before.ask(CHECKPOINTS)
    assert await after.ask(CHECKPOINTS) == rows
    assert await after.ask(ITEMS) == await before.ask(ITEMS)
    assert await after.ask(WRITES) == await before.ask(WRITES)
    assert await after.ask("SELECT * FROM writes WHERE early_us IS NOT NULL") == []
    assert (await after.waiting()).threads == 0
    for [thread_id] in await after.ask("SELECT thread_id FROM threads"):
        latest: dict[str, str] = {}
        for key in await keys_of(after, str(thread_id)):
            latest[key.checkpoint_ns] = max(key.checkpoint_id, latest.get(key.checkpoint_ns, ""))
        for key in await keys_of(after, str(thread_id)):
            checkpoint = await after.journal.load(TENANT, key, View.FULL)
            known = await before.journal.load(TENANT, key, View.FULL)
            assert checkpoint is not None
            assert known is not None
            assert shown(checkpoint) == shown(known)
            stored = await after.from_blobs(key)
            assert shown(stored) == shown(known)
            assert checkpoint.entry.certified
            assert stored.state is not None
            assert checkpoint.state is not None
            evicted = [channel for channel in checkpoint.state.channels if channel.value is EVICTED]
            wanted = {channel.digest for channel in evicted if channel.digest is not None}
            if latest[key.checkpoint_ns] == key.checkpoint_id:
                assert not wanted
                assert all(write.value is not EVICTED for write in checkpoint.writes)
            values = await after.archive.read_values(checkpoint.sources, wanted)
            assert values.keys() == wanted
    return len(rows)


async def grow(home: House, count: int, thread_id: str = "t", start: int = 0) -> None:
    """Append checkpoints with growing text, each in its own flush."""
    for number in range(start, start + count):
        await home.journal.save_checkpoint(
            TENANT,
            draft(
                f"{number:04d}",
                f"{number - 1:04d}" if number else "",
                {"step": b"%d" % number, "text": bytes(range(250)) * 30 + b"%d" % number},
                thread_id=thread_id,
                label=f"label {number}",
                summary=f"step {number}",
                agent_id="agent",
                writes=(write("w", b"written %d" % number),),
            ),
        )
        await home.flush()
