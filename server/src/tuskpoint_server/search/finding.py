"""Read access to the search index: turns candidates into live checkpoints.

Full text, vectors and MemWal propose candidates, nearest first. Candidates are looked up page by
page until there are enough results. If hardly any candidate passes the filters, a query selects all
rows that pass instead. So even few results are found, and an answer reflects one moment.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.sql.elements import ColumnElement

from ..core.model import CheckpointKey
from ..core.search import COMPONENT_BYTES, SearchHit, SearchScope, Words, one_line
from ..core.state import matches
from ..journal.database.database import Database
from ..journal.sql import full_text
from ..journal.sql.full_text import TEXT
from ..journal.sql.schema import UNEMBEDDED, checkpoints, documents, threads
from ..journal.sql.schema import vectors as vectors_table
from ..journal.sql.statements import EMPTY, IN_LIST, Statement
from ..journal.values import vectors
from ..journal.values.integrity import damaged_rows
from . import change_feed
from .change_feed import FINDABLE, ITS_DOCUMENT, ITS_THREAD, ITS_VECTOR, C, D, T, V

FIRST_PAGE = 32  # candidates of the first page; each further page has twice as many
# candidates after which the search decides whether to select all passing rows instead
LOOKED_AT_FIRST = 480
MANY = 4000  # number of further look-ups that cost more than selecting all passing rows
# vectors owed to all tenants, oldest first, among which a tenant's are counted
COUNTED_OWED = 10_000
# most checkpoints of a tenant with more text than is indexed that are examined
COUNTED_CUT = 10_000
# condition that the document is as new as the checkpoint's row
_INDEXED = D.seq == C.seq


def _looked_at(column: ColumnElement[str]) -> ColumnElement[str]:
    """Wrap a column so that no index on it is used: a look-up must start with its numbers."""
    return sa.func.coalesce(column, EMPTY)


_KEY = (T.thread_id, C.checkpoint_ns, C.checkpoint_id)
_FOUND = (*_KEY, C.summary, C.metadata, _INDEXED, D.number, D.truncated, C.number)
_NUMBERS: sa.BindParameter[object] = sa.bindparam("numbers", expanding=True)
_BY_DOCUMENT = (
    sa.select(D.number, *_FOUND)
    .select_from(documents.join(checkpoints, ITS_DOCUMENT).join(threads, ITS_THREAD))
    .where(D.number.in_(_NUMBERS))
)
_BY_VECTOR = (
    sa.select(V.number, *_FOUND)
    .select_from(
        vectors_table.join(checkpoints, ITS_VECTOR)
        .join(threads, ITS_THREAD)
        .outerjoin(documents, ITS_DOCUMENT)
    )
    .where(V.number.in_(_NUMBERS), sa.or_(V.embedder == EMPTY, _INDEXED))
)
_OF_POINTER = Statement(
    sa.select(T.thread_id, D.number)
    .select_from(documents.join(threads, T.number == D.thread))
    .where(D.tenant == sa.bindparam("of_tenant"), D.pointer == sa.bindparam("of_pointer"))
)
_BODY = Statement(sa.select(TEXT.c.body).where(TEXT.c.rowid == sa.bindparam("of_number")))
_THREAD = sa.select(T.number).where(
    T.tenant == sa.bindparam("of_tenant"), T.thread_id == sa.bindparam("of_thread")
)
_SCAN = Statement(
    sa.select(V.number, V.vector)
    .where(V.number > sa.bindparam("after"), _looked_at(V.tenant) == sa.bindparam("of_tenant"))
    .order_by(V.number)
    .limit(sa.bindparam("max_rows"))
)
_SCAN_THREAD = Statement(
    sa.select(V.number, V.vector).where(V.thread.in_(_THREAD)).order_by(V.number)
)


def _count_of(table: sa.Table, *conditions: ColumnElement[bool]) -> Statement:
    return Statement(sa.select(sa.func.count()).select_from(table).where(*conditions))


_DOCUMENTS = _count_of(documents, D.tenant == sa.bindparam("of_tenant"))
_TRUNCATED = _count_of(
    documents, _looked_at(D.tenant) == sa.bindparam("of_tenant"), sa.literal_column("truncated")
)
_VECTORS = _count_of(vectors_table, V.tenant == sa.bindparam("of_tenant"))
_FIRST_OWED = (
    sa.select(D.number, D.thread)
    .where(UNEMBEDDED)
    .order_by(D.number)
    .limit(sa.bindparam("max_rows"))
    .subquery()
)
_FIRST_CUT = (
    sa.select(D.number, D.thread)
    .where(
        _looked_at(D.tenant) == sa.bindparam("of_tenant"),
        sa.literal_column("search_documents.truncated"),
    )
    .limit(sa.bindparam("max_rows"))
    .subquery()
)
_IS_CUT_IN_SCOPE = sa.and_(
    FINDABLE,
    sa.or_(sa.bindparam("of_thread") == EMPTY, T.thread_id == sa.bindparam("of_thread")),
    sa.or_(sa.bindparam("of_agent") == EMPTY, T.agent_id == sa.bindparam("of_agent")),
)
_CUT = Statement(
    sa.select(_IS_CUT_IN_SCOPE, *_KEY, C.metadata).select_from(
        _FIRST_CUT.outerjoin(checkpoints, C.number == _FIRST_CUT.c.number).outerjoin(
            threads, T.number == _FIRST_CUT.c.thread
        )
    )
)
_IS_OF_TENANT = sa.and_(C.number.is_not(None), FINDABLE, T.tenant == sa.bindparam("of_tenant"))
_OWED = Statement(
    sa.select(_FIRST_OWED.c.number, _IS_OF_TENANT).select_from(
        _FIRST_OWED.outerjoin(checkpoints, C.number == _FIRST_OWED.c.number).outerjoin(
            threads, T.number == _FIRST_OWED.c.thread
        )
    )
)


class VectorRow(NamedTuple):
    """Vector as a scan reads it."""

    number: int
    vector: bytes


class Candidate(NamedTuple):
    """Checkpoint that may be a result."""

    number: int  # number of the document or of the vector
    distance: float
    summary: str | None = None  # summary, on one line, that the checkpoint must have; `None`: any


# returns candidates, nearest first: all, or only those with one of the given numbers
Candidates = Callable[[AbstractSet[int] | None], Iterator[Candidate]]


class OwedVectors(NamedTuple):
    """Documents of a tenant, by number, that lack a vector of the embedder.

    Search by vectors does not find the checkpoints of these documents. `more` tells that there may
    be further documents.
    """

    numbers: frozenset[int]
    more: bool = False

    @property
    def missed(self) -> int:
        """Number of missed checkpoints; at least 1 if there may be more than were counted."""
        return max(len(self.numbers), int(self.more))


class RecalledMemory(NamedTuple):
    """Memory that MemWal returned, parsed but not verified yet."""

    pointer: bytes
    summary: str
    distance: float


@dataclass(frozen=True, slots=True)
class IndexStatus:
    """Status of the index; `truncated` counts checkpoints whose state is only partly indexed."""

    unindexed: int = 0
    oldest_unindexed_us: int | None = None
    indexed: int = 0
    vectors: int = 0
    truncated: int = 0


class FindRows:
    """Read access to the index of a journal. Every call may raise `JOURNAL_UNAVAILABLE`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.is_sealed = database.is_sealed  # a sealed journal has no values in its index

    async def lexical(
        self, tenant: str, words: Words, scope: SearchScope, limit: int
    ) -> list[SearchHit]:
        """Return checkpoints by words, best first; the distance is 1 / (1 + score)."""

        def work(connection: sa.Connection) -> list[SearchHit]:
            thread = None
            if scope.thread_id:
                parameters = {"of_tenant": tenant, "of_thread": scope.thread_id}
                thread = connection.execute(_THREAD, parameters).scalar() or 0
            lookup = _BY_DOCUMENT.where(_INDEXED)
            with full_text.rank_documents(connection, words, thread) as matches:

                def candidates(numbers: AbstractSet[int] | None) -> Iterator[Candidate]:
                    for number, score in matches:
                        if numbers is None or number in numbers:
                            yield Candidate(number, 1 / (1 + score))

                return _find(connection, lookup, tenant, scope, limit, candidates, documents)

        return await self._database.query(work)

    async def by_vectors(
        self, tenant: str, candidates: Candidates, scope: SearchScope, limit: int
    ) -> list[SearchHit]:
        """Return the first candidates that are live and in scope; `candidates` runs in a thread."""
        return await self._database.query(
            lambda connection: _find(
                connection, _BY_VECTOR, tenant, scope, limit, candidates, vectors_table
            )
        )

    async def by_pointers(
        self, tenant: str, recalled: Sequence[RecalledMemory], scope: SearchScope, limit: int
    ) -> list[SearchHit]:
        """Return the live checkpoints in scope that memories point to, in memory order, each once.

        A memory counts only if its summary equals the checkpoint's, with each run of white space as
        one space. If several checkpoints have the same pointer, all of them count, ordered by
        thread.
        """

        def work(connection: sa.Connection) -> list[SearchHit]:
            def candidates(_: AbstractSet[int] | None) -> Iterator[Candidate]:
                for memory in recalled:
                    parameters = {"of_tenant": tenant, "of_pointer": memory.pointer}
                    # Sorted here: if SQLite had to sort, it would read all documents in the order
                    # of their threads.
                    for _, number in sorted(_OF_POINTER.run(connection, **parameters).fetchall()):
                        yield Candidate(number, memory.distance, memory.summary)

            return _find(connection, _BY_DOCUMENT, tenant, scope, limit, candidates)

        return await self._database.query(work)

    async def dimension(self, tenant: str) -> int:
        """Return the dimension that the tenant's vectors must have; 0 if any is allowed."""
        size = await self._database.query(lambda connection: vectors.size_bytes(connection, tenant))
        return size // COMPONENT_BYTES

    async def scan(self, tenant: str, after: int, limit: int) -> list[VectorRow]:
        """Return vectors with numbers greater than `after`, by number."""
        parameters = {"of_tenant": tenant, "after": after, "max_rows": limit}
        return list(map(VectorRow._make, await self._database.rows(_SCAN, **parameters)))

    async def scan_thread(self, tenant: str, thread_id: str) -> list[VectorRow]:
        """Return all vectors of a thread."""
        parameters = {"of_tenant": tenant, "of_thread": thread_id}
        return list(map(VectorRow._make, await self._database.rows(_SCAN_THREAD, **parameters)))

    async def owed(self, tenant: str) -> OwedVectors:
        """Return the documents of a tenant that have no vector yet and will get one."""
        rows = await self._database.rows(_OWED, of_tenant=tenant, max_rows=COUNTED_OWED + 1)
        mine = frozenset(number for number, is_of_tenant in rows if is_of_tenant)
        return OwedVectors(mine, more=len(rows) > COUNTED_OWED)

    async def cut(self, tenant: str, scope: SearchScope, but: Collection[CheckpointKey]) -> int:
        """Return the number of checkpoints in scope with more text than is indexed, except `but`.

        If there are too many to examine, the result is at least 1.
        """
        parameters = {"of_tenant": tenant, "of_thread": scope.thread_id, "of_agent": scope.agent_id}
        rows = await self._database.rows(_CUT, **parameters, max_rows=COUNTED_CUT + 1)
        count = sum(
            CheckpointKey(*row[1:4]) not in but and matches(row[4], scope.filter, typed=True)
            for row in rows
            if row[0] and row[1] is not None and row[2] is not None
        )
        return max(count, int(len(rows) > COUNTED_CUT))

    async def status(self, tenant: str) -> IndexStatus:
        """Return the status of the index."""

        def work(connection: sa.Connection) -> IndexStatus:
            counts = [
                statement.run(connection, of_tenant=tenant).fetchall()[0][0]
                for statement in (_DOCUMENTS, _VECTORS, _TRUNCATED)
            ]
            for backlog in change_feed.backlog(connection):
                if backlog.tenant == tenant and backlog.checkpoints:
                    return IndexStatus(backlog.checkpoints, backlog.since_us, *counts)
            return IndexStatus(0, None, *counts)

        return await self._database.query(work)


