"""Deleting threads, and checkpoints of threads that go on: superseded ones, those of runs.

All is really removed, and leaves rows in `removed` until the archive has certified that it is
gone; `delta_bases` sees to it that checkpoints that stay lose nothing. The row of a deleted
thread stays, as the tombstone that refuses what comes late; the values of its family go when
no thread of it lives (`passes`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from sqlalchemy import Connection, bindparam, delete, exists, func, select

from ...domain.threads import EventKind, Removed, ThreadState
from ..database.logs import Log, Place
from ..database.overlay import Batch
from ..database.schema import checkpoints, handoffs, holes, removed, threads, vectors, writes
from ..database.statements import (
    EMPTY,
    LISTED,
    Statement,
    inserting,
    of_checkpoint,
    of_thread,
    of_users,
    parameters_of,
    same_checkpoint,
)
from .delta_bases import Nodes, give, needed_bases, read_nodes

SUBGRAPH_CALL = ":"
"""Separates the node's name from the task's ID in a LangGraph namespace."""

_EXTENT = Statement(
    select(func.count(), func.coalesce(func.max(checkpoints.c.checkpoint_id), "")).where(
        of_thread(checkpoints)
    )
)
_DROP_WRITES = Statement(delete(writes).where(of_thread(writes)))
_DROP_THREAD = (
    *(
        Statement(delete(table).where(of_thread(table)))
        for table in (checkpoints, vectors, handoffs)
    ),
    _DROP_WRITES,
    Statement(delete(holes).where(of_thread(holes), holes.c.segment.is_(None))),
    # The end of the incarnation says that its checkpoints are gone.
    Statement(delete(removed).where(of_thread(removed), removed.c.checkpoint_id != EMPTY)),
)
# What is saved under these IDs again is not what their vectors stand for.
_DROP_CHECKPOINTS = tuple(
    Statement(delete(table).where(of_checkpoint(table))) for table in (checkpoints, writes, vectors)
)
_DROP_HOLES = Statement(
    delete(holes).where(
        of_thread(holes),
        holes.c.segment.is_(None),
        holes.c.checkpoint_id != EMPTY,
        ~exists().where(same_checkpoint(checkpoints, holes)),
    )
)
_OF_RUNS = Statement(
    select(threads.c.thread_id)
    .join(checkpoints, checkpoints.c.thread == threads.c.number)
    .where(
        checkpoints.c.tenant == bindparam("of_tenant"),
        checkpoints.c.run_id.in_(LISTED),
        checkpoints.c.run_id != EMPTY,
        of_users(threads),
    )
    .distinct()
)
_RECORD = Statement(inserting(removed))


def record(batch: Batch, log: Log, seq: int, places: Iterable[Place]) -> None:
    """Note for the archive what a change removed; `("", "")` is the whole incarnation."""
    columns = {"thread": log.row.number, "seq": seq, "incarnation": log.row.incarnation}
    rows = [{**columns, "checkpoint_ns": place[0], "checkpoint_id": place[1]} for place in places]
    _RECORD.run_many(batch.connection, rows)


# --- threads -----------------------------------------------------------------------------


def delete_thread(batch: Batch, tenant: str, thread_id: str) -> Removed:
    """Delete a thread and end its incarnation, in one change; nothing if there is none.

    If it was deleted before, the writes that wait for its next incarnation go.
    """
    log = batch.find(tenant, thread_id)
    if log is None:
        return Removed()
    count = 0
    if log.row.deleted:
        _DROP_WRITES.run(batch.connection, of_thread=log.row.number)
    else:
        count = end_incarnation(batch, log)
    batch.forget(tenant, thread_id)
    return Removed(count)


def delete_if_past(batch: Batch, tenant: str, thread_id: str) -> Removed | None:
    """Delete a thread that is past its retention; `None` if it is not (any more)."""
    log = batch.find(tenant, thread_id)
    if log is None or log.row.deleted or log.row.expire_us is None:
        return None
    if log.row.expire_us > batch.now_us:
        return None
    return delete_thread(batch, tenant, thread_id)


def end_incarnation(batch: Batch, log: Log) -> int:
    """Remove all that belongs to a live thread; return the number of its checkpoints.

    Its row says afterwards that it is deleted.
    """
    row = log.row
    of = {"of_thread": row.number}
    count, through = _EXTENT.run(batch.connection, **of).fetchone() or (0, "")
    for statement in _DROP_THREAD:
        statement.run(batch.connection, **of)
    row.retention_s = 0  # else every look for threads past theirs would meet it again
    seq = batch.change(log, EventKind.THREAD_DELETED, deleted=int(count))
    record(batch, log, seq, [("", "")])
    row.deleted = True
    row.begun_seq = seq  # writes that wait for the next incarnation are part of it
    row.deleted_through = max(row.deleted_through, through)
    row.head_id = ""
    row.state = ThreadState.IDLE
    row.dirty_bytes = 0  # of what was to be stored, nothing is left
    row.removed_count += row.checkpoint_count
    row.removed_bytes = row.added_bytes
    row.checkpoint_count = 0
    log.early = False
    log.keyframes.clear()
    log.forget_checkpoints()
    return int(count)


# --- checkpoints -------------------------------------------------------------------------


def remove_checkpoints(
    batch: Batch, tenant: str, thread_id: str, choose: Callable[[Nodes], set[Place]]
) -> Removed:
    """Remove the chosen checkpoints of a thread, in one change; nothing if there is no thread."""
    batch.forget(tenant, thread_id)  # so that nothing is known of it that changes here
    log = batch.find(tenant, thread_id)
    if log is None or log.row.deleted:
        return Removed()
    nodes = read_nodes(batch.connection, log.row.number)
    doomed = choose(nodes)
    if not doomed:
        return Removed()
    give(batch, log, needed_bases(batch.connection, log.row.number, nodes, doomed))
    drop(batch, log, sorted(doomed))
    _DROP_HOLES.run(batch.connection, of_thread=log.row.number)
    _count(log, len(doomed))
    head_id = max((name for namespace, name in nodes.keys() - doomed if not namespace), default="")
    if head_id != log.row.head_id:
        known = batch.checkpoint(log, ("", head_id)) if head_id else None
        log.set_head(head_id, batch.pending(log, ("", head_id), known) if known is not None else {})
    batch.forget(tenant, thread_id)
    return Removed(len(doomed))


def drop(batch: Batch, log: Log, places: Collection[Place]) -> None:
    """Remove the rows of checkpoints in one change; everything is written out before."""
    # Search finds by what is new over the parent: children of what goes are indexed anew.
    seq = batch.change(log, EventKind.CHECKPOINTS_DELETED, deleted=len(places), indexed=True)
    keys = [parameters_of(log.row.number, *place) for place in places]
    for statement in _DROP_CHECKPOINTS:
        statement.run_many(batch.connection, keys)
    record(batch, log, seq, places)


def superseded(nodes: Nodes) -> set[Place]:
    """Return what is not the latest of its namespace, and finished subgraph calls.

    A call's namespace is its own; it goes when the root checkpoint that it ran under goes.
    """
    latest: dict[str, str] = {}
    for namespace, checkpoint_id in nodes:
        latest[namespace] = max(latest.get(namespace, ""), checkpoint_id)
    doomed = set(nodes) - set(latest.items())
    return doomed | {
        place
        for place in latest.items()
        if SUBGRAPH_CALL in place[0] and ("", nodes[place].root_id) in doomed
    }


def threads_of_runs(connection: Connection, tenant: str, run_ids: Sequence[str]) -> list[str]:
    """Return the threads of users in which checkpoints of runs are; an empty ID is no run."""
    rows = _OF_RUNS.run_listed(connection, set(run_ids) - {""}, of_tenant=tenant)
    return sorted({row[0] for row in rows})


def _count(log: Log, count: int) -> None:
    """Count what was removed, for the rule that says when values are looked for.

    The bytes are estimated: each checkpoint of the thread counts as having brought as much
    as any other. To know better, every state would have to be read.
    """
    row = log.row
    left = row.added_bytes - row.removed_bytes
    row.removed_bytes += left * count // max(row.checkpoint_count, count)
    row.removed_count += count
    row.checkpoint_count -= count
