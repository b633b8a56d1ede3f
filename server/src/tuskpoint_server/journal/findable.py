"""Which checkpoints search may find: at this moment, whatever an index holds of them."""

from __future__ import annotations

from sqlalchemy import Table, and_, exists, func, or_
from sqlalchemy.sql.elements import ColumnElement

from ..domain.snapshots import THREADS, THREADS_END
from .copies import same
from .schema import checkpoints, threads
from .statements import EMPTY

# So spelled, no index is asked for it: begun with its alternatives, SQLite reads everything.
_NAME = func.coalesce(threads.c.thread_id, EMPTY)

THREAD_MAY_BE_FOUND = and_(
    threads.c.deleted.is_(False),
    threads.c.unsearchable.is_(False),
    or_(_NAME < THREADS, _NAME >= THREADS_END),
)
"""The checkpoints of a thread may be found, those that are hidden aside."""

FINDABLE = and_(checkpoints.c.hidden.is_(False), THREAD_MAY_BE_FOUND)
"""A checkpoint may be found; of checkpoints joined with threads by `ITS_THREAD`."""

ITS_THREAD = and_(
    threads.c.tenant == checkpoints.c.tenant, threads.c.thread_id == checkpoints.c.thread_id
)
"""A thread is that of a checkpoint."""


def may_be_found(table: Table) -> ColumnElement[bool]:
    """Match the rows of a table that name a checkpoint which may be found."""
    return exists().where(same(table, checkpoints), ITS_THREAD, FINDABLE)
