"""Forks and copies of threads: a new thread of the same family, with other checkpoints' content."""

from __future__ import annotations

from sqlalchemy import bindparam, select

from ...domain.errors import Reason, Refusal, checkpoint_not_found
from ...domain.lineage import EventKind
from ...domain.model import CheckpointKey, Saved
from ..database.overlay import Batch, Log
from ..database.schema import writes
from ..database.statements import Statement, in_lists
from ..database.thread_rows import ThreadRow
from ..search import vectors
from . import closures, copying, insert, sources
from .evicted import Supplied
from .insert import StoredWrite

_EARLY = Statement(
    select(writes.c.checkpoint_ns, writes.c.checkpoint_id, writes.c.early_us, *sources.WRITE)
    .where(
        writes.c.thread == bindparam("of_thread"),
        writes.c.early_us.is_not(None),
        writes.c.data.is_not(None),
    )
    .order_by(writes.c.seq, writes.c.checkpoint_ns, writes.c.checkpoint_id)
)


def fork(batch: Batch, tenant: str, key: CheckpointKey, target: str, supplied: Supplied) -> Saved:
    """Make a thread that begins with a checkpoint; see `Lineage.fork`.

    Args:
        batch: In a change of its own.
        tenant: The tenant.
        key: The checkpoint; an empty ID means the latest.
        target: The new thread.
        supplied: Evicted values that have been read.
    """
    connection = batch.connection
    origin = closures.live(connection, tenant, key.thread_id)
    place = closures.named(connection, origin, key) if origin is not None else None
    if origin is None or place is None:
        raise checkpoint_not_found(key.thread_id, key.checkpoint_ns, key.checkpoint_id)
    log = insert.begin(batch, tenant, target, origin.family)
    numbers = sources.numbers_of(
        connection, origin.number, closures.places(connection, origin.number, place)
    )
    copies = copying.prepare(connection, origin, numbers, supplied)
    copying.refuse_lacking([copies])
    _take_settings(log, origin)
    copying.insert_fork(batch, log, copies, {place: str(CheckpointKey(key.thread_id, *place))})
    end(batch, log)
    if not origin.unsearchable and vectors.dimension(connection, tenant):
        for new in copies.checkpoints:
            vectors.copy(connection, tenant, origin.number, new.place, log.row.number, new.place)
    copied = CheckpointKey(target, *place)
    size = sum(new.new_bytes for new in copies.checkpoints)
    return Saved(copied, log.row.seq, log.row.incarnation, size)


def copy_thread(batch: Batch, tenant: str, source: str, target: str, supplied: Supplied) -> int:
    """Copy a thread with all its checkpoints; see `Lineage.copy_thread`.

    Args:
        batch: In a change of its own.
        tenant: The tenant.
        source: The thread.
        target: Its copy.
        supplied: Evicted values that have been read.

    Returns:
        The number of checkpoints.
    """
    connection = batch.connection
    origin = closures.live(connection, tenant, source)
    if origin is None:
        raise Refusal(Reason.THREAD_NOT_FOUND, thread_id=source)
    if source == target:
        raise Refusal(Reason.THREAD_EXISTS, thread_id=target)
    log = insert.begin(batch, tenant, target, origin.family)
    _take_settings(log, origin)
    numbers = sources.all_numbers(connection, origin.number)
    for some in in_lists(numbers):
        copies = copying.prepare(connection, origin, some, supplied, with_ancestors=True)
        copying.refuse_lacking([copies])
        copying.insert_as_they_are(batch, log, copies)
        batch.write_out()
    _copy_early_writes(batch, log, origin)
    end(batch, log)
    if not origin.unsearchable:
        vectors.copy_thread(connection, tenant, origin.number, log.row.number)
    return len(numbers)


def _take_settings(log: Log, origin: ThreadRow) -> None:
    log.row.agent_id, log.row.unsearchable = origin.agent_id, origin.unsearchable


def end(batch: Batch, log: Log) -> None:
    """End the change that made a thread: its settings belong to it too.

    Args:
        batch: In a change of its own.
        log: The thread.
    """
    log.row.settings_seq = log.row.seq
    batch.store(log)
    log.forget_checkpoints()


def _copy_early_writes(batch: Batch, log: Log, origin: ThreadRow) -> None:
    """Copy the writes that wait for their checkpoint; each checkpoint takes a number."""
    rows = _EARLY.run(batch.connection, of_thread=origin.number).fetchall()
    seqs: dict[tuple[str, str], int] = {}
    for checkpoint_ns, checkpoint_id, early_us, *columns in rows:
        place, write = (checkpoint_ns, checkpoint_id), StoredWrite(*columns)
        if place not in seqs:
            seqs[place] = batch.change(log, EventKind.WRITES_SAVED, place)
        log.row.dirty_bytes += len(write.data or b"")
        insert.put_write(batch, log, place, write, seqs[place], early_us)
    log.early = bool(seqs)
