"""Helpers for tests of the search index: save, index everything, search."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from tests.kit.drafts import TENANT, Content, draft
from tests.kit.journal import Journal, rows_of
from tuskpoint_server.core.model import CheckpointKey, SaveOutcome
from tuskpoint_server.core.search import SearchHit, SearchScope, analyse, pack_vector
from tuskpoint_server.journal.sql.schema import checkpoints, documents, threads, vectors
from tuskpoint_server.search.finding import Candidate
from tuskpoint_server.search.searched_values import Document

ANYWHERE = SearchScope()
ONE, OTHER = (1.0, 0.0), (0.0, 1.0)
"""Two vectors."""


def body_of_data(due: Document) -> str:
    """Return the data of all channels: a body equals the data that the test saved."""
    text = " ".join(value.data.decode(errors="replace") for _, value in due.channels)
    return text.replace("\0", " ")


async def save(
    journal: Journal,
    checkpoint_id: str,
    summary: str = "",
    *,
    thread_id: str = "t",
    tenant: str = TENANT,
    data: bytes = b"",
    vector: Sequence[float] = (),
    searchable: bool | None = None,
    **more: object,
) -> SaveOutcome:
    """Save a checkpoint with one channel, "x"."""
    channels: dict[str, Content] = {"x": data} if data else {}
    made = draft(checkpoint_id, "", channels, thread_id=thread_id, summary=summary)
    packed = pack_vector(vector) if vector else b""
    return await journal.save_checkpoint(
        tenant,
        replace(made, vector=packed, searchable=searchable, **more),  # type: ignore[arg-type]
    )


async def drain(
    journal: Journal,
    *,
    remember: bool = False,
    body: Callable[[Document], str] = body_of_data,
    planned: bool = False,
    limit: int = 7,
) -> int:
    """Index all due changes; return the number of stored documents."""
    count = 0
    while True:
        stretch = await journal.index.take(limit)
        made = [
            checkpoint._replace(body=body(checkpoint), planned=planned)
            for checkpoint in stretch.due
        ]
        count += await journal.index.store(stretch, made, remember=remember)
        if stretch.complete:
            return count


async def due(journal: Journal, limit: int = 1000) -> list[Document]:
    """Return the due changes."""
    return list((await journal.index.take(limit)).due)


async def due_keys(journal: Journal) -> list[str]:
    """Return the names of the due checkpoints."""
    return [str(checkpoint.key) for checkpoint in await due(journal)]


async def look(
    journal: Journal,
    text: str,
    scope: SearchScope = ANYWHERE,
    *,
    tenant: str = TENANT,
    limit: int = 10,
) -> list[CheckpointKey]:
    """Search by words."""
    return [
        result.key for result in await results_of(journal, text, scope, tenant=tenant, limit=limit)
    ]


async def results_of(
    journal: Journal,
    text: str,
    scope: SearchScope = ANYWHERE,
    *,
    tenant: str = TENANT,
    limit: int = 10,
) -> list[SearchHit]:
    return await journal.finding.lexical(tenant, analyse(text), scope, limit)


class Nearest:
    """Candidates in a given order; counts the reads."""

    def __init__(self, *candidates: Candidate) -> None:
        self._candidates = candidates
        self.read = 0
        self.numbers: AbstractSet[int] | None = None

    def __call__(self, numbers: AbstractSet[int] | None) -> Iterator[Candidate]:
        self.numbers = numbers
        for candidate in self._candidates:
            self.read += 1
            if numbers is None or candidate.number in numbers:
                yield candidate


async def make_searchable(journal: Journal, thread_id: str, searchable: bool) -> None:
    await journal.removal.set_searchable(TENANT, thread_id, searchable)


Place = tuple[str, str, str, str]
"""Tenant, thread, namespace and ID of a checkpoint."""


async def indexed(journal: Journal) -> set[Place]:
    """Return the checkpoints with a document; a removed checkpoint has no names."""
    numbers = {number for (number,) in await rows_of(journal, documents, "number")}
    alive = {place: number for number, place in (await _places(journal)).items()}
    named = {place for place, number in alive.items() if number in numbers}
    gone = numbers - set(alive.values())
    return named | {("", "", "", f"removed {number}") for number in gone}


async def _places(journal: Journal) -> dict[object, Place]:
    names = {
        number: (str(tenant), str(thread_id))
        for number, tenant, thread_id in await rows_of(
            journal, threads, "number", "tenant", "thread_id"
        )
    }
    return {
        number: (*names[thread], str(ns), str(checkpoint_id))
        for number, thread, ns, checkpoint_id in await rows_of(
            journal, checkpoints, "number", "thread", "checkpoint_ns", "checkpoint_id"
        )
    }


async def vectors_of(journal: Journal) -> dict[str, tuple[str, bytes]]:
    """Return embedder and vector, by thread and checkpoint."""
    names = {row[0]: row[1] for row in await rows_of(journal, threads, "number", "thread_id")}
    columns = ("thread", "checkpoint_id", "embedder", "vector")
    return {
        f"{names[row[0]]}:{row[1]}": (str(row[2]), bytes(row[3]))
        for row in await rows_of(journal, vectors, *columns)
    }


async def findable(journal: Journal) -> set[Place]:
    """Return the checkpoints that search may find, by an independent rule of the test."""
    alive = {
        (tenant, thread_id)
        for tenant, thread_id, deleted, unsearchable in await rows_of(
            journal, threads, "tenant", "thread_id", "deleted", "unsearchable"
        )
        if not deleted and not unsearchable and not str(thread_id).startswith("$")
    }
    return {place for place in (await _places(journal)).values() if place[:2] in alive}


async def watermarks(journal: Journal) -> dict[str, tuple[int, int, object]]:
    """Return indexed number, last number, and start of the unindexed changes, by thread."""
    columns = ("thread_id", "indexed_seq", "seq", "unindexed_since_us")
    return {
        str(thread_id): (int(str(indexed)), int(str(seq)), since)
        for thread_id, indexed, seq, since in await rows_of(journal, threads, *columns)
    }


async def check_text(journal: Journal) -> None:
    """Check that the full text is sound, and has exactly the texts of the documents."""
    if journal.database.backend == "sqlite":
        await journal.database.transact(
            lambda batch: batch.connection.exec_driver_sql(
                "INSERT INTO search_text (search_text) VALUES ('integrity-check')"
            )
        )
    numbers = {number for (number,) in await rows_of(journal, documents, "number")}
    assert set(await summaries(journal)) == numbers


async def summaries(journal: Journal) -> dict[object, object]:
    """Return the summaries in the full text, by number."""
    return await journal.database.query(
        lambda connection: dict(
            connection.exec_driver_sql("SELECT rowid, summary FROM search_text").all()
        )
    )
