"""Loading one checkpoint: its row, its values, its pending writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, Table, and_, bindparam, func, or_, select

from ...domain.metadata import matches
from ...domain.model import (
    EVICTED,
    BlobLocation,
    Checkpoint,
    CheckpointKey,
    CheckpointQuery,
    Entry,
    Lineage,
    State,
    Value,
    View,
    Write,
    write_order,
)
from ...domain.state import decode_channels, decode_state, lacks_values
from ..database.schema import checkpoints, threads, writes
from ..database.statements import EMPTY, Statement, of_checkpoint, of_users, parameters_of
from . import contents, located

ROW = (
    threads.c.thread_id,
    threads.c.number,
    threads.c.family,
    threads.c.incarnation,
    threads.c.certified_seq,
    checkpoints.c.checkpoint_ns,
    checkpoints.c.checkpoint_id,
    checkpoints.c.seq,
    checkpoints.c.parent_id,
    checkpoints.c.created_us,
    checkpoints.c.metadata,
    checkpoints.c.label,
    checkpoints.c.summary,
    checkpoints.c.forked_from,
    checkpoints.c.rolled_back_from,
    checkpoints.c.adopted_from,
    checkpoints.c.held,
)
"""Columns that an entry is made of; a row that has the state too ends with it."""

STATE = len(ROW)
WRITE = (
    writes.c.task_id,
    writes.c.task_path,
    writes.c.idx,
    writes.c.channel,
    writes.c.type,
    writes.c.encoding,
    writes.c.data,
    writes.c.size,
    writes.c.digest,
    writes.c.seq,
)
"""Columns that a write is made of; the last is its number in the log."""

_HELD, _DATA = ROW.index(checkpoints.c.held), WRITE.index(writes.c.data)


def rows_of(tenant: str, *, with_state: bool) -> Select[Any]:
    """Return what every read of checkpoints of a tenant begins with."""
    columns = (*ROW, checkpoints.c.state) if with_state else ROW
    return (
        select(*columns)
        .join(threads, threads.c.number == checkpoints.c.thread)
        .where(checkpoints.c.tenant == tenant)
    )


_OF_THREAD = (
    select(*ROW, checkpoints.c.state)
    .join(threads, threads.c.number == checkpoints.c.thread)
    .where(
        threads.c.tenant == bindparam("of_tenant"),
        threads.c.thread_id == bindparam("of_thread_id"),
        checkpoints.c.checkpoint_ns == bindparam("of_ns"),
    )
)
_BY_KEY = Statement(_OF_THREAD.where(checkpoints.c.checkpoint_id == bindparam("of_id")))
_LATEST = Statement(_OF_THREAD.order_by(checkpoints.c.checkpoint_id.desc()).limit(1))
_WRITES = Statement(select(*WRITE).where(of_checkpoint(writes)))


def load(connection: Connection, tenant: str, key: CheckpointKey, view: View) -> Checkpoint | None:
    """Return a checkpoint, or `None`; an empty `checkpoint_id` means the latest.

    Where a value was evicted stands `EVICTED`.
    """
    of = {"of_tenant": tenant, "of_thread_id": key.thread_id, "of_ns": key.checkpoint_ns}
    if key.checkpoint_id:
        row = _BY_KEY.run(connection, **of, of_id=key.checkpoint_id).fetchone()
    else:
        row = _LATEST.run(connection, **of).fetchone()
    if row is None:
        return None
    of_row = parameters_of(row[1], row[5], row[6])
    written = _WRITES.run(connection, **of_row).fetchall()
    places = located.of_rows(connection, tenant, [row], [_numbers(row, written)])[0]
    entry = entry_of(row, max(_numbers(row, written)), places)
    if view is View.ENTRY:
        return Checkpoint(entry)
    state = read_state(connection, row[2], row[STATE])
    return with_sources(connection, tenant, row, entry, state, written)


def with_sources(
    connection: Connection,
    tenant: str,
    row: Sequence[Any],
    entry: Entry,
    state: State,
    written: Sequence[Sequence[Any]],
) -> Checkpoint:
    """Return a checkpoint; one that lacks values names the segments that hold them.

    Args:
        connection: In a transaction.
        tenant: The tenant.
        row: Its row of `ROW`.
        entry: The entry of that row.
        state: Its state, `EVICTED` where values are not here.
        written: Rows of `WRITE`.
    """
    found = Checkpoint(entry, state, tuple(sorted(map(_write, written), key=write_order)))
    if not lacks_values(found):
        return found
    evicted = [one.digest for one in state.channels if one.value is EVICTED]
    places = located.of_values(connection, tenant, row[2], [one for one in evicted if one])
    seqs = [write[-1] for write in written if write[_DATA] is None]
    if seqs:
        places += located.of_writes(connection, tenant, row[1], row[_HELD], seqs)
    return replace(found, sources=tuple(dict.fromkeys(places)))


def read_state(connection: Connection, family: int, stored: bytes) -> State:
    """Return the state of a checkpoint with its values, `EVICTED` where they are not here."""
    digests = [channel.digest for channel in decode_channels(stored) if channel.digest is not None]
    return decode_state(stored, contents.read(connection, family, digests))


def _write(row: Sequence[Any]) -> Write:
    task_id, task_path, idx, channel, kind, encoding, data, size, digest, _ = row
    value = contents.stored_value(kind, size, encoding, data)
    return Write(task_id, task_path, idx, channel, value, digest)


def entry_of(
    row: Sequence[Any],
    seq: int,
    places: Sequence[BlobLocation],
    holes: Mapping[str, object] = {},
) -> Entry:
    """Make an entry of a row of `ROW`.

    Args:
        row: The row.
        seq: The checkpoint's last change, its writes' included.
        places: The segments that hold it, its state's first.
        holes: Not empty: something of it cannot be read from the blob store.
    """
    return Entry(
        key=CheckpointKey(row[0], row[5], row[6]),
        parent_id=row[8],
        incarnation=row[3],
        seq=seq,
        certified=seq <= row[4] and bool(places) and not holes,
        created_us=row[9],
        metadata=row[10],
        label=row[11],
        summary=row[12],
        lineage=Lineage(row[13], row[14], row[15]),
        segments=tuple(places),
    )


def _numbers(row: Sequence[Any], written: Sequence[Sequence[Any]]) -> list[int]:
    """Return the numbers of a checkpoint's row and of its writes, the row's first."""
    return [row[7], *(write[-1] for write in written)]


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