def _find(
    connection: sa.Connection,
    lookup: sa.Select[Any],
    tenant: str,
    scope: SearchScope,
    limit: int,
    candidates: Candidates,
    table: sa.Table | None = None,
) -> list[SearchHit]:
    """Return the first candidates that are live and in scope, each checkpoint once.

    A result whose row is damaged has only a `damage`.
    """
    lookup = lookup.where(*_in_scope(tenant, scope, _looked_at))
    results: dict[CheckpointKey, SearchHit] = {}
    damaged: dict[CheckpointKey, SearchHit] = {}  # damaged results do not count towards the limit
    stream, size, looked_at = candidates(None), FIRST_PAGE, 0
    while len(results) < limit and (page := list(islice(stream, size))):
        numbers = [candidate.number for candidate in page]
        looked_up = {row[0]: row[1:] for row in connection.execute(lookup, {"numbers": numbers})}
        for candidate in page:
            row = looked_up.get(candidate.number)
            if row is None or len(results) == limit:
                continue
            key = CheckpointKey(*row[:3])
            summary, metadata, indexed, number, truncated, of_row = row[3:]
            forged = candidate.summary is not None and one_line(summary) != candidate.summary
            if key in results or forged or not matches(metadata, scope.filter, typed=True):
                continue
            if refusal := damaged_rows(connection, [of_row]).get(of_row):
                damaged[key] = SearchHit(key, "", "", b"", candidate.distance, damage=str(refusal))
                continue
            content = ""
            if indexed:
                [(content,)] = _BODY.run(connection, of_number=number).fetchall()
            whole = not (indexed and truncated)
            results[key] = SearchHit(
                key, summary, content, metadata, candidate.distance, truncated=not whole
            )
        looked_at, size = looked_at + len(page), min(2 * size, IN_LIST)
        few = (limit - len(results)) * looked_at > MANY * len(results)
        if table is not None and len(results) < limit and looked_at >= LOOKED_AT_FIRST and few:
            rows = connection.execute(_select_in_scope(connection, table, tenant, scope))
            passing = {number for number, data in rows if matches(data, scope.filter, typed=True)}
            stream, size, table = candidates(passing), FIRST_PAGE, None
    return [*results.values(), *damaged.values()]


