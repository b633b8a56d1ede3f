"""Checkpoints that search may find, and changes of the logs that the index has to follow.

A checkpoint is due if a change above the watermark wrote its row or brought an interrupt, or if the
parent was deleted whose text the checkpoint's document left out. If the log of a thread is not
sufficient (it was swept before search was switched on, or search was switched on for the thread), a
walk visits all checkpoints of the thread by key instead.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from sqlalchemy import (
    Connection,
    Text,
    and_,
    bindparam,
    case,
    cast,
    exists,
    func,
    literal_column,
    or_,
    select,
    tuple_,
)

from ..core.model import CheckpointKey
from ..core.threads import INBOX, INBOX_END, INTERRUPT, SNAPSHOTS, SNAPSHOTS_END, EventKind
from ..journal.sql.schema import changes, checkpoints, documents, memories, threads, vectors, writes
from ..journal.sql.statements import (
    EMPTY,
    LISTED,
    Answer,
    SqlRow,
    Statement,
    of_namespace,
    outside_reserved,
    same_checkpoint,
)
from ..journal.values.integrity import damaged_rows
from .searched_values import Document, ReadCheckpoint, with_values

_log = logging.getLogger(__name__)

# most bytes of stored states that one stretch reads after the first row
MAX_READ_BYTES = 8 * 1024 * 1024
C, D, L, M = checkpoints.c, documents.c, changes.c, memories.c  # short names, as in SQL
T, V, W = threads.c, vectors.c, writes.c

# `coalesce` prevents the use of an index: with the alternatives first, SQLite would read
# everything.
_NAME = func.coalesce(T.thread_id, EMPTY)

# condition that the checkpoints of a thread are indexed: users' threads, and items of stores
INDEXABLE = and_(
    T.deleted.is_(False),
    T.unsearchable.is_(False),
    or_(_NAME < SNAPSHOTS, _NAME >= SNAPSHOTS_END),
    or_(_NAME < INBOX, _NAME >= INBOX_END),
)
# condition that the checkpoints of a thread may be found
FINDABLE = and_(INDEXABLE, outside_reserved(_NAME))
ITS_THREAD = T.number == C.thread
ITS_DOCUMENT = D.number == C.number
ITS_VECTOR = and_(
    V.thread == C.thread, V.checkpoint_ns == C.checkpoint_ns, V.checkpoint_id == C.checkpoint_id
)
DOCUMENT_BELONGS = exists().where(ITS_DOCUMENT, ITS_THREAD, INDEXABLE)
VECTOR_BELONGS = exists().where(ITS_VECTOR, ITS_THREAD, INDEXABLE)
_parents = checkpoints.alias("parents")
_ITS_PARENT = and_(
    _parents.c.thread == C.thread,
    _parents.c.checkpoint_ns == C.checkpoint_ns,
    _parents.c.checkpoint_id == C.parent_id,
)
_UNINDEXED = T.unindexed_since_us.is_not(None)
_SWEPT = T.compacted_seq > T.indexed_seq
# Skipped threads are one text, ` number-seq number-seq `: lists of each length would need a
# statement each.
_VERSION = cast(T.number, Text) + literal_column("'-'", Text) + cast(T.seq, Text)
_NOT_SKIPPED = bindparam("skipped", type_=Text).not_like(
    literal_column("'% '", Text) + _VERSION + literal_column("' %'", Text)
)
_LOG = (T.number, T.tenant, T.thread_id, T.family, T.indexed_seq, T.seq, INDEXABLE, _SWEPT)
_LOGS = Statement(
    select(*_LOG)
    .where(_UNINDEXED, T.number != bindparam("but"), _NOT_SKIPPED)
    .order_by(T.unindexed_since_us, T.number)
    .limit(bindparam("max_rows"))
)
_LOG_OF = Statement(select(*_LOG).where(T.number == bindparam("of_thread")))
_KEY = (C.number, C.checkpoint_ns, C.checkpoint_id)
_CHECKPOINT = (
    *(*_KEY, C.seq, C.summary, C.label, C.state, C.delta_channels),
    *(_parents.c.number, _parents.c.state),
)
_STATE, _BEFORE = -4, -1  # positions of the states in a row that ends with `_CHECKPOINT`
_IS_QUESTION = W.channel == literal_column(f"'{INTERRUPT}'")
_SAVED_WRITES = L.kind == literal_column(str(int(EventKind.WRITES_SAVED)))
_ITS_CHECKPOINT = and_(
    C.thread == L.thread,
    C.checkpoint_ns == L.checkpoint_ns,
    C.checkpoint_id == L.checkpoint_id,
)
_ITS_ROW = and_(_ITS_CHECKPOINT, C.seq == L.seq)
# Changes that brought interrupts are one text too, ` number-seq number-seq `.
_ASKED = bindparam("asked", type_=Text).like(
    literal_column("'% '", Text)
    + cast(L.thread, Text)
    + literal_column("'-'", Text)
    + cast(L.seq, Text)
    + literal_column("' %'", Text)
)
_ABOVE = and_(L.thread == T.number, L.seq > T.indexed_seq)
_IN_LOGS = (_UNINDEXED, T.number != bindparam("but"), _NOT_SKIPPED, INDEXABLE, ~_SWEPT)
_IN_ORDER = (T.unindexed_since_us, T.number, L.seq)
_CHANGES = Statement(
    select(T.number, L.seq, L.kind, *_CHECKPOINT)
    .select_from(
        threads.join(changes, _ABOVE)
        .outerjoin(checkpoints, and_(_ITS_CHECKPOINT, or_(C.seq == L.seq, _ASKED)))
        .outerjoin(_parents, _ITS_PARENT)
    )
    .where(*_IN_LOGS)
    .order_by(*_IN_ORDER)
)
_CHANGED_PLACES = Statement(
    select(T.number, L.checkpoint_ns, L.checkpoint_id, L.seq, L.kind)
    .select_from(threads.join(changes, _ABOVE))
    .where(*_IN_LOGS)
    .order_by(*_IN_ORDER)
    .limit(bindparam("max_rows"))
)
_QUESTIONS = Statement(
    select(W.seq).where(of_namespace(writes), W.checkpoint_id.in_(LISTED), _IS_QUESTION)
)
_OF_THREAD = (
    select(*_CHECKPOINT)
    .select_from(checkpoints.outerjoin(_parents, _ITS_PARENT))
    .where(C.thread == bindparam("of_thread"))
)
_BY_KEY = Statement(
    _OF_THREAD.where(
        tuple_(C.checkpoint_ns, C.checkpoint_id)
        > tuple_(bindparam("after_ns"), bindparam("after_id"))
    ).order_by(C.checkpoint_ns, C.checkpoint_id)
)
_ORPHANS = Statement(_OF_THREAD.where(C.parent_id != EMPTY, _parents.c.number.is_(None)))
# `coalesce` prevents the use of an index: few threads are behind, and the tenant may have many.
_TENANT = func.coalesce(T.tenant, EMPTY)
NOW = Statement(
    select(T.number, T.seq).where(_UNINDEXED, bindparam("of_tenant") == _TENANT, INDEXABLE)
)
_INDEXED = Statement(select(T.number, T.indexed_seq).where(T.number.in_(LISTED)))
_SWITCHED = exists().where(_ABOVE, L.kind == int(EventKind.SEARCHABLE_SET))
_CHANGED = (
    select(func.count())
    .select_from(changes.join(checkpoints, _ITS_ROW))
    .where(_ABOVE)
    .correlate(threads)
    .scalar_subquery()
)
# For each checkpoint with new writes, the writes are read only once.
_ASKING = (
    select(func.count())
    .select_from(checkpoints)
    .where(
        ITS_THREAD,
        tuple_(C.checkpoint_ns, C.checkpoint_id).in_(
            select(L.checkpoint_ns, L.checkpoint_id).where(_ABOVE, _SAVED_WRITES).correlate(threads)
        ),
        exists().where(same_checkpoint(writes, checkpoints), _IS_QUESTION, W.seq > T.indexed_seq),
    )
    .correlate(threads)
    .scalar_subquery()
)
_LACKING = case((or_(_SWEPT, _SWITCHED), T.checkpoint_count), else_=_CHANGED + _ASKING)
_BACKLOG = Statement(
    select(_TENANT, func.sum(_LACKING), func.min(T.unindexed_since_us))
    .where(_UNINDEXED, INDEXABLE)
    .group_by(_TENANT)
)


@dataclass(frozen=True, slots=True)
class Walk:
    """A thread, by number, that is visited by key because its log is not sufficient."""

    thread: int
    through: int  # all changes up to this one are indexed after the walk
    # namespace and ID of the last visited checkpoint; `None`: all are visited
    after: tuple[str, str] | None = ("", "")


@dataclass(frozen=True, slots=True)
class Advance:
    """Progress of a thread's index with a batch."""

    thread: int
    tenant: str
    thread_id: str
    before: int  # watermark when the thread was read
    through: int  # watermark after the batch is stored
    seq: int  # last change when the thread was read


