"""Checkpoints as the journal stores them: read to make others of them, and inserted."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, fields
from typing import NamedTuple

from sqlalchemy import Connection, func, select

from ...domain.model import CheckpointKey, Lineage, Value
from ...domain.values import compress
from ..database.logs import Known, Place, ThreadRow, find_thread
from ..database.overlay import StoredWrite
from ..database.schema import checkpoints, writes
from ..database.statements import (
    Statement,
    in_lists,
    of_checkpoint,
    of_namespace,
    of_thread,
    parameters_of,
)

NO_NAMES = b"[]"
"""Stored form of no delta channels."""

NO_LINEAGE = Lineage()


class StoredValue(NamedTuple):
    """A value as it is stored, by itself; never a patch."""

    digest: bytes
    type: str
    size: int
    encoding: int
    data: bytes


@dataclass(slots=True)
class Stored:
    """A checkpoint that stands in a thread, or is about to be inserted into one.

    Attributes:
        place: Its namespace and ID.
        known: What its row holds.
        lineage: Lineage beyond the parent.
        delta_base: What delta channels are rebuilt from that no ancestor holds, or nothing.
        held: What holds it besides the segments of its thread, as the column.
        writes: Its pending writes.
        segments: Of a copy: the segments that hold it already, that of its state first. It may
            lack data then. Without any it has to be stored, and is whole.
        values: Values that come along.
    """

    place: Place
    known: Known
    lineage: Lineage = NO_LINEAGE
    delta_base: bytes | None = None
    held: bytes | None = None
    writes: list[StoredWrite] = field(default_factory=list)
    segments: tuple[bytes, ...] = ()
    values: list[StoredValue] = field(default_factory=list)

    @property
    def new_bytes(self) -> int:
        """Bytes of content that have to be stored."""
        if self.segments:
            return 0
        values = sum(len(value.data) for value in self.values)
        written = sum(len(write.data or b"") for write in self.writes)
        return len(self.known.state) + len(self.known.metadata) + values + written


def stored_value(digest: bytes, value: Value) -> StoredValue:
    """Return a value as it is stored."""
    packed = compress(value.data)
    return StoredValue(digest, value.type, len(value.data), int(packed.encoding), packed.data)


_of = checkpoints.c
_NUMBER = Statement(select(_of.number).where(of_checkpoint(checkpoints)))
_NUMBERS = Statement(select(_of.seq, _of.number).where(of_thread(checkpoints)))
_LATEST = Statement(select(func.max(_of.checkpoint_id)).where(of_namespace(checkpoints)))
_KNOWN = tuple(column.name for column in fields(Known) if column.name in _of)
_LINEAGE = tuple(column.name for column in fields(Lineage))
_COLUMNS = tuple(
    _of[name]
    for name in (
        *("number", "checkpoint_ns", "checkpoint_id", "delta_base", "held"),
        *_KNOWN,
        *_LINEAGE,
    )
)
_LINEAGE_AT = len(_COLUMNS) - len(_LINEAGE)
WRITE = tuple(writes.c[name] for name in StoredWrite._fields)
"""Columns that a `StoredWrite` is made of."""


def live(connection: Connection, tenant: str, thread_id: str) -> ThreadRow | None:
    """Return the row of a thread that is not deleted, or `None`."""
    row = find_thread(connection, tenant, thread_id)
    return None if row is None or row.deleted else row


def latest(connection: Connection, number: int, checkpoint_ns: str) -> str:
    """Return the greatest ID of a namespace; empty if there is none."""
    row = _LATEST.run(connection, of_thread=number, of_ns=checkpoint_ns).fetchone()
    return row[0] or "" if row else ""


def named(connection: Connection, thread: ThreadRow, key: CheckpointKey) -> Place | None:
    """Return where a checkpoint of a thread stands, if it does; an empty ID means the latest."""
    checkpoint_id = key.checkpoint_id or latest(connection, thread.number, key.checkpoint_ns)
    place = (key.checkpoint_ns, checkpoint_id)
    return place if numbers_of(connection, thread.number, [place]) else None


def numbers_of(connection: Connection, thread: int, places: Sequence[Place]) -> list[int]:
    """Return the numbers of the rows of checkpoints, for those that are stored."""
    found = (_NUMBER.run(connection, **parameters_of(thread, *one)).fetchone() for one in places)
    return [row[0] for row in found if row is not None]


def all_numbers(connection: Connection, thread: int) -> list[int]:
    """Return the numbers of the rows of a thread's checkpoints, the least changed first."""
    return [number for _, number in sorted(_NUMBERS.run(connection, of_thread=thread).fetchall())]


def read(connection: Connection, numbers: Collection[int]) -> list[Stored]:
    """Return checkpoints with their writes, in the order of their numbers as they are given."""
    found: dict[int, Stored] = {}
    for some in in_lists(numbers):
        for row in connection.execute(select(*_COLUMNS).where(_of.number.in_(some))):
            known, lineage = Known(*row[5:_LINEAGE_AT]), Lineage(*row[_LINEAGE_AT:])
            found[row[0]] = Stored((row[1], row[2]), known, lineage, row[3], row[4])
        written = connection.execute(
            select(_of.number, *WRITE)
            .join(
                writes,
                (writes.c.thread == _of.thread)
                & (writes.c.checkpoint_ns == _of.checkpoint_ns)
                & (writes.c.checkpoint_id == _of.checkpoint_id),
            )
            .where(_of.number.in_(some))
        )
        for number, *columns in written:
            found[number].writes.append(StoredWrite(*columns))
    return [found[number] for number in numbers]
