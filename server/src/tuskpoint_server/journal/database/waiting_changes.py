"""The first change of a thread that waits: for its certification, or for search."""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, select

from ..sql.schema import changes
from ..sql.statements import Statement, of_thread
from .thread_rows import ThreadRow

_FIRST_ABOVE = Statement(
    select(changes.c.created_us)
    .where(of_thread(changes), changes.c.seq > bindparam("above"))
    .order_by(changes.c.seq)
    .limit(1)
)


def first_above(connection: Connection, log: ThreadRow, watermark: int) -> int | None:
    """Return the time of the first change of a log above a watermark; `None`: there is none.

    If the log lacks that change, the time of the thread's last one: what it was still waits.
    """
    if log.seq <= watermark:
        return None
    row = _FIRST_ABOVE.run(connection, of_thread=log.number, above=watermark).fetchone()
    return row[0] if row is not None else log.updated_us
