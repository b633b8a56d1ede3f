"""How long threads are kept: setting it, and deleting what is past it."""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, literal_column, select

from ..domain.errors import Reason, Refusal
from ..domain.lineage import EventKind
from ..domain.model import Removed
from . import events, removals, threads
from .schema import threads as threads_table
from .statements import Statement

_MICROSECONDS = 1_000_000

# The condition on `retention_s` is spelled as in the index.
_PAST = Statement(
    select(threads_table.c.tenant, threads_table.c.thread_id)
    .where(
        threads_table.c.retention_s > literal_column("0"),
        threads_table.c.deleted.is_(False),
        threads_table.c.updated_us < bindparam("now_us"),
        threads_table.c.updated_us + threads_table.c.retention_s * _MICROSECONDS
        <= bindparam("now_us"),
    )
    .order_by(threads_table.c.updated_us)
    .limit(bindparam("max_rows"))
)


def set_retention(
    connection: Connection, tenant: str, thread_id: str, retention_s: int, now_us: int
) -> None:
    """Set how long a thread is kept; see `api.Journal.set_retention`."""
    thread = threads.lock(connection, tenant, thread_id)
    if thread is None or thread.deleted:
        raise Refusal(Reason.THREAD_NOT_FOUND, thread_id=thread_id)
    thread.untold = thread.untold or thread.retention_s != retention_s
    thread.retention_s = retention_s
    thread.seq += 1
    threads.store(connection, thread, now_us)
    events.append(connection, thread, EventKind.RETENTION_SET, now_us)


def past(connection: Connection, now_us: int, limit: int) -> list[tuple[str, str]]:
    """Return threads that are past their retention, the longest unchanged first.

    Args:
        connection: A snapshot.
        now_us: Time.
        limit: At most so many.

    Returns:
        Tenant and thread.
    """
    rows = _PAST.run(connection, now_us=now_us, max_rows=limit).fetchall()
    return [(tenant, thread_id) for tenant, thread_id in rows]


def delete_if_past(
    connection: Connection, tenant: str, thread_id: str, now_us: int
) -> Removed | None:
    """Delete a thread that is past its retention; `None` if it is not (any more)."""
    thread = threads.lock(connection, tenant, thread_id)
    if thread is None or thread.deleted or not thread.retention_s:
        return None
    if thread.updated_us + thread.retention_s * _MICROSECONDS > now_us:
        return None
    return removals.delete_thread(connection, tenant, thread_id, now_us)
