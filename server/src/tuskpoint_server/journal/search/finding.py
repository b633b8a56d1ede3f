"""The search index in a journal being read: candidates become checkpoints that live now.

Whoever proposes candidates, the text, vectors or MemWal, proposes them nearest first. They
are looked up page by page until there are enough results; if hardly any passes the filters,
it is asked which do. However few they are, they are found, and an answer is of one moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Any

from sqlalchemy import (
    BindParameter,
    Connection,
    Select,
    bindparam,
    func,
    literal_column,
    or_,
    select,
)
from sqlalchemy.sql.elements import ColumnElement

from ...domain.metadata import matches_typed
from ...domain.model import CheckpointKey
from ...domain.search import Found, SearchScope, Words, one_line
from ..checkpoints import vectors
from ..database.database import Database
from ..database.schema import checkpoints, documents, threads
from ..database.schema import vectors as vectors_table
from ..database.statements import EMPTY, IN_LIST, Statement
from . import following, full_text
from .findable import FINDABLE, ITS_DOCUMENT, ITS_THREAD, ITS_VECTOR
from .full_text import TEXT
from .passing import passing
from .records import Candidates, IndexStanding, Recalled, VectorRow

FIRST_PAGE = 32
"""Candidates that are looked up first; each further page has twice as many."""

LOOKED_AT_FIRST = 480
"""Candidates after which it is judged whether so few pass that all who do are asked for."""

MANY = 4000
"""So many more look-ups take longer than to ask."""

_INDEXED = documents.c.seq == checkpoints.c.seq
"""The document says what the checkpoint does; else it is of earlier content."""


def _looked_at(column: ColumnElement[str]) -> ColumnElement[str]:
    """Return a column that no index is asked for: a look-up begins with its numbers."""
    return func.coalesce(column, EMPTY)


_FOUND = (
    threads.c.thread_id,
    checkpoints.c.checkpoint_ns,
    checkpoints.c.checkpoint_id,
    checkpoints.c.summary,
    checkpoints.c.metadata,
    _INDEXED,
    documents.c.number,
    documents.c.truncated,
)
_NUMBERS: BindParameter[Any] = bindparam("numbers", expanding=True)
_OF_DOCUMENTS = documents.join(checkpoints, ITS_DOCUMENT).join(threads, ITS_THREAD)
_OF_VECTORS = (
    vectors_table.join(checkpoints, ITS_VECTOR)
    .join(threads, ITS_THREAD)
    .outerjoin(documents, ITS_DOCUMENT)
)
_BY_DOCUMENT = (
    select(documents.c.number, *_FOUND)
    .select_from(_OF_DOCUMENTS)
    .where(documents.c.number.in_(_NUMBERS))
)
_BY_VECTOR = (
    select(vectors_table.c.number, *_FOUND)
    .select_from(_OF_VECTORS)
    .where(
        vectors_table.c.number.in_(_NUMBERS),
        or_(vectors_table.c.embedder == EMPTY, _INDEXED),
    )
)
_OF_POINTER = Statement(
    select(threads.c.thread_id, documents.c.number)
    .select_from(documents.join(threads, threads.c.number == documents.c.thread))
    .where(
        documents.c.tenant == bindparam("of_tenant"),
        documents.c.pointer == bindparam("of_pointer"),
    )
)
_BODY = Statement(select(TEXT.c.body).where(TEXT.c.rowid == bindparam("of_number")))
_OF_TENANT = vectors_table.c.tenant == bindparam("of_tenant")
_THREAD = select(threads.c.number).where(
    threads.c.tenant == bindparam("of_tenant"), threads.c.thread_id == bindparam("of_thread")
)
_SCAN = Statement(
    select(vectors_table.c.number, vectors_table.c.vector)
    .where(
        vectors_table.c.number > bindparam("after"),
        _looked_at(vectors_table.c.tenant) == bindparam("of_tenant"),
    )
    .order_by(vectors_table.c.number)
    .limit(bindparam("max_rows"))
)
_SCAN_THREAD = Statement(
    select(vectors_table.c.number, vectors_table.c.vector)
    .where(vectors_table.c.thread.in_(_THREAD))
    .order_by(vectors_table.c.number)
)
_DOCUMENTS = Statement(
    select(func.count()).select_from(documents).where(documents.c.tenant == bindparam("of_tenant"))
)
_TRUNCATED = Statement(
    select(func.count())
    .select_from(documents)
    .where(
        _looked_at(documents.c.tenant) == bindparam("of_tenant"),
        literal_column("truncated"),
    )
)
_VECTORS = Statement(select(func.count()).select_from(vectors_table).where(_OF_TENANT))


@dataclass(frozen=True, slots=True)
class _Proposed:
    """A candidate of any kind.

    Attributes:
        number: Of the document, or of the vector.
        distance: From the query.
        summary: What the checkpoint's must be, on one line; `None`: anything.
    """

    number: int
    distance: float
    summary: str | None = None


class FindRows:
    """The index of a journal, being read.

    All calls are coroutines. `JOURNAL_UNAVAILABLE` can come from every call.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def lexical(
        self, tenant: str, words: Words, scope: SearchScope, limit: int
    ) -> list[Found]:
        """Return checkpoints by words, best first; distance is 1 / (1 + BM25)."""

        def work(connection: Connection) -> list[Found]:
            matching = full_text.expression(words, _word_of(connection, tenant, scope))
            if not matching:
                return []
            # Closed before the transaction ends: what is left of it would keep it open.
            with closing(full_text.ranked(connection, matching)) as ranked:
                proposed = (_Proposed(number, 1 / (1 + score)) for number, score in ranked)
                search = _Search(connection, tenant, _BY_DOCUMENT.where(_INDEXED), scope, limit)
                if not search.begin(proposed):
                    numbers = passing(connection, documents, tenant, scope)
                    search.go_on(one for one in proposed if one.number in numbers)
                return search.results

        return await self._database.query(work)

    async def by_vectors(
        self, tenant: str, candidates: Candidates, scope: SearchScope, limit: int
    ) -> list[Found]:
        """Return the first candidates that are live and in scope, in their order.

        Args:
            tenant: The tenant.
            candidates: Read only as far as needed, in a thread.
            scope: Which checkpoints may be found.
            limit: At most so many.
        """

        def work(connection: Connection) -> list[Found]:
            search = _Search(connection, tenant, _BY_VECTOR, scope, limit)
            if not search.begin(_Proposed(one.number, one.distance) for one in candidates):
                numbers = passing(connection, vectors_table, tenant, scope)
                search.go_on(
                    _Proposed(one.number, one.distance) for one in candidates.among(numbers)
                )
            return search.results

        return await self._database.query(work)

    async def by_pointers(
        self, tenant: str, recalled: Sequence[Recalled], scope: SearchScope, limit: int
    ) -> list[Found]:
        """Return live checkpoints in scope that memories point to, in their order, each once.

        A memory counts only if its summary is the checkpoint's own, each run of white space
        as one space. Of checkpoints with one pointer all count, by thread.
        """

        def work(connection: Connection) -> list[Found]:
            proposed = (
                _Proposed(number, one.distance, one.summary)
                for one in recalled
                for _, number in _with_pointer(connection, tenant, one.pointer)
            )
            search = _Search(connection, tenant, _BY_DOCUMENT, scope, limit)
            search.go_on(proposed)
            return search.results

        return await self._database.query(work)

    async def dimension(self, tenant: str) -> int:
        """Return the dimension that the tenant's vectors must have; 0 if it may be any."""
        return await self._database.query(lambda connection: vectors.dimension(connection, tenant))

    async def scan(self, tenant: str, after: int, limit: int) -> list[VectorRow]:
        """Return vectors with a greater number, by number."""
        of = {"of_tenant": tenant, "after": after, "max_rows": limit}
        return await self._database.query(
            lambda connection: [VectorRow(*row) for row in _SCAN.run(connection, **of).fetchall()]
        )

    async def scan_thread(self, tenant: str, thread_id: str) -> list[VectorRow]:
        """Return all vectors of a thread."""
        of = {"of_tenant": tenant, "of_thread": thread_id}
        return await self._database.query(
            lambda connection: [
                VectorRow(*row) for row in _SCAN_THREAD.run(connection, **of).fetchall()
            ]
        )

    async def standing(self, tenant: str) -> IndexStanding:
        """Return how the index stands."""
        return await self._database.query(lambda connection: _standing(connection, tenant))


