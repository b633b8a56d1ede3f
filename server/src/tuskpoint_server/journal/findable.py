"""Which checkpoints search may find: at this moment, whatever an index holds of them."""

from __future__ import annotations

from sqlalchemy import Table, and_, exists
from sqlalchemy.sql.elements import ColumnElement

from .copies import same
from .schema import checkpoints, threads
from .statements import of_users

FINDABLE = and_(
    checkpoints.c.hidden.is_(False),
    threads.c.deleted.is_(False),
    threads.c.unsearchable.is_(False),
    of_users(checkpoints),
)
"""A checkpoint may be found; of checkpoints joined with threads by `ITS_THREAD`."""

ITS_THREAD = and_(
    threads.c.tenant == checkpoints.c.tenant, threads.c.thread_id == checkpoints.c.thread_id
)
"""A thread is that of a checkpoint."""


def may_be_found(table: Table) -> ColumnElement[bool]:
    """Match the rows of a table that name a checkpoint which may be found."""
    return exists().where(same(table, checkpoints), ITS_THREAD, FINDABLE)
