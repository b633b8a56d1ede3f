"""How long threads are kept: which are past it, and deleting these."""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, select

from ...domain.threads import Removed
from ..database.overlay import Batch
from ..database.schema import threads
from ..database.statements import Statement
from .delete import delete_thread

_PAST = Statement(
    select(threads.c.tenant, threads.c.thread_id)
    .where(threads.c.expire_us.is_not(None), threads.c.expire_us <= bindparam("now_us"))
    .order_by(threads.c.expire_us)
    .limit(bindparam("max_rows"))
)


def past(connection: Connection, now_us: int, limit: int) -> list[tuple[str, str]]:
    """Return threads that are past their retention, the longest past first.

    Args:
        connection: In a transaction.
        now_us: Time.
        limit: At most so many.

    Returns:
        Tenant and thread.
    """
    rows = _PAST.run(connection, now_us=now_us, max_rows=limit).fetchall()
    return [(tenant, thread_id) for tenant, thread_id in rows]


def delete_if_past(batch: Batch, tenant: str, thread_id: str) -> Removed | None:
    """Delete a thread that is past its retention; `None` if it is not (any more).

    Args:
        batch: In a change of its own.
        tenant: The tenant.
        thread_id: The thread.
    """
    log = batch.find(tenant, thread_id)
    if log is None or log.row.deleted or log.row.expire_us is None:
        return None
    if log.row.expire_us > batch.now_us:
        return None
    return delete_thread(batch, tenant, thread_id)
