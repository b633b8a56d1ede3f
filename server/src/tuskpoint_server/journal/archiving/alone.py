"""Checkpoints that are stored beside the range of their thread: each in a segment of its own.

Such a segment has the checkpoint's row and all its writes, and holds every value whole. So
are stored what could not be stored with its range, and, where each checkpoint is to be a
blob of its own, every checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from google.protobuf.message import DecodeError
from sqlalchemy import Connection, bindparam, select

from ...domain.model import EVICTED, BlobLocation, Value
from ...domain.values import DamagedValueError
from ..checkpoints import contents, located
from ..checkpoints.contents import referred
from ..database.schema import checkpoints, threads, writes
from ..database.statements import Statement, of_checkpoint, parameters_of
from .dirty_rows import CheckpointRow, DirtyPlace, DirtyThread, Place, WriteRow

_ROW = Statement(
    select(*(checkpoints.c[name] for name in CheckpointRow._fields)).where(
        of_checkpoint(checkpoints)
    )
)
_WRITES = Statement(
    select(*(writes.c[name] for name in WriteRow._fields)).where(
        of_checkpoint(writes), writes.c.early_us.is_(None)
    )
)
_THREAD = Statement(
    select(*(threads.c[name] for name in DirtyThread._fields)).where(
        threads.c.number == bindparam("of_number")
    )
)


@dataclass(slots=True)
class LoneCheckpoint:
    """A checkpoint for a segment of its own.

    Attributes:
        thread: Its thread.
        dirty: Its row and its writes; `problem` says why it cannot be stored.
        values: Its values by digest; those that were evicted are missing.
        evicted: Digests of these, and of writes that were evicted.
        sources: Segments that hold these.
        hole: Number of the hole that it was; 0: none.
        hole_seq: The change up to which it was a hole.
    """

    thread: DirtyThread
    dirty: DirtyPlace
    values: dict[bytes, Value] = field(default_factory=dict)
    evicted: tuple[bytes, ...] = ()
    sources: tuple[BlobLocation, ...] = ()
    hole: int = 0
    hole_seq: int = 0


def thread_of(connection: Connection, number: int) -> DirtyThread | None:
    """Return a thread, whether it is dirty or not."""
    row = _THREAD.run(connection, of_number=number).fetchone()
    return DirtyThread(*row) if row is not None else None


def read_alone(
    connection: Connection, tenant: str, thread: DirtyThread, place: Place, hole: int = 0
) -> LoneCheckpoint | None:
    """Return a checkpoint as it is; `None` if it does not exist any more.

    Args:
        connection: In a transaction.
        tenant: The tenant.
        thread: Its thread.
        place: The checkpoint.
        hole: Number of the hole that it was; 0: none.
    """
    of = parameters_of(thread.number, *place)
    found = _ROW.run(connection, **of).fetchone()
    if found is None:
        return None
    row = CheckpointRow(*found)
    written = [WriteRow(*write) for write in _WRITES.run(connection, **of).fetchall()]
    one = LoneCheckpoint(thread, DirtyPlace(place, row, writes=written), hole=hole)
    try:
        one.dirty.needs = referred(row.state, row.delta_base)
        one.values = contents.read(connection, thread.family, one.dirty.needs)
    except DecodeError:
        one.dirty.problem = "its state cannot be read"
    except DamagedValueError as error:
        one.dirty.problem = str(error)
    evicted = [digest for digest, value in one.values.items() if value is EVICTED]
    for digest in evicted:
        del one.values[digest]
    missing = one.dirty.needs.difference(one.values, evicted)
    if missing and not one.dirty.problem:
        one.dirty.problem = f"value {min(missing).hex()} is not stored"
    sources = located.of_values(connection, tenant, thread.family, evicted) if evicted else []
    gone = [write for write in written if write.data is None]
    if gone:
        seqs = [write.seq for write in gone]
        sources += located.of_writes(connection, tenant, thread.number, row.held, seqs)
    one.evicted = (*evicted, *(write.digest for write in gone))
    one.sources = tuple(dict.fromkeys(sources))
    return one
