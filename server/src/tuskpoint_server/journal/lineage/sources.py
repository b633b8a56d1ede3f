"""Checkpoints as they are stored, read to make others of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection, select

from ...domain.model import Lineage
from ..archiving import located
from ..archiving.held import decode_held
from ..database.overlay import Place
from ..database.schema import checkpoints, holes, writes
from ..database.statements import Statement, in_lists, of_checkpoint, of_thread, parameters_of
from ..database.thread_rows import ThreadRow
from .insert import StoredWrite

_NUMBER = Statement(select(checkpoints.c.number).where(of_checkpoint(checkpoints)))
_NUMBERS = Statement(select(checkpoints.c.seq, checkpoints.c.number).where(of_thread(checkpoints)))
_COLUMNS = tuple(
    checkpoints.c[name]
    for name in (
        "number",
        "checkpoint_ns",
        "checkpoint_id",
        "seq",
        "parent_id",
        "state",
        "metadata",
        "run_id",
        "root_id",
        "delta_channels",
        "delta_base",
        "label",
        "summary",
        "created_us",
        "held",
        "forked_from",
        "rolled_back_from",
        "adopted_from",
    )
)
WRITE = tuple(writes.c[name] for name in StoredWrite._fields)
"""Columns that a `StoredWrite` is made of."""


@dataclass(slots=True)
class Source:
    """A stored checkpoint; fields as the columns.

    Attributes:
        written: Its pending writes, each with its number in the log.
    """

    number: int
    checkpoint_ns: str
    checkpoint_id: str
    seq: int
    parent_id: str
    state: bytes
    metadata: bytes
    run_id: str
    root_id: str
    delta_channels: bytes
    delta_base: bytes | None
    label: str
    summary: str
    created_us: int
    held: bytes | None
    forked_from: str
    rolled_back_from: str
    adopted_from: str
    written: list[tuple[int, StoredWrite]] = field(default_factory=list)

    @property
    def place(self) -> Place:
        """Its namespace and ID."""
        return (self.checkpoint_ns, self.checkpoint_id)

    @property
    def lineage(self) -> Lineage:
        """Its lineage beyond the parent."""
        return Lineage(self.forked_from, self.rolled_back_from, self.adopted_from)


def numbers_of(connection: Connection, thread: int, places: Sequence[Place]) -> list[int]:
    """Return the numbers of the rows of checkpoints, for those that are stored."""
    found = (_NUMBER.run(connection, **parameters_of(thread, *one)).fetchone() for one in places)
    return [row[0] for row in found if row is not None]


def all_numbers(connection: Connection, thread: int) -> list[int]:
    """Return the numbers of the rows of a thread's checkpoints, the least changed first."""
    return [number for _, number in sorted(_NUMBERS.run(connection, of_thread=thread).fetchall())]


def read(connection: Connection, numbers: Collection[int]) -> list[Source]:
    """Return checkpoints with their writes, in the order of their numbers as they are given."""
    found: dict[int, Source] = {}
    for some in in_lists(numbers):
        rows = connection.execute(select(*_COLUMNS).where(checkpoints.c.number.in_(some)))
        for row in rows:
            found[row[0]] = Source(*row)
        written = connection.execute(
            select(checkpoints.c.number, writes.c.seq, *WRITE)
            .join(
                writes,
                (writes.c.thread == checkpoints.c.thread)
                & (writes.c.checkpoint_ns == checkpoints.c.checkpoint_ns)
                & (writes.c.checkpoint_id == checkpoints.c.checkpoint_id),
            )
            .where(checkpoints.c.number.in_(some))
        )
        for row in written:
            found[row[0]].written.append((row[1], StoredWrite(*row[2:])))
    return [found[number] for number in numbers]


def held_by(
    connection: Connection, thread: ThreadRow, sources: Sequence[Source]
) -> list[tuple[bytes, ...]]:
    """Return what copies of checkpoints are held by: the segments that hold these already.

    Only a checkpoint of which everything is stored, late writes too, is held as it is.

    Args:
        connection: In a transaction.
        thread: The thread of the checkpoints.
        sources: The checkpoints.

    Returns:
        For each the hashes of the segments, that of its state first; none if its copy has
        to be stored by itself.
    """
    rows = [_located(thread, one) for one in sources]
    numbers = [[one.seq, *(seq for seq, _ in one.written)] for one in sources]
    found = located.of_rows(connection, thread.tenant, rows, numbers)
    lost, unstored = _holes(connection, thread)
    held: list[tuple[bytes, ...]] = []
    for one, some, locations in zip(sources, numbers, found, strict=True):
        segments = tuple(location.sha256 for location in locations)
        stored = max(some) <= thread.certified_seq and one.place not in unstored
        if one.held is not None and not stored:
            before = decode_held(one.held)
            segments, stored = before.segments, max(some) <= before.seq
        held.append(segments if stored and not lost.intersection(segments) else ())
    return held


def _located(thread: ThreadRow, one: Source) -> tuple[object, ...]:
    """Return a checkpoint as `located.of_rows` takes it: a row of `checkpoints.load.ROW`."""
    return (
        thread.thread_id,
        thread.number,
        thread.family,
        thread.incarnation,
        thread.certified_seq,
        *one.place,
        one.seq,
        one.parent_id,
        one.created_us,
        one.metadata,
        one.label,
        one.summary,
        one.forked_from,
        one.rolled_back_from,
        one.adopted_from,
        one.held,
    )


def _holes(connection: Connection, thread: ThreadRow) -> tuple[set[bytes], set[Place]]:
    """Return the tenant's lost segments, and which checkpoints of a thread are not stored."""
    rows = connection.execute(
        select(holes.c.segment, holes.c.thread, holes.c.checkpoint_ns, holes.c.checkpoint_id).where(
            holes.c.tenant == thread.tenant
        )
    ).all()
    lost = {bytes(row[0]) for row in rows if row[0] is not None}
    return lost, {(row[2], row[3]) for row in rows if row[1] == thread.number}
