"""The one path by which a checkpoint that is made of another comes into a thread.

Forks, copies, adoptions, rollbacks, snapshots and what is restored from them all end here.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, select

from ...domain.errors import Reason, Refusal
from ...domain.model import CheckpointKey, Lineage, Saved
from ...domain.snapshots import is_reserved
from ...domain.threads import EventKind, judge_state
from ..archiving.holding import add_uses, with_needs
from ..checkpoints.contents import referred
from ..checkpoints.located import encode_held
from ..database.logs import Log, Place
from ..database.overlay import Batch, checkpoint_row, content_row
from ..database.schema import checkpoints
from ..database.statements import Statement, of_thread
from ..removal.delete import delete_thread, end_incarnation
from .stored import NO_LINEAGE, Stored

_ANY = Statement(select(checkpoints.c.checkpoint_id).where(of_thread(checkpoints)).limit(1))


def is_taken(connection: Connection, number: int) -> bool:
    """Return whether a thread has checkpoints."""
    return _ANY.run(connection, of_thread=number).fetchone() is not None


def begin(
    batch: Batch,
    tenant: str,
    target: str,
    family: int | None,
    agent_id: str = "",
    *,
    unsearchable: bool = False,
) -> Log:
    """Return a thread that begins now, and shares the values of a family or founds one.

    Raises:
        Refusal: `THREAD_EXISTS` if it has checkpoints.
    """
    log = batch.find(tenant, target)
    if log is None:
        log = batch.begin(tenant, target, family)
    else:
        if is_taken(batch.connection, log.row.number):
            raise Refusal(Reason.THREAD_EXISTS, thread_id=target)
        if log.row.deleted:
            delete_thread(batch, tenant, target)  # the writes that came for the next incarnation
            log = batch.find(tenant, target) or log
        else:
            end_incarnation(batch, log)
        log.row.begin_next(batch.new_family() if family is None else family, batch.now_us)
    log.row.agent_id, log.row.unsearchable = agent_id, unsearchable
    return log


def fill(
    batch: Batch, log: Log, new: Sequence[Stored], place: Place, lineage: Lineage = NO_LINEAGE
) -> Saved:
    """Insert all checkpoints of a thread that began; they come into being now.

    Args:
        batch: In a change of its own.
        log: The thread, of the family that has the values which do not come along.
        new: The checkpoints.
        place: The one that the thread is about.
        lineage: Where that one comes from.
    """
    for one in new:
        one.lineage = lineage if one.place == place else NO_LINEAGE
        one.known.created_us = batch.now_us
    add(batch, log, new)
    return end(batch, log, place, sum(one.new_bytes for one in new))


def add(batch: Batch, log: Log, new: Sequence[Stored]) -> None:
    """Insert checkpoints into a thread, and record that it uses the segments that hold them."""
    for one in new:
        insert_checkpoint(batch, log, one)
    held = dict.fromkeys(sha256 for one in new for sha256 in one.segments)
    needed = with_needs(batch.connection, log.row.tenant, held)
    add_uses(batch.connection, log.row.tenant, ((sha256, log.row.number) for sha256 in needed))


def end(batch: Batch, log: Log, place: Place, size: int) -> Saved:
    """End the change that made a thread: its settings belong to it too."""
    row = log.row
    row.settings_seq = row.seq
    batch.store(log)
    log.forget_checkpoints()
    return Saved(CheckpointKey(row.thread_id, *place), row.seq, row.incarnation, size)


def insert_checkpoint(batch: Batch, log: Log, new: Stored) -> None:
    """Insert a checkpoint, which must not be there."""
    row, place = log.row, new.place
    searched = not is_reserved(row.thread_id)
    seq = batch.change(
        log, EventKind.CHECKPOINT_SAVED, place, size_bytes=new.new_bytes, indexed=searched
    )
    new.known.seq = seq
    batch.put_checkpoint(
        log,
        place,
        checkpoint_row(
            log,
            place,
            new.known,
            lineage=new.lineage,
            delta_base=new.delta_base or None,
            held=encode_held(seq, new.segments) if new.segments else None,
        ),
    )
    for value in new.values:
        batch.put_content(row.family, value.digest, content_row(log, seq, *value))
    batch.note_digests(log, referred(new.known.state, new.delta_base))
    for write in new.writes:
        batch.put_write(log, place, write._replace(seq=seq, early_us=None))
    row.checkpoint_count += 1
    if place[0] == "" and place[1] >= row.head_id:
        row.head_id = place[1]
        row.state = judge_state((one.task_id, one.channel, seq) for one in new.writes)
