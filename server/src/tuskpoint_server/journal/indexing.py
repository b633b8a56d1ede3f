"""The search index in a journal being written: by its one owner, in short turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from sqlalchemy import Connection

from . import document_rows, document_vectors, due, index_sweeping, vectors
from .journal import SqlJournal
from .search_api import Document, Due, Unembedded

DROPPED_AT_ONCE = 100
"""Rows that one write transaction removes; a document takes as long as it took to add."""

_Page = Callable[[int, Connection], tuple[list[int], int | None]]
"""Returns the next rows to remove, by number, and where to go on; `None` at the end."""

_Drop = Callable[[Sequence[int], Connection], int]


class IndexRows:
    """The index in a `SqlJournal`; satisfies `search_api.Indexing`."""

    def __init__(self, journal: SqlJournal) -> None:
        self._journal = journal

    async def due(self, limit: int) -> list[Due]:
        """Return checkpoints that are due; see `search_api.Indexing.due`."""
        return await self._journal.query(lambda connection: due.due(connection, limit))

    async def due_before(self, tenant: str, before_us: int) -> int:
        """Return how many are due; see `search_api.Indexing.due_before`."""
        return await self._journal.query(
            lambda connection: due.count_before(connection, tenant, before_us)
        )

    async def due_now(self, tenant: str) -> tuple[int, int]:
        """Return how many are due, and a time after them; see `search_api.Indexing.due_now`."""
        return await self._journal.query(lambda connection: due.count_now(connection, tenant))

    async def store(self, documents: Sequence[Document], *, remember: bool) -> int:
        """Store documents; see `search_api.Indexing.store`."""
        now_us = self._journal.now_us()
        return await self._journal.transact(
            lambda connection: document_rows.store(
                connection, documents, now_us, remember=remember
            ),
            size_bytes=sum(len(one.due.summary) + len(one.body) for one in documents),
        )

    async def unembedded(self, limit: int) -> list[Unembedded]:
        """Return documents without a vector; see `search_api.Indexing.unembedded`."""
        return await self._journal.query(
            lambda connection: document_vectors.unembedded(connection, limit)
        )

    async def embed(self, embedder: str, made: Sequence[tuple[Unembedded, bytes]]) -> None:
        """Store vectors of documents; see `search_api.Indexing.embed`.

        Raises:
            Refusal: `INVALID_FIELD`: the vectors in the index have another dimension.
        """
        await self._journal.transact(
            lambda connection: document_vectors.embed(connection, embedder, made),
            size_bytes=sum(len(vector) for _, vector in made),
        )

    async def adopt_embedder(self, embedder: str, dimension: int) -> int:
        """Drop what does not go with an embedder; see `search_api.Indexing.adopt_embedder`."""
        await self._journal.transact(
            lambda connection: vectors.note_embedder(connection, embedder, dimension)
        )
        return await self._in_turns(
            partial(document_vectors.unfit, embedder, dimension),
            document_vectors.drop,
        )

    async def forget_embedder(self) -> None:
        """Begin to do without an embedder; see `search_api.Indexing.forget_embedder`."""
        if await self._journal.query(vectors.noted_dimension):
            await self._journal.transact(vectors.forget_embedder)

    async def sweep(self) -> int:
        """Remove what belongs to nothing; see `search_api.Indexing.sweep`."""
        count = 0
        for kind in index_sweeping.KINDS:
            count += await self._in_turns(
                partial(index_sweeping.lost, kind), partial(index_sweeping.drop, kind)
            )
        return count

    async def _in_turns(self, page: _Page, drop: _Drop) -> int:
        """Look for rows beside the writer and remove them in short turns; return how many."""
        count = 0
        after: int | None = 0
        while after is not None:
            found, after = await self._journal.query(partial(page, after))
            for start in range(0, len(found), DROPPED_AT_ONCE):
                some = found[start : start + DROPPED_AT_ONCE]
                count += await self._journal.transact(partial(drop, some))
        return count
