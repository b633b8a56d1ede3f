"""What tests of the search index share: saving, indexing everything, looking."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Coroutine, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Table, select

from tests.kit.drafts import TENANT, Content, draft
from tests.kit.journal import Clock, Journal, open_database
from tuskpoint_server.domain.model import CheckpointKey, Saved
from tuskpoint_server.domain.search import Found, SearchScope, analyse, pack_vector
from tuskpoint_server.journal.database.database import Database
from tuskpoint_server.journal.database.schema import checkpoints, documents, threads, vectors
from tuskpoint_server.journal.lineage.lineage import Lineage
from tuskpoint_server.journal.lineage.snapshots import Snapshots
from tuskpoint_server.journal.removal.removal import Removal
from tuskpoint_server.journal.search.finding import Candidate, FindRows
from tuskpoint_server.journal.search.index import IndexRows
from tuskpoint_server.journal.search.memories import MemoryRows
from tuskpoint_server.journal.search.searched_values import Document

T = TypeVar("T")

ANYWHERE = SearchScope()
ONE, OTHER = (1.0, 0.0), (0.0, 1.0)
"""Two vectors."""


class Rooms(Journal):
    """A journal, what search reads and writes in it, and what changes it."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.removal = Removal(database)
        self.lineage = Lineage(database)
        self.snapshots = Snapshots(database)
        self.index = IndexRows(database)
        self.finding = FindRows(database)
        self.memories = MemoryRows(database)


async def open_rooms(directory: Path, clock: Clock) -> Rooms:
    return Rooms(await open_database(directory / "journal.db", clock))


class World:
    """A journal with its event loop, shared by all examples."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory()
        self._runner = asyncio.Runner()
        self.clock = Clock()
        self.journal: Rooms = self.run(open_rooms(Path(self._directory.name), self.clock))
        self._examples = 0

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(call)

    def next_prefix(self) -> str:
        """Return a prefix of thread names that no other example has."""
        self._examples += 1
        return f"{self._examples}-"

    def close(self) -> None:
        self.run(self.journal.database.close())
        self._runner.close()
        self._directory.cleanup()


def body_of_data(due: Document) -> str:
    """Return the data of all channels: a body is what the test saved."""
    return " ".join(value.data.decode(errors="replace") for _, value in due.channels)


async def save(
    journal: Rooms,
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
    packed = pack_vector(vector) if vector else b""
    return await journal.save_checkpoint(
        tenant,
        replace(made, vector=packed, searchable=searchable, **more),  # type: ignore[arg-type]
    )


async def drain(
    journal: Rooms,
    *,
    remember: bool = False,
    body: Callable[[Document], str] = body_of_data,
    planned: bool = False,
    limit: int = 7,
) -> int:
    """Index everything that is due; return how many documents were stored."""
    count = 0
    while True:
        stretch = await journal.index.take(limit)
        made = [replace(one, body=body(one), planned=planned) for one in stretch.due]
        count += await journal.index.store(stretch, made, remember=remember)
        if stretch.complete:
            return count


async def due(journal: Rooms, limit: int = 1000) -> list[Document]:
    """Return what is due."""
    return list((await journal.index.take(limit)).due)


async def due_keys(journal: Rooms) -> list[str]:
    """Return the names of the checkpoints that are due."""
    return [str(one.key) for one in await due(journal)]


async def look(
    journal: Rooms,
    text: str,
    scope: SearchScope = ANYWHERE,
    *,
    tenant: str = TENANT,
    limit: int = 10,
) -> list[CheckpointKey]:
    """Search by words."""
    return [one.key for one in await found(journal, text, scope, tenant=tenant, limit=limit)]


async def found(
    journal: Rooms,
    text: str,
    scope: SearchScope = ANYWHERE,
    *,
    tenant: str = TENANT,
    limit: int = 10,
) -> list[Found]:
    return await journal.finding.lexical(tenant, analyse(text), scope, limit)


class Nearest:
    """Candidates in a given order; counts how many were read."""

    def __init__(self, *candidates: Candidate) -> None:
        self._candidates = candidates
        self.read = 0
        self.asked: AbstractSet[int] | None = None

    def __call__(self, numbers: AbstractSet[int] | None) -> Iterator[Candidate]:
        self.asked = numbers
        for candidate in self._candidates:
            self.read += 1
            if numbers is None or candidate.number in numbers:
                yield candidate


async def make_searchable(journal: Rooms, thread_id: str, searchable: bool) -> None:
    await journal.removal.set_searchable(TENANT, thread_id, searchable)


Place = tuple[str, str, str, str]
"""Tenant, thread, namespace and ID of a checkpoint."""


async def indexed(journal: Rooms) -> set[Place]:
    """Return the checkpoints that have a document; one of a removed checkpoint has no names."""
    numbers = {number for (number,) in await rows_of(journal, documents, "number")}
    alive = {place: number for number, place in (await _places(journal)).items()}
    named = {place for place, number in alive.items() if number in numbers}
    gone = numbers - set(alive.values())
    return named | {("", "", "", f"removed {number}") for number in gone}


async def _places(journal: Rooms) -> dict[object, Place]:
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


async def rows_of(journal: Rooms, table: Table, *names: str) -> list[tuple[object, ...]]:
    columns = [table.c[name] for name in names]
    return await journal.database.query(
        lambda connection: [tuple(row) for row in connection.execute(select(*columns))]
    )


async def vectors_of(journal: Rooms) -> dict[str, tuple[str, bytes]]:
    """Return who made which vector, by thread and checkpoint."""
    names = {row[0]: row[1] for row in await rows_of(journal, threads, "number", "thread_id")}
    columns = ("thread", "checkpoint_id", "embedder", "vector")
    return {
        f"{names[row[0]]}:{row[1]}": (str(row[2]), bytes(row[3]))  # type: ignore[call-overload]
        for row in await rows_of(journal, vectors, *columns)
    }


async def findable(journal: Rooms) -> set[Place]:
    """Return the checkpoints that search may find, by a rule of the test's own."""
    alive = {
        (tenant, thread_id)
        for tenant, thread_id, deleted, unsearchable in await rows_of(
            journal, threads, "tenant", "thread_id", "deleted", "unsearchable"
        )
        if not deleted and not unsearchable and not str(thread_id).startswith("$")
    }
    return {place for place in (await _places(journal)).values() if place[:2] in alive}


async def watermarks(journal: Rooms) -> dict[str, tuple[int, int, object]]:
    """Return indexed number, last number and the time of what is not indexed, by thread."""
    columns = ("thread_id", "indexed_seq", "seq", "unindexed_since_us")
    return {
        str(thread_id): (int(str(indexed)), int(str(seq)), since)
        for thread_id, indexed, seq, since in await rows_of(journal, threads, *columns)
    }
