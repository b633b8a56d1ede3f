"""What tests of the search index share: saving, indexing everything, looking."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from sqlalchemy import Table, select

from tests.contract.journal_drafts import TENANT, Content, draft
from tuskpoint_server.domain.model import CheckpointKey, Saved
from tuskpoint_server.domain.search import Found, SearchScope
from tuskpoint_server.domain.search_words import analyse
from tuskpoint_server.domain.vectors import pack
from tuskpoint_server.journal.finding import FindRows
from tuskpoint_server.journal.indexing import IndexRows
from tuskpoint_server.journal.journal import SqlJournal
from tuskpoint_server.journal.schema import checkpoints, documents, threads, vectors
from tuskpoint_server.journal.search_api import Candidate, Document, Due
from tuskpoint_server.journal.searchability import set_searchable

ANYWHERE = SearchScope()
ONE, OTHER = (1.0, 0.0), (0.0, 1.0)
"""Two vectors."""


def body_of_data(due: Due) -> str:
    """Return the data of all channels: a body is what the test saved."""
    return " ".join(value.data.decode(errors="replace") for _, value in due.channels)


async def save(
    journal: SqlJournal,
    checkpoint_id: str,
    summary: str = "",
    *,
    thread_id: str = "t",
    tenant: str = TENANT,
    data: bytes = b"",
    vector: Sequence[float] = (),
    searchable: bool | None = None,
    **more: object,
) -> Saved:
    """Save a checkpoint with one channel, "x"."""
    channels: dict[str, Content] = {"x": data} if data else {}
    made = draft(checkpoint_id, "", channels, thread_id=thread_id, summary=summary)
    packed = pack(vector) if vector else b""
    return await journal.save_checkpoint(
        tenant,
        replace(made, vector=packed, searchable=searchable, **more),  # type: ignore[arg-type]
    )


async def drain(
    journal: SqlJournal,
    *,
    remember: bool = False,
    body: Callable[[Due], str] = body_of_data,
    planned: bool = False,
) -> int:
    """Index everything that is due; return how many documents were stored."""
    index, count = IndexRows(journal), 0
    while due := await index.due(7):
        made = [Document(one, body(one) if one.shown else "", planned) for one in due]
        count += await index.store(made, remember=remember)
    return count


async def look(
    journal: SqlJournal,
    text: str,
    scope: SearchScope = ANYWHERE,
    *,
    tenant: str = TENANT,
    limit: int = 10,
) -> list[CheckpointKey]:
    """Search by words."""
    return [one.key for one in await found(journal, text, scope, tenant=tenant, limit=limit)]


async def found(
    journal: SqlJournal,
    text: str,
    scope: SearchScope = ANYWHERE,
    *,
    tenant: str = TENANT,
    limit: int = 10,
) -> list[Found]:
    return await FindRows(journal).lexical(tenant, analyse(text), scope, limit)


class Nearest:
    """Candidates in a given order; counts how many were read."""

    def __init__(self, *candidates: Candidate) -> None:
        self._candidates = candidates
        self.read = 0
        self.asked: AbstractSet[int] | None = None

    def __iter__(self) -> Iterator[Candidate]:
        for candidate in self._candidates:
            self.read += 1
            yield candidate

    def among(self, numbers: AbstractSet[int]) -> Iterator[Candidate]:
        self.asked = numbers
        return (one for one in self if one.number in numbers)


async def make_searchable(journal: SqlJournal, thread_id: str, searchable: bool) -> None:
    now_us = journal.now_us()
    await journal.transact(
        lambda connection: set_searchable(connection, TENANT, thread_id, searchable, now_us)
    )


PLACE = ("tenant", "thread_id", "checkpoint_ns", "checkpoint_id")
Place = tuple[str, str, str, str]
"""Tenant, thread, namespace and ID of a checkpoint."""


async def indexed(journal: SqlJournal) -> set[Place]:
    """Return the checkpoints that have a document."""
    return {
        (str(tenant), str(thread_id), str(ns), str(checkpoint_id))
        for tenant, thread_id, ns, checkpoint_id in await rows_of(journal, documents, *PLACE)
    }


async def rows_of(journal: SqlJournal, table: Table, *names: str) -> list[tuple[object, ...]]:
    columns = [table.c[name] for name in names]
    return await journal.query(
        lambda connection: [tuple(row) for row in connection.execute(select(*columns))]
    )


async def vectors_of(journal: SqlJournal) -> dict[str, tuple[str, bytes]]:
    """Return who made which vector, by thread and checkpoint."""
    names = ("thread_id", "checkpoint_id", "embedder", "vector")
    rows = await rows_of(journal, vectors, *names)
    return {f"{row[0]}:{row[1]}": (str(row[2]), bytes(row[3])) for row in rows}  # type: ignore[call-overload]


async def findable(journal: SqlJournal) -> set[Place]:
    """Return the checkpoints that search may find, by a rule of the test's own."""
    alive = {
        (tenant, thread_id)
        for tenant, thread_id, deleted, unsearchable in await rows_of(
            journal, threads, "tenant", "thread_id", "deleted", "unsearchable"
        )
        if not deleted and not unsearchable and not str(thread_id).startswith("$")
    }
    return {
        (str(tenant), str(thread_id), str(ns), str(checkpoint_id))
        for tenant, thread_id, ns, checkpoint_id, hidden in await rows_of(
            journal, checkpoints, *PLACE, "hidden"
        )
        if not hidden and (tenant, thread_id) in alive
    }
