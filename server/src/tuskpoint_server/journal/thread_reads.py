"""Reading threads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Select, case, func, select

from ..domain.model import Thread, ThreadDetail, ThreadState
from . import archive_blobs
from .api import ThreadQuery
from .schema import checkpoints, threads
from .statements import EMPTY, Statement, of_thread, of_users

MAX_HEADS = 1000
"""Namespaces whose heads a thread's description names."""

_THREAD = tuple(
    threads.c[name]
    for name in (
        "thread_id",
        "incarnation",
        "seq",
        "agent_id",
        "state",
        "head_id",
        "created_us",
        "updated_us",
        "retention_s",
        "unsearchable",
    )
)
_LIVE = threads.c.deleted.is_(False)
_VISIBLE = checkpoints.c.hidden.is_(False)
_BY_ID = Statement(select(*_THREAD).where(of_thread(threads), _LIVE))
_COUNTS = Statement(
    select(
        func.count(),
        func.coalesce(
            func.sum(case((checkpoints.c.certified_revision < checkpoints.c.revision, 1), else_=0)),
            0,
        ),
    ).where(of_thread(checkpoints), _VISIBLE)
)
_HEADS = Statement(
    select(checkpoints.c.checkpoint_ns, func.max(checkpoints.c.checkpoint_id))
    .where(of_thread(checkpoints), _VISIBLE)
    .group_by(checkpoints.c.checkpoint_ns)
    .order_by(checkpoints.c.checkpoint_ns)
    .limit(MAX_HEADS)
)


def thread(connection: Connection, tenant: str, thread_id: str) -> ThreadDetail | None:
    """Return a thread, or `None`; see `api.Journal.thread`."""
    of = {"of_tenant": tenant, "of_thread": thread_id}
    row = _BY_ID.run(connection, **of).fetchone()
    if row is None:
        return None
    counts = _COUNTS.run(connection, **of).fetchone() or (0, 0)
    heads = dict(_HEADS.run(connection, **of).fetchall())
    expire_us = archive_blobs.earliest_expiry_of_thread(connection, tenant, thread_id)
    return ThreadDetail(_thread(row), counts[0], counts[1], heads, expire_us)


def list_threads(
    connection: Connection, tenant: str, query: ThreadQuery, after: str, limit: int
) -> list[Thread]:
    """Return threads by ID; see `api.Journal.list_threads`."""
    rows = connection.execute(_listing(tenant, query, after, limit))
    return [_thread(row) for row in rows]


def _thread(row: Any) -> Thread:
    thread_id, incarnation, seq, agent_id, state, *rest, unsearchable = row
    found = Thread(thread_id, incarnation, seq, agent_id, ThreadState(state), *rest)
    return replace(found, unsearchable=bool(unsearchable))


def _listing(tenant: str, query: ThreadQuery, after: str, limit: int) -> Select[Any]:
    statement = (
        select(*_THREAD)
        .where(threads.c.tenant == tenant, threads.c.thread_id > after, _LIVE, of_users(threads))
        .order_by(threads.c.thread_id)
        .limit(limit)
    )
    if query.agent_id:
        statement = statement.where(threads.c.agent_id == query.agent_id)
    if query.state is not None:
        statement = statement.where(threads.c.state == int(query.state))
    if query.label:
        labelled = select(checkpoints.c.thread_id).where(
            checkpoints.c.tenant == tenant,
            checkpoints.c.label == query.label,
            checkpoints.c.label != EMPTY,
            _VISIBLE,
        )
        statement = statement.where(threads.c.thread_id.in_(labelled))
    return statement
