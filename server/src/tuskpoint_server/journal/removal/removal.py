"""Removal for the service: deleting checkpoints and threads, retention, and the sweep.

Rows are really removed, and noted in `removed` until the archive has certified that they are gone;
`delta_bases` keeps what remaining checkpoints need. The row of a deleted thread stays as a
tombstone that refuses late changes (`forgetting`); the values of its family go once none of its
threads lives (`passes`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import (
    Boolean,
    bindparam,
    case,
    exists,
    func,
    or_,
    select,
    tuple_,
)
from sqlalchemy import delete as delete_from

from ...core.errors import Reason, Refusal
from ...core.limits import LIMITS
from ...core.threads import EventKind, PruneStrategy, ThreadState
from ..checkpoints.threads import live, switch_search
from ..database.binding import EMPTY_SUM
from ..database.database import Database
from ..database.thread_rows import Place, ThreadCacheEntry
from ..database.unit_of_work import UnitOfWork
from ..sql.schema import (
    changes,
    checkpoints,
    handoffs,
    holes,
    removed,
    requests,
    threads,
    vectors,
    writes,
)
from ..sql.statements import (
    EMPTY,
    LISTED,
    Statement,
    inserting,
    of_checkpoint,
    of_thread,
    of_users,
    parameters_of,
    same_checkpoint,
)
from . import forgetting, garbage_collection
from .delta_bases import Nodes, give, needed_bases, read_nodes

ROWS_AT_ONCE = 1000  # that one write transaction removes, at most
THREADS_AT_ONCE = 2000  # that one read transaction looks at
_MICROSECONDS = 1_000_000
SUBGRAPH_CALL = ":"  # between a node's name and its task's ID in a LangGraph namespace

_EXTENT = Statement(
    select(func.count(), func.coalesce(func.max(checkpoints.c.checkpoint_id), "")).where(
        of_thread(checkpoints)
    )
)
_DROP_WRITES = Statement(delete_from(writes).where(of_thread(writes)))
_DROP_THREAD = (
    *(
        Statement(delete_from(table).where(of_thread(table)))
        for table in (checkpoints, vectors, handoffs)
    ),
    _DROP_WRITES,
    Statement(delete_from(holes).where(of_thread(holes), holes.c.segment.is_(None))),
    # The end of the incarnation records that its checkpoints are gone.
    Statement(delete_from(removed).where(of_thread(removed), removed.c.checkpoint_id != EMPTY)),
)
_DROP_BOUND = tuple(
    Statement(delete_from(table).where(of_checkpoint(table)).returning(table.c.mac))
    for table in (checkpoints, writes)
)
# A vector does not fit a checkpoint that is saved under the same ID again.
_DROP_VECTORS = Statement(delete_from(vectors).where(of_checkpoint(vectors)))
_DROP_HOLES = Statement(
    delete_from(holes).where(
        of_thread(holes),
        holes.c.segment.is_(None),
        holes.c.checkpoint_id != EMPTY,
        ~exists().where(same_checkpoint(checkpoints, holes)),
    )
)
_OF_RUNS = Statement(
    select(threads.c.thread_id)
    .join(checkpoints, checkpoints.c.thread == threads.c.number)
    .where(
        checkpoints.c.tenant == bindparam("of_tenant"),
        checkpoints.c.run_id.in_(LISTED),
        checkpoints.c.run_id != EMPTY,
        of_users(threads),
    )
    .distinct()
)
_RECORD = Statement(inserting(removed))


@dataclass(frozen=True, slots=True)
class Swept:
    """Numbers of rows that a sweep removed."""

    contents: int = 0
    early_writes: int = 0
    requests: int = 0
    changes: int = 0
    threads: int = 0


class Removal:
    """Removes checkpoints and threads, and unneeded rows.

    All calls are coroutines and safe to use at the same time. A mutation returns after its
    commit is fsynced; cancelling the caller withdraws it only before the writer begins with it.
    Every call can refuse with `JOURNAL_UNAVAILABLE`.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def delete_thread(self, tenant: str, thread_id: str) -> int:
        """Delete a thread and end its incarnation; nothing if there is none."""
        return await self._database.transact(
            partial(delete_thread, tenant=tenant, thread_id=thread_id)
        )

    async def prune_thread(self, tenant: str, thread_id: str, strategy: PruneStrategy) -> int:
        """Delete old checkpoints of a thread; nothing if there is none."""
        if strategy is PruneStrategy.DELETE_ALL:
            return await self.delete_thread(tenant, thread_id)
        return await self._database.transact(
            partial(remove_checkpoints, tenant=tenant, thread_id=thread_id, choose=superseded)
        )

    async def delete_runs(self, tenant: str, run_ids: Sequence[str]) -> int:
        """Delete the checkpoints of runs, over all threads, each in a transaction of its own.

        A damaged thread does not keep the runs in other threads from being deleted.

        Raises:
            Refusal: `JOURNAL_DAMAGED`: a thread is damaged; nothing of it was deleted.
        """
        runs = frozenset(run_ids) - {""}  # an empty ID means no run
        found = await self._database.query(
            lambda connection: {
                row[0] for row in _OF_RUNS.run_listed(connection, runs, of_tenant=tenant)
            }
        )

        def of_runs(nodes: Nodes) -> set[Place]:
            return {place for place, node in nodes.items() if node.run_id in runs}

        remove = partial(remove_checkpoints, tenant=tenant, choose=of_runs)
        count, damaged = 0, list[Refusal]()
        for thread_id in sorted(found):
            try:
                count += await self._database.transact(partial(remove, thread_id=thread_id))
            except Refusal as refusal:
                if refusal.reason is not Reason.JOURNAL_DAMAGED:
                    raise
                damaged.append(refusal)
        if damaged:
            raise damaged[0]
        return count

    async def set_retention(self, tenant: str, thread_id: str, retention_s: int) -> None:
        """Set the seconds without a change after which a thread is deleted; 0: never.

        It counts as a change, also where nothing is different: the time begins anew.

        Raises:
            Refusal: `THREAD_NOT_FOUND`.
        """

        def change(batch: UnitOfWork) -> None:
            log = live(batch, tenant, thread_id)
            log.row.retention_s = retention_s
            log.row.settings_seq = batch.change(log, EventKind.RETENTION_SET)

        await self._database.change(change, thread=(tenant, thread_id))

    async def set_searchable(self, tenant: str, thread_id: str, searchable: bool) -> None:
        """Set whether search finds the checkpoints of a thread; a change only if it is one.

        Raises:
            Refusal: `THREAD_NOT_FOUND`.
        """
        await self._database.change(
            lambda batch: switch_search(batch, live(batch, tenant, thread_id), searchable),
            thread=(tenant, thread_id),
        )

    async def past_retention(self, limit: int, skipped: int = 0) -> list[tuple[str, str]]:
        """Return tenant and name of threads that are past their retention, longest past first.

        `skipped`: how many of the first ones are left out.
        """
        of = {"now_us": self._database.now_us(), "max_rows": limit, "skipped": skipped}
        return list(await self._database.rows(_PAST, **of))

    async def delete_if_past(self, tenant: str, thread_id: str) -> int | None:
        """Delete a thread that is past its retention; `None` if it is not (any more)."""

        def delete(batch: UnitOfWork) -> int | None:
            log = batch.find(tenant, thread_id)
            if log is None or log.row.deleted or log.row.expire_us is None:
                return None
            if log.row.expire_us > batch.now_us:
                return None
            return delete_thread(batch, tenant, thread_id)

        return await self._database.transact(delete)

    async def sweep(self, *, early_write_ttl_s: float, indexing: bool = True) -> Swept:
        """Remove values that no checkpoint needs, and expired rows.

        `early_write_ttl_s`: seconds that a write waits for its checkpoint. `indexing`: search is
        switched on, and has to read changes before they go.
        """
        database = self._database
        now_us = database.now_us()
        early_us = now_us - int(early_write_ttl_s * _MICROSECONDS)
        answered_us = now_us - LIMITS.request_id_ttl_s * _MICROSECONDS
        changed_us = now_us - LIMITS.event_ttl_s * _MICROSECONDS
        return Swept(
            early_writes=await _repeated(database, partial(_drop_early, before_us=early_us)),
            requests=await _drop(database, _DROP_ANSWERS, answered_us),
            changes=await drop_changes(database, changed_us, indexing=indexing),
            contents=(await garbage_collection.remove_due(database)).values,
            threads=await forgetting.forget_threads(database, now_us),
        )


