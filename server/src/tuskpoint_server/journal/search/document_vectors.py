"""Vectors of documents: which are owed, and which do not go with the embedder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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

from ...domain.search import COMPONENT_BYTES
from ..checkpoints import vectors as vector_rows
from ..database.schema import checkpoints, documents, threads, vectors
from ..database.statements import EMPTY, Statement, in_lists
from .findable import DOCUMENT_MAY_BE_FOUND, FINDABLE, ITS_DOCUMENT, ITS_THREAD, ITS_VECTOR
from .full_text import TEXT
from .records import Unembedded

EMBEDDED_BODY = 1000
"""Characters that are embedded of a body without a summary; a vector of more means less."""

_OWED: ColumnElement[bool] = literal_column("search_documents.unembedded")
"""Spelled as in the partial index, which is used only then."""

_NUMBERS: Any = bindparam("numbers", expanding=True)
_SAID = (TEXT.c.summary, TEXT.c.body, documents.c.planned)
_ITS_TEXT = TEXT.c.rowid == documents.c.number
_UNEMBEDDED = Statement(
    select(documents.c.number, documents.c.tenant, *_SAID)
    .select_from(documents.outerjoin(TEXT, _ITS_TEXT))
    .where(_OWED, DOCUMENT_MAY_BE_FOUND)
    .order_by(documents.c.number)
    .limit(bindparam("max_rows"))
)
_STILL_OWED = (
    select(
        documents.c.number,
        *_SAID,
        checkpoints.c.tenant,
        checkpoints.c.thread,
        checkpoints.c.checkpoint_ns,
        checkpoints.c.checkpoint_id,
        vectors.c.number,
    )
    .select_from(
        documents.outerjoin(TEXT, _ITS_TEXT)
        .join(checkpoints, ITS_DOCUMENT)
        .join(threads, ITS_THREAD)
        .outerjoin(vectors, ITS_VECTOR)
    )
    .where(documents.c.number.in_(_NUMBERS), _OWED, FINDABLE)
)
_SET_OWED = Statement(
    update(documents)
    .where(documents.c.number == bindparam("of_number"))
    .values(unembedded=bindparam("owed"))
)
_UNFIT = Statement(
    select(vectors.c.number)
    .where(
        or_(
            and_(vectors.c.embedder != EMPTY, vectors.c.embedder != bindparam("of_embedder")),
            func.length(vectors.c.vector) != bindparam("of_length"),
        )
    )
    .order_by(vectors.c.number)
)
_DOCUMENTS = (
    select(documents.c.number, *_SAID)
    .select_from(
        vectors.join(checkpoints, ITS_VECTOR)
        .join(documents, ITS_DOCUMENT)
        .outerjoin(TEXT, _ITS_TEXT)
    )
    .where(vectors.c.number.in_(_NUMBERS))
)
_DROP = Statement(delete(vectors).where(vectors.c.number == bindparam("of_number")))


def embedded_text(summary: str, body: str, *, planned: bool) -> str:
    """Return what of a document is embedded: its words; JSON only if there are no others."""
    said = summary.strip()
    if planned:
        return f"{said}\n{body}".strip()
    return said or body[:EMBEDDED_BODY].strip()


def unembedded(connection: Connection, limit: int) -> list[Unembedded]:
    """Return documents without a vector; see `IndexRows.unembedded`."""
    return [
        Unembedded(number, tenant, embedded_text(summary, body, planned=bool(planned)))
        for number, tenant, summary, body, planned in _UNEMBEDDED.run(
            connection, max_rows=limit
        ).fetchall()
    ]


def embed(connection: Connection, embedder: str, made: Sequence[tuple[Unembedded, bytes]]) -> None:
    """Store vectors of documents; see `IndexRows.embed`."""
    by_number = {document.number: (document, vector) for document, vector in made}
    rows: list[tuple[object, ...]] = []
    settled: list[int] = []
    sizes: set[tuple[str, int]] = set()
    for some in in_lists(by_number):
        for row in connection.execute(_STILL_OWED, {"numbers": some}):
            number, summary, body, planned, tenant, *place, has = row
            document, vector = by_number[number]
            if document.text != embedded_text(summary, body, planned=bool(planned)):
                continue
            settled.append(number)
            # A caller's may have come meanwhile: it is the better one.
            if has is None:
                rows.append((tenant, *place, embedder, vector))
                sizes.add((tenant, len(vector)))
    for tenant, size in sizes:
        vector_rows.check(connection, tenant, size)
    vector_rows.add(connection, rows)
    set_owed(connection, settled, owed=False)


def unfit(connection: Connection, embedder: str, dimension: int) -> list[int]:
    """Return the vectors that do not go with an embedder; see `IndexRows.adopt_embedder`."""
    length = dimension * COMPONENT_BYTES
    rows = _UNFIT.run(connection, of_embedder=embedder, of_length=length).fetchall()
    return [number for (number,) in rows]


def drop(numbers: Sequence[int], connection: Connection) -> int:
    """Drop vectors, and owe others to what they were made of; return how many."""
    owed = [
        row[0]
        for some in in_lists(numbers)
        for row in connection.execute(_DOCUMENTS, {"numbers": some})
        if embedded_text(row[1], row[2], planned=bool(row[3]))
    ]
    set_owed(connection, owed, owed=True)
    return _DROP.run_many(connection, [{"of_number": number} for number in numbers])


def set_owed(connection: Connection, numbers: Sequence[int], *, owed: bool) -> None:
    """Note whether the embedder owes documents a vector."""
    _SET_OWED.run_many(connection, [{"of_number": number, "owed": owed} for number in numbers])
