"""Removes the rows of threads that were deleted long ago.

The row of a deleted thread refuses late changes, so the row stays as long as late changes may come.
The row also stays while other content needs the thread: the archive has not certified its end, its
log was not compacted, or another thread shares its values or reads them from its segments.

The floor of the tenant (`database.floor`) stays. Rows of `members` stay: they name the blobs that
have bytes of the thread, until a collection or a renewal has dropped these bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from sqlalchemy import ColumnElement, Table, and_, bindparam, delete, exists, func, select

from ..database.database import Database
from ..database.floor import FLOOR_THREAD
from ..database.unit_of_work import UnitOfWork
from ..sql.schema import (
    changes,
    checkpoints,
    contents,
    deliveries,
    gaps,
    handoffs,
    items,
    members,
    removed,
    threads,
    uses,
    vectors,
    writes,
)
from ..sql.statements import SqlRow, Statement

KEPT_DAYS = 90
"""Days for which the row of a deleted thread refuses late changes.

The number is not a setting: it bounds how late a retry, a queue or a suspended program may send a
change, which no operator knows better, and a row has about 300 bytes. The number is far above the
longest `--late-save-grace` (a day) and the time for which changes are kept (a week).
"""

FORGOTTEN_AT_ONCE = 500  # rows that one write transaction removes
_DAY_US = 86_400 * 1_000_000
_OWN = (changes, checkpoints, writes, handoffs, gaps, items, removed, uses, vectors, deliveries)
_kin, _greatest, _used = threads.alias("kin"), threads.alias("greatest"), uses.alias("used")


def _has_no_rows(table: Table) -> ColumnElement[bool]:
    return ~exists().where(table.c.thread == threads.c.number)


_FORGETTABLE = and_(
    threads.c.deleted,
    threads.c.thread_id != FLOOR_THREAD,
    threads.c.updated_us < bindparam("before_us"),
    threads.c.dirty_since_us.is_(None),
    threads.c.certified_seq == threads.c.seq,
    threads.c.compacted_seq == threads.c.seq,
    # The greatest number stays: the next number is above it, and the witness compares with it.
    threads.c.number < select(func.max(_greatest.c.number)).scalar_subquery(),
    ~exists().where(_kin.c.family == threads.c.family, _kin.c.deleted.is_(False)),
    ~exists().where(contents.c.family == threads.c.family),
    ~exists().where(
        members.c.thread == threads.c.number,
        _used.c.tenant == members.c.tenant,
        _used.c.segment == members.c.sha256,
    ),
    *map(_has_no_rows, _OWN),
)
_FIND = Statement(
    select(threads.c.number, threads.c.tenant, threads.c.thread_id)
    .where(_FORGETTABLE, threads.c.number > bindparam("after"))
    .order_by(threads.c.number)
    .limit(bindparam("max_rows"))
)
_STILL = Statement(
    select(threads.c.number).where(_FORGETTABLE, threads.c.number == bindparam("of_number"))
)
_DROP = Statement(delete(threads).where(threads.c.number == bindparam("of_number")))


async def forget_threads(database: Database, now_us: int) -> int:
    """Remove the rows of threads that were deleted long ago; return the number of removed rows."""
    before_us = now_us - KEPT_DAYS * _DAY_US
    count, after = 0, 0
    while True:
        parameters = {"before_us": before_us, "after": after, "max_rows": FORGOTTEN_AT_ONCE}
        rows = await database.rows(_FIND, **parameters)
        if not rows:
            return count
        count += await database.transact(partial(_forget, rows=rows, before_us=before_us))
        after = rows[-1][0]


def _forget(batch: UnitOfWork, rows: Sequence[SqlRow], before_us: int) -> int:
    """Remove the rows that are still unneeded, and raise the floors."""
    batch.lock({(tenant, thread_id) for _, tenant, thread_id in rows})
    batch.write_out()
    count = 0
    for number, tenant, thread_id in rows:
        parameters = {"of_number": number, "before_us": before_us}
        log = batch.find_any(tenant, thread_id)
        if log is None or log.damage is not None:
            continue  # damaged rows stay as they are, for an investigation
        if _STILL.run(batch.connection, **parameters).fetchone() is None:
            continue
        _raise_floor(batch, tenant, log.row.incarnation, log.row.seq)
        _DROP.run(batch.connection, of_number=number)
        batch.logs.forget(tenant, thread_id)
        count += 1
    batch.write_out()
    return count


def _raise_floor(batch: UnitOfWork, tenant: str, incarnation: int, seq: int) -> None:
    log = batch.find(tenant, FLOOR_THREAD)
    if log is None:
        log = batch.begin(tenant, FLOOR_THREAD)
        log.row.deleted, log.row.incarnation = True, 0
    row = log.row
    row.incarnation, row.seq = max(row.incarnation, incarnation), max(row.seq, seq)
    row.certified_seq = row.indexed_seq = row.begun_seq = row.compacted_seq = row.seq
    batch.store(log)