def record(batch: UnitOfWork, log: ThreadCacheEntry, seq: int, places: Iterable[Place]) -> None:
    """Note for the archive which checkpoints a change removed; `("", "")`: the incarnation."""
    columns = {"thread": log.row.number, "seq": seq, "incarnation": log.row.incarnation}
    rows = [{**columns, "checkpoint_ns": place[0], "checkpoint_id": place[1]} for place in places]
    _RECORD.run_many(batch.connection, rows)


def delete_thread(batch: UnitOfWork, tenant: str, thread_id: str) -> int:
    """Delete a thread and end its incarnation, in one change; nothing if there is none.

    If it was deleted before, the writes that wait for its next incarnation go.
    """
    log = batch.find_any(tenant, thread_id)
    if log is None:
        return 0
    count = 0
    if log.damage is not None:  # what is left of it can be deleted, and is bound from then on
        log.row.begin_after(log.stored_through)
        log.row.bound_rows, log.damage = EMPTY_SUM, None
    if log.row.deleted:
        _DROP_WRITES.run(batch.connection, of_thread=log.row.number)
        log.row.bound_rows = EMPTY_SUM
        batch.store(log)
    else:
        count = end_incarnation(batch, log)
    batch.write_out()  # who looks for the thread next reads its row
    batch.logs.forget(tenant, thread_id)
    return count