def _in_scope(
    tenant: str,
    scope: SearchScope,
    spelled: Callable[[ColumnElement[str]], ColumnElement[str]] = lambda column: column,
) -> list[ColumnElement[bool]]:
    """Return the conditions on findable threads; `spelled` wraps the columns."""
    scope_pairs = [(T.thread_id, scope.thread_id), (T.agent_id, scope.agent_id)]
    pairs = [(T.tenant, tenant), *(pair for pair in scope_pairs if pair[1])]
    return [FINDABLE, *(spelled(column) == value for column, value in pairs)]


def _select_in_scope(
    connection: sa.Connection, table: sa.Table, tenant: str, scope: SearchScope
) -> sa.Select[int, bytes]:
    """Select all rows in scope: one scan costs less than many look-ups with few results."""
    # Threads first, then the checkpoints of each: a join would start with all checkpoints of the
    # journal.
    thread_numbers = sa.select(T.number).where(*_in_scope(tenant, scope))
    passing = (
        sa.select(table.c.number, C.metadata)
        .select_from(checkpoints.join(table, ITS_DOCUMENT if table is documents else ITS_VECTOR))
        .where(C.thread.in_(thread_numbers))
    )
    # Test metadata for literal strings before it is parsed: without a backslash, JSON has one way
    # to write a string. Numbers have many forms, and so do arrays and objects. The depth of SQL
    # expressions is limited.
    terms = [term for pair in islice(scope.filter.items(), 16) for term in pair]
    spelled = [
        json.dumps(term, ensure_ascii=False).encode(errors="surrogatepass")
        for term in terms
        if term is None or isinstance(term, bool | str)
    ]
    tested = [_metadata_has(connection, literal) for literal in spelled if b"\\" not in literal]
    return passing.where(sa.or_(_metadata_has(connection, b"\\"), sa.and_(True, *tested)))


def _metadata_has(connection: sa.Connection, part: bytes) -> ColumnElement[bool]:
    """Match checkpoints whose metadata contains the given bytes."""
    if connection.dialect.name == "postgresql":
        return sa.func.position(sa.literal(part).op("IN")(C.metadata)) > 0
    return sa.func.instr(C.metadata, part) > 0
