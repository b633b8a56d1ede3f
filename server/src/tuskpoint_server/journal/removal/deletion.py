"""Deletes checkpoints and threads, and notes each removal for the archive.

Rows are really removed, and noted in `removed` until the archive has certified the removal;
`delta_bases` keeps content that remaining checkpoints need. The row of a deleted thread stays as a
tombstone that refuses late changes (`forgetting`). The values of its family are removed once all
threads of the family are deleted (`garbage_collection`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from sqlalchemy import (
    Connection,
    bindparam,
    exists,
    func,
    null,
    select,
)
from sqlalchemy import delete as delete_from

from ...core.threads import EFFECTS, INBOX, INBOX_END, EventKind, ThreadState
from ..database.binding import EMPTY_SUM, add_hashes
from ..database.pending_writes import StoredWrite
from ..database.thread_rows import Place, ThreadCacheEntry
from ..database.unit_of_work import UnitOfWork
from ..sql.schema import (
    checkpoints,
    deliveries,
    gaps,
    handoffs,
    removed,
    threads,
    vectors,
    writes,
)
from ..sql.statements import (
    EMPTY,
    Statement,
    insert_rows,
    of_checkpoint,
    of_thread,
    parameters_of,
    same_checkpoint,
)
from ..values.integrity import has_its_rows, hash_rows
from .delta_bases import Nodes, needed_bases, read_nodes, store_bases

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
        for table in (checkpoints, vectors, handoffs, deliveries)
    ),
    _DROP_WRITES,
    Statement(delete_from(gaps).where(of_thread(gaps), gaps.c.segment.is_(None))),
    # The end of the incarnation records that its checkpoints are removed.
    Statement(delete_from(removed).where(of_thread(removed), removed.c.checkpoint_id != EMPTY)),
)
_DROP_BOUND = tuple(
    Statement(delete_from(table).where(of_checkpoint(table)).returning(table.c.mac))
    for table in (checkpoints, writes)
)
_READ_WRITES = Statement(
    select(*(writes.c[name] for name in StoredWrite._fields[:-1]), null()).where(
        of_checkpoint(writes)
    )
)
# The vector of a removed checkpoint does not fit a later checkpoint with the same ID.
_DROP_VECTORS = Statement(delete_from(vectors).where(of_checkpoint(vectors)))
_DROP_HOLES = Statement(
    delete_from(gaps).where(
        of_thread(gaps),
        gaps.c.segment.is_(None),
        gaps.c.checkpoint_id != EMPTY,
        ~exists().where(same_checkpoint(checkpoints, gaps)),
    )
)
_RECORD = Statement(insert_rows(removed))
_OFFERS = Statement(
    select(threads.c.thread_id, checkpoints.c.checkpoint_id)
    .join(threads, threads.c.number == checkpoints.c.thread)
    .where(
        checkpoints.c.tenant == bindparam("of_tenant"),
        checkpoints.c.run_id == bindparam("of_source"),
        checkpoints.c.run_id != EMPTY,
        threads.c.thread_id >= INBOX,
        threads.c.thread_id < INBOX_END,
    )
)


def record(batch: UnitOfWork, log: ThreadCacheEntry, seq: int, places: Iterable[Place]) -> None:
    """Note for the archive the checkpoints that a change removed; `("", "")`: the incarnation."""
    columns = {"thread": log.row.number, "seq": seq, "incarnation": log.row.incarnation}
    rows = [{**columns, "checkpoint_ns": place[0], "checkpoint_id": place[1]} for place in places]
    _RECORD.run_many(batch.connection, rows)


def delete_thread(batch: UnitOfWork, tenant: str, thread_id: str) -> int:
    """Delete a thread with its effects and end its incarnation; do nothing without a thread.

    If the thread was deleted before, the writes that wait for its next incarnation are removed.
    """
    has_effects = not thread_id.startswith(EFFECTS)
    if batch.is_shared:  # together with the inboxes that `end_incarnation` changes
        names = {thread_id, *offers_of(batch.connection, tenant, thread_id)}
        names |= {EFFECTS + thread_id} if has_effects else set()
        batch.lock((tenant, name) for name in names)
    if has_effects:
        effects = batch.find_any(tenant, EFFECTS + thread_id)
        if effects is not None and not effects.row.deleted:
            delete_thread(batch, tenant, EFFECTS + thread_id)
    log = batch.find_any(tenant, thread_id)
    if log is None:
        return 0
    count = 0
    # the remainder of a damaged thread can be deleted, and its row is bound from then on
    if log.damage is not None:
        log.row.begin_after(log.stored_through)
        log.row.bound_rows, log.damage = EMPTY_SUM, None
    if log.row.deleted:
        _DROP_WRITES.run(batch.connection, of_thread=log.row.number)
        log.row.bound_rows = EMPTY_SUM
        batch.store(log)
    else:
        count = end_incarnation(batch, log)
    batch.write_out()  # the next search for the thread reads its row
    batch.logs.forget(tenant, thread_id)
    return count


def end_incarnation(batch: UnitOfWork, log: ThreadCacheEntry) -> int:
    """Remove all rows of a live thread; return the number of its checkpoints.

    The thread's own row is marked as deleted.
    """
    row = log.row
    _drop_offers(batch, row.tenant, row.thread_id)
    parameters = {"of_thread": row.number}
    count, through = _EXTENT.run(batch.connection, **parameters).fetchone() or (0, "")
    for statement in _DROP_THREAD:
        statement.run(batch.connection, **parameters)
    row.bound_rows = EMPTY_SUM
    # otherwise each search for threads past their retention would return it again
    row.retention_s = 0
    seq = batch.change(log, EventKind.THREAD_DELETED, deleted=int(count))
    record(batch, log, seq, [("", "")])
    row.deleted = True
    row.begun_seq = seq  # writes that wait for the next incarnation are part of it
    row.deleted_through = max(row.deleted_through, through)
    row.head_id = row.agent_id = ""
    row.lease = row.lease_until_us = None
    row.state = ThreadState.IDLE
    row.dirty_bytes = 0  # nothing is left to store
    row.removed_count += row.checkpoint_count
    row.removed_bytes = row.added_bytes
    row.checkpoint_count = 0
    log.early = False
    log.keyframes.clear()
    log.forget_checkpoints()
    return int(count)


def offers_of(connection: Connection, tenant: str, thread_id: str) -> dict[str, list[str]]:
    """Return the IDs of the offers of a thread's hand-offs, by the thread of their inbox."""
    rows = _OFFERS.run(connection, of_tenant=tenant, of_source=thread_id).fetchall()
    ids: dict[str, list[str]] = {}
    for inbox, handoff_id in rows:
        ids.setdefault(inbox, []).append(handoff_id)
    return ids