def _word_of(connection: Connection, tenant: str, scope: SearchScope) -> str:
    """Return the word of the one thread in scope; empty if it may be any."""
    if not scope.thread_id:
        return ""
    number = connection.execute(
        _THREAD, {"of_tenant": tenant, "of_thread": scope.thread_id}
    ).scalar()
    return full_text.scope_word(number or 0)


def _with_pointer(connection: Connection, tenant: str, pointer: bytes) -> list[tuple[str, int]]:
    """Return thread and number of the documents that a pointer stands for, by thread."""
    # Asked to sort them, SQLite would rather read all documents in the order of their threads.
    rows = _OF_POINTER.run(connection, of_tenant=tenant, of_pointer=pointer).fetchall()
    return sorted((thread_id, number) for thread_id, number in rows)


def _standing(connection: Connection, tenant: str) -> IndexStanding:
    lacking = [one for one in following.backlog(connection) if one.tenant == tenant]
    unindexed = sum(one.checkpoints for one in lacking)
    return IndexStanding(
        unindexed=unindexed,
        oldest_unindexed_us=lacking[0].since_us if unindexed else None,
        indexed=_count(connection, _DOCUMENTS, tenant),
        vectors=_count(connection, _VECTORS, tenant),
        truncated=_count(connection, _TRUNCATED, tenant),
    )


