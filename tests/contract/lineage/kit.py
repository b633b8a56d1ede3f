"""Threads for the tests of lineage, and readers that compare all fields of a thread."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import select, update

from tests.kit.drafts import TENANT, draft, key, value, write
from tests.kit.journal import Journal, insert_segment, row_of
from tuskpoint_server.archive.formats.bundles import Closure
from tuskpoint_server.core.delta_bases import decode_delta_base
from tuskpoint_server.core.model import CheckpointKey, CheckpointQuery, State, Value, View, Write
from tuskpoint_server.core.state import decode_state
from tuskpoint_server.core.threads import EventKind
from tuskpoint_server.core.values import value_digest
from tuskpoint_server.features.checkpoints.incoming import IncomingCheckpoint
from tuskpoint_server.journal.database.pending_writes import StoredWrite
from tuskpoint_server.journal.database.unit_of_work import UnitOfWork
from tuskpoint_server.journal.sql.schema import changes, contents, threads, writes

Place = tuple[str, str]
"""Namespace and checkpoint ID."""

History = tuple[bytes | None, tuple[tuple[str, bytes], ...]]
"""History of a delta channel: the data of the seed, and task and data of the writes."""


@dataclass(frozen=True)
class Seen:
    """A checkpoint as a reader sees it, without the place and time of its save."""

    parent_id: str
    metadata: bytes
    label: str
    summary: str
    state: State | None
    writes: tuple[Write, ...]


def under(root_id: str, **more: object) -> dict[str, object]:
    """Return metadata of a subgraph that ran under a root checkpoint."""
    return {"parents": {"": root_id}, **more}


async def chain(
    journal: Journal,
    ids: Sequence[str],
    *,
    parent_id: str = "",
    thread_id: str = "t",
    ns: str = "",
    seeds: Sequence[str] = (),
    metadata: Mapping[str, object] | None = None,
) -> None:
    """Save a line of checkpoints with a delta channel "log" and an ordinary channel "x"."""
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
) -> IncomingCheckpoint:
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


def write_of(channel: str, data: bytes) -> StoredWrite:
    return write(channel, data, task=f"task of {channel}")


async def seen(journal: Journal, thread_id: str = "t") -> dict[Place, Seen]:
    """Return all checkpoints of a thread that readers see."""
    query = CheckpointQuery(thread_id=thread_id)
    page = await journal.read_page(
        TENANT, query, View.FULL, None, max_count=10_000, max_bytes=10**9
    )
    return {
        (checkpoint.entry.key.checkpoint_ns, checkpoint.entry.key.checkpoint_id): Seen(
            checkpoint.entry.parent_id,
            checkpoint.entry.metadata,
            checkpoint.entry.label,
            checkpoint.entry.summary,
            checkpoint.state,
            checkpoint.writes,
        )
        for checkpoint in page.checkpoints
    }


async def history(journal: Journal, key: CheckpointKey, channel: str = "log") -> History:
    """Return the seed and writes that rebuild a delta channel."""
    (channel_history,) = await journal.delta_history(TENANT, key, [channel])
    seed = (
        channel_history.seed.value.data
        if channel_history.seed and channel_history.seed.value
        else None
    )
    return seed, tuple((write.task_id, write.value.data) for write in channel_history.writes)


def places(closure: Closure | None) -> list[Place]:
    """Return the places of the members of a closure."""
    return list(members_of(closure))


@dataclass(frozen=True)
class Member:
    """A checkpoint of a closure, with the seed and the writes of each included delta channel."""

    seen: Seen
    rebuilt: dict[str, tuple[bytes | None, list[bytes]]]


def members_of(closure: Closure | None) -> dict[Place, Member]:
    assert closure is not None
    values = {value.digest: Value(value.type, value.data) for value in closure.segment.values}
    members: dict[Place, Member] = {}
    for row in closure.segment.checkpoints:
        place = (row.checkpoint_ns, row.checkpoint_id)
        written = tuple(
            Write(*task, Value(write.type, write.data), write.digest)
            for write in closure.segment.writes
            if (write.checkpoint_ns, write.checkpoint_id) == place
            for task in [(write.task_id, write.task_path, write.idx, write.channel)]
        )
        state = decode_state(row.state, values)
        rebuilt = {
            channel.name: (
                values[channel.seed.digest].data if channel.seed is not None else None,
                [values[write.digest].data for write in channel.writes],
            )
            for channel in decode_delta_base(row.delta_base, "")
        }
        as_seen = Seen(row.parent_id, row.metadata, row.label, row.summary, state, written)
        members[place] = Member(as_seen, rebuilt)
    return members


async def logged(journal: Journal, thread_id: str) -> list[tuple[int, EventKind, str]]:
    """Return number, kind and checkpoint of each change in a thread's log."""
    rows = await journal.database.query(
        lambda connection: connection.execute(
            select(changes.c.seq, changes.c.kind, changes.c.checkpoint_id)
            .join(threads, threads.c.number == changes.c.thread)
            .where(threads.c.tenant == TENANT, threads.c.thread_id == thread_id)
            .order_by(changes.c.seq)
        ).all()
    )
    return [(seq, EventKind(kind), checkpoint_id) for seq, kind, checkpoint_id in rows]


# --- certification and eviction ------------------------------------------------------------


def sha(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


async def certify(journal: Journal, thread_id: str = "t", needs: Sequence[str] = ()) -> bytes:
    """Pretend that the rest of a thread's log is stored as one segment; return its hash."""
    row = await row_of(journal, thread_id)
    name = f"{thread_id} {row.certified_seq + 1}-{row.seq}"
    if row.certified_seq == row.seq:
        return sha(name)

    def work(batch: UnitOfWork) -> None:
        log = batch.find(TENANT, thread_id)
        assert log is not None
        insert_segment(
            *(batch.connection, row.number, sha(name)),
            blob_id=f"blob of {name}",
            needs=b"".join(map(sha, needs)),
            incarnation=row.incarnation,
            first_seq=row.certified_seq + 1,
            last_seq=row.seq,
        )
        log.row.certified_seq = log.row.seq
        log.row.dirty_since_us, log.row.dirty_bytes = None, 0
        batch.store(log)

    await journal.database.transact(work)
    return sha(name)


async def evict(journal: Journal, segment: bytes, *data: bytes) -> dict[bytes, Value]:
    """Evict values and writes with this data; return them by digest."""
    gone = {value_digest(value(content)): value(content) for content in data}

    def work(batch: UnitOfWork) -> None:
        batch.connection.execute(
            update(contents)
            .where(contents.c.digest.in_(list(gone)))
            .values(data=None, keyframe=None, segment=segment)
        )
        batch.connection.execute(
            update(writes).where(writes.c.digest.in_(list(gone))).values(data=None)
        )
        batch.logs.clear()

    await journal.database.transact(work)
    return gone
