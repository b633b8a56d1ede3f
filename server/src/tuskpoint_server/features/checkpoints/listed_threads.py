"""Descriptions and listings of threads, and their setting for search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from sqlalchemy import Connection, and_, bindparam, distinct, func, or_, select

from tuskpoint.v1.checkpoint_pb2 import CheckpointState

from ...core.errors import Reason, Refusal
from ...core.leases import decode
from ...core.threads import EventKind, Thread, ThreadDetail, ThreadState
from ...journal.database.binding import binder_of
from ...journal.database.thread_rows import ThreadCacheEntry
from ...journal.database.unit_of_work import UnitOfWork
from ...journal.sql.schema import blobs, changes, checkpoints, members, threads, uses
from ...journal.sql.statements import (
    EMPTY,
    LISTED,
    Statement,
    of_thread,
    of_users,
    same_checkpoint,
)
from ...journal.values.segment_refs import ROW, Row
from ...journal.values.steps import Tasks, read_tasks
from ...journal.values.stored_writes import WHOLE

MAX_HEADS = 1000
"""Most namespaces whose heads a thread's description names."""

_STORED_FIELDS = tuple(field.name for field in fields(Thread) if field.name in threads.c)
_THREAD = (
    threads.c.number,
    *(threads.c[name] for name in _STORED_FIELDS),
    threads.c.lease_until_us,
)
_LIVE = threads.c.deleted.is_(False)
_BY_ID = Statement(
    select(threads.c.certified_seq, *_THREAD).where(
        threads.c.tenant == bindparam("of_tenant"),
        threads.c.thread_id == bindparam("of_thread_id"),
        _LIVE,
    )
)
_UNCERTIFIED = Statement(
    select(func.count(distinct(checkpoints.c.number)))
    .select_from(changes.join(checkpoints, same_checkpoint(checkpoints, changes)))
    .where(of_thread(changes), changes.c.seq > bindparam("above"))
)
_HEADS = Statement(
    select(checkpoints.c.checkpoint_ns, func.max(checkpoints.c.checkpoint_id))
    .where(of_thread(checkpoints))
    .group_by(checkpoints.c.checkpoint_ns)
    .order_by(checkpoints.c.checkpoint_ns)
    .limit(MAX_HEADS)
)
_OF_HEADS = (
    threads.c.number.in_(LISTED),
    checkpoints.c.checkpoint_ns == EMPTY,
    checkpoints.c.checkpoint_id == threads.c.head_id,
)
_JOINED = threads.c.number == checkpoints.c.thread
_IDLE_HEADS = Statement(select(*ROW).join(threads, _JOINED).where(*_OF_HEADS))
_WAITING_HEADS = Statement(select(*WHOLE).join(threads, _JOINED).where(*_OF_HEADS))
_of_segment = and_(members.c.tenant == uses.c.tenant, members.c.sha256 == uses.c.segment)
_of_member = and_(blobs.c.tenant == members.c.tenant, blobs.c.blob_id == members.c.blob_id)
_EXPIRY = Statement(
    select(func.min(blobs.c.expire_us))
    .select_from(uses.join(members, _of_segment).join(blobs, _of_member))
    .where(of_thread(uses))
)

_STORED = Statement(
    select(
        func.count(),
        func.coalesce(func.sum(threads.c.added_bytes - threads.c.removed_bytes), 0),
    ).where(threads.c.tenant == bindparam("of_tenant"), _LIVE)
)


@dataclass(frozen=True, slots=True)
class ThreadQuery:
    """Which threads to list; empty or `None`: no condition."""

    agent_id: str = ""
    label: str = ""
    state: ThreadState | None = None
    since_us: int | None = None  # changed at this time or later
    until_us: int | None = None  # changed before
    latest_first: bool = False  # latest change first, instead of by ID


After = str | tuple[int, str] | tuple[()]
"""Start of a page: after an ID or, latest first, after the time of a last change and an ID; empty:
the first thread."""


def stored_by(connection: Connection, tenant: str) -> tuple[int, int]:
    """Return the number of a tenant's threads, stores included, and the bytes of their content."""
    [(count, stored_bytes)] = _STORED.run(connection, of_tenant=tenant).fetchall()
    return count, int(stored_bytes)


