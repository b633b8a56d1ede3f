"""Reading pages of checkpoints.

First the rows, as many as a page holds; then each kind of content for all of them at
once, and every value once however many of them have it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, Table, and_, func, or_, select

from ...domain.metadata import matches
from ...domain.model import Checkpoint, CheckpointQuery, Value, View
from ...domain.state import decode_channels, decode_state
from ..database.schema import checkpoints, threads, writes
from ..database.statements import EMPTY, of_users
from . import contents, located
from .load import ROW, STATE, WRITE, entry_of, rows_of, with_sources

SCANNED_PER_PAGE = 2000
"""Rows that one page looks at, however few of them match a filter."""

_METADATA = ROW.index(checkpoints.c.metadata)
_Place = tuple[int, str, str]


@dataclass(frozen=True, slots=True)
class ListPosition:
    """Where a listing stands: past this ID, or at it and past this thread and namespace."""

    checkpoint_id: str
    thread_id: str
    checkpoint_ns: str


@dataclass(frozen=True, slots=True)
class Page:
    """Some checkpoints, in the order of their listing; `next` is `None` on the last page."""

    checkpoints: tuple[Checkpoint, ...]
    next: ListPosition | None


@dataclass(frozen=True, slots=True)
class ReplayQuery:
    """Which checkpoints of a thread to replay.

    Attributes:
        thread_id: The thread.
        checkpoint_ns: Only this namespace, if not `None`.
        first: Least ID; empty: from the beginning.
        last: Greatest ID; empty: to the end.
    """

    thread_id: str
    checkpoint_ns: str | None = None
    first: str = ""
    last: str = ""


def read_page(
    connection: Connection,
    tenant: str,
    query: CheckpointQuery | ReplayQuery,
    view: View,
    after: ListPosition | None,
    *,
    max_count: int,
    max_bytes: int,
) -> Page:
    """Return the next checkpoints: greatest ID first, then by thread and namespace.

    A replay has the least ID first, then the least namespace. A page ends at `max_count`
    checkpoints or when their content passes `max_bytes`, but holds at least one if there is
    one. It may hold fewer than both allow, even none, and still have a `next`.
    """
    statement = rows_of(tenant, with_state=view is not View.ENTRY).limit(SCANNED_PER_PAGE + 1)
    wanted: dict[str, object] = {}
    if isinstance(query, ReplayQuery):
        statement = _replay(statement, tenant, query, after)
    else:
        statement, wanted = _listing(statement, tenant, query, after), query.filter
    rows, last = _take(connection, statement, wanted, max_count, max_bytes)
    return _page(connection, tenant, view, rows, last, max_bytes)


# --- rows ------------------------------------------------------------------------------


def _take(
    connection: Connection,
    statement: Select[Any],
    wanted: dict[str, object],
    max_count: int,
    max_bytes: int,
) -> tuple[list[Sequence[Any]], ListPosition | None]:
    """Return the first rows whose metadata is wanted, and where to go on if there may be more."""
    taken: list[Sequence[Any]] = []
    size = scanned = 0
    last: ListPosition | None = None
    with connection.execute(statement) as rows:
        for row in rows:
            full = len(taken) >= max_count or (taken and size >= max_bytes)
            if full or scanned == SCANNED_PER_PAGE:
                return taken, last
            scanned += 1
            last = _position(row)
            if matches(row[_METADATA], wanted):
                taken.append(row)
                size += len(row[_METADATA]) + (len(row[STATE]) if len(row) > STATE else 0)
    return taken, None


def _position(row: Sequence[Any]) -> ListPosition:
    return ListPosition(row[6], row[0], row[5])


def _place(row: Sequence[Any]) -> _Place:
    return (row[1], row[5], row[6])


def _listing(
    statement: Select[Any], tenant: str, query: CheckpointQuery, after: ListPosition | None
) -> Select[Any]:
    """Return the statement of a page of a listing."""
    table, thread_id = checkpoints.c, threads.c.thread_id
    statement = statement.order_by(table.checkpoint_id.desc(), thread_id, table.checkpoint_ns)
    if query.thread_id is not None:
        statement = statement.where(threads.c.tenant == tenant, thread_id == query.thread_id)
    else:
        statement = statement.where(of_users(threads))
    if query.checkpoint_ns is not None:
        statement = statement.where(table.checkpoint_ns == query.checkpoint_ns)
    if query.checkpoint_id:
        statement = statement.where(table.checkpoint_id == query.checkpoint_id)
    if query.before:
        statement = statement.where(table.checkpoint_id < query.before)
    if query.label:
        statement = statement.where(table.label == query.label, table.label != EMPTY)
    if after is not None:
        statement = statement.where(
            table.checkpoint_id <= after.checkpoint_id,
            or_(
                table.checkpoint_id < after.checkpoint_id,
                thread_id > after.thread_id,
                and_(thread_id == after.thread_id, table.checkpoint_ns > after.checkpoint_ns),
            ),
        )
    return statement


def _replay(
    statement: Select[Any], tenant: str, query: ReplayQuery, after: ListPosition | None
) -> Select[Any]:
    """Return the statement of a page of a replay."""
    table = checkpoints.c
    statement = statement.where(
        threads.c.tenant == tenant, threads.c.thread_id == query.thread_id
    ).order_by(table.checkpoint_id, table.checkpoint_ns)
    if query.checkpoint_ns is not None:
        statement = statement.where(table.checkpoint_ns == query.checkpoint_ns)
    if query.first:
        statement = statement.where(table.checkpoint_id >= query.first)
    if query.last:
        statement = statement.where(table.checkpoint_id <= query.last)
    if after is not None:
        statement = statement.where(
            table.checkpoint_id >= after.checkpoint_id,
            or_(
                table.checkpoint_id > after.checkpoint_id,
                table.checkpoint_ns > after.checkpoint_ns,
            ),
        )
    return statement


# --- content ---------------------------------------------------------------------------


def _page(
    connection: Connection,
    tenant: str,
    view: View,
    rows: list[Sequence[Any]],
    last: ListPosition | None,
    max_bytes: int,
) -> Page:
    """Return a page of rows, or of the first of them if their content is too large for one."""
    if view is not View.ENTRY:
        count = _within(rows, _sizes(connection, rows), max_bytes)
        if count < len(rows):
            rows, last = rows[:count], _position(rows[count - 1])
        written = _writes(connection, rows, WRITE)
    else:
        written = _writes(connection, rows, (writes.c.seq,))
    numbers = [[row[7], *(one[-1] for one in written.get(_place(row), ()))] for row in rows]
    places = located.of_rows(connection, tenant, rows, numbers)
    entries = map(entry_of, rows, map(max, numbers), places)
    if view is View.ENTRY:
        return Page(tuple(map(Checkpoint, entries)), last)
    values = _values(connection, rows)
    found: list[Checkpoint] = []
    for entry, row in zip(entries, rows, strict=True):
        state, pending = decode_state(row[STATE], values[row[2]]), written.get(_place(row), ())
        found.append(with_sources(connection, tenant, row, entry, state, pending))
    return Page(tuple(found), last)


def _within(rows: Sequence[Sequence[Any]], sizes: Sequence[int], max_bytes: int) -> int:
    """Return how many rows a page holds: it ends once its content has passed the bound."""
    total = 0
    for number, size in enumerate(sizes):
        if number and total >= max_bytes:
            return number
        total += size
    return len(rows)


def _sizes(connection: Connection, rows: Sequence[Sequence[Any]]) -> list[int]:
    """Return about how many bytes each checkpoint takes in memory."""
    sizes = dict.fromkeys(map(_place, rows), 0)
    for of_some, thread, namespace in _of_namespaces(writes, sizes):
        statement = (
            select(writes.c.checkpoint_id, func.sum(writes.c.size))
            .where(of_some)
            .group_by(writes.c.checkpoint_id)
        )
        for checkpoint_id, size in connection.execute(statement):
            sizes[(thread, namespace, checkpoint_id)] = int(size)
    for row in rows:
        sizes[_place(row)] += len(row[_METADATA]) + len(row[STATE])
        sizes[_place(row)] += sum(channel.size for channel in decode_channels(row[STATE]))
    return [sizes[_place(row)] for row in rows]


def _values(connection: Connection, rows: Sequence[Sequence[Any]]) -> dict[int, dict[bytes, Value]]:
    """Return the values of checkpoints by family and digest."""
    digests: dict[int, list[bytes]] = {}
    for row in rows:
        named = (channel.digest for channel in decode_channels(row[STATE]))
        digests.setdefault(row[2], []).extend(one for one in named if one is not None)
    return {family: contents.read(connection, family, some) for family, some in digests.items()}


def _writes(
    connection: Connection, rows: Sequence[Sequence[Any]], columns: Sequence[ColumnElement[Any]]
) -> dict[_Place, list[Sequence[Any]]]:
    """Return these columns of the pending writes of checkpoints."""
    found: dict[_Place, list[Sequence[Any]]] = {}
    for of_some, thread, namespace in _of_namespaces(writes, map(_place, rows)):
        statement = select(writes.c.checkpoint_id, *columns).where(of_some)
        for row in connection.execute(statement):
            found.setdefault((thread, namespace, row[0]), []).append(row[1:])
    return found


def _of_namespaces(
    table: Table, places: Iterable[_Place]
) -> Iterator[tuple[ColumnElement[bool], int, str]]:
    """Yield what matches the rows of checkpoints, with thread and namespace.

    One namespace at a time: an index leads to them only if all but the ID is given.
    """
    grouped: dict[tuple[int, str], list[str]] = {}
    for thread, namespace, checkpoint_id in places:
        grouped.setdefault((thread, namespace), []).append(checkpoint_id)
    for (thread, namespace), ids in grouped.items():
        of_some = and_(
            table.c.thread == thread,
            table.c.checkpoint_ns == namespace,
            table.c.checkpoint_id.in_(ids),
        )
        yield of_some, thread, namespace
