"""Listings and replays: a page of checkpoints, in the order of their IDs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, or_, select

from tuskpoint.v1.checkpoint_pb2 import CheckpointState

from ...core.errors import Refusal, journal_damaged
from ...core.model import Checkpoint, CheckpointQuery, View
from ...core.state import matches
from ..database import put_back
from ..database.binding import binder_of
from ..database.thread_rows import find_thread
from ..sql.schema import checkpoints, threads
from ..sql.statements import EMPTY, of_users
from .integrity import check_rows
from .load import entries_of, size_of, stepped_checkpoints, whole_checkpoints
from .segment_refs import ROW, Row
from .stored_writes import WHOLE

SCANNED_PER_PAGE = 2000
"""Rows that one page reads, however few of them match a filter."""


@dataclass(frozen=True, slots=True)
class ListPosition:
    """Position of a listing: past this ID, or at this ID and past this thread and namespace."""

    checkpoint_id: str
    thread_id: str
    checkpoint_ns: str


@dataclass(frozen=True, slots=True)
class CheckpointPage:
    """A page of checkpoints, in the order of the listing; `next` is `None` on the last page.

    `damaged`: reasons why checkpoints were left out, or are missing (`JOURNAL_DAMAGED`).
    """

    checkpoints: tuple[Checkpoint, ...]
    next: ListPosition | None
    damaged: tuple[Refusal, ...] = ()


def read_page(
    connection: Connection,
    tenant: str,
    query: CheckpointQuery,
    view: View,
    after: ListPosition | None,
    *,
    max_count: int,
    max_bytes: int,
) -> CheckpointPage:
    """Return the next checkpoints: greatest ID first, then by thread and namespace.

    A replay starts with the least ID, then the least namespace. A page ends at `max_count`
    checkpoints or when their content passes `max_bytes`, but has at least one checkpoint if there
    is one. A page may have fewer checkpoints than both limits allow, even none, and
    still have a `next`.
    """
    columns = ROW if view is View.ENTRY else WHOLE
    max_rows = SCANNED_PER_PAGE if query.filter else max_count
    statement = _listing_statement(tenant, query, after, columns, max_rows + 1)
    rows: list[Row] = []
    messages: list[CheckpointState] = []
    size = scanned = 0
    last: ListPosition | None = None
    damaged: list[Refusal] = []
    binder = binder_of(connection)
    with connection.execute(statement) as result:
        for row in (Row(*row_columns) for row_columns in result):
            full = len(rows) >= max_count or (rows and size >= max_bytes)
            if full or scanned == max_rows:
                break
            scanned += 1
            last = ListPosition(row.checkpoint_id, row.thread_id, row.checkpoint_ns)
            if not row.is_bound(binder):
                damaged.append(journal_damaged(row.thread_id, row.checkpoint_ns, row.checkpoint_id))
            elif matches(row.metadata, query.filter):
                rows.append(row)
                messages.append(CheckpointState.FromString(row.state))
                size += size_of(row, messages[-1])
        else:
            last = None
    if query.thread_id is None:
        problems = put_back.problems(connection, {row.thread for row in rows})
        damaged += (
            journal_damaged(row.thread_id, row.checkpoint_ns, row.checkpoint_id, problem=problem)
            for row in rows
            if (problem := problems.get(row.thread))
        )
        pairs = zip(rows, messages, strict=True)
        sound = [(row, message) for row, message in pairs if row.thread not in problems]
        rows, messages = [row for row, _ in sound], [message for _, message in sound]
    if last is None or after is None:
        damaged += _missing_rows(connection, tenant, query, is_last=last is None)
    if view.has_values:
        listed = whole_checkpoints(connection, tenant, rows, messages, damaged)
    elif view is View.STEP:
        listed = stepped_checkpoints(connection, tenant, rows, messages, damaged)
    else:
        listed = list(map(Checkpoint, entries_of(connection, tenant, rows)))
    return CheckpointPage(tuple(listed), last, tuple(damaged))


def _missing_rows(
    connection: Connection, tenant: str, query: CheckpointQuery, *, is_last: bool
) -> list[Refusal]:
    """Return the reason if a listing of a thread lacks checkpoints.

    The last page of a complete listing checks that the thread has all of its rows.
    """
    narrowed = (query.checkpoint_ns, query.checkpoint_id, query.before, query.first, query.last)
    if query.thread_id is None:
        return []
    try:
        thread = find_thread(connection, tenant, query.thread_id)
        if thread is not None and is_last and not any(narrowed):
            check_rows(connection, thread)
    except Refusal as refusal:
        return [refusal]
    return []


def _listing_statement(
    tenant: str,
    query: CheckpointQuery,
    after: ListPosition | None,
    columns: Sequence[Any],
    limit: int,
) -> Select[Any]:
    """Return the statement of a listing or a replay after a position, with at most `limit` rows.

    The checkpoints of one thread are chosen by their keys, from an index that has nothing else, and
    then read: the cost depends on the thread's checkpoints, not on the tenant's.
    """
    table, thread_id = checkpoints.c, threads.c.thread_id
    id_column, replayed = table.checkpoint_id, query.replayed
    of_tenant = table.tenant == tenant
    terms: list[ColumnElement[bool]] = []
    if query.checkpoint_ns is not None:
        terms.append(table.checkpoint_ns == query.checkpoint_ns)
    terms += [id_column == query.checkpoint_id] if query.checkpoint_id else []
    terms += [id_column < query.before] if query.before else []
    terms += [id_column >= query.first] if query.first else []
    terms += [id_column <= query.last] if query.last else []
    terms += [of_tenant, table.label == query.label, table.label != EMPTY] if query.label else []
    order = (id_column if replayed else id_column.desc(), thread_id, table.checkpoint_ns)
    listing = select(*columns).join(threads, threads.c.number == table.thread).order_by(*order)
    at = after.checkpoint_id if after is not None else ""
    past = id_column > at if replayed else id_column < at
    if query.thread_id is None:
        if after is not None:
            further = and_(thread_id == after.thread_id, table.checkpoint_ns > after.checkpoint_ns)
            terms.append(id_column >= at if replayed else id_column <= at)
            terms.append(or_(past, thread_id > after.thread_id, further))
        return listing.where(of_tenant, of_users(threads), *terms).limit(limit)
    if after is not None:
        terms.append(id_column >= at if replayed else id_column <= at)
        terms.append(or_(past, table.checkpoint_ns > after.checkpoint_ns))
    of_thread = select(threads.c.number).where(
        threads.c.tenant == tenant, thread_id == query.thread_id
    )
    page = (
        select(table.number)
        .where(table.thread == of_thread.scalar_subquery(), *terms)
        .order_by(order[0], table.checkpoint_ns)
        .limit(limit)
    )
    return listing.where(table.number.in_(page))