def thread(connection: Connection, tenant: str, thread_id: str, now_us: int) -> ThreadDetail | None:
    """Return a thread; `None` if it does not exist, or was deleted."""
    row = _BY_ID.run(connection, of_tenant=tenant, of_thread_id=thread_id).fetchone()
    if row is None:
        return None
    certified_seq, *columns = row
    number: int = columns[0]
    [(uncertified,)] = _UNCERTIFIED.run(
        connection, of_thread=number, above=certified_seq
    ).fetchall()
    heads: dict[str, str] = dict(_HEADS.run(connection, of_thread=number).fetchall())
    [(expire_us,)] = _EXPIRY.run(connection, of_thread=number).fetchall()
    [described] = _with_heads(connection, [columns], now_us)
    return ThreadDetail(described, uncertified, heads, expire_us)


def list_threads(
    connection: Connection, tenant: str, query: ThreadQuery, after: After, limit: int, now_us: int
) -> list[Thread]:
    """Return threads in the order of the query.

    No index has the times, because every save would have to maintain it: a page of the latest
    reads all threads of the tenant.
    """
    by_id, by_time = threads.c.thread_id, threads.c.updated_us
    statement = select(*_THREAD).where(threads.c.tenant == tenant, _LIVE, of_users(threads))
    if not query.latest_first:
        statement = statement.order_by(by_id).where(by_id > after)
    else:
        statement = statement.order_by(by_time.desc(), by_id)
        if isinstance(after, tuple) and after:
            time_us, thread_id = after
            later = and_(by_time == time_us, by_id > thread_id)
            statement = statement.where(or_(by_time < time_us, later))
    statement = statement.limit(limit)
    if query.since_us is not None:
        statement = statement.where(by_time >= query.since_us)
    if query.until_us is not None:
        statement = statement.where(by_time < query.until_us)
    if query.agent_id:
        statement = statement.where(threads.c.agent_id == query.agent_id)
    if query.state is not None:
        statement = statement.where(threads.c.state == int(query.state))
    if query.label:
        labelled = select(checkpoints.c.thread).where(
            checkpoints.c.tenant == tenant,
            checkpoints.c.label == query.label,
            checkpoints.c.label != EMPTY,
        )
        statement = statement.where(threads.c.number.in_(labelled))
    return _with_heads(connection, connection.execute(statement).fetchall(), now_us)


def _with_heads(connection: Connection, rows: Sequence[Sequence[Any]], now_us: int) -> list[Thread]:
    """Return the threads of rows with the facts of their heads, and the leases that hold now.

    A head that was changed behind the server's back says nothing here; a load reports the damage.
    """
    found: dict[int, Thread] = {}
    for number, *row, until_us in rows:
        columns = dict(zip(_STORED_FIELDS, row, strict=True))
        lease = decode(columns["lease"], until_us)
        columns["lease"] = lease if lease is not None and lease.holds(now_us) else None
        found[number] = Thread(**columns)
    binder = binder_of(connection)
    idle = {number for number, thread in found.items() if thread.state == ThreadState.IDLE}
    rows = (
        *_IDLE_HEADS.run_listed(connection, idle),
        *_WAITING_HEADS.run_listed(connection, found.keys() - idle),
    )
    heads = (Row(*columns) for columns in rows)
    sound = {head.thread: head for head in heads if head.is_bound(binder)}
    waiting = [head for head in sound.values() if head.thread not in idle]
    states = [CheckpointState.FromString(head.state) for head in waiting]
    tasks = {place[0]: told for place, told in read_tasks(connection, waiting, states).items()}
    return [
        _described(thread, sound.get(number), tasks.get(number, Tasks()))
        for number, thread in found.items()
    ]


def _described(thread: Thread, head: Row | None, tasks: Tasks) -> Thread:
    state = ThreadState(thread.state)
    asked = (question for question in tasks.questions if not question.answered)
    return replace(
        thread,
        state=state,
        unsearchable=bool(thread.unsearchable),
        summary=head.summary if head is not None else "",
        question=next(asked, None) if state is ThreadState.INTERRUPTED else None,
        failure=next(iter(tasks.failures), None) if state is ThreadState.FAILED else None,
    )


def switch_search(batch: UnitOfWork, log: ThreadCacheEntry, searchable: bool) -> None:
    """Set whether search finds the checkpoints of a loaded thread."""
    if bool(log.row.unsearchable) is searchable:
        log.row.unsearchable = not searchable
        log.row.settings_seq = batch.change(log, EventKind.SEARCHABLE_SET, indexed=searchable)


def live_thread(batch: UnitOfWork, tenant: str, thread_id: str) -> ThreadCacheEntry:
    """Return a thread that exists; refuse with `THREAD_NOT_FOUND`."""
    log = batch.find(tenant, thread_id)
    if log is None or log.row.deleted:
        raise Refusal(Reason.THREAD_NOT_FOUND, thread_id=thread_id)
    return log
