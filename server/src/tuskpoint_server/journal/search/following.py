"""Which changes of the threads' logs the index has to follow next.

A checkpoint is due where its row is the one that a change above the watermark made, and where
the parent went whose text it did without. Of a thread whose log says too little (it was swept
before search was switched on, or search was switched on for the thread) all checkpoints are
gone through by key instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, and_, bindparam, case, exists, func, or_, select, tuple_
from sqlalchemy.engine.interfaces import DBAPICursor

from ...domain.model import CheckpointKey
from ...domain.threads import EventKind
from ..database.schema import changes, checkpoints, threads
from ..database.statements import EMPTY, Statement
from .findable import FINDABLE
from .records import Advance, Backlog, Due, Stretch, Walk
from .searched_values import ROW, SearchedValues

MAX_READ_BYTES = 8 * 1024 * 1024
"""Bytes of stored states that one stretch reads at most, after the first row."""

_parents = checkpoints.alias("parents")
_ITS_PARENT = and_(
    _parents.c.thread == checkpoints.c.thread,
    _parents.c.checkpoint_ns == checkpoints.c.checkpoint_ns,
    _parents.c.checkpoint_id == checkpoints.c.parent_id,
)
_UNINDEXED = threads.c.unindexed_since_us.is_not(None)
_SWEPT = threads.c.compacted_seq > threads.c.indexed_seq
_LOG = (
    threads.c.number,
    threads.c.tenant,
    threads.c.thread_id,
    threads.c.family,
    threads.c.indexed_seq,
    threads.c.seq,
    FINDABLE,
    _SWEPT,
)
_LOGS = Statement(
    select(*_LOG)
    .where(_UNINDEXED, threads.c.number != bindparam("but"))
    .order_by(threads.c.unindexed_since_us, threads.c.number)
    .limit(bindparam("max_rows"))
)
_LOG_OF = Statement(select(*_LOG).where(threads.c.number == bindparam("of_thread")))
_CHECKPOINT = (
    checkpoints.c.number,
    checkpoints.c.checkpoint_ns,
    checkpoints.c.checkpoint_id,
    checkpoints.c.seq,
    *(checkpoints.c[name] for name in ROW),
    _parents.c.state,
)
_STATE = -5
"""Where a checkpoint's state stands in a row that ends with `_CHECKPOINT`."""

_ITS_ROW = and_(
    checkpoints.c.thread == changes.c.thread,
    checkpoints.c.checkpoint_ns == changes.c.checkpoint_ns,
    checkpoints.c.checkpoint_id == changes.c.checkpoint_id,
    checkpoints.c.seq == changes.c.seq,
)
_ABOVE = and_(changes.c.thread == threads.c.number, changes.c.seq > threads.c.indexed_seq)
_CHANGES = Statement(
    select(threads.c.number, changes.c.seq, changes.c.kind, *_CHECKPOINT)
    .select_from(
        threads.join(changes, _ABOVE)
        .outerjoin(checkpoints, _ITS_ROW)
        .outerjoin(_parents, _ITS_PARENT)
    )
    .where(_UNINDEXED, threads.c.number != bindparam("but"), FINDABLE, ~_SWEPT)
    .order_by(threads.c.unindexed_since_us, threads.c.number, changes.c.seq)
)
_BY_KEY = Statement(
    select(*_CHECKPOINT)
    .select_from(checkpoints.outerjoin(_parents, _ITS_PARENT))
    .where(
        checkpoints.c.thread == bindparam("of_thread"),
        tuple_(checkpoints.c.checkpoint_ns, checkpoints.c.checkpoint_id)
        > tuple_(bindparam("after_ns"), bindparam("after_id")),
    )
    .order_by(checkpoints.c.checkpoint_ns, checkpoints.c.checkpoint_id)
)
_ORPHANS = Statement(
    select(*_CHECKPOINT)
    .select_from(checkpoints.outerjoin(_parents, _ITS_PARENT))
    .where(
        checkpoints.c.thread == bindparam("of_thread"),
        checkpoints.c.parent_id != EMPTY,
        _parents.c.number.is_(None),
    )
)
# So spelled, no index is asked for it: few threads are behind, and many may be the tenant's.
_TENANT = func.coalesce(threads.c.tenant, EMPTY)
_NOW = Statement(
    select(threads.c.number, threads.c.seq).where(
        _UNINDEXED, bindparam("of_tenant") == _TENANT, FINDABLE
    )
)
_SWITCHED = exists().where(_ABOVE, changes.c.kind == int(EventKind.SEARCHABLE_SET))
_WALKED = or_(_SWEPT, _SWITCHED)
_CHANGED = (
    select(func.count())
    .select_from(changes.join(checkpoints, _ITS_ROW))
    .where(_ABOVE)
    .correlate(threads)
    .scalar_subquery()
)
_LACKING = case((_WALKED, threads.c.checkpoint_count), else_=_CHANGED)
_BACKLOG = Statement(
    select(_TENANT, func.sum(_LACKING), func.min(threads.c.unindexed_since_us))
    .where(_UNINDEXED, FINDABLE)
    .group_by(_TENANT)
)


