"""Finds checkpoints whose rows are missing, or older than the log's last save of them.

One commit writes the row of a checkpoint and the change that saves it, which has the same number.
"""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, exists, func, or_, select

from ...core.threads import EventKind
from ..database.thread_rows import Place, ThreadRow
from ..sql.schema import changes, checkpoints, removed
from ..sql.statements import Statement, of_thread, same_checkpoint

_saved = (
    select(
        *(changes.c[name] for name in ("thread", "checkpoint_ns", "checkpoint_id")),
        func.max(changes.c.seq).label("seq"),
    )
    .where(
        of_thread(changes),
        changes.c.seq > bindparam("after"),
        changes.c.seq <= bindparam("through"),
        changes.c.incarnation == bindparam("of_incarnation"),
        or_(
            changes.c.kind == int(EventKind.CHECKPOINT_SAVED),
            changes.c.kind == int(EventKind.LABEL_SET),
        ),
    )
    .group_by(changes.c.thread, changes.c.checkpoint_ns, changes.c.checkpoint_id)
    .subquery()
)
_LOST = Statement(
    select(_saved.c.checkpoint_ns, _saved.c.checkpoint_id, checkpoints.c.seq)
    .select_from(_saved.outerjoin(checkpoints, same_checkpoint(checkpoints, _saved)))
    .where(
        or_(checkpoints.c.seq.is_(None), checkpoints.c.seq < _saved.c.seq),
        ~exists().where(same_checkpoint(removed, _saved)),
    )
    .limit(bindparam("most"))
)


def lost_rows(
    connection: Connection, thread: ThreadRow, through: int, most: int
) -> list[tuple[Place, bool]]:
    """Return checkpoints whose rows are missing or older, each with whether a row exists.

    Only changes above the watermark of the thread and up to `through` are checked.
    """
    parameters = {"of_thread": thread.number, "of_incarnation": thread.incarnation}
    between = {"after": thread.certified_seq, "through": through}
    rows = _LOST.run(connection, **parameters, **between, most=most).fetchall()
    return [((checkpoint_ns, name), seq is not None) for checkpoint_ns, name, seq in rows]
