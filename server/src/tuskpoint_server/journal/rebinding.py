"""Binds the rows of a journal that are not bound yet: of layout 1, or restored from a backup.

Threads are bound one after another, each in one transaction with its rows, so a server that is
killed meanwhile continues with the threads that are left. Before that, values are compared with
their digests. Servers of layout 1 may use a shared journal until then: they write rows without
MACs, and change rows whose MACs then no longer match. So nothing is bound while a server of layout
1 is connected. After that PostgreSQL refuses writes of such servers, and all threads of a shared
journal are bound, from the first to the last, whether they have MACs or not.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import bindparam, func, or_, select, tuple_, update

from ..core.threads import EventKind
from .database.binding import EMPTY_SUM, add_hashes
from .database.database import Connection, Database
from .database.pending_writes import StoredWrite
from .database.thread_rows import (
    KNOWN,
    CachedCheckpoint,
    Place,
    ThreadCacheEntry,
    ThreadRow,
    greatest_id,
)
from .database.unit_of_work import UnitOfWork
from .failpoints import failpoint
from .removal import deletion
from .sql.journal_metadata import BOUND, read_finished, set_bound
from .sql.schema import changes, checkpoints, threads, writes
from .sql.schema import contents as values
from .sql.statements import Statement, of_thread, update_rows
from .values import contents
from .values.lost_rows import lost_rows

ROWS_AT_ONCE = 2000  # rows of one page, and about as many of one transaction
THREADS_AT_ONCE = 200  # threads of one transaction
_REPORT_S = 5.0
_AGAIN_S = 0.02  # pause before another attempt at threads that another server changed

_log = logging.getLogger(__name__)

_CHECKPOINTS = Statement(
    select(checkpoints.c.number, checkpoints.c.checkpoint_ns, checkpoints.c.checkpoint_id, *KNOWN)
    .where(of_thread(checkpoints), checkpoints.c.number > bindparam("after"))
    .order_by(checkpoints.c.number)
    .limit(bindparam("max_rows"))
)
_WRITES = Statement(
    select(
        *(writes.c.number, writes.c.checkpoint_ns, writes.c.checkpoint_id, writes.c.mac),
        *(writes.c[name] for name in StoredWrite._fields),
    )
    .where(of_thread(writes), writes.c.number > bindparam("after"))
    .order_by(writes.c.number)
    .limit(bindparam("max_rows"))
)
_CHANGED = ("thread", "seq", "incarnation", "kind", "checkpoint_ns", "checkpoint_id", "deleted")
_CHANGES = Statement(
    select(changes.c.mac, *(changes.c[name] for name in (*_CHANGED, "created_us")))
    .where(of_thread(changes), changes.c.seq > bindparam("after"))
    .order_by(changes.c.seq)
    .limit(bindparam("max_rows"))
)
_SET_CHECKPOINT = update_rows(checkpoints, "number", ("mac",))
_SET_WRITE = update_rows(writes, "number", ("mac",))
_SET_CHANGE = Statement(
    update(changes)
    .where(of_thread(changes), changes.c.seq == bindparam("of_seq"))
    .values(mac=bindparam("new_mac"))
)
_WANTED = or_(threads.c.binding.is_(None), bindparam("all"))
_UNBOUND = Statement(
    select(threads.c.number, threads.c.tenant, threads.c.thread_id, threads.c.checkpoint_count)
    .where(_WANTED, threads.c.number > bindparam("after"))
    .order_by(threads.c.number)
    .limit(bindparam("max_rows"))
)
_COUNT = Statement(
    select(func.count(), func.coalesce(func.sum(threads.c.checkpoint_count), 0)).where(_WANTED)
)
_VALUE = (values.c.family, values.c.digest)
_AFTER = tuple_(bindparam("after_family"), bindparam("after_digest", type_=values.c.digest.type))
# In the order of families: values of threads that grew at the same time alternate by number.
_VALUES = Statement(
    select(*_VALUE)
    .where(tuple_(*_VALUE) > _AFTER, values.c.data.is_not(None))
    .order_by(*_VALUE)
    .limit(bindparam("max_rows"))
)
_COUNT_VALUES = Statement(select(func.count()).where(values.c.data.is_not(None)))


@dataclass(frozen=True, slots=True)
class RebindingProgress:
    """The result: numbers of bound threads, and of values that do not match their digests."""

    threads: int = 0
    damaged: int = 0
    is_complete: bool = True


async def bind_rows(database: Database) -> RebindingProgress:
    """Bind all unbound rows, unless servers of layout 1 are connected and write such rows.

    Raises:
        Refusal: `JOURNAL_UNAVAILABLE`.
    """
    if database.binder.is_complete:
        return RebindingProgress()
    if BOUND in await database.query(read_finished):  # another server has bound them
        database.binder.is_complete = True
        return RebindingProgress()
    if not await database.write_past_batches(partial(_end_older, database)):
        return RebindingProgress(is_complete=False)
    [(thread_count, checkpoint_count)] = await database.rows(_COUNT, all=database.is_shared)
    if thread_count:
        _log.warning(
            "binding the rows of %d threads with %d checkpoints; a start continues this if it is "
            "interrupted",
            *(thread_count, checkpoint_count),
        )
    damaged = await _compare(database) if thread_count else 0
    failpoint("journal.before_binding")
    bound_count = await _bind_threads(database, thread_count)
    failpoint("journal.before_bound")
    await database.write_past_batches(set_bound)
    database.binder.is_complete = True
    return RebindingProgress(bound_count, damaged)


def _end_older(database: Database, connection: Connection) -> bool:
    """Refuse all writes without a MAC; return `False` if older servers still run."""
    if database.has_older_servers(connection, 2):
        return False
    database.refuse_unbound(connection)
    return True


async def _compare(database: Database) -> int:
    """Compare all values with their digests; return the number of values that differ."""
    [(count,)] = await database.rows(_COUNT_VALUES)
    compared = damaged = 0
    after = (0, b"")
    reported = time.monotonic()
    while True:
        parameters = dict(zip(("after_family", "after_digest"), after, strict=True))
        rows = await database.rows(_VALUES, **parameters, max_rows=ROWS_AT_ONCE)
        if not rows:
            return damaged
        after = rows[-1]
        by_family: dict[int, list[bytes]] = {}
        for family, digest in rows:
            by_family.setdefault(family, []).append(digest)
        for family, digests in by_family.items():
            damaged += await database.query(partial(_count_damaged, family=family, digests=digests))
        compared += len(rows)
        if time.monotonic() > reported + _REPORT_S:
            reported = time.monotonic()
            _log.info("compared %d of %d values with their digests", compared, count)


def _count_damaged(connection: Connection, family: int, digests: Sequence[bytes]) -> int:
    count = 0
    for digest, damage in contents.find_damaged(connection, family, digests):
        _log.error("value %s of the journal is damaged: %s", digest.hex(), damage.problem)
        count += 1
    return count


async def _bind_threads(database: Database, count: int) -> int:
    tried, after, reported = 0, 0, time.monotonic()
    unbound: list[tuple[str, str]] = []
    while True:
        parameters = {"all": database.is_shared, "after": after, "max_rows": THREADS_AT_ONCE}
        rows = await database.rows(_UNBOUND, **parameters)
        if not rows:
            break
        names: list[tuple[str, str]] = []
        size = 0
        for number, tenant, thread_id, checkpoint_count in rows:
            if names and size + checkpoint_count > ROWS_AT_ONCE:
                break
            names.append((tenant, thread_id))
            size += checkpoint_count
            after = number
        unbound += await database.transact(partial(_bind_group, names=names))
        failpoint("journal.after_binding_some")
        tried += len(names)
        if time.monotonic() > reported + _REPORT_S:
            reported = time.monotonic()
            _log.info("bound the rows of %d of %d threads", tried - len(unbound), count)
    while unbound:
        await asyncio.sleep(_AGAIN_S)
        unbound = await database.transact(partial(_bind_group, names=unbound))
    return tried


def _bind_group(batch: UnitOfWork, names: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Bind threads; return the threads that another server is changing.

    The transaction waits for no thread: it holds locks that the other server may wait for.
    """
    busy = batch.locking(names, wait=False)()
    for tenant, thread_id in names:
        if (tenant, thread_id) in busy:
            continue
        log = batch.find(tenant, thread_id)
        if log is None:
            continue
        row = log.row
        row.begin_after(log.stored_through)
        row.bound_rows, row.checkpoint_count = _bind_thread(batch, tenant, row.number)
        row.compacted_seq = _bind_changes(batch, row)
        _accept_lost(batch, log)
        log.forget_checkpoints()
        if row.head_id:  # threads of store items have no latest checkpoint
            _choose_latest(batch, log)
        batch.store(log)
    return sorted(busy)


