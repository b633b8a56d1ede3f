"""What is in memory of checkpoints, beside what the database has of them."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection

from tuskpoint_server.core.model import CheckpointKey
from tuskpoint_server.core.state import RawCheckpoint
from tuskpoint_server.journal.database.database import Database
from tuskpoint_server.journal.values.load import load_stored
from tuskpoint_server.journal.values.load_head import load_head

PLENTY = 1 << 30


async def in_database(database: Database, tenant: str, key: CheckpointKey) -> RawCheckpoint | None:
    """Return a checkpoint as a load reads it that finds nothing in memory."""

    def read(connection: Connection) -> RawCheckpoint | None:
        [stored] = load_stored(connection, tenant, [key], PLENTY)
        return stored

    return await database.query(read)


async def check_heads(
    database: Database, tenant: str, places: Iterable[tuple[str, str]]
) -> list[CheckpointKey]:
    """Compare what is in memory of namespaces with the database; return what was in memory.

    `places`: threads and namespaces, in which nothing is saved meanwhile.
    """
    kept: list[CheckpointKey] = []
    for thread_id, checkpoint_ns in places:
        latest = CheckpointKey(thread_id, checkpoint_ns, "")
        head = load_head(database.heads, tenant, latest)
        if head is None:
            continue
        stored = await in_database(database, tenant, latest)
        assert head == stored
        assert load_head(database.heads, tenant, head.entry.key) == stored
        kept.append(head.entry.key)
    return kept
