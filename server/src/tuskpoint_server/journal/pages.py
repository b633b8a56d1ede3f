"""Reading pages of checkpoints.

First the rows, as many as a page holds; then each kind of content for all of them at
once, and every value once however many of them have it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, Table, and_, func, or_, select

from ..domain.evicted import lacks_values
from ..domain.metadata import matches
from ..domain.model import (
    EVICTED,
    BlobLocation,
    Checkpoint,
    CheckpointKey,
    CheckpointQuery,
    Value,
    View,
    Write,
    write_order,
)
from ..domain.state import decode_channels, decode_state
from . import pending, reads
from .api import ListPosition, Page, ReplayQuery
from .schema import checkpoints, contents, envelopes, placements, writes
from .statements import EMPTY, in_lists, of_users

SCANNED_PER_PAGE = 2000
"""Rows that one page looks at, however few of them match a filter."""

_STATE = len(reads.ENTRY)


def list_page(
    connection: Connection,
    tenant: str,
    query: CheckpointQuery,
    view: View,
    after: ListPosition | None,
    *,
    max_count: int,
    max_bytes: int,
) -> Page:
    """Return the next checkpoints, greatest ID first; see `api.Journal.list_page`."""
    rows, last = _take(
        connection,
        _listing(tenant, query, view, after),
        lambda metadata: matches(metadata, query.filter),
        max_count,
        max_bytes,
    )
    return _page(connection, tenant, view, rows, last, max_bytes)


def replay_page(
    connection: Connection,
    tenant: str,
    query: ReplayQuery,
    view: View,
    after: ListPosition | None,
    *,
    max_count: int,
    max_bytes: int,
) -> Page:
    """Return the next checkpoints of a thread, least first; see `api.Journal.replay_page`."""
    statement = _replay(tenant, query, view, after)
    rows, last = _take(connection, statement, lambda _: True, max_count, max_bytes)
    return _page(connection, tenant, view, rows, last, max_bytes)


# --- rows ------------------------------------------------------------------------------


def _take(
    connection: Connection,
    statement: Select[Any],
    wanted: Callable[[bytes], bool],
    max_count: int,
    max_bytes: int,
) -> tuple[list[Any], ListPosition | None]:
    """Return the first rows whose metadata is wanted, and where to go on if there may be more."""
    taken: list[Any] = []
    size = scanned = 0
    last: ListPosition | None = None
    with connection.execute(statement) as rows:
        for row in rows:
            full = len(taken) >= max_count or (taken and size >= max_bytes)
            if full or scanned == SCANNED_PER_PAGE:
                return taken, last
            scanned += 1
            last = _position(row)
            if wanted(row.metadata):
                taken.append(row)
                size += len(row.metadata) + (len(row[_STATE]) if len(row) > _STATE else 0)
    return taken, None


def _position(row: Any) -> ListPosition:
    return ListPosition(row.checkpoint_id, row.thread_id, row.checkpoint_ns)


def _key(row: Any) -> CheckpointKey:
    return CheckpointKey(row.thread_id, row.checkpoint_ns, row.checkpoint_id)


def _listing(
    tenant: str, query: CheckpointQuery, view: View, after: ListPosition | None
) -> Select[Any]:
    """Return the statement of a page; one row more than a page looks at."""
    table = checkpoints.c
    statement = _rows(tenant, view).order_by(
        table.checkpoint_id.desc(), table.thread_id, table.checkpoint_ns
    )
    if query.thread_id is not None:
        statement = statement.where(table.thread_id == query.thread_id)
    else:
        statement = statement.where(of_users(checkpoints))
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
                table.thread_id > after.thread_id,
                and_(table.thread_id == after.thread_id, table.checkpoint_ns > after.checkpoint_ns),
            ),
        )
    return statement


def _replay(tenant: str, query: ReplayQuery, view: View, after: ListPosition | None) -> Select[Any]:
    """Return the statement of a page of a replay; one row more than a page looks at."""
    table = checkpoints.c
    statement = (
        _rows(tenant, view)
        .where(table.thread_id == query.thread_id)
        .order_by(table.checkpoint_id, table.checkpoint_ns)
    )
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


def _rows(tenant: str, view: View) -> Select[Any]:
    """Return what every listing begins with."""
    return (
        select(*(reads.ENTRY if view is View.ENTRY else reads.CHECKPOINT))
        .where(checkpoints.c.tenant == tenant, checkpoints.c.hidden.is_(False))
        .limit(SCANNED_PER_PAGE + 1)
    )


# --- content ---------------------------------------------------------------------------


def _page(
    connection: Connection,
    tenant: str,
    view: View,
    rows: list[Any],
    last: ListPosition | None,
    max_bytes: int,
) -> Page:
    """Return a page of rows, or of the first of them if their content is too large for one."""
    if view is not View.ENTRY:
        count = _within(rows, _sizes(connection, tenant, rows), max_bytes)
        if count < len(rows):
            rows, last = rows[:count], _position(rows[count - 1])
    places = _places(connection, tenant, [_key(row) for row in rows if row.certified_revision])
    entries = [reads.entry_of(row, tuple(places.get(_key(row), ()))) for row in rows]
    if view is View.ENTRY:
        return Page(tuple(map(Checkpoint, entries)), last)
    values = _values(connection, tenant, rows)
    written = _writes(connection, tenant, [entry.key for entry in entries])
    found = [
        Checkpoint(
            entry,
            decode_state(row[_STATE], values),
            tuple(sorted(written.get(entry.key, ()), key=write_order)),
        )
        for entry, row in zip(entries, rows, strict=True)
    ]
    return Page(tuple(_with_source(connection, tenant, one) for one in found), last)


def _with_source(connection: Connection, tenant: str, found: Checkpoint) -> Checkpoint:
    """Return a checkpoint; of a copy whose values were evicted, with what holds them."""
    if lacks_values(found) and not found.entry.envelopes:
        return replace(found, entry=reads.source(connection, tenant, found.entry.key))
    return found


def _within(rows: Sequence[Any], sizes: Sequence[int], max_bytes: int) -> int:
    """Return how many rows a page holds: it ends once its content has passed the bound."""
    total = 0
    for number, size in enumerate(sizes):
        if number and total >= max_bytes:
            return number
        total += size
    return len(rows)


def _sizes(connection: Connection, tenant: str, rows: Sequence[Any]) -> list[int]:
    """Return about how many bytes each checkpoint takes in memory."""
    keys = [_key(row) for row in rows]
    sizes = dict.fromkeys(keys, 0)
    for of_some, thread_id, namespace in _of_namespaces(writes, tenant, keys):
        statement = (
            select(writes.c.checkpoint_id, func.sum(writes.c.size))
            .where(of_some)
            .group_by(writes.c.checkpoint_id)
        )
        for checkpoint_id, size in connection.execute(statement):
            sizes[CheckpointKey(thread_id, namespace, checkpoint_id)] = int(size)
    for row, key in zip(rows, keys, strict=True):
        sizes[key] += len(row.metadata) + len(row[_STATE])
        sizes[key] += sum(channel.size for channel in decode_channels(row[_STATE]))
    return [sizes[key] for key in keys]


def _values(connection: Connection, tenant: str, rows: Sequence[Any]) -> dict[bytes, Value]:
    """Return the contents of checkpoints by digest, `EVICTED` where they are not here."""
    digests = {
        channel.digest: None
        for row in rows
        for channel in decode_channels(row[_STATE])
        if channel.digest is not None
    }
    found: dict[bytes, Value] = {}
    for some in in_lists(digests):
        statement = select(contents.c.digest, contents.c.type, contents.c.data).where(
            contents.c.tenant == tenant, contents.c.digest.in_(some)
        )
        for digest, kind, data in connection.execute(statement):
            found[digest] = EVICTED if data is None else Value(kind, data)
    return found


def _writes(
    connection: Connection, tenant: str, keys: Sequence[CheckpointKey]
) -> dict[CheckpointKey, list[Write]]:
    """Return the pending writes of checkpoints."""
    found: dict[CheckpointKey, list[Write]] = {}
    for of_some, thread_id, namespace in _of_namespaces(writes, tenant, keys):
        statement = select(writes.c.checkpoint_id, *pending.COLUMNS).where(of_some)
        for row in connection.execute(statement):
            key = CheckpointKey(thread_id, namespace, row[0])
            found.setdefault(key, []).append(pending.write_from(row[1:]))
    return found


def _places(
    connection: Connection, tenant: str, keys: Sequence[CheckpointKey]
) -> dict[CheckpointKey, list[BlobLocation]]:
    """Return where the envelopes of checkpoints lie, the full one first."""
    found: dict[CheckpointKey, list[BlobLocation]] = {}
    for of_some, thread_id, namespace in _of_namespaces(envelopes, tenant, keys):
        statement = (
            select(
                envelopes.c.checkpoint_id,
                placements.c.sha256,
                placements.c.size,
                placements.c.blob_id,
                placements.c.identifier,
            )
            .join(
                placements,
                and_(
                    placements.c.tenant == envelopes.c.tenant,
                    placements.c.sha256 == envelopes.c.sha256,
                ),
            )
            .where(of_some, placements.c.blob_id != EMPTY)
            .order_by(envelopes.c.checkpoint_id, envelopes.c.ordinal)
        )
        for checkpoint_id, *place in connection.execute(statement):
            key = CheckpointKey(thread_id, namespace, checkpoint_id)
            found.setdefault(key, []).append(BlobLocation(*place))
    return found


def _of_namespaces(
    table: Table, tenant: str, keys: Iterable[CheckpointKey]
) -> Iterator[tuple[ColumnElement[bool], str, str]]:
    """Yield what matches the rows of checkpoints, with thread and namespace.

    One namespace at a time: an index leads to them only if all but the ID is given.
    """
    grouped: dict[tuple[str, str], list[str]] = {}
    for key in keys:
        grouped.setdefault((key.thread_id, key.checkpoint_ns), []).append(key.checkpoint_id)
    for (thread_id, namespace), ids in grouped.items():
        of_some = and_(
            table.c.tenant == tenant,
            table.c.thread_id == thread_id,
            table.c.checkpoint_ns == namespace,
            table.c.checkpoint_id.in_(ids),
        )
        yield of_some, thread_id, namespace
