"""The search index in a journal being written: by its one owner, in short turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.sql.elements import ColumnElement

from ...domain.search import COMPONENT_BYTES, MemoryState
from ..checkpoints import vectors as vector_rows
from ..database.database import Database
from ..database.schema import checkpoints, documents, memories, threads, vectors
from ..database.statements import EMPTY, LISTED, Statement
from . import following
from .documents import DROP_VECTOR, TEXT, Document, embedded_text, remove_text, store
from .following import ITS_DOCUMENT, ITS_THREAD, ITS_VECTOR, Backlog, C, D, Stretch, V, Walk

# rows that one write transaction removes; a document takes as long as it took to add
DROPPED_AT_ONCE = 100
# spelled as in the partial index, which is used only then
_OWED: ColumnElement[bool] = sa.literal_column("search_documents.unembedded")
_SAID = (D.number, TEXT.c.summary, TEXT.c.body, D.planned)
_ITS_TEXT = TEXT.c.rowid == D.number
_UNEMBEDDED = Statement(
    sa.select(*_SAID, D.tenant)
    .select_from(documents.outerjoin(TEXT, _ITS_TEXT))
    .where(_OWED, following.DOCUMENT_MAY_BE_FOUND)
    .order_by(D.number)
    .limit(sa.bindparam("max_rows"))
)
_STILL_OWED = Statement(
    sa.select(*_SAID, C.tenant, C.thread, C.checkpoint_ns, C.checkpoint_id, V.number)
    .select_from(
        documents.outerjoin(TEXT, _ITS_TEXT)
        .join(checkpoints, ITS_DOCUMENT)
        .join(threads, ITS_THREAD)
        .outerjoin(vectors, ITS_VECTOR)
    )
    .where(D.number.in_(LISTED), _OWED, following.FINDABLE)
)
_SET_OWED = Statement(
    sa.update(documents)
    .where(D.number == sa.bindparam("of_number"))
    .values(unembedded=sa.bindparam("owed"))
)
_UNFIT = Statement(
    sa.select(V.number)
    .where(
        sa.or_(
            sa.and_(V.embedder != EMPTY, V.embedder != sa.bindparam("of_embedder")),
            sa.func.length(V.vector) != sa.bindparam("of_length"),
        )
    )
    .order_by(V.number)
)
_EMBEDDED = Statement(
    sa.select(*_SAID)
    .select_from(
        vectors.join(checkpoints, ITS_VECTOR)
        .join(documents, ITS_DOCUMENT)
        .outerjoin(TEXT, _ITS_TEXT)
    )
    .where(V.number.in_(LISTED))
)
M = memories.c
_HAS_DOCUMENT = sa.exists().where(D.tenant == M.tenant, D.pointer == M.pointer)
# Memories come after the documents that they need. What is under way is let arrive: the task
# that sent it records how that went.
_LOST: dict[sa.Table, ColumnElement[bool]] = {
    documents: ~following.DOCUMENT_MAY_BE_FOUND,
    vectors: ~following.VECTOR_MAY_BE_FOUND,
    memories: sa.and_(
        M.state != int(MemoryState.SENDING), M.state != int(MemoryState.SENT), ~_HAS_DOCUMENT
    ),
}
_FIND_LOST = {
    table: Statement(sa.select(table.c.number).where(is_lost).order_by(table.c.number))
    for table, is_lost in _LOST.items()
}
_DROP_LOST = {
    table: Statement(sa.delete(table).where(table.c.number == sa.bindparam("of_number"), is_lost))
    for table, is_lost in _LOST.items()
}


class Unembedded(NamedTuple):
    """A document that has no vector yet; `text` is what to embed."""

    number: int
    tenant: str
    text: str


class IndexRows:
    """The index of a journal, being written. Every call may raise `JOURNAL_UNAVAILABLE`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        # Where a walk has come is kept here alone: after a restart it begins again, and finds
        # nothing to change where it was before.
        self._walk: Walk | None = None

    async def take(self, limit: int) -> Stretch:
        """Return the next changes that the index has to know of, of all tenants, oldest first."""
        walk = self._walk
        return await self._database.query(
            lambda connection: following.stretch(connection, limit, walk)
        )

    async def store(self, stretch: Stretch, made: Sequence[Document], *, remember: bool) -> int:
        """Do what `documents.store` does, and note how far a thread was gone through."""
        stored = await self._database.transact(
            lambda batch: store(batch, stretch, made, remember=remember),
            size_bytes=sum(len(one.due.summary) + len(one.body) for one in made),
        )
        for advance in stretch.advances:
            if advance.walk is not None:
                self._walk = None if advance.walk.done else advance.walk
        return stored

    async def now(self, tenant: str) -> dict[int, int]:
        """Return the threads, by number, that the index is behind of, with their last change."""
        return dict(await self._database.rows(following.NOW, of_tenant=tenant))

    async def backlog(self) -> list[Backlog]:
        """Return what is not indexed, by tenant; tenants that lack nothing are left out."""
        return await self._database.query(following.backlog)

    async def unembedded(self, limit: int) -> list[Unembedded]:
        """Return documents without a vector, the oldest first."""
        rows = await self._database.rows(_UNEMBEDDED, max_rows=limit)
        return [Unembedded(row[0], row[4], _embedded(row)) for row in rows]

    async def embed(self, embedder: str, made: Sequence[tuple[Unembedded, bytes]]) -> None:
        """Store vectors of what still says the same and has none; they have one dimension."""
        await self._database.transact(
            lambda batch: _embed(batch.connection, embedder, made),
            size_bytes=sum(len(vector) for _, vector in made),
        )

    async def give_up(self, number: int) -> None:
        """Note that a document gets no vector until its checkpoint is saved again."""
        await self._database.transact(
            lambda batch: _set_owed(batch.connection, [number], owed=False)
        )

    async def adopt_embedder(self, embedder: str, dimension: int) -> int:
        """Drop vectors of another embedder or dimension; return how many.

        Their text is embedded again. From now on only vectors of its dimension are stored.
        """
        await self._database.transact(
            lambda batch: vector_rows.note_embedder(batch.connection, embedder, dimension)
        )
        unfit = {"of_embedder": embedder, "of_length": dimension * COMPONENT_BYTES}
        return await self._in_turns(await self._database.rows(_UNFIT, **unfit), _drop_vectors)

    async def forget_embedder(self) -> None:
        """Begin to do without an embedder: vectors stay, and nothing is asked of others."""
        if await self._database.query(vector_rows.noted_dimension):
            await self._database.transact(
                lambda batch: vector_rows.forget_embedder(batch.connection)
            )

    async def sweep(self) -> int:
        """Remove what belongs to no checkpoint that search may find; return how many rows."""
        count = 0
        for table, find in _FIND_LOST.items():
            # They are looked for beside the writer, and looked at again when they go.
            lost = await self._database.rows(find)
            count += await self._in_turns(lost, partial(_drop_lost, table))
        return count

    async def _in_turns(
        self, rows: Sequence[Sequence[int]], drop: Callable[[sa.Connection, Sequence[int]], int]
    ) -> int:
        """Remove rows by their numbers in short turns of the writer; return how many."""
        count = 0
        for start in range(0, len(rows), DROPPED_AT_ONCE):
            some = [number for (number,) in rows[start : start + DROPPED_AT_ONCE]]
            count += await self._database.transact(
                lambda batch, some=some: drop(batch.connection, some)  # type: ignore[misc]
            )
        return count