def _drop_offers(batch: UnitOfWork, tenant: str, thread_id: str) -> None:
    """Remove the offers of a thread, whose bundles end with the thread."""
    batch.write_out()
    names = offers_of(batch.connection, tenant, thread_id)
    batch.lock((tenant, inbox) for inbox in names)
    for inbox, ids in offers_of(batch.connection, tenant, thread_id).items() if names else ():
        log = batch.find(tenant, inbox)
        if log is not None:
            drop_records(batch, log, [("", handoff_id) for handoff_id in ids])


def remove_checkpoints(
    batch: UnitOfWork, tenant: str, thread_id: str, choose: Callable[[Nodes], set[Place]]
) -> int:
    """Remove the chosen checkpoints of a thread, in one change; do nothing without a thread."""
    batch.logs.forget(tenant, thread_id)  # cached state would become wrong
    log = batch.find(tenant, thread_id)
    if log is None or log.row.deleted:
        return 0
    nodes = read_nodes(batch.connection, log.row.ref)
    doomed = choose(nodes)
    if not doomed:
        return 0
    store_bases(batch, log, needed_bases(batch.connection, log.row.ref, nodes, doomed))
    drop(batch, log, sorted(doomed))
    _DROP_HOLES.run(batch.connection, of_thread=log.row.number)
    # The bytes of removed checkpoints are estimated as an average: an exact sum would need every
    # state.
    row, count = log.row, len(doomed)
    stored_bytes = row.added_bytes - row.removed_bytes
    row.removed_bytes += stored_bytes * count // max(row.checkpoint_count, count)
    row.removed_count += count
    row.checkpoint_count -= count
    head_id = max((name for namespace, name in nodes.keys() - doomed if not namespace), default="")
    if head_id != row.head_id:
        head = batch.checkpoint(log, ("", head_id)) if head_id else None
        log.set_head(head_id, batch.pending(log, ("", head_id), head) if head is not None else None)
    batch.logs.forget(tenant, thread_id)
    return len(doomed)


def drop_records(batch: UnitOfWork, log: ThreadCacheEntry, places: Collection[Place]) -> None:
    """Remove checkpoints without values and successors, of a thread of the server."""
    batch.write_out()
    drop(batch, log, places)
    log.row.checkpoint_count -= len(places)
    batch.store(log)
    batch.write_out()
    batch.logs.forget(log.row.tenant, log.row.thread_id)


def drop(batch: UnitOfWork, log: ThreadCacheEntry, places: Collection[Place]) -> None:
    """Remove the rows of checkpoints in one change, after the batch was written out."""
    # Search indexes the difference to the parent: children of removed checkpoints are indexed
    # again.
    seq = batch.change(log, EventKind.CHECKPOINTS_DELETED, deleted=len(places), indexed=True)
    keys = [parameters_of(log.row.number, *place) for place in places]
    own: list[bytes] = []
    # otherwise a damaged checkpoint could not be removed
    if not has_its_rows(batch.connection, log.row):
        own = [mac for place in places for mac in _own_macs(batch, log, place)]
    checkpoint_macs, write_macs = (
        [mac for answer in answers for (mac,) in answer.fetchall()]
        for answers in [
            [statement.run(batch.connection, **key) for key in keys] for statement in _DROP_BOUND
        ]
    )
    forget_rows(batch, log, checkpoint_macs)
    forget_rows(batch, log, write_macs, own)
    _DROP_VECTORS.run_many(batch.connection, keys)
    log.forget_checkpoints()
    record(batch, log, seq, places)


def _own_macs(batch: UnitOfWork, log: ThreadCacheEntry, place: Place) -> Iterator[bytes]:
    """Yield the MACs of a checkpoint's writes, computed from their columns."""
    key = parameters_of(log.row.number, *place)
    for columns in _READ_WRITES.run(batch.connection, **key).fetchall():
        yield StoredWrite(*columns).mac(batch.binder, log.row.number, place)


def forget_rows(
    batch: UnitOfWork,
    log: ThreadCacheEntry,
    stored: Iterable[bytes | None],
    own: Collection[bytes] = (),
) -> None:
    """Subtract removed rows of checkpoints or writes from the hash of their thread.

    Args:
        batch: The batch that removed the rows.
        log: The thread of the rows.
        stored: The stored MACs of the rows.
        own: MACs computed from the columns of rows that may have been changed behind the server's
            back. If the remaining rows show that the hash contains these MACs, the damage is
            removed with its rows.
    """
    row, before = log.row, log.row.bound_rows
    for mac in stored:
        row.move(batch.binder, None, mac)
    if own and before is not None:
        rest = add_hashes(before, -batch.binder.total(own))
        if rest != row.bound_rows and rest == hash_rows(batch.connection, row.number):
            row.bound_rows = rest
    batch.store(log)
