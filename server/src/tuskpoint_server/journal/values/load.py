"""Reading checkpoints: one, or a page of them.

Reads the rows first, then each kind of content for all of them at once, and each value once even
if several of them have it. An evicted value is `EVICTED`, a damaged one a `DamagedValue`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, bindparam, func, or_, select

from tuskpoint.v1.checkpoint_pb2 import CheckpointState

from ...core.errors import Refusal, journal_damaged
from ...core.model import (
    EVICTED,
    AbsentValue,
    BlobLocation,
    Checkpoint,
    CheckpointEntry,
    CheckpointKey,
    CheckpointQuery,
    Lineage,
    View,
    Write,
    write_order,
)
from ...core.state import RawCheckpoint, matches, state_of
from ..database import put_back
from ..database.binding import Binder, binder_of
from ..database.put_back import STORED_THROUGH
from ..database.thread_rows import THREAD, StoredWrite, ThreadRow, find_thread, row_of
from ..sql.schema import checkpoints, threads, writes
from ..sql.statements import (
    EMPTY,
    LISTED,
    Answer,
    SqlRow,
    Statement,
    of_namespace,
    of_users,
    same_checkpoint,
)
from . import contents, segment_refs
from .integrity import check_rows
from .segment_refs import ROW, Row

SCANNED_PER_PAGE = 2000
"""Rows that one page looks at, however few of them match a filter."""


class CheckpointTooLargeError(Exception):
    """A checkpoint has more content than was asked for at most."""


@dataclass(frozen=True, slots=True)
class ListPosition:
    """Position of a listing: past this ID, or at it and past this thread and namespace."""

    checkpoint_id: str
    thread_id: str
    checkpoint_ns: str


@dataclass(frozen=True, slots=True)
class CheckpointPage:
    """Some checkpoints, in the order of their listing; `next` is `None` on the last page.

    `damaged`: why others were left out, or what the thread lacks (`JOURNAL_DAMAGED`).
    """

    checkpoints: tuple[Checkpoint, ...]
    next: ListPosition | None
    damaged: tuple[Refusal, ...] = ()


_WRITTEN_BYTES = (
    select(func.sum(writes.c.size)).where(same_checkpoint(writes, checkpoints)).scalar_subquery()
)
_WHOLE = (*ROW, _WRITTEN_BYTES)
_OF_NAMESPACE = (
    select(*_WHOLE)
    .join(threads, threads.c.number == checkpoints.c.thread)
    .where(
        threads.c.tenant == bindparam("of_tenant"),
        threads.c.thread_id == bindparam("of_thread_id"),
        checkpoints.c.checkpoint_ns == bindparam("of_ns"),
    )
)
_WIDTH = len(_WHOLE)
_BY_KEY = Statement(
    _OF_NAMESPACE.add_columns(STORED_THROUGH).where(
        checkpoints.c.checkpoint_id == bindparam("of_id")
    )
)
_LATEST = Statement(
    _OF_NAMESPACE.add_columns(STORED_THROUGH, *THREAD)
    .order_by(checkpoints.c.checkpoint_id.desc())
    .limit(1)
)
_OF_LISTED = (of_namespace(writes), writes.c.checkpoint_id.in_(LISTED))
_SEQS = Statement(select(writes.c.checkpoint_id, writes.c.seq).where(*_OF_LISTED))
_STORED = (writes.c[name] for name in StoredWrite._fields)
_WRITES = Statement(select(writes.c.checkpoint_id, writes.c.mac, *_STORED).where(*_OF_LISTED))


def load(
    connection: Connection,
    tenant: str,
    key: CheckpointKey,
    view: View,
    max_bytes: int | None = None,
) -> Checkpoint | None:
    """Return a checkpoint, or `None`; an empty `checkpoint_id` means the latest.

    Raises:
        TooLargeError: It has more than `max_bytes` of content, of which nothing was read.
    """
    columns = _find(connection, tenant, key).fetchone()
    if not key.checkpoint_id:
        _check_head(connection, tenant, key, columns)
    if columns is None:
        find_thread(connection, tenant, key.thread_id)  # an older state of it may lack this one
        return None
    binder = binder_of(connection)
    row = Row(*columns[:_WIDTH]).check(binder)
    if _is_older(binder, row, columns[_WIDTH]):
        why = put_back.problem(row.certified_seq, columns[_WIDTH])
        raise journal_damaged(row.thread_id, problem=why)
    if view is View.ENTRY:
        return Checkpoint(_entries(connection, tenant, [row])[0])
    message = CheckpointState.FromString(row.state)
    if max_bytes is not None and _size(row, message) > max_bytes:
        raise CheckpointTooLargeError
    return _whole_checkpoints(connection, tenant, [row], [message])[0]


def load_stored(
    connection: Connection, tenant: str, keys: Sequence[CheckpointKey], max_bytes: int
) -> list[RawCheckpoint | None]:
    """Return checkpoints as they are stored; `None` where `load` has to be called.

    That is, if there is none, if it has more than `max_bytes` of content, if values were evicted or
    are damaged, or if its row is. An empty `checkpoint_id` means the latest.
    """
    results: list[RawCheckpoint | None] = [None] * len(keys)
    small: list[tuple[int, Row, CheckpointState]] = []
    answers = [_find(connection, tenant, key) for key in keys]
    binder = binder_of(connection)
    for index, answer in enumerate(answers):
        if (columns := answer.fetchone()) is not None:
            row = Row(*columns[:_WIDTH])
            if not row.is_bound(binder) or _is_older(binder, row, columns[_WIDTH]):
                continue
            if not keys[index].checkpoint_id and not _is_head(binder, row, columns[_WIDTH + 1 :]):
                continue
            message = CheckpointState.FromString(row.state)
            if _size(row, message) <= max_bytes:
                small.append((index, row, message))
    rows, messages = [item[1] for item in small], [item[2] for item in small]
    whole, _, refused = _stored_checkpoints(connection, tenant, rows, messages)
    for (index, row, _), stored in zip(small, whole, strict=True):
        values = (*stored.values.values(), *(write.value for write in stored.writes))
        if row.place not in refused and not any(isinstance(value, AbsentValue) for value in values):
            results[index] = stored
    return results


def _find(connection: Connection, tenant: str, key: CheckpointKey) -> Answer:
    """Ask for the row of a checkpoint, with the columns of a whole one."""
    parameters = {"of_tenant": tenant, "of_thread_id": key.thread_id, "of_ns": key.checkpoint_ns}
    if key.checkpoint_id:
        return _BY_KEY.run(connection, **parameters, of_id=key.checkpoint_id)
    return _LATEST.run(connection, **parameters)


def _is_older(binder: Binder, row: Row, stored_through: int | None) -> bool:
    """Return whether a row is of an earlier state, to which its thread was put back."""
    return binder.is_complete and put_back.is_older(row.certified_seq, stored_through)


def _is_head(binder: Binder, row: Row, thread: SqlRow) -> bool:
    """Return whether a row is the latest that its thread has, by the thread's own row."""
    if not binder.is_complete:
        return True
    thread_row = row_of(thread)
    if thread_row.binding is None or not binder.is_thread(thread_row.bound, thread_row.binding):
        return False
    return bool(row.checkpoint_ns) or thread_row.head_id == row.checkpoint_id


