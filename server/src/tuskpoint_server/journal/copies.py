"""Copying a thread, inside the database."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    Table,
    and_,
    bindparam,
    case,
    exists,
    func,
    insert,
    literal,
    select,
)

from ..domain.errors import Reason, Refusal
from . import answers, evicting, removals, threads
from .schema import checkpoints, envelopes, references, writes
from .statements import Statement, of_thread

METHOD = "CopyThread"


def _copy(table: Table, changed: dict[str, Any], *where: ColumnElement[bool]) -> Statement:
    """Return a statement that copies a thread's rows of a table under another thread."""
    changed = {"thread_id": bindparam("target", type_=table.c.thread_id.type), **changed}
    columns = [changed.get(column.name, column) for column in table.columns]
    source = select(*columns).where(of_thread(table), *where)
    return Statement(insert(table).from_select([c.name for c in table.columns], source))


_NOW = bindparam("now_us", type_=checkpoints.c.created_us.type)
_full = envelopes.alias("full_envelopes")
_held = envelopes.alias("held_envelopes")


def _same(table: FromClause, other: FromClause) -> ColumnElement[bool]:
    """Match the rows of two tables that belong to the same checkpoint."""
    names = ("tenant", "thread_id", "checkpoint_ns", "checkpoint_id")
    return and_(*(table.c[name] == other.c[name] for name in names))


_STATE_IS_HELD = exists().where(
    _same(_full, checkpoints),
    _full.c.ordinal == 0,
    _full.c.revision >= checkpoints.c.content_revision,
)
"""The envelopes of a checkpoint hold its state, if perhaps not all its writes."""

_HELD_THROUGH = (
    select(func.max(_held.c.revision)).where(_same(_held, writes)).correlate(writes)
).scalar_subquery()
_LATE = and_(
    writes.c.revision > _HELD_THROUGH,
    exists().where(_same(checkpoints, writes), _STATE_IS_HELD).correlate(writes),
)
"""Writes that the envelopes which are copied lack."""

_CHECKPOINTS = _copy(
    checkpoints,
    {
        "incarnation": bindparam("incarnation", type_=checkpoints.c.incarnation.type),
        "revision": case((exists().where(_same(writes, checkpoints), _LATE), 2), else_=1),
        "content_revision": literal(1),
        "label_revision": literal(1),
        "packed_revision": literal(0),
        "certified_revision": literal(0),
        "evicted_revision": case(
            (checkpoints.c.evicted_revision != 0, evicting.TAKEN_BACK), else_=0
        ),
        "seq": bindparam("base", type_=checkpoints.c.seq.type)
        + func.row_number().over(
            order_by=(
                checkpoints.c.seq,
                checkpoints.c.checkpoint_ns,
                checkpoints.c.checkpoint_id,
            )
        ),
        "dirty_us": _NOW,
        "dirty_bytes": func.length(checkpoints.c.state) + func.length(checkpoints.c.metadata),
    },
)
_REFERENCES = _copy(references, {})
_WRITES = _copy(writes, {"revision": case((writes.c.revision == 0, 0), (_LATE, 2), else_=1)})
_ENVELOPES = _copy(
    envelopes,
    {"revision": literal(1)},
    exists().where(_same(checkpoints, envelopes), _STATE_IS_HELD),
)
_COUNT = Statement(
    select(func.count(), func.count().filter(checkpoints.c.hidden.is_(False))).where(
        of_thread(checkpoints)
    )
)


def copy_thread(
    connection: Connection,
    tenant: str,
    source: str,
    target: str,
    request_id: str,
    now_us: int,
) -> int:
    """Copy all checkpoints of a thread; see `api.Journal.copy_thread`.

    The copies refer to the same contents, and to the same stored envelopes where those
    are up to date, so that nothing needs to be stored on the blob store twice.
    """
    fingerprint = answers.fingerprint_of(METHOD, source, target)
    answered = answers.first_answer(connection, tenant, request_id, METHOD, fingerprint)
    if answered is not None:
        return int(answered)
    origin = threads.lock(connection, tenant, source)
    if origin is None or origin.deleted:
        raise Refusal(Reason.THREAD_NOT_FOUND, thread_id=source)
    goal = threads.lock(connection, tenant, target)
    if source == target or (goal is not None and _count(connection, tenant, target)[0]):
        raise Refusal(Reason.THREAD_EXISTS, thread_id=target)
    if goal is None:
        goal = threads.new_thread(tenant, target, now_us)
    else:
        if goal.deleted:
            removals.drop_early_writes(connection, goal)
        else:
            removals.end_incarnation(connection, goal, now_us)
        goal.begin_next(now_us)
    of = {"of_tenant": tenant, "of_thread": source, "target": target}
    _CHECKPOINTS.run(connection, **of, incarnation=goal.incarnation, base=goal.seq, now_us=now_us)
    _REFERENCES.run(connection, **of)
    _WRITES.run(connection, **of)
    _ENVELOPES.run(connection, **of)
    rows, visible = _count(connection, tenant, target)
    goal.seq += max(rows, 1)
    goal.agent_id, goal.state, goal.head_id = origin.agent_id, origin.state, origin.head_id
    threads.store(connection, goal, now_us)
    answers.keep_answer(
        connection, tenant, request_id, METHOD, fingerprint, b"%d" % visible, now_us
    )
    return visible


def _count(connection: Connection, tenant: str, thread_id: str) -> tuple[int, int]:
    """Return the numbers of all checkpoints of a thread, and of those that readers see."""
    row = _COUNT.run(connection, of_tenant=tenant, of_thread=thread_id).fetchone()
    return (row[0], row[1]) if row is not None else (0, 0)
