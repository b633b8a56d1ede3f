"""Removing what has expired: early writes, answers of requests, old changes.

Rows are looked for beside the writer and removed in short transactions.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from sqlalchemy import Boolean, Connection, and_, bindparam, case, delete, or_, select, update

from ..database.database import Database
from ..database.overlay import Batch
from ..database.schema import changes, requests, threads, writes
from ..database.statements import Statement, of_thread

ROWS_AT_ONCE = 1000
"""Rows that one write transaction removes, at most."""

THREADS_AT_ONCE = 2000
"""Threads that one read transaction looks at."""

_EARLY = Statement(
    select(writes.c.number, threads.c.tenant, threads.c.thread_id)
    .join(threads, threads.c.number == writes.c.thread)
    .where(writes.c.early_us.is_not(None), writes.c.early_us < bindparam("before_us"))
    .limit(bindparam("max_rows"))
)
_DROP_WRITE = Statement(delete(writes).where(writes.c.number == bindparam("of_number")))
_ANSWERS = Statement(
    select(requests.c.tenant, requests.c.request_id)
    .where(requests.c.created_us < bindparam("before_us"))
    .order_by(requests.c.created_us)
    .limit(bindparam("max_rows"))
)
_DROP_ANSWER = Statement(
    delete(requests).where(
        requests.c.tenant == bindparam("of_tenant"),
        requests.c.request_id == bindparam("of_request"),
    )
)
# What search need not know of holds nothing up.
_INDEXED = case(
    (
        or_(~bindparam("indexing", type_=Boolean), threads.c.unindexed_since_us.is_(None)),
        threads.c.certified_seq,
    ),
    else_=threads.c.indexed_seq,
)
_SETTLED = case((threads.c.certified_seq > _INDEXED, _INDEXED), else_=threads.c.certified_seq)
_FIRST_CREATED = (
    select(changes.c.created_us)
    .where(changes.c.thread == threads.c.number, changes.c.seq > threads.c.compacted_seq)
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
        _SETTLED,
        and_(threads.c.compacted_seq < _SETTLED, bindparam("before_us") > _FIRST_CREATED),
    )
    .where(threads.c.number > bindparam("after"))
    .order_by(threads.c.number)
    .limit(bindparam("max_rows"))
)
_OLDEST = Statement(
    select(changes.c.seq, changes.c.created_us)
    .where(
        of_thread(changes),
        changes.c.seq > bindparam("after"),
        changes.c.seq <= bindparam("through"),
    )
    .order_by(changes.c.seq)
    .limit(bindparam("max_rows"))
)
_DROP_CHANGES = Statement(
    delete(changes).where(of_thread(changes), changes.c.seq <= bindparam("through"))
)
_SET_COMPACTED = Statement(
    update(threads)
    .where(threads.c.number == bindparam("of_thread"))
    .values(compacted_seq=bindparam("through"))
)


class OldLog(NamedTuple):
    """A thread whose oldest changes may go.

    Attributes:
        number: Its number.
        tenant: The tenant.
        thread_id: The thread.
        compacted_seq: Changes up to here are gone.
        settled_seq: Changes up to here are certified and indexed.
    """

    number: int
    tenant: str
    thread_id: str
    compacted_seq: int
    settled_seq: int


async def drop_early_writes(database: Database, before_us: int) -> int:
    """Remove writes that came before a time and whose checkpoint never came; return how many.

    Raises:
        Refusal: `JOURNAL_UNAVAILABLE`.
    """
    count = 0
    while gone := await database.transact(partial(_drop_early, before_us=before_us)):
        count += gone
    return count


async def drop_answers(database: Database, before_us: int) -> int:
    """Remove the answers of requests from before a time; return how many.

    Raises:
        Refusal: `JOURNAL_UNAVAILABLE`.
    """
    count = 0
    while gone := await database.transact(partial(_drop_answers, before_us=before_us)):
        count += gone
    return count


async def drop_changes(database: Database, before_us: int, *, indexing: bool) -> int:
    """Remove changes from before a time that are certified and indexed; return how many.

    Where nothing is indexed, none waits for it: search goes through checkpoints by key once
    it is switched on. What is left of a log has no gap: a change goes only with all before it.
    After a clock was set back, one may stay until those before it are old enough.

    Raises:
        Refusal: `JOURNAL_UNAVAILABLE`.
    """
    count = after = 0
    ended = False
    while not ended:
        found, after, ended = await database.query(
            partial(_old_logs, after=after, before_us=before_us, indexing=indexing)
        )
        while found:
            gone, found = await database.transact(
                partial(_drop_changes, found=found, before_us=before_us)
            )
            count += gone
    return count


# --- in a transaction --------------------------------------------------------------------


def _drop_early(batch: Batch, before_us: int) -> int:
    rows = _EARLY.run(batch.connection, before_us=before_us, max_rows=ROWS_AT_ONCE).fetchall()
    _DROP_WRITE.run_many(batch.connection, [{"of_number": row[0]} for row in rows])
    for tenant, thread_id in {(row[1], row[2]) for row in rows}:
        batch.forget(tenant, thread_id)
    return len(rows)


def _drop_answers(batch: Batch, before_us: int) -> int:
    rows = _ANSWERS.run(batch.connection, before_us=before_us, max_rows=ROWS_AT_ONCE).fetchall()
    keys = [{"of_tenant": tenant, "of_request": request_id} for tenant, request_id in rows]
    return _DROP_ANSWER.run_many(batch.connection, keys)


def _old_logs(
    connection: Connection, after: int, before_us: int, *, indexing: bool
) -> tuple[list[OldLog], int, bool]:
    """Return the next threads whose oldest changes may go, where to go on, and if it ended."""
    rows = _THREADS.run(
        connection,
        after=after,
        before_us=before_us,
        indexing=indexing,
        max_rows=THREADS_AT_ONCE,
    ).fetchall()
    found = [OldLog(*row[:-1]) for row in rows if row[-1]]
    return found, rows[-1][0] if rows else after, len(rows) < THREADS_AT_ONCE


def _drop_changes(
    batch: Batch, found: Sequence[OldLog], before_us: int
) -> tuple[int, list[OldLog]]:
    """Remove old changes of some threads; return how many, and the threads that are left."""
    gone: list[dict[str, object]] = []
    left = list(found)
    room = ROWS_AT_ONCE
    while left and room > 0:
        log = left.pop()
        rows = _OLDEST.run(
            batch.connection,
            of_thread=log.number,
            after=log.compacted_seq,
            through=log.settled_seq,
            max_rows=room,
        ).fetchall()
        through = max((seq for seq, created_us in rows if created_us < before_us), default=0)
        if not through:
            continue
        if len(rows) == room and through == rows[-1][0]:
            left.append(log._replace(compacted_seq=through))
        room -= len(rows)
        gone.append({"of_thread": log.number, "through": through})
        batch.forget(log.tenant, log.thread_id)
    count = _DROP_CHANGES.run_many(batch.connection, gone)
    _SET_COMPACTED.run_many(batch.connection, gone)
    return count, left