def _drop_lost(table: sa.Table, connection: sa.Connection, numbers: Sequence[int]) -> int:
    drop = _DROP_LOST[table]
    gone = [number for number in numbers if drop.run(connection, of_number=number).rowcount]
    if table is documents:
        remove_text(connection, gone)
    return len(gone)


def _drop_vectors(connection: sa.Connection, numbers: Sequence[int]) -> int:
    """Drop vectors, and owe others to what they were made of; return how many."""
    owed = [row[0] for row in _EMBEDDED.run_listed(connection, numbers) if _embedded(row)]
    _set_owed(connection, owed, owed=True)
    return DROP_VECTOR.run_many(connection, [{"of_number": number} for number in numbers])


def _set_owed(connection: sa.Connection, numbers: Sequence[int], *, owed: bool) -> None:
    _SET_OWED.run_many(connection, [{"of_number": number, "owed": owed} for number in numbers])


def _embedded(row: Sequence[Any]) -> str:
    """Return what is embedded of a document, by a row that begins with `_SAID`."""
    return embedded_text(row[1], row[2], planned=bool(row[3]))


def _embed(
    connection: sa.Connection, embedder: str, made: Sequence[tuple[Unembedded, bytes]]
) -> None:
    by_number = {document.number: (document.text, vector) for document, vector in made}
    rows: list[tuple[object, ...]] = []
    settled: list[int] = []
    sizes: set[tuple[str, int]] = set()
    for row in _STILL_OWED.run_listed(connection, by_number):
        text, vector = by_number[row[0]]
        if text != _embedded(row):
            continue
        settled.append(row[0])
        tenant, *place, has = row[4:]
        # A caller's may have come meanwhile: it is the better one.
        if has is None:
            rows.append((tenant, *place, embedder, vector))
            sizes.add((tenant, len(vector)))
    for tenant, size in sizes:
        vector_rows.check(connection, tenant, size)
    vector_rows.add(connection, rows)
    _set_owed(connection, settled, owed=False)
