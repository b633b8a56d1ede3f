"""Compares the checkpoints in memory with the checkpoints in the database."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sqlalchemy import Connection

from tuskpoint_server.core.model import NONE_HELD, CheckpointKey, HeldDigests, HeldValue
from tuskpoint_server.core.state import RawCheckpoint
from tuskpoint_server.features.checkpoints.checkpoint_rows import CheckpointRows
from tuskpoint_server.journal.database.database import Database
from tuskpoint_server.journal.values.load import load_stored
from tuskpoint_server.journal.values.load_head import load_current_heads, load_head

PLENTY = 1 << 30


async def in_memory(
    database: Database, tenant: str, key: CheckpointKey, held: HeldDigests = NONE_HELD
) -> RawCheckpoint | None:
    """Return a checkpoint from memory, which must be current where servers share the journal."""
    if not database.is_shared:
        return load_head(database.heads, tenant, key, held)
    [checkpoint] = await load_current_heads(database, tenant, [key], [held])
    return checkpoint


async def small(
    rows: CheckpointRows, tenant: str, key: CheckpointKey, held: HeldDigests = NONE_HELD
) -> RawCheckpoint | None:
    """Return a checkpoint as a call loads it that does not start a task."""
    [checkpoint] = rows.load_inline(tenant, [key], [held])
    return checkpoint or await rows.load_batched(tenant, key, held)


async def in_database(
    database: Database, tenant: str, key: CheckpointKey, held: HeldDigests = NONE_HELD
) -> RawCheckpoint | None:
    """Return a checkpoint as a load reads it if memory does not have it."""

    def read(connection: Connection) -> RawCheckpoint | None:
        [stored] = load_stored(connection, tenant, [key], PLENTY, [held])
        return stored

    return await database.query(read)


async def _check_held(database: Database, tenant: str, whole: RawCheckpoint) -> None:
    """Compare loads that leave out some values, or all of them, with the whole checkpoint."""
    key = whole.entry.key
    digests = sorted({*whole.values, *(write.digest for write in whole.writes)})
    for held in {frozenset(digests[:1]), frozenset(digests[::2]), frozenset(digests)}:
        values = {digest: value for digest, value in whole.values.items() if digest not in held}
        writes = tuple(
            replace(write, value=HeldValue(len(write.value.data)))
            if write.digest in held
            else write
            for write in whole.writes
        )
        expected = whole._replace(values=values, writes=writes)
        assert await in_database(database, tenant, key, held) == expected
        assert await in_memory(database, tenant, key, held) in (None, expected)


async def check_heads(
    database: Database, tenant: str, places: Iterable[tuple[str, str]]
) -> list[CheckpointKey]:
    """Compare the heads in memory with the database; return the keys of the heads in memory.

    `places` lists threads and namespaces in which nothing is saved during the check.
    """
    kept: list[CheckpointKey] = []
    for thread_id, checkpoint_ns in places:
        latest = CheckpointKey(thread_id, checkpoint_ns, "")
        head = await in_memory(database, tenant, latest)
        if head is None:
            continue
        stored = await in_database(database, tenant, latest)
        assert head == stored
        assert await in_memory(database, tenant, head.entry.key) == stored
        await _check_held(database, tenant, head)
        kept.append(head.entry.key)
    return kept
