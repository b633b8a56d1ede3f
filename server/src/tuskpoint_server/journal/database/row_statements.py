"""Statements that write rows of threads, and that read the rows that decide a change."""

from __future__ import annotations

from sqlalchemy import and_, bindparam, select, update
from sqlalchemy.dialects.postgresql import Insert

from ...core.model import Lineage
from ..sql.schema import changes, checkpoints, contents, writes
from ..sql.statements import (
    Statement,
    insert_rows,
    of_checkpoint,
    of_namespace,
    put_rows,
)
from .pending_writes import StoredWrite
from .thread_rows import KNOWN

CHECKPOINT_COLUMNS = tuple(column.name for column in checkpoints.columns if column.name != "number")
CONTENT_COLUMNS = tuple(column.name for column in contents.columns if column.name != "number")
WRITE_COLUMNS = (
    *("thread", "checkpoint_ns", "checkpoint_id", *StoredWrite._fields[:-1]),
    *("mac", "data"),
)
CHANGE_COLUMNS = tuple(column.name for column in changes.columns)
_KEY = ("thread", "checkpoint_ns", "checkpoint_id")
_FIRST_SAVE = ("tenant", "created_us", *Lineage.__slots__, "held")


def _put_checkpoint() -> Insert:
    statement = insert_rows(checkpoints, CHECKPOINT_COLUMNS)
    new = statement.excluded
    unchanged = (*_KEY, *_FIRST_SAVE)
    replaced: dict[str, object] = {n: new[n] for n in CHECKPOINT_COLUMNS if n not in unchanged}
    return statement.on_conflict_do_update(index_elements=_KEY, set_=replaced)


PUT_CHECKPOINT = Statement(_put_checkpoint(), distinct=True)
PUT_WRITE = Statement(
    put_rows(writes, (*_KEY, "task_id", "idx"), names=WRITE_COLUMNS),
    distinct=True,
    beside=("tenant",),
)


# An evicted value that comes back belongs to the change that brings it back, whose segment contains
# it.
PUT_CONTENT = Statement(
    put_rows(
        contents, ("family", "digest"), names=CONTENT_COLUMNS, where=contents.c.data.is_(None)
    ),
    distinct=True,
    beside=("tenant",),
)
PUT_CHANGE = Statement(insert_rows(changes))
READ_CHECKPOINT = Statement(select(*KNOWN).where(of_checkpoint(checkpoints)))
RENUMBER_WRITE = Statement(
    update(writes)
    .where(
        of_checkpoint(writes),
        writes.c.task_id == bindparam("of_task"),
        writes.c.idx == bindparam("of_idx"),
    )
    .values(seq=bindparam("new_seq"), early_us=None, mac=bindparam("new_mac"))
)
WRITE_NUMBERS = ("new_seq", "new_mac", "of_thread", "of_ns", "of_id", "of_task", "of_idx")
AMENDED = ("label", "seq", "delta_base", "mac")
AMEND = Statement(
    update(checkpoints)
    .where(of_checkpoint(checkpoints))
    .values({name: bindparam(f"new_{name}") for name in AMENDED})
)
SIBLING_WITH_BASE = Statement(
    select(checkpoints.c.checkpoint_id)
    .where(
        of_namespace(checkpoints),
        checkpoints.c.parent_id == bindparam("of_parent"),
        checkpoints.c.delta_base.is_not(None),
    )
    .order_by(checkpoints.c.checkpoint_id.desc())
    .limit(1)
)
RAISED = Statement(
    select(checkpoints.c.checkpoint_id)
    .where(
        of_namespace(checkpoints),
        checkpoints.c.checkpoint_id > bindparam("after"),
        checkpoints.c.checkpoint_id.like(bindparam("ending")),
    )
    .limit(1)
)
_ENDED = and_(
    changes.c.thread == bindparam("of_thread"),
    changes.c.checkpoint_ns == bindparam("of_ns"),
    changes.c.incarnation <= bindparam("ended"),
)
CHANGED = Statement(
    select(changes.c.seq).where(_ENDED, changes.c.checkpoint_id == bindparam("of_id")).limit(1)
)
CHANGED_OR_RAISED = Statement(
    select(changes.c.seq).where(_ENDED, changes.c.checkpoint_id.like(bindparam("ending"))).limit(1)
)
READ_VALUE = Statement(
    select(contents.c.size, contents.c.encoding).where(
        contents.c.family == bindparam("of_family"),
        contents.c.digest == bindparam("of_digest"),
        contents.c.data.is_not(None),
    )
)
