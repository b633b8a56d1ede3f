"""Garbage collection of rows: removes unneeded values, and expired rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from sqlalchemy import (
    Boolean,
    bindparam,
    case,
    func,
    null,
    or_,
    select,
    tuple_,
)
from sqlalchemy import delete as delete_from

from ...core.model import ThreadName
from ...journal.database.database import Database
from ...journal.database.pending_writes import StoredWrite
from ...journal.database.unit_of_work import UnitOfWork
from ...journal.removal.deletion import forget_rows
from ...journal.sql.schema import (
    changes,
    requests,
    threads,
    writes,
)
from ...journal.sql.statements import (
    SqlRow,
    Statement,
    of_thread,
)

ROWS_AT_ONCE = 1000  # most rows that one write transaction removes
THREADS_AT_ONCE = 2000  # rows that one read transaction reads
_MICROSECONDS = 1_000_000

_EARLY = Statement(
    select(
        *(threads.c.tenant, threads.c.thread_id, writes.c.number),
        *(writes.c.checkpoint_ns, writes.c.checkpoint_id),
        *(writes.c[name] for name in StoredWrite._fields[:-1]),
        null(),
    )
    .join(threads, threads.c.number == writes.c.thread)
    .where(writes.c.early_us.is_not(None), writes.c.early_us < bindparam("before_us"))
    .limit(bindparam("max_rows"))
)
_DROP_EARLY = Statement(
    delete_from(writes)
    .where(writes.c.number == bindparam("of_number"), writes.c.early_us.is_not(None))
    .returning(writes.c.mac)
)
_DROP_ANSWERS = Statement(
    delete_from(requests).where(
        tuple_(requests.c.tenant, requests.c.request_id).in_(
            select(requests.c.tenant, requests.c.request_id)
            .where(requests.c.created_us < bindparam("before_us"))
            .order_by(requests.c.created_us)
            .limit(bindparam("max_rows"))
        )
    )
)
# Changes that search does not need are not kept for search.
_INDEXED = case(
    (
        or_(~bindparam("indexing", type_=Boolean), threads.c.unindexed_since_us.is_(None)),
        threads.c.certified_seq,
    ),
    else_=threads.c.indexed_seq,
)
_SETTLED = case((threads.c.certified_seq > _INDEXED, _INDEXED), else_=threads.c.certified_seq)
_FIRST_NEW = (
    select(changes.c.seq)
    .where(
        changes.c.thread == threads.c.number,
        changes.c.seq > threads.c.compacted_seq,
        changes.c.seq <= _SETTLED,
        changes.c.created_us >= bindparam("before_us"),
    )
    .order_by(changes.c.seq)
    .limit(1)
    .scalar_subquery()
)
_THREADS = Statement(
    select(
        threads.c.number,
        threads.c.tenant,
        threads.c.thread_id,
        threads.c.compacted_seq,
        func.coalesce(_FIRST_NEW - 1, _SETTLED),
    )
    .where(threads.c.number > bindparam("after"))
    .order_by(threads.c.number)
    .limit(bindparam("max_rows"))
)
_DROP_CHANGES = Statement(
    delete_from(changes).where(of_thread(changes), changes.c.seq <= bindparam("through"))
)


async def drop_changes(database: Database, before_us: int, *, indexing: bool) -> int:
    """Remove certified and indexed changes from before a time; return their number.

    Without an index, no change waits: search reads checkpoints by key when it is enabled. The rest
    of a log has no gap: a change is removed only with all earlier changes. After a step back of the
    clock, a change may stay until the earlier changes are old enough.
    """
    parameters = {
        "before_us": before_us,
        "indexing": indexing,
        "max_rows": THREADS_AT_ONCE,
        "after": 0,
    }
    count = 0
    while True:
        rows = await database.rows(_THREADS, **parameters)
        for chunk in _at_once(rows):
            count += await database.transact(partial(_drop_changes, rows=chunk))
        if len(rows) < THREADS_AT_ONCE:
            return count
        parameters["after"] = rows[-1][0]


def _at_once(rows: Iterable[SqlRow]) -> Iterator[list[SqlRow]]:
    """Yield threads, and the last change that one transaction drops of each."""
    chunk: list[SqlRow] = []
    room = ROWS_AT_ONCE
    for *thread, compacted_seq, through in rows:
        while compacted_seq < through:
            count = min(room, through - compacted_seq)
            compacted_seq, room = compacted_seq + count, room - count
            chunk.append((*thread, compacted_seq))
            if not room:
                yield chunk
                chunk, room = [], ROWS_AT_ONCE
    if chunk:
        yield chunk


def _drop_changes(batch: UnitOfWork, rows: Sequence[SqlRow]) -> int:
    batch.lock((tenant, thread_id) for _, tenant, thread_id, _ in rows)
    keys = []
    for number, tenant, thread_id, through in rows:
        log = batch.find_any(tenant, thread_id)
        if log is None or log.damage is not None:
            continue  # damaged rows stay for an investigation
        log.row.compacted_seq = max(log.row.compacted_seq, through)
        batch.store(log)
        keys.append({"of_thread": number, "through": through})
    return _DROP_CHANGES.count_many(batch.connection, keys)


def _drop_early(batch: UnitOfWork, before_us: int) -> int:
    parameters = {"before_us": before_us, "max_rows": ROWS_AT_ONCE}
    rows = _EARLY.run(batch.connection, **parameters).fetchall()
    by_thread: dict[ThreadName, list[SqlRow]] = {}
    for tenant, thread_id, *row in rows:
        by_thread.setdefault((tenant, thread_id), []).append(tuple(row))
    batch.lock(by_thread)
    for name, early_rows in by_thread.items():
        log = batch.find_any(*name)
        stored = [
            mac
            for number, *_ in early_rows
            for (mac,) in _DROP_EARLY.run(batch.connection, of_number=number).fetchall()
        ]
        if log is not None and log.damage is None:
            own = [
                StoredWrite(*columns).mac(
                    batch.binder, log.row.number, (checkpoint_ns, checkpoint_id)
                )
                for _, checkpoint_ns, checkpoint_id, *columns in early_rows
            ]
            forget_rows(batch, log, stored, own)
            log.forget_checkpoints()  # threads that the cache knows may have had the rows
    return len(rows)


async def drop_early_writes(database: Database, before_us: int) -> int:
    """Remove early writes whose checkpoint never arrived; return the number of checked writes."""
    return await _repeat_work(database, partial(_drop_early, before_us=before_us))


async def drop_answers(database: Database, before_us: int) -> int:
    """Remove first answers from before a time; return their number."""
    parameters = {"before_us": before_us, "max_rows": ROWS_AT_ONCE}

    def work(batch: UnitOfWork) -> int:
        return int(_DROP_ANSWERS.run(batch.connection, **parameters).rowcount)

    return await _repeat_work(database, work)


async def _repeat_work(database: Database, work: Callable[[UnitOfWork], int]) -> int:
    count = 0
    while dropped_count := await database.transact(work):
        count += dropped_count
    return count
