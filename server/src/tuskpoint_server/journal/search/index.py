"""The search index in a journal being written: by its one owner, in short turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from sqlalchemy import Connection

from ..checkpoints import vectors
from ..database.database import Database
from . import (
    document_vectors,
    documents,
    following,
    sweeping,
)
from .records import Backlog, Document, Stretch, Unembedded, Walk

DROPPED_AT_ONCE = 100
"""Rows that one write transaction removes; a document takes as long as it took to add."""

_Drop = Callable[[Sequence[int], Connection], int]
"""Removes rows by their numbers; returns how many."""


class IndexRows:
    """The index of a journal, for the one task that follows the log, and for the embedder's.

    All calls are coroutines. `JOURNAL_UNAVAILABLE` can come from every call.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        # Where a walk has come is kept here alone: after a restart it begins again, and finds
        # nothing to change where it was before.
        self._walking: tuple[int, Walk] | None = None

    async def take(self, limit: int) -> Stretch:
        """Return the next changes that the index has to know of, of all tenants, oldest first.

        Args:
            limit: About how many changes to read at most.
        """
        walking = self._walking
        return await self._database.query(
            lambda connection: following.stretch(connection, limit, walking)
        )

    async def store(self, stretch: Stretch, made: Sequence[Document], *, remember: bool) -> int:
        """Store documents and move the watermarks; return how many documents were stored.

        A checkpoint that changed meanwhile, or went, is left as it is. A checkpoint without
        a vector that has the ID of one with a caller's vector (it was copied from it) gets
        the same.

        Args:
            stretch: What `take` returned last; without advances to try documents alone.
            made: Documents of checkpoints in it.
            remember: Also note the summaries that MemWal has to have: once for each pointer
                and text.
        """
        stored = await self._database.transact(
            lambda batch: documents.store(batch, stretch, made, remember=remember),
            size_bytes=sum(len(one.due.summary) + len(one.body) for one in made),
        )
        for advance in stretch.advances:
            if advance.walk is not None:
                self._walking = None if advance.walk.done else (advance.thread, advance.walk)
        return stored

    async def now(self, tenant: str) -> dict[int, int]:
        """Return the threads of a tenant that the index is behind of.

        Returns:
            Numbers of threads, each with its last change as of now.
        """
        return await self._database.query(lambda connection: following.now(connection, tenant))

    async def backlog(self) -> list[Backlog]:
        """Return what is not indexed, by tenant; tenants that lack nothing are left out."""
        return await self._database.query(following.backlog)

    async def unembedded(self, limit: int) -> list[Unembedded]:
        """Return documents without a vector, the oldest first."""
        return await self._database.query(
            lambda connection: document_vectors.unembedded(connection, limit)
        )

    async def embed(self, embedder: str, made: Sequence[tuple[Unembedded, bytes]]) -> None:
        """Store vectors of documents that still say the same and have none.

        Raises:
            Refusal: `INVALID_FIELD`: the vectors in the index have another dimension.
        """
        await self._database.transact(
            lambda batch: document_vectors.embed(batch.connection, embedder, made),
            size_bytes=sum(len(vector) for _, vector in made),
        )

    async def give_up(self, number: int) -> None:
        """Note that a document gets no vector until its checkpoint is saved again."""
        await self._database.transact(
            lambda batch: document_vectors.set_owed(batch.connection, [number], owed=False)
        )

    async def adopt_embedder(self, embedder: str, dimension: int) -> int:
        """Drop vectors that do not go with an embedder; return how many.

        From now on only vectors of its dimension are stored, whoever sends them. Those that go
        are the ones that another embedder made and those of another dimension. What they were
        made of is embedded again.
        """
        await self._database.transact(
            lambda batch: vectors.note_embedder(batch.connection, embedder, dimension)
        )
        numbers = await self._database.query(
            lambda connection: document_vectors.unfit(connection, embedder, dimension)
        )
        return await self._in_turns(numbers, document_vectors.drop)

    async def forget_embedder(self) -> None:
        """Begin to do without an embedder: vectors stay, and nothing is asked of others."""
        if await self._database.query(vectors.noted_dimension):
            await self._database.transact(lambda batch: vectors.forget_embedder(batch.connection))

    async def sweep(self) -> int:
        """Remove what belongs to no checkpoint that search may find; return how many rows."""
        count = 0
        for table in sweeping.TABLES:
            numbers = await self._database.query(partial(sweeping.lost, table))
            count += await self._in_turns(numbers, partial(sweeping.drop, table))
        return count

    async def _in_turns(self, numbers: Sequence[int], drop: _Drop) -> int:
        """Remove rows in short turns of the writer; return how many."""
        count = 0
        for start in range(0, len(numbers), DROPPED_AT_ONCE):
            some = numbers[start : start + DROPPED_AT_ONCE]
            count += await self._database.transact(
                lambda batch, some=some: drop(some, batch.connection)  # type: ignore[misc]
            )
        return count
