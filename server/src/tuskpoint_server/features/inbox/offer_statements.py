"""Statements on offers of hand-offs."""

from __future__ import annotations

from sqlalchemy import and_, bindparam, exists, select

from ...core.threads import INBOX, INBOX_END
from ...journal.sql.schema import changes, checkpoints, threads
from ...journal.sql.statements import EMPTY, LISTED, Statement, of_thread
from .offers import HandoffState

SWEPT_AT_ONCE = 500

C, T = checkpoints.c, threads.c
ITS_THREAD = T.number == C.thread
IN_INBOX = and_(T.thread_id >= INBOX, T.thread_id < INBOX_END, C.checkpoint_ns == EMPTY)
FIND = Statement(
    select(C.number)
    .join(threads, ITS_THREAD)
    .where(C.tenant == bindparam("of_tenant"), C.checkpoint_id == bindparam("of_id"), IN_INBOX)
)
OF_THREAD = Statement(
    select(T.thread_id, C.checkpoint_id)
    .join(threads, ITS_THREAD)
    .where(
        C.tenant == bindparam("of_tenant"),
        C.run_id == bindparam("of_source"),
        C.run_id != EMPTY,
        C.label == HandoffState.OFFERED.name,
        T.thread_id == bindparam("of_inbox"),
        IN_INBOX,
    )
    .order_by(C.checkpoint_id)
)
READ = Statement(
    select(C.number, T.thread_id, C.checkpoint_id, C.metadata)
    .join(threads, ITS_THREAD)
    .where(C.number.in_(LISTED))
)
_OLD = and_(C.checkpoint_ns == EMPTY, C.checkpoint_id < bindparam("before_id"))
OLD_INBOXES = Statement(
    select(T.tenant, T.thread_id, T.number).where(
        T.thread_id >= INBOX,
        T.thread_id < INBOX_END,
        exists().where(C.thread == T.number, _OLD),
    )
)
OLD_OFFERS = Statement(
    select(C.number, C.checkpoint_id)
    .where(of_thread(checkpoints), _OLD, C.checkpoint_id > bindparam("after_id"))
    .order_by(C.checkpoint_id)
    .limit(SWEPT_AT_ONCE)
)
INBOXES = Statement(
    select(T.thread_id, T.number).where(
        T.tenant == bindparam("of_tenant"), T.thread_id >= INBOX, T.thread_id < INBOX_END
    )
)
OF_INBOX = Statement(select(C.number).where(of_thread(checkpoints), C.checkpoint_ns == EMPTY))
NEWS = Statement(
    select(changes.c.seq, changes.c.kind, changes.c.checkpoint_id)
    .where(of_thread(changes), changes.c.seq > bindparam("after"))
    .order_by(changes.c.seq)
    .limit(bindparam("max_rows"))
)
KEPT = Statement(
    select(C.checkpoint_id).where(
        of_thread(checkpoints), C.checkpoint_ns == EMPTY, C.checkpoint_id.in_(LISTED)
    )
)
BY_ID = Statement(
    select(C.number).where(
        of_thread(checkpoints), C.checkpoint_ns == EMPTY, C.checkpoint_id.in_(LISTED)
    )
)
