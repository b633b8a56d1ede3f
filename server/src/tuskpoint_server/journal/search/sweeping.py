"""Removing from the index what belongs to no checkpoint that search may find.

Rows are looked at beside the writer, by their numbers, and looked at again when they go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Table, and_, bindparam, delete, exists, select
from sqlalchemy.sql.elements import ColumnElement

from ...domain.memories import MemoryState
from ..database.schema import documents, memories, vectors
from ..database.statements import Statement
from .documents import remove
from .findable import DOCUMENT_MAY_BE_FOUND, VECTOR_MAY_BE_FOUND
from .full_text import Text

SCANNED_AT_ONCE = 2000
"""Rows that one read transaction looks at."""

Drop = Callable[[Connection, Sequence[int]], int]
"""Removes the rows with some numbers that still belong to nothing; returns how many."""

_ITS_DOCUMENT = exists().where(
    documents.c.tenant == memories.c.tenant, documents.c.pointer == memories.c.pointer
)
# What is under way is let arrive: the task that sent it records how that went.
_LOST: dict[Table, ColumnElement[bool]] = {
    documents: ~DOCUMENT_MAY_BE_FOUND,
    vectors: ~VECTOR_MAY_BE_FOUND,
    memories: and_(
        memories.c.state != int(MemoryState.SENDING),
        memories.c.state != int(MemoryState.SENT),
        ~_ITS_DOCUMENT,
    ),
}
_NUMBERS: Any = bindparam("numbers", expanding=True)


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


def _drop_rows(table: Table) -> Drop:
    statement = Statement(
        delete(table).where(table.c.number == bindparam("of_number"), _LOST[table])
    )

    def drop(connection: Connection, numbers: Sequence[int]) -> int:
        return statement.run_many(connection, [{"of_number": number} for number in numbers])

    return drop


_LOST_DOCUMENTS = select(
    documents.c.number, documents.c.scope, documents.c.summary, documents.c.body
).where(documents.c.number.in_(_NUMBERS), _LOST[documents])


def _drop_documents(connection: Connection, numbers: Sequence[int]) -> int:
    found = connection.execute(_LOST_DOCUMENTS, {"numbers": list(numbers)}).all()
    remove(connection, [(row[0], Text(*row[1:])) for row in found])
    return len(found)


KINDS = (
    Kind(_page(documents), _drop_documents),
    Kind(_page(vectors), _drop_rows(vectors)),
    Kind(_page(memories), _drop_rows(memories)),
)
"""All kinds; memories come after the documents that they need."""


def lost(kind: Kind, after: int, connection: Connection) -> tuple[list[int], int | None]:
    """Return the next rows that belong to nothing, and where to go on; `None` at the end."""
    rows = kind.page.run(connection, after=after).fetchall()
    found = [number for number, is_lost in rows if is_lost]
    return found, rows[-1][0] if len(rows) == SCANNED_AT_ONCE else None


def drop(kind: Kind, numbers: Sequence[int], connection: Connection) -> int:
    """Remove rows that still belong to nothing; return how many."""
    return kind.drop(connection, numbers)
