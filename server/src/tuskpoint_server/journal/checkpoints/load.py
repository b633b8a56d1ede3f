"""Loading one checkpoint: its row, its values, its pending writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Select, bindparam, select

from ...domain.evicted import lacks_values
from ...domain.model import (
    EVICTED,
    BlobLocation,
    Checkpoint,
    CheckpointKey,
    Entry,
    Lineage,
    State,
    View,
    Write,
    write_order,
)
from ...domain.state import decode_channels, decode_state
from ..database.schema import checkpoints, threads, writes
from ..database.statements import Statement, of_checkpoint, parameters_of
from . import contents, located

ROW = (
    threads.c.thread_id,
    threads.c.number,
    threads.c.family,
    threads.c.incarnation,
    threads.c.certified_seq,
    checkpoints.c.checkpoint_ns,
    checkpoints.c.checkpoint_id,
    checkpoints.c.seq,
    checkpoints.c.parent_id,
    checkpoints.c.created_us,
    checkpoints.c.metadata,
    checkpoints.c.label,
    checkpoints.c.summary,
    checkpoints.c.forked_from,
    checkpoints.c.rolled_back_from,
    checkpoints.c.adopted_from,
    checkpoints.c.held,
)
"""Columns that an entry is made of; a row that has the state too ends with it."""

STATE = len(ROW)
WRITE = (
    writes.c.task_id,
    writes.c.task_path,
    writes.c.idx,
    writes.c.channel,
    writes.c.type,
    writes.c.encoding,
    writes.c.data,
    writes.c.size,
    writes.c.digest,
    writes.c.seq,
)
"""Columns that a write is made of; the last is its number in the log."""

_HELD, _DATA = ROW.index(checkpoints.c.held), WRITE.index(writes.c.data)


def rows_of(tenant: str, *, with_state: bool) -> Select[Any]:
    """Return what every read of checkpoints of a tenant begins with."""
    columns = (*ROW, checkpoints.c.state) if with_state else ROW
    return (
        select(*columns)
        .join(threads, threads.c.number == checkpoints.c.thread)
        .where(checkpoints.c.tenant == tenant)
    )


_OF_THREAD = (
    select(*ROW, checkpoints.c.state)
    .join(threads, threads.c.number == checkpoints.c.thread)
    .where(
        threads.c.tenant == bindparam("of_tenant"),
        threads.c.thread_id == bindparam("of_thread_id"),
        checkpoints.c.checkpoint_ns == bindparam("of_ns"),
    )
)
_BY_KEY = Statement(_OF_THREAD.where(checkpoints.c.checkpoint_id == bindparam("of_id")))
_LATEST = Statement(_OF_THREAD.order_by(checkpoints.c.checkpoint_id.desc()).limit(1))
_WRITES = Statement(select(*WRITE).where(of_checkpoint(writes)))


def load(connection: Connection, tenant: str, key: CheckpointKey, view: View) -> Checkpoint | None:
    """Return a checkpoint, or `None`; an empty `checkpoint_id` means the latest.

    Where a value was evicted stands `EVICTED`.
    """
    of = {"of_tenant": tenant, "of_thread_id": key.thread_id, "of_ns": key.checkpoint_ns}
    if key.checkpoint_id:
        row = _BY_KEY.run(connection, **of, of_id=key.checkpoint_id).fetchone()
    else:
        row = _LATEST.run(connection, **of).fetchone()
    if row is None:
        return None
    of_row = parameters_of(row[1], row[5], row[6])
    written = _WRITES.run(connection, **of_row).fetchall()
    places = located.of_rows(connection, tenant, [row], [_numbers(row, written)])[0]
    entry = entry_of(row, max(_numbers(row, written)), places)
    if view is View.ENTRY:
        return Checkpoint(entry)
    state = read_state(connection, row[2], row[STATE])
    return with_sources(connection, tenant, row, entry, state, written)


def with_sources(
    connection: Connection,
    tenant: str,
    row: Sequence[Any],
    entry: Entry,
    state: State,
    written: Sequence[Sequence[Any]],
) -> Checkpoint:
    """Return a checkpoint; one that lacks values names the segments that hold them.

    Args:
        connection: In a transaction.
        tenant: The tenant.
        row: Its row of `ROW`.
        entry: The entry of that row.
        state: Its state, `EVICTED` where values are not here.
        written: Rows of `WRITE`.
    """
    found = Checkpoint(entry, state, tuple(sorted(map(_write, written), key=write_order)))
    if not lacks_values(found):
        return found
    evicted = [one.digest for one in state.channels if one.value is EVICTED]
    places = located.of_values(connection, tenant, row[2], [one for one in evicted if one])
    seqs = [write[-1] for write in written if write[_DATA] is None]
    if seqs:
        places += located.of_writes(connection, tenant, row[1], row[_HELD], seqs)
    return replace(found, sources=tuple(dict.fromkeys(places)))


def read_state(connection: Connection, family: int, stored: bytes) -> State:
    """Return the state of a checkpoint with its values, `EVICTED` where they are not here."""
    digests = [channel.digest for channel in decode_channels(stored) if channel.digest is not None]
    return decode_state(stored, contents.read(connection, family, digests))


def _write(row: Sequence[Any]) -> Write:
    task_id, task_path, idx, channel, kind, encoding, data, size, digest, _ = row
    value = contents.stored_value(kind, size, encoding, data)
    return Write(task_id, task_path, idx, channel, value, digest)


def entry_of(
    row: Sequence[Any],
    seq: int,
    places: Sequence[BlobLocation],
    holes: Mapping[str, object] = {},
) -> Entry:
    """Make an entry of a row of `ROW`.

    Args:
        row: The row.
        seq: The checkpoint's last change, its writes' included.
        places: The segments that hold it, its state's first.
        holes: Not empty: something of it cannot be read from the blob store.
    """
    return Entry(
        key=CheckpointKey(row[0], row[5], row[6]),
        parent_id=row[8],
        incarnation=row[3],
        seq=seq,
        certified=seq <= row[4] and bool(places) and not holes,
        created_us=row[9],
        metadata=row[10],
        label=row[11],
        summary=row[12],
        lineage=Lineage(row[13], row[14], row[15]),
        segments=tuple(places),
    )


def _numbers(row: Sequence[Any], written: Sequence[Sequence[Any]]) -> list[int]:
    """Return the numbers of a checkpoint's row and of its writes, the row's first."""
    return [row[7], *(write[-1] for write in written)]
