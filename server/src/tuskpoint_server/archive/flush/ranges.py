"""Changes in a range of a log: from the log or, where the log is damaged, from the rows."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import (
    ColumnElement,
    FromClause,
    Table,
    and_,
    bindparam,
    func,
    select,
    union,
)

from ...journal.sql.schema import changes, checkpoints, writes
from ...journal.sql.statements import EMPTY, Statement, of_thread, same_checkpoint
from ..rows.dirty import CHECKPOINT_COLUMNS, WRITE_COLUMNS


def in_range(table: Table) -> ColumnElement[bool]:
    """Return the condition for rows whose numbers are in a range."""
    seq = table.c.seq
    return and_(of_thread(table), seq > bindparam("after"), seq <= bindparam("through"))


class RangeStatements(NamedTuple):
    """Statements that read the checkpoints that changed in a range, and their writes."""

    rows: Statement
    writes: Statement
    write_sizes: Statement


def range_statements(places: FromClause) -> RangeStatements:
    """Return the statements for the checkpoints at places: thread, namespace and ID."""
    written = places.join(writes, same_checkpoint(writes, places))
    claimed_since = and_(writes.c.seq > bindparam("after"), writes.c.early_us.is_(None))
    size = func.sum(func.coalesce(func.length(writes.c.data), 0))
    of_writes = select(*WRITE_COLUMNS[1:3], size).select_from(written).where(claimed_since)
    return RangeStatements(
        Statement(
            select(*CHECKPOINT_COLUMNS)
            .select_from(places.join(checkpoints, same_checkpoint(checkpoints, places)))
            .where(checkpoints.c.seq > bindparam("after"))
        ),
        Statement(select(*WRITE_COLUMNS).select_from(written).where(claimed_since)),
        Statement(of_writes.group_by(*WRITE_COLUMNS[1:3])),
    )


LOGGED = range_statements(
    select(changes.c.thread, changes.c.checkpoint_ns, changes.c.checkpoint_id)
    .where(in_range(changes), changes.c.checkpoint_id != EMPTY)
    .distinct()
    .subquery()
)
"""Statements that use the log."""
SCANNED = range_statements(
    union(
        *(
            select(table.c.thread, table.c.checkpoint_ns, table.c.checkpoint_id).where(
                of_thread(table), table.c.seq > bindparam("after")
            )
            for table in (checkpoints, writes)
        )
    ).subquery()
)
"""Statements for a damaged log: they use the rows' numbers, and read all rows of the thread."""