def _count(connection: Connection, statement: Statement, tenant: str) -> int:
    row = statement.run(connection, of_tenant=tenant).fetchone()
    return int(row[0]) if row is not None else 0


# --- resolving -------------------------------------------------------------------------


class _Search:
    """Looks candidates up and keeps the first that are live and in scope, each checkpoint once.

    Args:
        connection: In a transaction.
        tenant: The tenant.
        lookup: Selects number and `_FOUND` of the checkpoints that `numbers` stand for.
        scope: Which checkpoints may be found.
        limit: At most so many.
    """

    def __init__(
        self,
        connection: Connection,
        tenant: str,
        lookup: Select[Any],
        scope: SearchScope,
        limit: int,
    ) -> None:
        self._connection = connection
        self._lookup = _within(lookup, tenant, scope)
        self._scope = scope
        self._limit = limit
        self._found: dict[CheckpointKey, Found] = {}

    @property
    def results(self) -> list[Found]:
        """What was found so far, in the order of the candidates."""
        return list(self._found.values())

    def begin(self, proposed: Iterator[_Proposed]) -> bool:
        """Look candidates up, but not all if so few pass that it is better to ask for those.

        Args:
            proposed: Nearest first; read only as far as needed.

        Returns:
            Whether that was all; else candidates with the numbers that pass are to follow,
            the nearest first again.
        """
        looked_at = 0
        for page in _pages(proposed):
            if self._look_up(page):
                return True
            looked_at += len(page)
            wanted = self._limit - len(self._found)
            if looked_at >= LOOKED_AT_FIRST and wanted * looked_at > MANY * len(self._found):
                return False
        return True

    def go_on(self, proposed: Iterable[_Proposed]) -> None:
        """Look candidates up, as many as needed; those that were found already do not count."""
        for page in _pages(proposed):
            if self._look_up(page):
                return

    def _look_up(self, page: Sequence[_Proposed]) -> bool:
        """Keep those of a page that count; tell whether there are enough."""
        numbers = [one.number for one in page]
        rows = {
            row[0]: row[1:] for row in self._connection.execute(self._lookup, {"numbers": numbers})
        }
        for one in page:
            row = rows.get(one.number)
            if row is None or not _counts(one, row, self._scope):
                continue
            key = CheckpointKey(*row[:3])
            if key not in self._found:
                self._found[key] = _found(self._connection, key, row, one.distance)
            if len(self._found) >= self._limit:
                return True
        return False


def _within(lookup: Select[Any], tenant: str, scope: SearchScope) -> Select[Any]:
    lookup = lookup.where(_looked_at(checkpoints.c.tenant) == tenant, FINDABLE)
    if scope.thread_id:
        lookup = lookup.where(_looked_at(threads.c.thread_id) == scope.thread_id)
    if scope.agent_id:
        lookup = lookup.where(_looked_at(threads.c.agent_id) == scope.agent_id)
    return lookup


def _pages(proposed: Iterable[_Proposed]) -> Iterator[list[_Proposed]]:
    iterator = iter(proposed)
    size = FIRST_PAGE
    while page := list(islice(iterator, size)):
        yield page
        size = min(2 * size, IN_LIST)


def _counts(one: _Proposed, row: Sequence[Any], scope: SearchScope) -> bool:
    _, _, _, summary, metadata, *_ = row
    if one.summary is not None and one_line(summary) != one.summary:
        return False
    return matches_typed(metadata, scope.filter)


def _found(
    connection: Connection, key: CheckpointKey, row: Sequence[Any], distance: float
) -> Found:
    _, _, _, summary, metadata, indexed, number, truncated = row
    if not indexed:
        return Found(key, summary, "", metadata, distance)
    [(content,)] = _BODY.run(connection, of_number=number).fetchall()
    return Found(key, summary, content, metadata, distance, truncated=bool(truncated))
