"""Reads the pending writes of checkpoints: with their data if these are few bytes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, func, literal_column, select

from ...core.errors import Refusal
from ...core.limits import MIB
from ..database.binding import binder_of
from ..database.pending_writes import StoredWrite
from ..sql.schema import checkpoints, writes
from ..sql.statements import (
    LISTED,
    Statement,
    of_checkpoint,
    of_namespace,
    run_places,
    same_checkpoint,
)
from .segment_refs import ROW, Row

# About how many bytes a write takes in memory, besides its value.
_WRITE_BYTES: ColumnElement[int] = literal_column("200")
_WRITTEN_BYTES = (
    select(func.sum(writes.c.size + _WRITE_BYTES))
    .where(same_checkpoint(writes, checkpoints))
    .scalar_subquery()
)
WHOLE = (*ROW, _WRITTEN_BYTES)
"""All columns of `Row`."""

_OF_LISTED = (of_namespace(writes), writes.c.checkpoint_id.in_(LISTED))
_STORED = [writes.c[name] for name in StoredWrite._fields]

SEQS = Statement(select(writes.c.checkpoint_id, writes.c.seq).where(*_OF_LISTED))
"""Numbers of the writes of listed checkpoints."""

WRITES = Statement(select(writes.c.checkpoint_id, writes.c.mac, *_STORED).where(*_OF_LISTED))
"""Writes of listed checkpoints, with their MACs."""

WITHOUT_DATA = Statement(
    select(writes.c.checkpoint_id, writes.c.mac, *_STORED[:-1]).where(*_OF_LISTED)
)
"""The same, without the last column of `StoredWrite`."""

DATA = Statement(
    select(writes.c.task_id, writes.c.idx, writes.c.data).where(
        of_checkpoint(writes), writes.c.digest.in_(LISTED)
    )
)
"""Slot and data of the writes of a checkpoint with listed digests."""

FEW_BYTES = 4 * MIB
"""Most bytes of the writes of a checkpoint that are read with their data."""

Place = tuple[int, str, str]
"""Number of a thread, namespace and ID of a checkpoint."""


@dataclass(frozen=True, slots=True)
class WrittenRows:
    """The pending writes of checkpoints.

    Attributes:
        by_place: The writes; none of a checkpoint without writes.
        without_data: Checkpoints whose writes have more than `FEW_BYTES`; these have no data.
        refused: Refusals of the checkpoints with a write that was changed behind the server's back.
    """

    by_place: Mapping[Place, Sequence[StoredWrite]]
    without_data: frozenset[Place]
    refused: Mapping[Place, Refusal]


def read_written(connection: Connection, rows: Iterable[Row]) -> WrittenRows:
    """Return the writes of checkpoints, which have `written_bytes`."""
    written = [row for row in rows if row.written_bytes is not None]
    names = {row.place: row.thread_id for row in written}
    without_data = frozenset(row.place for row in written if (row.written_bytes or 0) > FEW_BYTES)
    with_data = [place for place in names if place not in without_data]
    read = [*run_places(connection, WRITES, with_data)]
    for place, columns in run_places(connection, WITHOUT_DATA, without_data):
        read.append((place, (*columns, None)))
    binder = binder_of(connection)
    by_place: dict[Place, list[StoredWrite]] = defaultdict(list)
    refused: dict[Place, Refusal] = {}
    for place, (mac, *stored) in read:
        write = StoredWrite(*stored)
        try:
            write.check(binder, names[place], place[0], place[1:], mac)
        except Refusal as refusal:
            refused[place] = refusal
        by_place[place].append(write)
    return WrittenRows(by_place, without_data, refused)
