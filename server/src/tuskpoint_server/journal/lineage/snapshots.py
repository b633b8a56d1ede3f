"""Snapshots: several threads captured together.

A thread of the server's own describes the snapshot, and one for each member holds what was
captured, in the family of the captured thread: so pruning or deleting that takes nothing
from the snapshot, and values are stored once. The names of these threads, which no caller
can use, are in `domain.snapshots`. For recovery a snapshot exists once all of them are
certified.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, func, select

from ...domain import snapshots as kept
from ...domain.checkpoint_ids import mint_checkpoint_id
from ...domain.digests import value_digest
from ...domain.errors import Reason, Refusal
from ...domain.lineage import Snapshot
from ...domain.metadata import matches, parse_metadata
from ...domain.model import Channel, CheckpointKey, View
from ...domain.state import encode_state
from ..checkpoints.load import load
from ..database.overlay import Batch
from ..database.schema import checkpoints, threads
from ..database.statements import Statement
from ..database.thread_rows import ThreadRow
from ..removal.delete import delete_thread
from . import closures, copying, forks, insert, sources
from .copying import Copies
from .delta_bases import NO_NAMES
from .evicted import Supplied
from .insert import NewCheckpoint, stored_value


@dataclass(frozen=True, slots=True)
class SnapshotQuery:
    """Which snapshots; empty means: do not ask."""

    session_id: str = ""
    hostname: str = ""
    working_directory: str = ""


@dataclass(frozen=True, slots=True)
class SnapshotDraft:
    """A snapshot to be made; fields as in `domain.lineage.Snapshot`."""

    thread_ids: tuple[str, ...]
    session_id: str = ""
    hostname: str = ""
    working_directory: str = ""
    metadata: bytes = b"{}"


_OF_SNAPSHOTS = (
    threads.c.tenant == bindparam("of_tenant"),
    threads.c.thread_id >= kept.THREADS,
    threads.c.thread_id < bindparam("below"),
)
_NEWEST = Statement(select(func.max(threads.c.thread_id)).where(*_OF_SNAPSHOTS))
_BELOW = Statement(
    select(threads.c.thread_id, checkpoints.c.metadata)
    .join(checkpoints, checkpoints.c.thread == threads.c.number)
    .where(*_OF_SNAPSHOTS, threads.c.deleted.is_(False))
    .order_by(threads.c.thread_id.desc())
)
_MEMBERS = Statement(
    select(threads.c.thread_id).where(
        threads.c.tenant == bindparam("of_tenant"),
        threads.c.thread_id >= bindparam("from_name"),
        threads.c.thread_id < bindparam("below"),
        threads.c.deleted.is_(False),
    )
)
_AT_ONCE = 64
_PAST_NUMBERS = "~"


def not_found(snapshot_id: str) -> Refusal:
    """Return the refusal of a snapshot that does not exist."""
    return Refusal(Reason.SNAPSHOT_NOT_FOUND, snapshot_id=snapshot_id)


def thread_not_found(thread_id: str, advice: str = "") -> Refusal:
    """Return the refusal of a thread that does not exist, or has no root checkpoint."""
    return Refusal(Reason.THREAD_NOT_FOUND, advice=advice, thread_id=thread_id)


# --- capturing -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Captured:
    """A member, and what is captured of it."""

    member: kept.Member
    copies: Copies


def create(
    batch: Batch, tenant: str, draft: SnapshotDraft, supplied: Supplied, entropy: int
) -> Snapshot:
    """Capture the heads of threads at one instant; see `Snapshots.create_snapshot`.

    Args:
        batch: In a change of its own.
        tenant: The tenant.
        draft: What to capture.
        supplied: Evicted values that have been read.
        entropy: 62 random bits.
    """
    connection = batch.connection
    captured = [_capture(connection, tenant, one, supplied) for one in draft.thread_ids]
    copying.refuse_lacking(one.copies for one in captured)
    row = _NEWEST.run(connection, of_tenant=tenant, below=kept.MEMBER_THREADS).fetchone()
    newest = (row[0] or "" if row else "").removeprefix(kept.THREADS)
    snapshot = Snapshot(
        snapshot_id=mint_checkpoint_id(batch.now_us, entropy, newest),
        session_id=draft.session_id,
        hostname=draft.hostname,
        working_directory=draft.working_directory,
        metadata=draft.metadata,
        members=tuple(one.member.key for one in captured),
        created_us=batch.now_us,
    )
    for number, one in enumerate(captured):
        name = kept.member_thread_of(snapshot.snapshot_id, number)
        log = insert.begin(batch, tenant, name, one.copies.origin.family)
        log.row.agent_id = one.member.agent_id
        log.row.unsearchable = one.member.unsearchable
        copying.insert_fork(batch, log, one.copies, {})
        forks.end(batch, log)
    _describe(batch, tenant, snapshot, [one.member for one in captured])
    return snapshot


def _capture(connection: Connection, tenant: str, thread_id: str, supplied: Supplied) -> _Captured:
    """Return what is captured of a thread: what is needed to go on from its latest root."""
    origin = closures.live(connection, tenant, thread_id)
    if origin is None or not origin.head_id:
        raise thread_not_found(thread_id)
    places = closures.places(connection, origin.number, ("", origin.head_id))
    numbers = sources.numbers_of(connection, origin.number, places)
    key = CheckpointKey(thread_id, "", origin.head_id)
    return _Captured(
        kept.Member(key, origin.agent_id, bool(origin.unsearchable)),
        copying.prepare(connection, origin, numbers, supplied),
    )


def _describe(
    batch: Batch, tenant: str, snapshot: Snapshot, members: Sequence[kept.Member]
) -> None:
    record = kept.encode(snapshot, members)
    channels = tuple(
        Channel(name, 1, value_digest(value), len(value.data), value)
        for name, value in record.values
    )
    metadata = parse_metadata(record.metadata, "metadata_json")
    count = len(members)
    log = insert.begin(batch, tenant, kept.thread_of(snapshot.snapshot_id), None)
    insert.insert_checkpoint(
        batch,
        log,
        NewCheckpoint(
            place=("", snapshot.snapshot_id),
            parent_id="",
            state=encode_state(record.frame, channels),
            metadata=metadata.raw,
            run_id=metadata.run_id,
            root_id=metadata.root_id,
            delta_channels=NO_NAMES,
            created_us=batch.now_us,
            summary=f"Snapshot of {count} thread{'s' if count != 1 else ''}.",
            values=[
                stored_value(one.digest, one.value)
                for one in channels
                if one.digest is not None and one.value is not None
            ],
        ),
    )
    forks.end(batch, log)


# --- reading ---------------------------------------------------------------------------


def read(
    connection: Connection, tenant: str, snapshot_id: str
) -> tuple[Snapshot, tuple[kept.Member, ...]] | None:
    """Return a snapshot and its members, or `None`."""
    key = CheckpointKey(kept.thread_of(snapshot_id), "", snapshot_id)
    found = load(connection, tenant, key, View.FULL)
    if found is None or found.state is None:
        return None
    values = {channel.name: channel.value for channel in found.state.channels if channel.value}
    return kept.decode(snapshot_id, found.entry.created_us, found.entry.metadata, values)


def read_below(
    connection: Connection, tenant: str, query: SnapshotQuery, below: str, limit: int
) -> list[Snapshot]:
    """Return snapshots, newest first; see `Snapshots.list_snapshots`."""
    asked: dict[str, Any] = {
        "session_id": query.session_id,
        "hostname": query.hostname,
        "working_directory": query.working_directory,
    }
    wanted = {name: sought for name, sought in asked.items() if sought}
    end = kept.thread_of(below) if below else kept.MEMBER_THREADS
    rows = _BELOW.run(connection, of_tenant=tenant, below=end)
    found: list[Snapshot] = []
    while len(found) < limit and (some := rows.fetchmany(_AT_ONCE)):
        for thread_id, metadata in some:
            if len(found) < limit and matches(metadata, wanted):
                one = read(connection, tenant, thread_id.removeprefix(kept.THREADS))
                found += [one[0]] if one is not None else []
    return found


def member_thread(connection: Connection, tenant: str, snapshot_id: str, number: int) -> ThreadRow:
    """Return the thread that holds a member of a snapshot.

    Raises:
        LookupError: There is none, which is a defect.
    """
    found = closures.live(connection, tenant, kept.member_thread_of(snapshot_id, number))
    if found is None:
        raise LookupError(f"snapshot {snapshot_id} lacks member {number}")
    return found


# --- deleting --------------------------------------------------------------------------


def delete(batch: Batch, tenant: str, snapshot_id: str) -> bool:
    """Delete a snapshot with all that it captured; return whether there was one.

    Args:
        batch: In a change of its own.
        tenant: The tenant.
        snapshot_id: The snapshot.
    """
    prefix = kept.member_threads_of(snapshot_id)
    rows = _MEMBERS.run(
        batch.connection, of_tenant=tenant, from_name=prefix, below=prefix + _PAST_NUMBERS
    ).fetchall()
    for (thread_id,) in rows:
        delete_thread(batch, tenant, thread_id)
    return delete_thread(batch, tenant, kept.thread_of(snapshot_id)).deleted > 0
