"""Deleting a thread: its incarnation ends, in one change.

The thread's row stays, as the tombstone that refuses what comes late. The values of its
family go when no thread of it lives (`marking`); the rows in `uses` when the archive has
certified the deletion.
"""

from __future__ import annotations

from sqlalchemy import delete, func, insert, select

from ...domain.threads import EventKind, Removed, ThreadState
from ..database.logs import Log
from ..database.overlay import Batch
from ..database.schema import checkpoints, handoffs, holes, removed, vectors, writes
from ..database.statements import EMPTY, Statement, all_columns, of_thread

_EXTENT = Statement(
    select(func.count(), func.coalesce(func.max(checkpoints.c.checkpoint_id), "")).where(
        of_thread(checkpoints)
    )
)
_DROP_WRITES = Statement(delete(writes).where(of_thread(writes)))
_DROP = (
    *(
        Statement(delete(table).where(of_thread(table)))
        for table in (checkpoints, vectors, handoffs)
    ),
    _DROP_WRITES,
    Statement(delete(holes).where(of_thread(holes), holes.c.segment.is_(None))),
    # The end of the incarnation says that its checkpoints are gone.
    Statement(delete(removed).where(of_thread(removed), removed.c.checkpoint_id != EMPTY)),
)
_RECORD = Statement(insert(removed).values(all_columns(removed)))


def delete_thread(batch: Batch, tenant: str, thread_id: str) -> Removed:
    """Delete a thread and end its incarnation; nothing if there is none.

    If it was deleted before, the writes that wait for its next incarnation go.

    Args:
        batch: In a change of its own.
        tenant: The tenant.
        thread_id: The thread.
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


def end_incarnation(batch: Batch, log: Log) -> int:
    """Remove all that belongs to a live thread; return the number of its checkpoints.

    Args:
        batch: In a change of its own.
        log: The thread; its row says afterwards that it is deleted.
    """
    row = log.row
    of = {"of_thread": row.number}
    count, through = _EXTENT.run(batch.connection, **of).fetchone() or (0, "")
    for statement in _DROP:
        statement.run(batch.connection, **of)
    row.retention_s = 0  # else every look for threads past theirs would meet it again
    seq = batch.change(log, EventKind.THREAD_DELETED, deleted=int(count))
    _RECORD.run(
        batch.connection,
        thread=row.number,
        seq=seq,
        checkpoint_ns="",
        checkpoint_id="",
        incarnation=row.incarnation,
    )
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
