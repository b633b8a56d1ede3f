"""The floor of a tenant: the remainder of deleted threads whose rows are removed.

The floor is a row of `threads` that no call can name. Its incarnation and its `seq` are the
greatest of all these threads. A new thread may have the name of a removed thread, so its
incarnation and its numbers start above the floor: stored records of the old incarnation still end
that incarnation, and no cursor of the old log fits the new log. The row is bound, copied and
migrated like any other row.
"""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, select

from ...core.threads import TRAIL
from ..sql.schema import threads
from ..sql.statements import Statement
from .binding import binder_of
from .thread_rows import ENTERED, ThreadCacheEntry, log_of

FLOOR_THREAD = TRAIL + "floor"
"""Name of the floor's row; no layout of the journal allowed its prefix to users."""

_FIND = Statement(
    select(*ENTERED).where(
        threads.c.tenant == bindparam("of_tenant"),
        threads.c.thread_id.in_([bindparam("of_thread"), bindparam("of_floor")]),
    )
)


def find_or_floor(
    connection: Connection, tenant: str, thread_id: str
) -> tuple[ThreadCacheEntry | None, ThreadCacheEntry | None]:
    """Return the cache entry of a thread, as `find_log` does, and the tenant's floor.

    Both are read at the same moment: so the floor includes a thread whose row is removed.
    """
    parameters = {"of_tenant": tenant, "of_thread": thread_id, "of_floor": FLOOR_THREAD}
    rows = _FIND.run(connection, **parameters).fetchall()
    logs = {log.row.thread_id: log for log in (log_of(binder_of(connection), row) for row in rows)}
    return logs.get(thread_id), logs.get(FLOOR_THREAD)