def _check_head(
    connection: Connection, tenant: str, key: CheckpointKey, columns: SqlRow | None
) -> None:
    """Check that what was found is the latest of its namespace, or that there is none.

    Raises:
        Refusal: `JOURNAL_DAMAGED`.
    """
    binder = binder_of(connection)
    if columns is not None and _is_head(binder, Row(*columns[:_WIDTH]), columns[_WIDTH + 1 :]):
        return
    thread = find_thread(connection, tenant, key.thread_id)  # it may be the damaged row
    if binder.is_complete and thread is not None and thread.head_id and not key.checkpoint_ns:
        stored = Row(*columns[:_WIDTH]).checkpoint_id if columns is not None else ""
        raise _not_latest(key.thread_id, thread.head_id, stored)


def check_latest(
    connection: Connection, thread: ThreadRow, key: CheckpointKey, checkpoint_id: str
) -> None:
    """Check that the ID of the latest checkpoint of a namespace is the one that the thread names.

    Raises:
        Refusal: `JOURNAL_DAMAGED`.
    """
    binder = binder_of(connection)
    if binder.is_complete and not key.checkpoint_ns and checkpoint_id != thread.head_id:
        raise _not_latest(key.thread_id, thread.head_id, checkpoint_id)


def _not_latest(thread_id: str, head_id: str, checkpoint_id: str) -> Refusal:
    problem = "another one is stored as the latest" if checkpoint_id else "it is not stored"
    return journal_damaged(thread_id, "", head_id, problem=problem)


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

    A replay has the least ID first, then the least namespace. A page ends at `max_count`
    checkpoints or when their content passes `max_bytes`, but holds at least one if there is
    one. It may hold fewer than both allow, even none, and still have a `next`.
    """
    columns = ROW if view is View.ENTRY else _WHOLE
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
                size += _size(row, messages[-1])
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
    if view is View.ENTRY:
        listed = list(map(Checkpoint, _entries(connection, tenant, rows)))
    else:
        listed = _whole_checkpoints(connection, tenant, rows, messages, damaged)
    return CheckpointPage(tuple(listed), last, tuple(damaged))


def _missing_rows(
    connection: Connection, tenant: str, query: CheckpointQuery, *, is_last: bool
) -> list[Refusal]:
    """Return why a listing of a thread lacks something, if it does.

    Whether the thread is whole is looked at with the last page of all of it.
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


