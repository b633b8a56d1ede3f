"""Vectors of documents: which stand, which are owed, which do not go with the embedder."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import (
    Connection,
    and_,
    bindparam,
    delete,
    func,
    literal_column,
    or_,
    select,
    update,
)
from sqlalchemy.sql.elements import ColumnElement

from ..domain.model import CheckpointKey
from ..domain.vectors import COMPONENT_BYTES
from . import vectors
from .copies import same
from .findable import may_be_found
from .schema import checkpoints, documents
from .schema import vectors as table
from .search_api import Unembedded
from .statements import EMPTY, Statement, of_checkpoint, parameters_of

EMBEDDED_BODY = 1000
"""Characters that are embedded of a body without a summary; a vector of more means less."""

SCANNED_AT_ONCE = 2000
"""Vectors that one read transaction looks at."""

_OWED: ColumnElement[bool] = literal_column("search_documents.unembedded")
"""Spelled as in the partial index, which is used only then."""

_HAS = Statement(select(table.c.number).where(of_checkpoint(table)))
_DROP_MADE = Statement(delete(table).where(of_checkpoint(table), table.c.embedder != EMPTY))
_BY_CALLER = Statement(
    select(table.c.vector)
    .select_from(table.join(checkpoints, same(table, checkpoints)))
    .where(
        table.c.tenant == bindparam("of_tenant"),
        table.c.checkpoint_ns == bindparam("of_ns"),
        table.c.checkpoint_id == bindparam("of_id"),
        table.c.embedder == EMPTY,
        checkpoints.c.state == bindparam("of_state"),
    )
    .limit(1)
)
_UNEMBEDDED = Statement(
    select(
        documents.c.number,
        documents.c.tenant,
        documents.c.summary,
        documents.c.body,
        documents.c.planned,
    )
    .where(_OWED, may_be_found(documents))
    .order_by(documents.c.number)
    .limit(bindparam("max_rows"))
)
_STILL_OWED = Statement(
    select(
        documents.c.tenant,
        documents.c.thread_id,
        documents.c.checkpoint_ns,
        documents.c.checkpoint_id,
    ).where(documents.c.number == bindparam("of_number"), _OWED, may_be_found(documents))
)
_SET_OWED = Statement(
    update(documents)
    .where(documents.c.number == bindparam("of_number"))
    .values(unembedded=bindparam("owed"))
)
_UNFIT = Statement(
    select(
        table.c.number,
        or_(
            and_(table.c.embedder != EMPTY, table.c.embedder != bindparam("of_embedder")),
            func.length(table.c.vector) != bindparam("of_length"),
        ),
    )
    .where(table.c.number > bindparam("after"))
    .order_by(table.c.number)
    .limit(SCANNED_AT_ONCE)
)
_DROP = Statement(
    delete(table)
    .where(table.c.number == bindparam("of_number"))
    .returning(table.c.tenant, table.c.thread_id, table.c.checkpoint_ns, table.c.checkpoint_id)
)
_DOCUMENT = Statement(
    select(documents.c.number, documents.c.summary, documents.c.body, documents.c.planned).where(
        of_checkpoint(documents)
    )
)


def embedded_text(summary: str, body: str, *, planned: bool) -> str:
    """Return what of a document is embedded: its words; JSON only if there are no others."""
    said = summary.strip()
    if planned:
        return f"{said}\n{body}".strip()
    return said or body[:EMBEDDED_BODY].strip()


def drop_made(connection: Connection, tenant: str, key: CheckpointKey) -> None:
    """Drop the vector of a checkpoint if an embedder made it."""
    _DROP_MADE.run(connection, **parameters_of(tenant, key))


def ensure(connection: Connection, tenant: str, key: CheckpointKey, state: bytes) -> bool:
    """Give a checkpoint that has no vector the one its origin got from the caller.

    Its origin is one with its namespace, its ID and its state: no caller mints the same ID
    in two threads for the same state unless it means the same.

    Returns:
        Whether it has a vector now.
    """
    of = parameters_of(tenant, key)
    if _HAS.run(connection, **of).fetchone() is not None:
        return True
    row = _BY_CALLER.run(connection, **of, of_state=state).fetchone()
    # An embedder that is being adopted has not had those of another dimension dropped yet.
    if row is None or not vectors.fits(connection, tenant, row[0]):
        return False
    vectors.store(connection, tenant, key, row[0])
    return True


def set_owed(connection: Connection, number: int, *, owed: bool) -> None:
    """Note whether a document is owed a vector."""
    _SET_OWED.run(connection, of_number=number, owed=owed)


def unembedded(connection: Connection, limit: int) -> list[Unembedded]:
    """Return documents without a vector; see `search_api.Indexing.unembedded`."""
    return [
        Unembedded(number, tenant, embedded_text(summary, body, planned=bool(planned)))
        for number, tenant, summary, body, planned in _UNEMBEDDED.run(
            connection, max_rows=limit
        ).fetchall()
    ]


def embed(connection: Connection, embedder: str, made: Sequence[tuple[Unembedded, bytes]]) -> None:
    """Store vectors of documents; see `search_api.Indexing.embed`."""
    for document, vector in made:
        row = _STILL_OWED.run(connection, of_number=document.number).fetchone()
        if row is None:
            continue
        key = CheckpointKey(*row[1:])
        # A caller's may have come meanwhile: it is the better one.
        if _HAS.run(connection, **parameters_of(row[0], key)).fetchone() is None:
            vectors.store(connection, row[0], key, vector, embedder)
        set_owed(connection, document.number, owed=False)


def unfit(
    embedder: str, dimension: int, after: int, connection: Connection
) -> tuple[list[int], int | None]:
    """Return the next vectors that do not go with an embedder, and where to go on.

    See `search_api.Indexing.adopt_embedder`; `None` at the end.
    """
    rows = _UNFIT.run(
        connection,
        of_embedder=embedder,
        of_length=dimension * COMPONENT_BYTES,
        after=after,
    ).fetchall()
    found = [number for number, is_unfit in rows if is_unfit]
    return found, rows[-1][0] if len(rows) == SCANNED_AT_ONCE else None


def drop(numbers: Sequence[int], connection: Connection) -> int:
    """Drop vectors, and owe others to what they were made of; return how many."""
    count = 0
    for number in numbers:
        row = _DROP.run(connection, of_number=number).fetchone()
        if row is not None:
            _owe(connection, row[0], CheckpointKey(*row[1:]))
            count += 1
    return count


def _owe(connection: Connection, tenant: str, key: CheckpointKey) -> None:
    """Note that the document of a checkpoint, if it has one that says anything, needs a vector."""
    row = _DOCUMENT.run(connection, **parameters_of(tenant, key)).fetchone()
    if row is not None and embedded_text(row[1], row[2], planned=bool(row[3])):
        set_owed(connection, row[0], owed=True)