def _accept_lost(batch: UnitOfWork, log: ThreadCacheEntry) -> None:
    """Log the current state of rows that differ from changes that wait to be stored.

    Without that no flush would store the thread, because it would certify missing checkpoints.
    """
    row = log.row
    if row.deleted:
        return
    lost_places: list[Place] = []
    for place, is_there in lost_rows(batch.connection, row, row.seq, row.seq):
        checkpoint = batch.checkpoint(log, place) if is_there else None
        if checkpoint is None:
            lost_places.append(place)
            continue
        checkpoint.seq = batch.change(log, EventKind.CHECKPOINT_SAVED, place, indexed=True)
        batch.amend_checkpoint(log, place, checkpoint)
    if lost_places:
        seq = batch.change(
            log, EventKind.CHECKPOINTS_DELETED, deleted=len(lost_places), indexed=True
        )
        deletion.record(batch, log, seq, lost_places)


def _choose_latest(batch: UnitOfWork, log: ThreadCacheEntry) -> None:
    """Set the latest checkpoint of a thread to the latest stored checkpoint."""
    row, latest = log.row, greatest_id(batch.connection, log.row.number, "")
    if latest == row.head_id:
        return
    checkpoint = batch.checkpoint(log, ("", latest)) if latest else None
    log.set_head(
        latest, batch.pending(log, ("", latest), checkpoint) if checkpoint is not None else None
    )
    log.forget_checkpoints()
    _log.warning(
        "the latest checkpoint of thread %r of tenant %s is now %r: a later one is not stored",
        *(row.thread_id, row.tenant, latest),
    )


