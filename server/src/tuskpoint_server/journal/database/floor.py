"""The floor of a tenant: what is left of the deleted threads whose rows are gone.

It is a row of `threads` that no call can name. Its incarnation and its `seq` are the greatest that
one of these threads had. A thread that begins may have had one of their names, so its incarnation
and its numbers begin above: stored records of the old incarnation still end it, and no cursor of
the old log fits the new one. The row is bound, copied and migrated like any other.
"""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, select

from ...core.threads import TRAIL
from ..sql.schema import threads
from ..sql.statements import Statement
from .binding import binder_of
from .thread_rows import ENTERED, ThreadCacheEntry, log_of

FLOOR_THREAD = TRAIL + "floor"
"""Name of the row; its prefix was never a user's in any layout of the journal."""

_FIND = Statement(
    select(*ENTERED).where(
        threads.c.tenant == bindparam("of_tenant"),
        threads.c.thread_id.in_([bindparam("of_thread"), bindparam("of_floor")]),
    )
)


def find_or_floor(
    connection: Connection, tenant: str, thread_id: str
) -> tuple[ThreadCacheEntry | None, ThreadCacheEntry | None]:
    """Return what is known of a thread at first, as `find_log` does, and the tenant's floor.

    Both are read at one moment: so a thread whose row is gone counts in the floor.
    """
    parameters = {"of_tenant": tenant, "of_thread": thread_id, "of_floor": FLOOR_THREAD}
    rows = _FIND.run(connection, **parameters).fetchall()
    logs = {log.row.thread_id: log for log in (log_of(binder_of(connection), row) for row in rows)}
    return logs.get(thread_id), logs.get(FLOOR_THREAD)
