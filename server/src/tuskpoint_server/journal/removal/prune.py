"""Removing checkpoints of threads that go on: superseded ones, and those of runs.

They are really removed; `delta_bases` sees to it that those that stay lose nothing. Each
leaves a row in `removed` until the archive has certified that it is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from sqlalchemy import Connection, bindparam, delete, exists, insert, select

from ...domain.threads import EventKind, Removed
from ..database.logs import Log, Place
from ..database.overlay import Batch
from ..database.schema import checkpoints, holes, removed, threads, vectors, writes
from ..database.statements import (
    EMPTY,
    Statement,
    all_columns,
    in_lists,
    of_checkpoint,
    of_thread,
    of_users,
    parameters_of,
)
from .delta_bases import give, needed_bases
from .nodes import Nodes, read_nodes

SUBGRAPH_CALL = ":"
"""Separates the node's name from the task's ID in a LangGraph namespace."""

_DROP_CHECKPOINT = Statement(
    delete(checkpoints).where(checkpoints.c.number == bindparam("of_number"))
)
_DROP_WRITES = Statement(delete(writes).where(of_checkpoint(writes)))
# What is saved under these IDs again is not what their vectors stand for.
_DROP_VECTOR = Statement(delete(vectors).where(of_checkpoint(vectors)))
_DROP_HOLES = Statement(
    delete(holes).where(
        of_thread(holes),
        holes.c.segment.is_(None),
        holes.c.checkpoint_id != EMPTY,
        ~exists().where(
            checkpoints.c.thread == holes.c.thread,
            checkpoints.c.checkpoint_ns == holes.c.checkpoint_ns,
            checkpoints.c.checkpoint_id == holes.c.checkpoint_id,
        ),
    )
)
_RECORD = Statement(insert(removed).values(all_columns(removed)))


def keep_latest(batch: Batch, tenant: str, thread_id: str) -> Removed:
    """Remove all but the latest checkpoint of each namespace; nothing if there is no thread.

    Args:
        batch: In a change of its own.
        tenant: The tenant.
        thread_id: The thread.
    """
    log = _find(batch, tenant, thread_id)
    if log is None:
        return Removed()
    nodes = read_nodes(batch.connection, log.row.number)
    return _remove(batch, log, nodes, _superseded(nodes))


def threads_of_runs(connection: Connection, tenant: str, run_ids: Sequence[str]) -> list[str]:
    """Return the threads of users in which checkpoints of runs are.

    Args:
        connection: In a transaction.
        tenant: The tenant.
        run_ids: The runs; an empty one is none.
    """
    found: set[str] = set()
    for some in in_lists(sorted(set(run_ids) - {""})):
        statement = (
            select(threads.c.thread_id)
            .join(checkpoints, checkpoints.c.thread == threads.c.number)
            .where(
                checkpoints.c.tenant == tenant,
                checkpoints.c.run_id.in_(some),
                checkpoints.c.run_id != EMPTY,
                of_users(threads),
            )
            .distinct()
        )
        found.update(connection.execute(statement).scalars())
    return sorted(found)


def delete_runs(batch: Batch, tenant: str, thread_id: str, run_ids: Sequence[str]) -> Removed:
    """Remove the checkpoints of runs from a thread; nothing if there is no thread.

    Args:
        batch: In a change of its own.
        tenant: The tenant.
        thread_id: The thread.
        run_ids: The runs; an empty one is none.
    """
    log = _find(batch, tenant, thread_id)
    if log is None:
        return Removed()
    runs = frozenset(run_ids) - {""}
    nodes = read_nodes(batch.connection, log.row.number)
    doomed = {place for place, node in nodes.items() if node.run_id in runs}
    return _remove(batch, log, nodes, doomed)


def _find(batch: Batch, tenant: str, thread_id: str) -> Log | None:
    """Return a live thread of which nothing is known that a removal would change."""
    batch.forget(tenant, thread_id)
    log = batch.find(tenant, thread_id)
    return log if log is not None and not log.row.deleted else None


def _superseded(nodes: Nodes) -> set[Place]:
    """Return what is not the latest of its namespace, and finished subgraph calls.

    A call's namespace is its own; it goes when the root checkpoint that it ran under goes.
    """
    latest: dict[str, str] = {}
    for namespace, checkpoint_id in nodes:
        latest[namespace] = max(latest.get(namespace, ""), checkpoint_id)
    doomed = set(nodes) - set(latest.items())
    for place in latest.items():
        root = ("", nodes[place].root_id)
        if SUBGRAPH_CALL in place[0] and root in nodes and root in doomed:
            doomed.add(place)
    return doomed


def _remove(batch: Batch, log: Log, nodes: Nodes, doomed: AbstractSet[Place]) -> Removed:
    if not doomed:
        return Removed()
    row = log.row
    give(batch, log, needed_bases(batch.connection, row.number, nodes, doomed))
    # Search finds by what is new over the parent: children of what goes are indexed anew.
    seq = batch.change(log, EventKind.CHECKPOINTS_DELETED, deleted=len(doomed), indexed=True)
    places = sorted(doomed)
    keys = [parameters_of(row.number, *place) for place in places]
    _DROP_CHECKPOINT.run_many(
        batch.connection, [{"of_number": nodes[place].number} for place in places]
    )
    _DROP_WRITES.run_many(batch.connection, keys)
    _DROP_VECTOR.run_many(batch.connection, keys)
    _DROP_HOLES.run(batch.connection, of_thread=row.number)
    _RECORD.run_many(
        batch.connection,
        [
            {
                "thread": row.number,
                "seq": seq,
                "checkpoint_ns": checkpoint_ns,
                "checkpoint_id": checkpoint_id,
                "incarnation": row.incarnation,
            }
            for checkpoint_ns, checkpoint_id in places
        ],
    )
    _count(log, len(doomed))
    _review_head(batch, log, nodes.keys() - doomed)
    batch.forget(row.tenant, row.thread_id)
    return Removed(len(doomed))


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


def _review_head(batch: Batch, log: Log, left: AbstractSet[Place]) -> None:
    """Set the latest root checkpoint, and what the thread waits for, by what is left."""
    head_id = max((checkpoint_id for namespace, checkpoint_id in left if not namespace), default="")
    if head_id == log.row.head_id:
        return
    known = batch.checkpoint(log, ("", head_id)) if head_id else None
    log.set_head(head_id, batch.pending(log, ("", head_id), known) if known is not None else {})
