"""Removing from the index what belongs to no checkpoint that search may find.

Rows are looked for beside the writer, and looked at again when they go.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, Table, and_, bindparam, delete, exists, select
from sqlalchemy.sql.elements import ColumnElement

from ...domain.search import MemoryState
from ..database.schema import documents, memories, vectors
from ..database.statements import Statement
from . import full_text
from .findable import DOCUMENT_MAY_BE_FOUND, VECTOR_MAY_BE_FOUND

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
TABLES = tuple(_LOST)
"""Tables with such rows; memories come after the documents that they need."""

_FIND = {
    table: Statement(select(table.c.number).where(is_lost).order_by(table.c.number))
    for table, is_lost in _LOST.items()
}
_DROP = {
    table: Statement(delete(table).where(table.c.number == bindparam("of_number"), is_lost))
    for table, is_lost in _LOST.items()
}


def lost(table: Table, connection: Connection) -> list[int]:
    """Return the rows of a table that belong to nothing, by number."""
    return [number for (number,) in _FIND[table].run(connection).fetchall()]


def drop(table: Table, numbers: Sequence[int], connection: Connection) -> int:
    """Remove rows that still belong to nothing; return how many."""
    gone = [number for number in numbers if _DROP[table].run(connection, of_number=number).rowcount]
    if table is documents:
        full_text.remove(connection, gone)
    return len(gone)
