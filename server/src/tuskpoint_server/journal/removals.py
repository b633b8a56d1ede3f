"""Removing checkpoints: whole threads, old ones, those of a run.

What a manifest may have told of is corrected there: a removed checkpoint leaves a row in
`retractions`, an ended incarnation one in `tombstones`. One that is only hidden stays and
has changed: the archive stores it, if it has to, and tells that it is hidden.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from ..domain.lineage import EventKind
from ..domain.model import Removed
from . import events, threads
from .hidden import Ancestry, Node, NodeKey
from .schema import (
    checkpoints,
    envelopes,
    handoffs,
    references,
    retractions,
    tombstones,
    vectors,
    writes,
)
from .statements import EMPTY, Statement, all_columns, of_checkpoint, of_thread, of_users
from .threads import ThreadRow

SUBGRAPH_CALL = ":"
"""Separates the node's name from the task's ID in a LangGraph namespace."""

_OF_CHECKPOINTS = (checkpoints, references, writes, envelopes)
_DROP_CHECKPOINT = tuple(
    Statement(delete(table).where(of_checkpoint(table))) for table in _OF_CHECKPOINTS
)
_DROP_THREAD = tuple(
    Statement(delete(table).where(of_thread(table)))
    for table in (*_OF_CHECKPOINTS, vectors, retractions, handoffs)
)
_DROP_VECTOR = Statement(delete(vectors).where(of_checkpoint(vectors)))
_DROP_WRITES = Statement(delete(writes).where(of_thread(writes)))
_EXTENT = Statement(
    select(
        func.count().filter(checkpoints.c.hidden.is_(False)),
        func.coalesce(func.max(checkpoints.c.checkpoint_id), ""),
    ).where(of_thread(checkpoints))
)
_NODES = Statement(
    select(*(checkpoints.c[name] for name in Node.__slots__)).where(of_thread(checkpoints))
)
_HIDE = Statement(
    update(checkpoints)
    .where(of_checkpoint(checkpoints))
    .values(
        hidden=True,
        label="",
        revision=checkpoints.c.revision + 1,
        seq=bindparam("new_seq"),
        dirty_us=func.coalesce(checkpoints.c.dirty_us, bindparam("now_us")),
    )
)
_RETRACT = Statement(
    insert(retractions).values(
        {
            name: bindparam(name)
            for name in (
                "tenant",
                "thread_id",
                "checkpoint_ns",
                "checkpoint_id",
                "incarnation",
                "created_us",
            )
        }
    )
)
_BURY = Statement(
    lambda insert_into: (
        insert_into(tombstones).values(all_columns(tombstones)).on_conflict_do_nothing()
    )
)


def delete_thread(connection: Connection, tenant: str, thread_id: str, now_us: int) -> Removed:
    """Delete a thread and end its incarnation; see `api.Journal.delete_thread`."""
    thread = threads.lock(connection, tenant, thread_id)
    if thread is None:
        return Removed()
    if thread.deleted:
        drop_early_writes(connection, thread)
        return Removed()
    count = end_incarnation(connection, thread, now_us)
    threads.store(connection, thread, now_us)
    return Removed(count)


def end_incarnation(connection: Connection, thread: ThreadRow, now_us: int) -> int:
    """Remove all that belongs to a live thread, and bury it; return its checkpoints' number.

    It takes a number of the thread's sequence for that. The caller stores the row.
    """
    of = {"of_tenant": thread.tenant, "of_thread": thread.thread_id}
    count, through = _EXTENT.run(connection, **of).fetchone() or (0, "")
    for statement in _DROP_THREAD:
        statement.run(connection, **of)
    _BURY.run(
        connection,
        tenant=thread.tenant,
        thread_id=thread.thread_id,
        incarnation=thread.incarnation,
        created_us=now_us,
    )
    thread.seq += 1
    events.append(connection, thread, EventKind.THREAD_DELETED, now_us, deleted=int(count))
    thread.deleted = True
    thread.begun_seq = thread.seq  # writes that wait for the next incarnation are part of it
    thread.deleted_through = max(thread.deleted_through, through)
    thread.head_id = ""
    thread.retention_s = 0  # else every look for threads past theirs would meet it again
    return int(count)


def drop_early_writes(connection: Connection, thread: ThreadRow) -> None:
    """Remove the writes that wait for the next incarnation of a deleted thread."""
    _DROP_WRITES.run(connection, of_tenant=thread.tenant, of_thread=thread.thread_id)


def keep_latest(connection: Connection, tenant: str, thread_id: str, now_us: int) -> Removed:
    """Delete all but the latest checkpoint of each namespace."""
    thread = threads.lock(connection, tenant, thread_id)
    if thread is None or thread.deleted:
        return Removed()
    nodes = _nodes(connection, thread)
    return _remove(connection, thread, nodes, _superseded(nodes), now_us)


def delete_runs(
    connection: Connection, tenant: str, run_ids: Sequence[str], now_us: int
) -> Removed:
    """Delete the checkpoints of runs; see `api.Journal.delete_runs`."""
    runs = frozenset(run_ids) - {""}
    if not runs:
        return Removed()
    found = connection.execute(
        select(checkpoints.c.thread_id)
        .where(
            checkpoints.c.tenant == tenant,
            checkpoints.c.run_id.in_(sorted(runs)),
            checkpoints.c.run_id != EMPTY,
            checkpoints.c.hidden.is_(False),
            of_users(checkpoints),
        )
        .distinct()
        .order_by(checkpoints.c.thread_id)
    ).scalars()
    deleted = hidden = 0
    for thread_id in found.all():
        thread = threads.lock(connection, tenant, thread_id)
        if thread is None:
            continue
        nodes = _nodes(connection, thread)
        doomed = {key for key, node in nodes.items() if node.run_id in runs and not node.hidden}
        removed = _remove(connection, thread, nodes, doomed, now_us)
        deleted += removed.deleted
        hidden += removed.hidden
    return Removed(deleted, hidden)


def _nodes(connection: Connection, thread: ThreadRow) -> dict[NodeKey, Node]:
    rows = _NODES.run(connection, of_tenant=thread.tenant, of_thread=thread.thread_id).fetchall()
    return {(row[0], row[1]): Node(*row) for row in rows}


def _superseded(nodes: Mapping[NodeKey, Node]) -> set[NodeKey]:
    """Return what is not the latest of its namespace, and finished subgraph calls.

    A call's namespace is its own; it goes when the root checkpoint that it ran under goes.
    """
    visible = {key for key, node in nodes.items() if not node.hidden}
    latest: dict[str, str] = {}
    for namespace, checkpoint_id in visible:
        latest[namespace] = max(latest.get(namespace, ""), checkpoint_id)
    doomed = visible - set(latest.items())
    for key in latest.items():
        root = ("", nodes[key].root_id)
        if SUBGRAPH_CALL in key[0] and root in nodes and (root in doomed or nodes[root].hidden):
            doomed.add(key)
    return doomed


def _remove(
    connection: Connection,
    thread: ThreadRow,
    nodes: Mapping[NodeKey, Node],
    doomed: AbstractSet[NodeKey],
    now_us: int,
) -> Removed:
    """Delete checkpoints, or hide them where delta channels of others need them."""
    if not doomed:
        return Removed()
    hidden_before = {key for key, node in nodes.items() if node.hidden}
    gone = doomed | hidden_before
    needed = Ancestry(connection, thread.tenant, thread.thread_id, nodes, gone).needed()
    thread.seq += 1
    for statement in _DROP_CHECKPOINT:
        statement.run_many(connection, list(_keys(thread, gone - needed)))
    # What is saved under these IDs again is not what their vectors stand for.
    _DROP_VECTOR.run_many(connection, list(_keys(thread, doomed)))
    _HIDE.run_many(
        connection,
        [{**of, "new_seq": thread.seq, "now_us": now_us} for of in _keys(thread, doomed & needed)],
    )
    _RETRACT.run_many(
        connection,
        [
            {
                "tenant": thread.tenant,
                "thread_id": thread.thread_id,
                "checkpoint_ns": namespace,
                "checkpoint_id": checkpoint_id,
                "incarnation": thread.incarnation,
                "created_us": now_us,
            }
            for namespace, checkpoint_id in sorted(gone - needed)
        ],
    )
    threads.review_head(connection, thread)
    threads.store(connection, thread, now_us)
    events.append(connection, thread, EventKind.CHECKPOINTS_DELETED, now_us, deleted=len(doomed))
    return Removed(len(doomed - needed), len(doomed & needed))


def _keys(thread: ThreadRow, places: Iterable[NodeKey]) -> Iterable[dict[str, object]]:
    for namespace, checkpoint_id in sorted(places):
        yield {
            "of_tenant": thread.tenant,
            "of_thread": thread.thread_id,
            "of_ns": namespace,
            "of_id": checkpoint_id,
        }
