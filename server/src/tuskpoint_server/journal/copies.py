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
from ..domain.lineage import EventKind
from ..domain.model import CheckpointKey
from . import answers, events, evicting, removals, threads, vectors
from .schema import checkpoints, envelopes, references, writes
from .schema import events as events_table
from .statements import Statement, of_thread
from .threads import ThreadRow

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


def same(table: FromClause, other: FromClause) -> ColumnElement[bool]:
    """Match the rows of two tables that belong to the same checkpoint."""
    names = ("tenant", "thread_id", "checkpoint_ns", "checkpoint_id")
    return and_(*(table.c[name] == other.c[name] for name in names))


STATE_IS_HELD = exists().where(
    same(_full, checkpoints),
    _full.c.ordinal == 0,
    _full.c.revision >= checkpoints.c.content_revision,
)
"""The envelopes of a checkpoint hold its state, if perhaps not all its writes."""

_HELD_THROUGH = (
    select(func.max(_held.c.revision)).where(same(_held, writes)).correlate(writes)
).scalar_subquery()
LATE = and_(
    writes.c.revision > _HELD_THROUGH,
    exists().where(same(checkpoints, writes), STATE_IS_HELD).correlate(writes),
)
"""Writes that the envelopes which are copied lack."""

_CHECKPOINTS = _copy(
    checkpoints,
    {
        "incarnation": bindparam("incarnation", type_=checkpoints.c.incarnation.type),
        "revision": case((exists().where(same(writes, checkpoints), LATE), 2), else_=1),
        "content_revision": literal(1),
        "label_revision": literal(1),
        "packed_revision": literal(0),
        "certified_revision": literal(0),
        "evicted_revision": case(
            (checkpoints.c.evicted_revision != 0, evicting.TAKEN_BACK), else_=0
        ),
        # Each that readers see takes a number; a hidden one shares that of the one before.
        "seq": bindparam("base", type_=checkpoints.c.seq.type)
        + func.sum(case((checkpoints.c.hidden, 0), else_=1)).over(
            order_by=(
                checkpoints.c.seq,
                checkpoints.c.checkpoint_ns,
                checkpoints.c.checkpoint_id,
            ),
            rows=(None, 0),
        ),
        "dirty_us": _NOW,
        "dirty_bytes": func.length(checkpoints.c.state) + func.length(checkpoints.c.metadata),
        "unindexed_us": _NOW,
    },
)
_REFERENCES = _copy(references, {})
_WRITES = _copy(writes, {"revision": case((writes.c.revision == 0, 0), (LATE, 2), else_=1)})
_ENVELOPES = _copy(
    envelopes,
    {"revision": literal(1)},
    exists().where(same(checkpoints, envelopes), STATE_IS_HELD),
)
_COUNT = Statement(
    select(func.count()).where(of_thread(checkpoints), checkpoints.c.hidden.is_(False))
)
_SAVED = {
    "kind": literal(int(EventKind.CHECKPOINT_SAVED)),
    "deleted": literal(0),
    "created_us": _NOW,
}
_TELL = Statement(
    insert(events_table).from_select(
        [column.name for column in events_table.columns],
        select(
            *(
                _SAVED[column.name] if column.name in _SAVED else checkpoints.c[column.name]
                for column in events_table.columns
            )
        ).where(of_thread(checkpoints), checkpoints.c.hidden.is_(False)),
    )
)
_EARLY = Statement(
    select(writes.c.checkpoint_ns, writes.c.checkpoint_id)
    .where(of_thread(writes), writes.c.revision == 0)
    .distinct()
    .order_by(writes.c.checkpoint_ns, writes.c.checkpoint_id)
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
    if source == target or (goal is not None and _count(connection, tenant, target)):
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
    visible = _tell(connection, goal, now_us)
    goal.agent_id, goal.state, goal.head_id = origin.agent_id, origin.state, origin.head_id
    goal.unsearchable = origin.unsearchable
    if not goal.unsearchable:
        vectors.copy_thread(connection, tenant, source, target)
    threads.store(connection, goal, now_us)
    answers.keep_answer(
        connection, tenant, request_id, METHOD, fingerprint, b"%d" % visible, now_us
    )
    return visible


def _tell(connection: Connection, goal: ThreadRow, now_us: int) -> int:
    """Record what was copied; return the number of checkpoints that readers see.

    Of writes that wait for their checkpoint, each checkpoint takes a number too.
    """
    of = {"of_tenant": goal.tenant, "of_thread": goal.thread_id}
    visible = _count(connection, goal.tenant, goal.thread_id)
    _TELL.run(connection, **of, now_us=now_us)
    goal.seq += visible
    for checkpoint_ns, checkpoint_id in _EARLY.run(connection, **of).fetchall():
        goal.seq += 1
        key = CheckpointKey(goal.thread_id, checkpoint_ns, checkpoint_id)
        events.append(connection, goal, EventKind.WRITES_SAVED, now_us, key)
    events.touch(connection, goal.tenant, (goal.thread_id,))
    return visible


def _count(connection: Connection, tenant: str, thread_id: str) -> int:
    """Return the number of checkpoints of a thread that readers see."""
    row = _COUNT.run(connection, of_tenant=tenant, of_thread=thread_id).fetchone()
    return int(row[0]) if row is not None else 0
