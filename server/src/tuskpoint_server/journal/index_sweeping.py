"""Removing from the index what belongs to no checkpoint that search may find.

Rows are looked at beside the writer, by their numbers, and looked at again when they go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, Table, and_, bindparam, delete, exists, select
from sqlalchemy.sql.elements import ColumnElement

from ..domain.memories import MemoryState
from . import document_rows
from .findable import may_be_found
from .full_text import Text
from .schema import documents, memories, vectors
from .statements import Statement

SCANNED_AT_ONCE = 2000
"""Rows that one read transaction looks at."""

Drop = Callable[[Connection, int], bool]
"""Removes the row with a number if it still belongs to nothing; tells whether it did."""

_ITS_DOCUMENT = exists().where(
    documents.c.tenant == memories.c.tenant, documents.c.pointer == memories.c.pointer
)
# What is under way is let arrive: whoever sent it will tell how that went.
_LOST: dict[Table, ColumnElement[bool]] = {
    documents: ~may_be_found(documents),
    vectors: ~may_be_found(vectors),
    memories: and_(
        memories.c.state != int(MemoryState.SENDING),
        memories.c.state != int(MemoryState.SENT),
        ~_ITS_DOCUMENT,
    ),
}


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of row: a page of them, each with its number and whether it belongs to nothing."""

    page: Statement
    drop: Drop


def _page(table: Table) -> Statement:
    return Statement(
        select(table.c.number, _LOST[table])
        .where(table.c.number > bindparam("after"))
        .order_by(table.c.number)
        .limit(SCANNED_AT_ONCE)
    )


def _drop_row(table: Table) -> Drop:
    statement = Statement(
        delete(table).where(table.c.number == bindparam("of_number"), _LOST[table])
    )

    def drop(connection: Connection, number: int) -> bool:
        return statement.run(connection, of_number=number).rowcount > 0

    return drop


_LOST_DOCUMENT = Statement(
    select(documents.c.scope, documents.c.summary, documents.c.body).where(
        documents.c.number == bindparam("of_number"), _LOST[documents]
    )
)


def _drop_document(connection: Connection, number: int) -> bool:
    row = _LOST_DOCUMENT.run(connection, of_number=number).fetchone()
    if row is None:
        return False
    document_rows.remove(connection, number, Text(*row))
    return True


KINDS = (
    Kind(_page(documents), _drop_document),
    Kind(_page(vectors), _drop_row(vectors)),
    Kind(_page(memories), _drop_row(memories)),
)
"""All kinds; memories come after the documents that they need."""


def lost(kind: Kind, after: int, connection: Connection) -> tuple[list[int], int | None]:
    """Return the next rows that belong to nothing, and where to go on; `None` at the end."""
    rows = kind.page.run(connection, after=after).fetchall()
    found = [number for number, is_lost in rows if is_lost]
    return found, rows[-1][0] if len(rows) == SCANNED_AT_ONCE else None


def drop(kind: Kind, numbers: Sequence[int], connection: Connection) -> int:
    """Remove rows that still belong to nothing; return how many."""
    return sum(kind.drop(connection, number) for number in numbers)