def end_incarnation(batch: UnitOfWork, log: ThreadCacheEntry) -> int:
    """Remove all rows of a live thread; return the number of its checkpoints.

    Its own row is marked as deleted.
    """
    row = log.row
    of = {"of_thread": row.number}
    count, through = _EXTENT.run(batch.connection, **of).fetchone() or (0, "")
    for statement in _DROP_THREAD:
        statement.run(batch.connection, **of)
    row.bound_rows = EMPTY_SUM
    row.retention_s = 0  # else every look for threads past their retention would find it again
    seq = batch.change(log, EventKind.THREAD_DELETED, deleted=int(count))
    record(batch, log, seq, [("", "")])
    row.deleted = True
    row.begun_seq = seq  # writes that wait for the next incarnation are part of it
    row.deleted_through = max(row.deleted_through, through)
    row.head_id = row.agent_id = ""
    row.state = ThreadState.IDLE
    row.dirty_bytes = 0  # nothing is left to be stored
    row.removed_count += row.checkpoint_count
    row.removed_bytes = row.added_bytes
    row.checkpoint_count = 0
    log.early = False
    log.keyframes.clear()
    log.forget_checkpoints()
    return int(count)


def remove_checkpoints(
    batch: UnitOfWork, tenant: str, thread_id: str, choose: Callable[[Nodes], set[Place]]
) -> int:
    """Remove the chosen checkpoints of a thread, in one change; nothing if there is no thread."""
    batch.logs.forget(tenant, thread_id)  # so that nothing is known of it that changes here
    log = batch.find(tenant, thread_id)
    if log is None or log.row.deleted:
        return 0
    nodes = read_nodes(batch.connection, log.row.ref)
    doomed = choose(nodes)
    if not doomed:
        return 0
    give(batch, log, needed_bases(batch.connection, log.row.ref, nodes, doomed))
    drop(batch, log, sorted(doomed))
    _DROP_HOLES.run(batch.connection, of_thread=log.row.number)
    # The bytes that they brought are estimated as an average: else every state would be read.
    row, count = log.row, len(doomed)
    left = row.added_bytes - row.removed_bytes
    row.removed_bytes += left * count // max(row.checkpoint_count, count)
    row.removed_count += count
    row.checkpoint_count -= count
    head_id = max((name for namespace, name in nodes.keys() - doomed if not namespace), default="")
    if head_id != row.head_id:
        known = batch.checkpoint(log, ("", head_id)) if head_id else None
        log.set_head(head_id, batch.pending(log, ("", head_id), known) if known is not None else {})
    batch.logs.forget(tenant, thread_id)
    return len(doomed)


