"""Threads that begin with checkpoints of others: forks, copies, adoptions."""

from __future__ import annotations

from sqlalchemy import bindparam, select

from ...domain.errors import Reason, Refusal, checkpoint_not_found
from ...domain.lineage import Closure, ClosureMember
from ...domain.metadata import parse_metadata
from ...domain.model import CheckpointKey, Lineage, Saved, Write
from ...domain.state import delta_channels
from ...domain.threads import EventKind
from ..checkpoints.drafts import encode_names
from ..database.logs import Known, Log, Place
from ..database.overlay import Batch, StoredWrite
from ..database.schema import writes
from ..database.statements import Statement, in_lists
from . import closures, copies, insert
from .copies import Supplied
from .stored import (
    WRITE,
    Stored,
    all_numbers,
    live,
    named,
    numbers_of,
    stored_value,
)

_EARLY = Statement(
    select(writes.c.checkpoint_ns, writes.c.checkpoint_id, *WRITE)
    .where(
        writes.c.thread == bindparam("of_thread"),
        writes.c.early_us.is_not(None),
        writes.c.data.is_not(None),
    )
    .order_by(writes.c.seq, writes.c.checkpoint_ns, writes.c.checkpoint_id)
)


def fork(batch: Batch, tenant: str, key: CheckpointKey, target: str, supplied: Supplied) -> Saved:
    """Make a thread that begins with a checkpoint; see `Lineage.fork`."""
    connection = batch.connection
    origin = live(connection, tenant, key.thread_id)
    place = named(connection, origin, key) if origin is not None else None
    if origin is None or place is None:
        raise checkpoint_not_found(key.thread_id, key.checkpoint_ns, key.checkpoint_id)
    hidden = origin.unsearchable
    log = insert.begin(batch, tenant, target, origin.family, origin.agent_id, unsearchable=hidden)
    needed = closures.places(connection, origin.number, place)
    numbers = numbers_of(connection, origin.number, needed)
    [new] = copies.prepare(connection, [(origin, numbers)], supplied)
    reference = str(CheckpointKey(key.thread_id, *place))
    return insert.fill(batch, log, new, place, Lineage(forked_from=reference))


def copy_thread(batch: Batch, tenant: str, source: str, target: str, supplied: Supplied) -> int:
    """Copy a thread with all its checkpoints; see `Lineage.copy_thread`."""
    connection = batch.connection
    origin = live(connection, tenant, source)
    if origin is None:
        raise Refusal(Reason.THREAD_NOT_FOUND, thread_id=source)
    if source == target:
        raise Refusal(Reason.THREAD_EXISTS, thread_id=target)
    hidden = origin.unsearchable
    log = insert.begin(batch, tenant, target, origin.family, origin.agent_id, unsearchable=hidden)
    numbers = all_numbers(connection, origin.number)
    for some in in_lists(numbers):
        [new] = copies.prepare(connection, [(origin, some)], supplied, with_ancestors=True)
        insert.add(batch, log, new)
        batch.write_out()
    _copy_early_writes(batch, log, origin.number)
    insert.end(batch, log, ("", ""), 0)
    return len(numbers)


def _copy_early_writes(batch: Batch, log: Log, origin: int) -> None:
    """Copy the writes that wait for their checkpoint; each checkpoint takes a number."""
    rows = _EARLY.run(batch.connection, of_thread=origin).fetchall()
    seqs: dict[Place, int] = {}
    for checkpoint_ns, checkpoint_id, *columns in rows:
        place, write = (checkpoint_ns, checkpoint_id), StoredWrite(*columns)
        if place not in seqs:
            seqs[place] = batch.change(log, EventKind.WRITES_SAVED, place)
        log.row.dirty_bytes += len(write.data or b"")
        batch.put_write(log, place, write._replace(seq=seqs[place]))
    log.early = bool(seqs)


# --- adopting ----------------------------------------------------------------------------


def adoptable(closure: Closure) -> list[Stored]:
    """Return the checkpoints of a closure as they are inserted; before the queue.

    The values have the digests that the closure says: who reads a bundle checks that.

    Raises:
        ValueError: A checkpoint came without its state.
    """
    return [_adoptable(member) for member in closure.members]


def adopt(
    batch: Batch,
    tenant: str,
    source: CheckpointKey,
    new: list[Stored],
    target: str,
    agent_id: str,
) -> Saved:
    """Make a thread, of a family of its own, of what `adoptable` returned of a closure."""
    # A bundle does not say whether search finds its thread; where that is here too, it counts.
    origin = live(batch.connection, tenant, source.thread_id)
    here = origin is not None and named(batch.connection, origin, source) is not None
    hidden = origin is not None and here and origin.unsearchable
    log = insert.begin(batch, tenant, target, None, agent_id, unsearchable=hidden)
    place = (source.checkpoint_ns, source.checkpoint_id)
    return insert.fill(batch, log, new, place, Lineage(adopted_from=str(source)))


def _adoptable(member: ClosureMember) -> Stored:
    entry = member.checkpoint.entry
    metadata = parse_metadata(entry.metadata, "metadata_json")
    return Stored(
        place=member.place,
        known=Known(
            seq=0,
            parent_id=entry.parent_id,
            state=member.stored_state,
            metadata=metadata.raw,
            run_id=metadata.run_id,
            root_id=metadata.root_id,
            delta_channels=encode_names(delta_channels(member.state.frame)),
            label=entry.label,
            summary=entry.summary,
            created_us=0,
        ),
        delta_base=member.delta_base or None,
        writes=[_write(write) for write in member.checkpoint.writes],
        values=[stored_value(digest, value) for digest, value in member.values().items()],
    )


def _write(write: Write) -> StoredWrite:
    value = stored_value(write.digest, write.value)
    named = (write.task_id, write.idx, write.task_path, write.channel)
    return StoredWrite(
        *named, value.type, value.digest, value.size, value.encoding, 0, None, value.data
    )