@dataclass(frozen=True, slots=True)
class _Log:
    """A thread that has changes for the index; fields as `_LOG`."""

    number: int
    tenant: str
    thread_id: str
    family: int
    indexed_seq: int
    seq: int
    findable: bool
    swept: bool

    def advance(self, through: int, walk: Walk | None = None) -> Advance:
        return Advance(self.number, self.tenant, self.thread_id, self.indexed_seq, through, walk)


@dataclass(slots=True)
class _Changes:
    """Rows of `_CHANGES` by thread; `cut`: thread of which there are more, 0 if none."""

    rows: dict[int, list[Sequence[Any]]] = field(default_factory=dict)
    cut: int = 0


def stretch(connection: Connection, limit: int, walking: tuple[int, Walk] | None) -> Stretch:
    """Return the next changes that the index has to know of, oldest first.

    Args:
        connection: In a transaction.
        limit: About how many changes to read at most.
        walking: A thread that is being gone through by key, by number.
    """
    but = walking[0] if walking is not None else 0
    logs = [_log(row) for row in _LOGS.run(connection, but=but, max_rows=limit).fetchall()]
    found = _changes(connection, but, limit)
    searched = SearchedValues(connection)
    advances: list[Advance] = []
    complete = len(logs) < limit and not found.cut
    walked = _log(_LOG_OF.run(connection, of_thread=but).fetchone()) if walking else None
    for log in logs:
        rows = found.rows.get(log.number, [])
        if not log.findable:
            advances.append(log.advance(log.seq))
        elif log.swept or any(row[2] == EventKind.SEARCHABLE_SET for row in rows):
            complete = False
            walked = walked or log
        elif log.number == found.cut:
            advances.append(log.advance(rows[-1][1] if rows else log.indexed_seq))
        else:
            advances.append(log.advance(log.seq))
        if advances and advances[-1].thread == log.number:
            _add(connection, searched, log, rows)
        if log.number == found.cut:
            break
    if walked is not None:
        walk = walking[1] if walking is not None else Walk(walked.seq)
        left = limit - sum(map(len, found.rows.values()))
        advances.append(_walk(connection, searched, walked, walk, max(left, limit // 4, 1)))
        complete = False
    return Stretch(tuple(searched.due()), tuple(advances), complete)


def _add(
    connection: Connection, searched: SearchedValues, log: _Log, rows: Sequence[Sequence[Any]]
) -> None:
    """Note what is due of a thread because of its changes."""
    found = {row[3]: row[3:] for row in rows if row[3] is not None}
    if any(row[2] == EventKind.CHECKPOINTS_DELETED for row in rows):
        orphans = _ORPHANS.run(connection, of_thread=log.number).fetchall()
        found |= {row[0]: row for row in orphans}
    for row in found.values():
        searched.add(_due(log, row), log.family, row[4:])


def now(connection: Connection, tenant: str) -> dict[int, int]:
    """Return the threads of a tenant that the index is behind of, each with its last change."""
    return dict(_NOW.run(connection, of_tenant=tenant).fetchall())


def backlog(connection: Connection) -> list[Backlog]:
    """Return what is not indexed, by tenant; tenants that lack nothing are left out."""
    return [Backlog(*row) for row in _BACKLOG.run(connection).fetchall()]


def _log(row: Any) -> _Log:
    number, tenant, thread_id, family, indexed_seq, seq, findable, swept = row
    return _Log(number, tenant, thread_id, family, indexed_seq, seq, bool(findable), bool(swept))


def _changes(connection: Connection, but: int, limit: int) -> _Changes:
    found = _Changes()
    rows, cut = _some(_CHANGES.run(connection, but=but), limit)
    for row in rows:
        found.rows.setdefault(row[0], []).append(row)
    if cut is not None:
        found.cut = cut[0]
    return found


def _some(cursor: DBAPICursor, limit: int) -> tuple[list[Sequence[Any]], Sequence[Any] | None]:
    """Return rows that end with the states of a checkpoint and its parent, and the next one.

    There are at most `limit`, and fewer if they take `MAX_READ_BYTES`.
    """
    rows: list[Sequence[Any]] = []
    size = 0
    while (row := cursor.fetchone()) is not None:
        if len(rows) == limit or size > MAX_READ_BYTES:
            break
        rows.append(row)
        size += len(row[_STATE] or b"") + len(row[-1] or b"")
    cursor.close()
    return rows, row


def _due(log: _Log, row: Sequence[Any]) -> Due:
    return Due(
        number=row[0],
        thread=log.number,
        tenant=log.tenant,
        key=CheckpointKey(log.thread_id, row[1], row[2]),
        seq=row[3],
        summary=row[4],
    )


def _walk(
    connection: Connection, searched: SearchedValues, log: _Log, walk: Walk, limit: int
) -> Advance:
    """Go on through a thread's checkpoints by key."""
    if not log.findable:
        return log.advance(walk.through, Walk(walk.through, walk.after, done=True))
    after = walk.after
    cursor = _BY_KEY.run(connection, of_thread=log.number, after_ns=after[0], after_id=after[1])
    rows, cut = _some(cursor, limit)
    for row in rows:
        searched.add(_due(log, row), log.family, row[4:])
        after = (row[1], row[2])
    done = cut is None
    through = walk.through if done else log.indexed_seq
    return log.advance(through, Walk(walk.through, after, done))
