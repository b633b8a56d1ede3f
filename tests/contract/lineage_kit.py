"""What tests of lineage compare: everything that can be read of a thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import select

from tests.contract.journal_drafts import TENANT, draft, key, write
from tuskpoint_server.domain.lineage import Closure, EventKind
from tuskpoint_server.domain.model import (
    CheckpointDraft,
    CheckpointKey,
    CheckpointQuery,
    State,
    View,
    Write,
)
from tuskpoint_server.journal.journal import SqlJournal
from tuskpoint_server.journal.schema import events

Place = tuple[str, str]
"""Namespace and checkpoint ID."""

History = tuple[bytes | None, tuple[tuple[str, bytes], ...]]
"""Of a delta channel: the seed's data, and task and data of the writes."""


@dataclass(frozen=True)
class Seen:
    """A checkpoint as a reader sees it, but for where and when it was saved."""

    parent_id: str
    metadata: bytes
    label: str
    summary: str
    state: State | None
    writes: tuple[Write, ...]


def under(root_id: str, **more: object) -> dict[str, object]:
    """Return metadata of a subgraph that ran under a root checkpoint."""
    return {"parents": {"": root_id}, **more}


async def save(journal: SqlJournal, *drafts: CheckpointDraft) -> None:
    for one in drafts:
        await journal.save_checkpoint(TENANT, one)


async def chain(
    journal: SqlJournal,
    ids: Sequence[str],
    *,
    parent_id: str = "",
    thread_id: str = "t",
    ns: str = "",
    seeds: Sequence[str] = (),
    metadata: Mapping[str, object] | None = None,
) -> None:
    """Save a line of checkpoints with a delta channel "log" and an ordinary one, "x"."""
    for checkpoint_id in ids:
        number = checkpoint_id.encode()
        await journal.save_checkpoint(
            TENANT, _link(checkpoint_id, parent_id, thread_id, ns, checkpoint_id in seeds, metadata)
        )
        await journal.save_writes(
            TENANT,
            key(checkpoint_id, thread_id, ns),
            [write_of("log", b"w" + number), write_of("x", b"v" + number)],
        )
        parent_id = checkpoint_id


def _link(
    checkpoint_id: str,
    parent_id: str,
    thread_id: str,
    ns: str,
    stores: bool,
    metadata: Mapping[str, object] | None,
) -> CheckpointDraft:
    number = checkpoint_id.encode()
    return draft(
        checkpoint_id,
        parent_id,
        {"x": number, **({"log": b"seed " + number} if stores else {})},
        thread_id=thread_id,
        ns=ns,
        metadata=metadata,
        delta=("log",),
    )


def write_of(channel: str, data: bytes) -> Write:
    return write(channel, data, task=f"task of {channel}")


async def seen(journal: SqlJournal, thread_id: str = "t") -> dict[Place, Seen]:
    """Return all that readers see of a thread."""
    query = CheckpointQuery(thread_id=thread_id)
    page = await journal.list_page(
        TENANT, query, View.FULL, None, max_count=10_000, max_bytes=10**9
    )
    return {
        (one.entry.key.checkpoint_ns, one.entry.key.checkpoint_id): Seen(
            one.entry.parent_id,
            one.entry.metadata,
            one.entry.label,
            one.entry.summary,
            one.state,
            one.writes,
        )
        for one in page.checkpoints
    }


async def history(journal: SqlJournal, key: CheckpointKey, channel: str = "log") -> History:
    """Return what rebuilds a delta channel."""
    (found,) = await journal.delta_history(TENANT, key, [channel])
    seed = found.seed.value.data if found.seed and found.seed.value else None
    return seed, tuple((one.task_id, one.value.data) for one in found.writes)


def members(closure: Closure | None) -> list[tuple[str, str, bool]]:
    """Return namespace, ID, and whether readers see it not, of each member."""
    assert closure is not None
    return [
        (
            one.checkpoint.entry.key.checkpoint_ns,
            one.checkpoint.entry.key.checkpoint_id,
            one.hidden,
        )
        for one in closure.members
    ]


async def told(journal: SqlJournal, thread_id: str) -> list[tuple[int, EventKind, str]]:
    """Return number, kind and checkpoint of a thread's events."""
    rows = await journal.query(
        lambda connection: connection.execute(
            select(events.c.seq, events.c.kind, events.c.checkpoint_id)
            .where(events.c.tenant == TENANT, events.c.thread_id == thread_id)
            .order_by(events.c.seq)
        ).all()
    )
    return [(seq, EventKind(kind), checkpoint_id) for seq, kind, checkpoint_id in rows]