def entry_of(row: Row, seq: int, places: Sequence[BlobLocation]) -> CheckpointEntry:
    """Make an entry of a row, its last change (its writes included) and its segments."""
    return CheckpointEntry(
        key=CheckpointKey(row.thread_id, row.checkpoint_ns, row.checkpoint_id),
        parent_id=row.parent_id,
        incarnation=row.incarnation,
        seq=seq,
        certified=seq <= row.certified_seq and bool(places),
        created_us=row.created_us,
        metadata=row.metadata,
        label=row.label,
        summary=row.summary,
        lineage=Lineage(row.forked_from, row.rolled_back_from, row.adopted_from),
        segments=tuple(places),
        agent_id=row.agent_id,
    )


def _listing_statement(
    tenant: str,
    query: CheckpointQuery,
    after: ListPosition | None,
    columns: Sequence[Any],
    limit: int,
) -> Select[Any]:
    """Return the statement of a listing or a replay from a position on, of so many at most.

    The checkpoints of one thread are chosen by their keys, from an index that has nothing else, and
    then read: a thread costs what it has, and not what its tenant has.
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


def _size(row: Row, message: CheckpointState) -> int:
    """Return about how many bytes a checkpoint takes in memory."""
    values = sum([channel.size_bytes for channel in message.channels]) + (row.written_bytes or 0)
    return len(row.metadata) + len(row.state) + values


_PlacedWrites = Mapping[tuple[int, str, str], Sequence[StoredWrite]]


def _entries(
    connection: Connection, tenant: str, rows: Sequence[Row], written: _PlacedWrites | None = None
) -> list[CheckpointEntry]:
    """Return the entries of rows; `written`: their writes, where they are at hand."""
    seqs: dict[tuple[int, str, str], list[int]] = defaultdict(list)
    if written is None:
        for place, (seq,) in _of_rows(connection, _SEQS, rows):
            seqs[place].append(seq)
    else:
        seqs.update((place, [write.seq for write in group]) for place, group in written.items())
    numbers = [[row.seq, *seqs[row.place]] for row in rows]
    places = [at.segments for at in segment_refs.of_rows(connection, tenant, rows, numbers)]
    return list(map(entry_of, rows, map(max, numbers), places))


def _whole_checkpoints(
    connection: Connection,
    tenant: str,
    rows: Sequence[Row],
    messages: Sequence[CheckpointState],
    damaged: list[Refusal] | None = None,
) -> list[Checkpoint]:
    """Return checkpoints; `messages` are their states. Evicted values have `sources`.

    Why those with a damaged write are left out is added to `damaged`, or raised without it.
    """
    page: list[Checkpoint] = []
    whole, written, refused = _stored_checkpoints(connection, tenant, rows, messages)
    for row, stored in zip(rows, whole, strict=True):
        if refusal := refused.get(row.place):
            if damaged is None:
                raise refusal
            damaged.append(refusal)
            continue
        state = state_of(stored.state, stored.values)
        evicted = [
            channel.digest
            for channel in state.channels
            if channel.value is EVICTED and channel.digest
        ]
        seqs = [write.seq for write in written[row.place] if write.data is None]
        places: list[BlobLocation] = []
        if evicted:
            places += segment_refs.of_values(connection, tenant, row.family, evicted)
        if seqs:
            places += segment_refs.of_writes(connection, tenant, row.thread, row.held, seqs)
        sources = tuple(dict.fromkeys(places))
        page.append(Checkpoint(stored.entry, state, stored.writes, sources))
    return page


def _stored_checkpoints(
    connection: Connection,
    tenant: str,
    rows: Sequence[Row],
    messages: Sequence[CheckpointState],
) -> tuple[list[RawCheckpoint], _PlacedWrites, dict[tuple[int, str, str], Refusal]]:
    """Return checkpoints of these rows with the values that are here, and their writes.

    Also why some must not be used, by place: a row of a write is damaged.
    """
    digests: dict[int, list[bytes]] = defaultdict(list)
    for row, message in zip(rows, messages, strict=True):
        digests[row.family] += [channel.digest for channel in message.channels if channel.digest]
    reads = {family: contents.ask(connection, family, hashes) for family, hashes in digests.items()}
    written: dict[tuple[int, str, str], list[StoredWrite]] = defaultdict(list)
    having = [row for row in rows if row.written_bytes is not None]
    binder, names = binder_of(connection), {row.thread: row.thread_id for row in having}
    refused: dict[tuple[int, str, str], Refusal] = {}
    for place, (mac, *columns) in _of_rows(connection, _WRITES, having):
        write = StoredWrite(*columns)
        try:
            write.check(binder, names[place[0]], place[0], place[1:], mac)
        except Refusal as refusal:
            refused[place] = refusal
        written[place].append(write)
    values = {family: read() for family, read in reads.items()}
    for family, hashes in digests.items():
        for digest in {*hashes} - values[family].keys():
            values[family][digest] = contents.missing_value(family, digest)
    entries = _entries(connection, tenant, rows, written)
    return (
        [
            RawCheckpoint(entry, message, values[row.family], _writes_of(row, written[row.place]))
            for row, entry, message in zip(rows, entries, messages, strict=True)
        ],
        written,
        refused,
    )


def _writes_of(row: Row, written: Sequence[StoredWrite]) -> tuple[Write, ...]:
    return tuple(sorted((_write(row.thread, write) for write in written), key=write_order))


def _of_rows(
    connection: Connection, statement: Statement, rows: Sequence[Row]
) -> Iterator[tuple[tuple[int, str, str], SqlRow]]:
    """Yield columns of the writes of checkpoints, each with the checkpoint's place.

    One namespace at a time: an index leads to them only if all but the ID is given.
    """
    ids: dict[tuple[int, str], list[str]] = defaultdict(list)
    for row in rows:
        ids[row.place[:2]].append(row.checkpoint_id)
    answers = {
        at: statement.run_listed(connection, checkpoint_ids, of_thread=at[0], of_ns=at[1])
        for at, checkpoint_ids in ids.items()
    }
    for at, answer in answers.items():
        for columns in answer:
            yield (*at, columns[0]), columns[1:]


def _write(thread: int, row: StoredWrite) -> Write:
    value = contents.stored_value(thread, row.digest, row.type, row.size, row.encoding, row.data)
    return Write(row.task_id, row.task_path, row.idx, row.channel, value, row.digest)