@dataclass(frozen=True, slots=True)
class Stretch:
    """Changes that the index has to follow."""

    due: tuple[Document, ...] = ()  # checkpoints to index
    advances: tuple[Advance, ...] = ()  # progress of the threads
    complete: bool = True  # whether no thread has further changes
    walk: Walk | None = None  # walk through a thread, whose watermark moves at the end of the walk


class IndexBacklog(NamedTuple):
    """Unindexed checkpoints of a tenant: their number, and the time of the oldest."""

    tenant: str
    checkpoints: int
    since_us: int


class _Log(NamedTuple):
    number: int
    tenant: str
    thread_id: str
    family: int
    indexed_seq: int
    seq: int
    indexable: bool
    swept: bool

    def advance(self, through: int) -> Advance:
        thread = (self.number, self.tenant, self.thread_id)
        return Advance(*thread, self.indexed_seq, through, self.seq)

    def read(self, row: SqlRow) -> ReadCheckpoint:
        number, checkpoint_ns, checkpoint_id, seq, summary, label, *read = row
        key = CheckpointKey(self.thread_id, checkpoint_ns, checkpoint_id)
        document = Document(number, self.number, self.tenant, key, seq, summary, label)
        return ReadCheckpoint(document, self.family, *read)


def stretch(
    connection: Connection, limit: int, walk: Walk | None, skipped: Mapping[int, int]
) -> Stretch:
    """Return the next changes that the index has to follow, oldest first.

    `skipped` maps the numbers of threads that are left out to their last change; further changes
    end the skipping.
    """
    but = walk.thread if walk is not None else 0
    parameters = {
        "but": but,
        "skipped": "".join(f" {thread}-{seq} " for thread, seq in skipped.items()),
    }
    logs = list(map(_Log._make, _LOGS.run(connection, **parameters, max_rows=limit).fetchall()))
    asking = _changes_that_ask(connection, limit, parameters)
    changed, next_row = _read_rows(_CHANGES.run(connection, **parameters, asked=asking), limit)
    by_thread: dict[int, list[SqlRow]] = {}
    for row in changed:
        by_thread.setdefault(row[0], []).append(row)
    cut = next_row[0] if next_row is not None else 0
    walked = None
    if walk is not None:
        walked = _Log(*_LOG_OF.run(connection, of_thread=but).fetchall()[0])
    read: list[ReadCheckpoint] = []
    advances: list[Advance] = []
    for log in logs:
        rows = by_thread.get(log.number, [])
        if log.indexable and (log.swept or any(row[2] == EventKind.SEARCHABLE_SET for row in rows)):
            walked = walked or log
        else:
            through = log.seq
            if log.indexable and log.number == cut:
                through = rows[-1][1] if rows else log.indexed_seq
            advances.append(log.advance(through))
            read += _changed_checkpoints(connection, log, rows)
        if log.number == cut:
            break
    if walked is not None:
        walk, next_checkpoint = walk or Walk(walked.number, walked.seq), None
        if walked.indexable:
            ns, last = walk.after or ("", "")
            cursor = _BY_KEY.run(connection, of_thread=walked.number, after_ns=ns, after_id=last)
            rows, next_checkpoint = _read_rows(cursor, max(limit - len(changed), limit // 4, 1))
            read += map(walked.read, rows)
        # `next_checkpoint` is set only if rows were read.
        after = (rows[-1][1], rows[-1][2]) if next_checkpoint is not None else None
        walk = replace(walk, after=after)
        advances.append(
            walked.advance(walk.through if next_checkpoint is None else walked.indexed_seq)
        )
    complete = len(logs) < limit and not cut and walked is None
    due = with_values(connection, _leave_out_damaged(connection, read))
    return Stretch(tuple(due), tuple(advances), complete, walk)


def _changes_that_ask(connection: Connection, limit: int, parameters: Mapping[str, object]) -> str:
    """Return the next changes that brought an interrupt, in the form that `_CHANGES` expects.

    The writes of each checkpoint are read only once, even if several changes saved writes.
    """
    rows = _CHANGED_PLACES.run(connection, **parameters, max_rows=limit + 1).fetchall()
    saving: dict[tuple[int, str], dict[str, None]] = {}
    seqs: dict[int, set[int]] = {}
    for number, checkpoint_ns, checkpoint_id, seq, kind in rows:
        if kind == EventKind.WRITES_SAVED:
            saving.setdefault((number, checkpoint_ns), {})[checkpoint_id] = None
            seqs.setdefault(number, set()).add(seq)
    answers = [
        (number, _QUESTIONS.run_listed(connection, ids, of_thread=number, of_ns=checkpoint_ns))
        for (number, checkpoint_ns), ids in saving.items()
    ]
    asking = {
        (number, seq) for number, answer in answers for (seq,) in answer if seq in seqs[number]
    }
    return "".join(f" {number}-{seq} " for number, seq in sorted(asking))


def _changed_checkpoints(
    connection: Connection, log: _Log, rows: Sequence[SqlRow]
) -> list[ReadCheckpoint]:
    by_number = {row[3]: row[3:] for row in rows if row[3] is not None}
    if any(row[2] == EventKind.CHECKPOINTS_DELETED for row in rows):
        orphans = _ORPHANS.run(connection, of_thread=log.number).fetchall()
        by_number |= {row[0]: row for row in orphans}
    return list(map(log.read, by_number.values()))


def _leave_out_damaged(
    connection: Connection, read: Sequence[ReadCheckpoint]
) -> list[ReadCheckpoint]:
    """Leave out checkpoints with a damaged row, and the states of parents with a damaged row."""
    numbers = {checkpoint.due.number for checkpoint in read}
    numbers |= {checkpoint.parent for checkpoint in read if checkpoint.parent is not None}
    damaged = damaged_rows(connection, numbers)
    for refusal in damaged.values():
        # damage of a whole thread is reported by the code that stores the batch
        if refusal.metadata["checkpoint_id"]:
            _log.error("not indexed: %s", refusal)
    return [
        checkpoint if checkpoint.parent not in damaged else checkpoint._replace(before=None)
        for checkpoint in read
        if checkpoint.due.number not in damaged
    ]


def _read_rows(cursor: Answer, limit: int) -> tuple[list[SqlRow], SqlRow | None]:
    """Return at most `limit` rows, fewer above `MAX_READ_BYTES` of states, and the next row."""
    rows: list[SqlRow] = []
    size = 0
    while (row := cursor.fetchone()) is not None:
        if len(rows) == limit or size > MAX_READ_BYTES:
            break
        rows.append(row)
        size += len(row[_STATE] or b"") + len(row[_BEFORE] or b"")
    cursor.close()
    return rows, row


def backlog(connection: Connection) -> list[IndexBacklog]:
    """Return the unindexed checkpoints by tenant; leave out tenants without any."""
    return [IndexBacklog(*row) for row in _BACKLOG.run(connection).fetchall()]


def has_reached(connection: Connection, wanted: Mapping[int, int]) -> bool:
    """Return whether the index has reached a given change of each thread, by thread number."""
    indexed: dict[int, int] = dict(_INDEXED.run_listed(connection, wanted))
    return all(indexed.get(thread, seq) >= seq for thread, seq in wanted.items())