def drop(batch: UnitOfWork, log: ThreadCacheEntry, places: Collection[Place]) -> None:
    """Remove the rows of checkpoints in one change; everything is written out before."""
    # Search uses the difference to the parent: children of removed ones are indexed again.
    seq = batch.change(log, EventKind.CHECKPOINTS_DELETED, deleted=len(places), indexed=True)
    keys = [parameters_of(log.row.number, *place) for place in places]
    for statement in _DROP_BOUND:
        gone = [statement.run(batch.connection, **key) for key in keys]
        batch.forget_rows(log, (mac for answer in gone for (mac,) in answer.fetchall()))
    _DROP_VECTORS.run_many(batch.connection, keys)
    log.forget_checkpoints()
    record(batch, log, seq, places)


def superseded(nodes: Nodes) -> set[Place]:
    """Return checkpoints that are not the latest of their namespace, and finished subgraph calls.

    A call has a namespace of its own; it goes with the root checkpoint that it ran under.
    """
    latest: dict[str, str] = {}
    for namespace, checkpoint_id in nodes:
        latest[namespace] = max(latest.get(namespace, ""), checkpoint_id)
    doomed = set(nodes) - set(latest.items())
    return doomed | {
        place
        for place in latest.items()
        if SUBGRAPH_CALL in place[0] and ("", nodes[place].root_id) in doomed
    }


# Rows are looked for beside the writer and removed in short transactions.

_PAST = Statement(
    select(threads.c.tenant, threads.c.thread_id)
    .where(threads.c.expire_us.is_not(None), threads.c.expire_us <= bindparam("now_us"))
    .order_by(threads.c.expire_us, threads.c.number)
    .limit(bindparam("max_rows"))
    .offset(bindparam("skipped"))
)
_EARLY = Statement(
    select(writes.c.number, threads.c.tenant, threads.c.thread_id)
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
# Changes that search does not need are not kept for it.
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
    """Remove changes from before a time that are certified and indexed; return how many.

    Without an index, none waits for it: search goes through checkpoints by key once it is switched
    on. The rest of a log has no gap: a change goes only with all before it. After a clock was set
    back, a change may stay until those before it are old enough.
    """
    of = {"before_us": before_us, "indexing": indexing, "max_rows": THREADS_AT_ONCE, "after": 0}
    count = 0
    while True:
        rows = await database.rows(_THREADS, **of)
        for some in _at_once(rows):
            count += await database.transact(partial(_drop_changes, some=some))
        if len(rows) < THREADS_AT_ONCE:
            return count
        of["after"] = rows[-1][0]


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


def _drop_changes(batch: UnitOfWork, some: Sequence[tuple[Any, ...]]) -> int:
    batch.lock((tenant, thread_id) for _, tenant, thread_id, _ in some)
    keys = []
    for number, tenant, thread_id, through in some:
        log = batch.find_any(tenant, thread_id)
        if log is None or log.damage is not None:
            continue  # what is damaged stays as it is, for who looks into it
        log.row.compacted_seq = max(log.row.compacted_seq, through)
        batch.store(log)
        keys.append({"of_thread": number, "through": through})
    return _DROP_CHANGES.count_many(batch.connection, keys)


def _drop_early(batch: UnitOfWork, before_us: int) -> int:
    """Remove writes whose checkpoint did not come; return how many were looked at."""
    of = {"before_us": before_us, "max_rows": ROWS_AT_ONCE}
    rows = _EARLY.run(batch.connection, **of).fetchall()
    batch.lock({(tenant, thread_id) for _, tenant, thread_id in rows})
    for number, tenant, thread_id in rows:
        log = batch.find_any(tenant, thread_id)
        gone = _DROP_EARLY.run(batch.connection, of_number=number).fetchall()
        if log is not None and log.damage is None:
            batch.forget_rows(log, (mac for (mac,) in gone))
            log.forget_checkpoints()  # known ones may have had them
    return len(rows)


async def _drop(database: Database, statement: Statement, before_us: int) -> int:
    """Remove rows from before a time; return how many."""
    of = {"before_us": before_us, "max_rows": ROWS_AT_ONCE}

    def work(batch: UnitOfWork) -> int:
        return int(statement.run(batch.connection, **of).rowcount)

    return await _repeated(database, work)


async def _repeated(database: Database, work: Callable[[UnitOfWork], int]) -> int:
    count = 0
    while gone := await database.transact(work):
        count += gone
    return count