def _bind_thread(batch: UnitOfWork, tenant: str, number: int) -> tuple[int, int]:
    """Give all rows of a thread their MACs; return their hash, and the number of checkpoints."""
    binder, connection = batch.binder, batch.connection
    total, after, count = EMPTY_SUM, 0, 0
    while rows := _page(connection, _CHECKPOINTS, number, after):
        after = rows[-1][0]
        count += len(rows)
        new = []
        for row, checkpoint_ns, checkpoint_id, *columns in rows:
            checkpoint = CachedCheckpoint(*columns)
            mac = checkpoint.bind(binder, tenant, number, (checkpoint_ns, checkpoint_id))
            total = add_hashes(total, binder.member(mac))
            if mac != checkpoint.mac:
                new.append((mac, row))
        _SET_CHECKPOINT.run_rows(connection, ("mac", "of_number"), new)
    after = 0
    while rows := _page(connection, _WRITES, number, after):
        after = rows[-1][0]
        new = []
        for row, checkpoint_ns, checkpoint_id, before, *columns in rows:
            mac = StoredWrite(*columns).mac(binder, number, (checkpoint_ns, checkpoint_id))
            total = add_hashes(total, binder.member(mac))
            if mac != before:
                new.append((mac, row))
        _SET_WRITE.run_rows(connection, ("mac", "of_number"), new)
    return total, count


def _bind_changes(batch: UnitOfWork, thread: ThreadRow) -> int:
    """Give the changes of a log their MACs; return the number after which the log has no gap."""
    after, whole, number = 0, thread.compacted_seq, thread.number
    last = whole
    while rows := _page(batch.connection, _CHANGES, number, after):
        after = rows[-1][2]
        macs = [(batch.binder.change(*columns), before, columns[1]) for before, *columns in rows]
        new = [(mac, number, seq) for mac, before, seq in macs if mac != before]
        _SET_CHANGE.run_rows(batch.connection, ("new_mac", "of_thread", "of_seq"), new)
        for seq in (seq for _, _, seq in macs if seq > whole):
            whole = whole if seq == last + 1 else seq - 1
            last = seq
    return whole if last == thread.seq else thread.seq


def _page(
    connection: Connection, statement: Statement, number: int, after: int
) -> Sequence[tuple[Any, ...]]:
    parameters = {"of_thread": number, "after": after, "max_rows": ROWS_AT_ONCE}
    return statement.run(connection, **parameters).fetchall()
