"""Removing, as the service calls it, and the sweep: early writes, answers, old changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import Boolean, Connection, bindparam, case, func, or_, select, tuple_, update
from sqlalchemy import delete as delete_from

from ...domain.limits import LIMITS
from ...domain.threads import PruneStrategy, Removed
from ..checkpoints import threads as settings
from ..database.database import Database
from ..database.logs import Place
from ..database.overlay import Batch
from ..database.schema import changes, requests, threads, writes
from ..database.statements import Statement, of_thread
from . import delete, passes
from .delta_bases import Nodes

ROWS_AT_ONCE = 1000
"""Rows that one write transaction removes, at most."""

THREADS_AT_ONCE = 2000
"""Threads that one read transaction looks at."""

_MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True)
class Swept:
    """Numbers of what a sweep removed."""

    contents: int = 0
    early_writes: int = 0
    requests: int = 0
    changes: int = 0


class Removal:
    """Removes checkpoints and threads, and what nothing needs any more.

    All calls are coroutines and safe to use at the same time. A mutation returns after its
    commit is fsynced; cancelling the caller does not undo it. `JOURNAL_UNAVAILABLE` can come
    from every call.

    Attributes:
        passes: The open passes over families; every commit is noted there.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.passes = passes.Passes()
        database.noted.append(self.passes.note)

    async def delete_thread(self, tenant: str, thread_id: str) -> Removed:
        """Delete a thread and end its incarnation; nothing if there is none."""
        return await self._database.transact(
            partial(delete.delete_thread, tenant=tenant, thread_id=thread_id)
        )

    async def prune_thread(self, tenant: str, thread_id: str, strategy: PruneStrategy) -> Removed:
        """Delete old checkpoints of a thread; nothing if there is none."""
        if strategy is PruneStrategy.DELETE_ALL:
            return await self.delete_thread(tenant, thread_id)
        choose = delete.superseded
        return await self._database.transact(
            partial(delete.remove_checkpoints, tenant=tenant, thread_id=thread_id, choose=choose)
        )

    async def delete_runs(self, tenant: str, run_ids: Sequence[str]) -> Removed:
        """Delete the checkpoints of runs, over all threads, each in a transaction of its own."""
        found = await self._database.query(
            partial(delete.threads_of_runs, tenant=tenant, run_ids=run_ids)
        )
        runs = frozenset(run_ids) - {""}

        def of_runs(nodes: Nodes) -> set[Place]:
            return {place for place, node in nodes.items() if node.run_id in runs}

        remove = partial(delete.remove_checkpoints, tenant=tenant, choose=of_runs)
        count = 0
        for thread_id in found:
            removed = await self._database.transact(partial(remove, thread_id=thread_id))
            count += removed.deleted
        return Removed(count)

    async def set_retention(self, tenant: str, thread_id: str, retention_s: int) -> None:
        """Set the seconds without a change after which a thread is deleted; 0: never.

        Raises:
            Refusal: `THREAD_NOT_FOUND`.
        """
        await self._database.change(
            lambda batch: settings.set_retention(batch, tenant, thread_id, retention_s)
        )

    async def set_searchable(self, tenant: str, thread_id: str, searchable: bool) -> None:
        """Set whether search finds the checkpoints of a thread.

        Raises:
            Refusal: `THREAD_NOT_FOUND`.
        """
        await self._database.change(
            lambda batch: settings.set_searchable(batch, tenant, thread_id, searchable)
        )

    async def past_retention(self, limit: int) -> list[tuple[str, str]]:
        """Return tenant and name of threads that are past their retention, longest past first."""
        now_us = self._database.now_us()
        return await self._database.query(
            lambda connection: [
                (row[0], row[1])
                for row in _PAST.run(connection, now_us=now_us, max_rows=limit).fetchall()
            ]
        )

    async def delete_if_past(self, tenant: str, thread_id: str) -> Removed | None:
        """Delete a thread that is past its retention; `None` if it is not (any more)."""
        return await self._database.transact(
            partial(delete.delete_if_past, tenant=tenant, thread_id=thread_id)
        )

    async def sweep(self, *, early_write_ttl_s: float, indexing: bool = True) -> Swept:
        """Remove values that no checkpoint needs, and what has expired.

        A write waits so many seconds for its checkpoint. `indexing`: search is switched on, and
        has to read changes before they go.
        """
        database = self._database
        now_us = database.now_us()
        early_us = now_us - int(early_write_ttl_s * _MICROSECONDS)
        answered_us = now_us - LIMITS.request_id_ttl_s * _MICROSECONDS
        changed_us = now_us - LIMITS.event_ttl_s * _MICROSECONDS
        return Swept(
            early_writes=await _drop(database, _DROP_EARLY, early_us),
            requests=await _drop(database, _DROP_ANSWERS, answered_us),
            changes=await drop_changes(database, changed_us, indexing=indexing),
            contents=await self._remove_contents(),
        )

    async def _remove_contents(self) -> int:
        """Remove values that nothing needs, and all of families of which no thread lives."""
        removed = await passes.remove_due(self._database, self.passes)
        for family in await self._database.query(passes.abandoned):
            removed += await passes.remove_unneeded(self._database, self.passes, family)
        return removed.values


# --- what has expired --------------------------------------------------------------------
# Rows are looked for beside the writer and removed in short transactions.

_PAST = Statement(
    select(threads.c.tenant, threads.c.thread_id)
    .where(threads.c.expire_us.is_not(None), threads.c.expire_us <= bindparam("now_us"))
    .order_by(threads.c.expire_us)
    .limit(bindparam("max_rows"))
)
_DROP_EARLY = Statement(
    delete_from(writes).where(
        writes.c.number.in_(
            select(writes.c.number)
            .where(writes.c.early_us.is_not(None), writes.c.early_us < bindparam("before_us"))
            .limit(bindparam("max_rows"))
        )
    )
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
# What search need not know of holds nothing up.
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
_SET_COMPACTED = Statement(
    update(threads)
    .where(threads.c.number == bindparam("of_thread"))
    .values(compacted_seq=bindparam("through"))
)


async def drop_changes(database: Database, before_us: int, *, indexing: bool) -> int:
    """Remove changes from before a time that are certified and indexed; return how many.

    Where nothing is indexed, none waits for it: search goes through checkpoints by key once
    it is switched on. What is left of a log has no gap: a change goes only with all before it.
    After a clock was set back, one may stay until those before it are old enough.
    """
    of = {"before_us": before_us, "indexing": indexing, "max_rows": THREADS_AT_ONCE}
    count = after = 0
    while True:
        rows = await database.query(partial(_old_logs, of={**of, "after": after}))
        for some in _at_once(rows):
            count += await database.transact(partial(_drop_changes, some=some))
        if len(rows) < THREADS_AT_ONCE:
            return count
        after = rows[-1][0]


def _old_logs(connection: Connection, of: dict[str, int]) -> list[tuple[Any, ...]]:
    return list(_THREADS.run(connection, **of).fetchall())


def _at_once(rows: Iterable[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    """Yield number, tenant and name of threads, and up to where one transaction drops changes."""
    some: list[tuple[Any, ...]] = []
    room = ROWS_AT_ONCE
    for *thread, compacted_seq, through in rows:
        while compacted_seq < through:
            dropped = min(room, through - compacted_seq)
            compacted_seq, room = compacted_seq + dropped, room - dropped
            some.append((*thread, compacted_seq))
            if not room:
                yield some
                some, room = [], ROWS_AT_ONCE
    if some:
        yield some


def _drop_changes(batch: Batch, some: Sequence[tuple[Any, ...]]) -> int:
    keys = [{"of_thread": number, "through": through} for number, _, _, through in some]
    for _, tenant, thread_id, _ in some:
        batch.forget(tenant, thread_id)
    _SET_COMPACTED.run_many(batch.connection, keys)
    return _DROP_CHANGES.run_many(batch.connection, keys)


async def _drop(database: Database, statement: Statement, before_us: int) -> int:
    """Remove rows from before a time; return how many."""

    def work(batch: Batch) -> int:
        of = {"before_us": before_us, "max_rows": ROWS_AT_ONCE}
        gone = int(statement.run(batch.connection, **of).rowcount)
        if gone and statement is _DROP_EARLY:
            batch.forget_all()  # what is known of threads may be among them
        return gone

    count = 0
    while gone := await database.transact(work):
        count += gone
    return count
