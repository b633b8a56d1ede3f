"""The tasks of search find all that is saved in a real journal, whatever happens between."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from sqlalchemy import text as sql

from tests.contract.search.kit import look, make_searchable, results_of, save
from tests.kit.databases import place_of_new_journal
from tests.kit.drafts import TENANT, draft, key
from tests.kit.journal import Journal, rows_of
from tests.unit.search.search_shelf import distance
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.core.limits import KIB, LIMITS
from tuskpoint_server.core.model import CheckpointKey, Value
from tuskpoint_server.core.search import COMPONENT_BYTES, Metric, SearchScope, pack_vector
from tuskpoint_server.core.state import parse_metadata
from tuskpoint_server.journal.database.database import Database
from tuskpoint_server.journal.lease import Lease
from tuskpoint_server.journal.sql.schema import documents
from tuskpoint_server.search.change_feed import Stretch
from tuskpoint_server.search.embedders import EmbedderError
from tuskpoint_server.search.index import IndexRows
from tuskpoint_server.search.pacing import IndexSettings
from tuskpoint_server.search.search import SearchEngine
from tuskpoint_server.search.searched_values import Document
from tuskpoint_server.search.tasks import BATCH, EmbeddingTask, IndexTask
from tuskpoint_server.search.vectors import VectorIndex

SETTINGS = IndexSettings(
    gather_s=0, busy_share=1, catch_up_s=30, first_retry_s=0.001, longest_retry_s=0.05
)
LAZY = IndexSettings(gather_s=3600, busy_share=0.001, catch_up_s=30)
ANYWHERE = SearchScope()


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    opened = await Database.open(place_of_new_journal(tmp_path / "journal.db"))
    yield Journal(opened)
    await opened.close()


@dataclass
class Letters:
    """An embedder that counts vowels; `down` makes it fail."""

    name: str = "letters"
    letters: str = "aeiou"
    batch: int = 8
    down: bool = False
    called: asyncio.Event = field(default_factory=asyncio.Event)

    async def dimension(self) -> int:
        return len(self.letters) + 1

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        self.called.set()
        if self.down:
            raise EmbedderError("no answer")
        return [self.vector(text) for text in texts]

    async def close(self) -> None:
        raise AssertionError("whoever made it closes it")

    def vector(self, text: str) -> bytes:
        return pack_vector([1.0, *(float(text.count(letter)) for letter in self.letters)])


@asynccontextmanager
async def indexing(
    journal: Journal,
    settings: IndexSettings = SETTINGS,
    *,
    rows: IndexRows | None = None,
    embedder: Letters | None = None,
) -> AsyncIterator[tuple[IndexTask, asyncio.Event]]:
    """Run the tasks; the event is set when documents were stored."""
    rows = rows or journal.index
    embedding = EmbeddingTask(rows, embedder, settings) if embedder is not None else None
    stored = asyncio.Event()

    def note_stored() -> None:
        stored.set()
        if embedding is not None:
            embedding.wake()

    indexer = IndexTask(
        rows,
        journal.database.waiters.subscribe,
        settings,
        remember=False,
        stored=note_stored,
    )
    try:
        yield indexer, stored
    finally:
        await asyncio.wait_for(indexer.stop(), 30)
        if embedding is not None:
            await asyncio.wait_for(embedding.stop(), 30)


async def until_embedded(journal: Journal, count: int, dimension: int) -> None:
    """Wait for a number of vectors of a dimension, and until no document lacks a vector."""
    size = dimension * COMPONENT_BYTES
    async with asyncio.timeout(30):
        while [len(row.vector) for row in await journal.finding.scan(TENANT, 0, 1000)] != (
            [size] * count
        ) or await journal.index.unembedded(1):
            pass


async def test_a_search_sees_saves_and_deletions_at_once(
    journal: Journal,
) -> None:
    await save(journal, "1", "the writer starts", thread_id="early")
    async with indexing(journal, LAZY) as (indexer, _):
        assert await indexer.catch_up(TENANT) == 0
        assert await look(journal, "writer") == [key("1", "early")]
        for number in range(2, 6):
            await save(journal, str(number), f"the writer pauses {number}", thread_id="late")
            assert await indexer.catch_up(TENANT) == 0
            assert await look(journal, str(number)) == [key(str(number), "late")]
        await journal.removal.delete_thread(TENANT, "late")
        assert await look(journal, "writer") == [key("1", "early")]
        await make_searchable(journal, "early", False)
        assert await look(journal, "writer") == []
        await make_searchable(journal, "early", True)
        assert await indexer.catch_up(TENANT) == 0
        assert await look(journal, "writer") == [key("1", "early")]


async def test_saves_and_searches_share_the_journal_with_a_backlog(journal: Journal) -> None:
    await asyncio.gather(*(save(journal, f"{number:03}", f"old {number}") for number in range(200)))
    async with indexing(journal) as (indexer, _):

        async def agent(number: int) -> None:
            for step in range(5):
                await save(journal, str(step), f"agent{number} step{step}", thread_id=str(number))
                assert await indexer.catch_up(TENANT) == 0
                keys = await look(journal, f'"agent{number} step{step}"')
                assert keys == [key(str(step), str(number))]

        await asyncio.gather(*(agent(number) for number in range(8)))
        assert indexer.trouble.problem == ""
    status = await journal.finding.status(TENANT)
    assert (status.unindexed, status.indexed) == (0, 240)


async def test_stopping_in_the_middle_loses_nothing_and_repeats_nothing(
    journal: Journal,
) -> None:
    for number in range(3 * BATCH):
        await save(journal, f"{number:03}", f"old {number}")
    async with indexing(journal, LAZY) as (indexer, stored):
        await asyncio.wait_for(stored.wait(), 30)
        await indexer.stop()
    assert (await journal.finding.status(TENANT)).indexed == BATCH
    first = await rows_of(journal, documents, "number", "seq")
    async with indexing(journal) as (indexer, _):
        assert await indexer.catch_up(TENANT) == 0
    after = await rows_of(journal, documents, "number", "seq")
    assert len(after) == 3 * BATCH
    assert set(first) < set(after)


@pytest.mark.sqlite
async def test_a_row_that_the_database_refuses_does_not_keep_others_from_the_index(
    journal: Journal,
) -> None:
    await journal.database.transact(
        lambda batch: batch.connection.execute(
            sql(
                "CREATE TRIGGER poison BEFORE INSERT ON search_documents WHEN (SELECT summary "
                "FROM checkpoints WHERE number = NEW.number) LIKE 'poison%' "
                "BEGIN SELECT RAISE(ABORT, 'poison'); END"
            )
        ).close()
    )
    for number in range(50):
        await save(journal, str(number), f"poison {number}" if number in (3, 4, 20) else "sound")
    async with indexing(journal) as (indexer, _):
        assert await indexer.catch_up(TENANT) == 0
        assert (await journal.finding.status(TENANT)).indexed == 47
        await journal.database.transact(
            lambda batch: batch.connection.execute(sql("DROP TRIGGER poison")).close()
        )
        await save(journal, "20", "poison, saved again")
        assert await indexer.catch_up(TENANT) == 0
    assert await look(journal, "poison") == [key("20")]


async def test_a_journal_that_takes_nothing_for_a_while_is_caught_up_with(
    journal: Journal,
) -> None:
    class Failing(IndexRows):
        """Refuses to store documents until it is repaired."""

        broken = True
        tried = asyncio.Event()

        async def store(self, stretch: Stretch, made: Sequence[Document], *, remember: bool) -> int:
            self.tried.set()
            if self.broken:
                raise Refusal(Reason.JOURNAL_UNAVAILABLE, problem="the disk is full")
            return await super().store(stretch, made, remember=remember)

    rows = Failing(journal.database)
    async with indexing(journal, rows=rows) as (indexer, stored):
        for number in range(10):
            await save(journal, str(number), f"step {number}")
        await asyncio.wait_for(rows.tried.wait(), 30)
        assert await indexer.catch_up(TENANT) == 10
        assert "the disk is full" in indexer.trouble.problem
        rows.broken = False
        await asyncio.wait_for(stored.wait(), 30)
        async with asyncio.timeout(30):
            while await indexer.catch_up(TENANT):
                pass
        assert indexer.trouble.problem == ""
    assert len(await look(journal, "step")) == 10


async def test_documents_get_vectors_once_the_embedder_answers_and_again_from_another(
    journal: Journal,
) -> None:
    embedder = Letters(down=True)
    async with indexing(journal, embedder=embedder) as (indexer, _):
        for number in range(20):
            await save(journal, str(number), "a" * number + "e" * (20 - number), data=b"x")
        assert await indexer.catch_up(TENANT) == 0
        await asyncio.wait_for(embedder.called.wait(), 30)
        assert (await journal.finding.status(TENANT)).vectors == 0
        embedder.down = False
        await until_embedded(journal, 20, 6)
    index = VectorIndex(journal.finding, 1 << 20)
    query = embedder.vector("a" * 7 + "e" * 13)
    [result] = await index.nearest(TENANT, query, Metric.COSINE, ANYWHERE, 1)
    assert (result.key, result.distance) == (key("7"), 0.0)
    assert result.summary == "a" * 7 + "e" * 13
    other = Letters(name="vowels and y", letters="aeiouy")
    async with indexing(journal, embedder=other):
        await until_embedded(journal, 20, 7)
    [result] = await index.nearest(TENANT, other.vector("a" * 9 + "e" * 11), Metric.L2, ANYWHERE, 1)
    assert (result.key, result.distance) == (key("9"), 0.0)
    assert await index.nearest(TENANT, query, Metric.COSINE, ANYWHERE, 5) == []
    await index.close()


async def test_a_server_without_an_embedder_forgets_the_one_before(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await journal.index.adopt_embedder("e1", 3)

    @asynccontextmanager
    async def running() -> AsyncIterator[SearchEngine]:
        engine = SearchEngine(
            journal.database, Lease(journal.database), SETTINGS, embedder=None, memwal=None
        )
        await engine.start()
        try:
            yield engine
        finally:
            await engine.stop()

    async def refuse(*_: object, **__: object) -> None:
        raise Refusal(Reason.JOURNAL_UNAVAILABLE, problem="the disk is full")

    with monkeypatch.context() as full:
        full.setattr(journal.database, "transact", refuse)
        async with running() as engine:
            assert await engine.finding.dimension(TENANT) == 3
    assert "the disk is full" in caplog.text
    async with running() as engine:
        assert await engine.finding.dimension(TENANT) == 0
        await save(journal, "01", "saved", vector=(1.0, 0.0))
        assert await engine.finding.dimension(TENANT) == 2


@pytest.mark.parametrize("cache_bytes", [0, 5000, 1 << 20])
async def test_the_nearest_are_those_of_comparing_one_by_one(
    journal: Journal, cache_bytes: int
) -> None:
    source = random.Random(cache_bytes)
    model: dict[CheckpointKey, tuple[list[float], str]] = {}

    def whole() -> list[float]:
        return [float(source.randint(-9, 9)) for _ in range(5)] + [1.0]

    async def saving(number: int, thread_id: str) -> None:
        vector, outcome = whole(), source.choice(["success", "failure"])
        await save(
            journal,
            f"{number:03}",
            "saved",
            thread_id=thread_id,
            vector=vector,
            metadata=parse_metadata(json.dumps({"outcome": outcome}).encode(), "metadata_json"),
        )
        model[key(f"{number:03}", thread_id)] = (vector, outcome)

    async def check(index: VectorIndex) -> None:
        query = whole()
        for metric in Metric:
            for scope in (
                ANYWHERE,
                SearchScope(thread_id="b"),
                SearchScope(filter={"outcome": "success"}),
            ):
                results = await index.nearest(TENANT, pack_vector(query), metric, scope, 7)
                expected = sorted(
                    distance(vector, query, metric)
                    for place, (vector, outcome) in model.items()
                    if scope.thread_id in ("", place.thread_id)
                    and (not scope.filter or outcome == scope.filter["outcome"])
                )
                assert [result.distance for result in results] == expected[:7]
                for result in results:
                    assert distance(model[result.key][0], query, metric) == result.distance

    index = VectorIndex(journal.finding, cache_bytes)
    await asyncio.gather(*(saving(n, source.choice("abc")) for n in range(150)))
    await check(index)
    await asyncio.gather(*(saving(int(k.checkpoint_id), k.thread_id) for k in list(model)[:50]))
    await check(index)
    await journal.removal.delete_thread(TENANT, "a")
    model = {place: held for place, held in model.items() if place.thread_id != "a"}
    await asyncio.gather(*(check(index) for _ in range(4)))
    assert index.held_bytes <= cache_bytes
    await index.close()


async def test_a_search_is_not_kept_by_a_backlog_for_longer_than_it_may(
    journal: Journal,
) -> None:
    class Hanging(IndexRows):
        """Stores nothing until the test allows it."""

        may = asyncio.Event()

        async def store(self, stretch: Stretch, made: Sequence[Document], *, remember: bool) -> int:
            await self.may.wait()
            return await super().store(stretch, made, remember=remember)

    rows = Hanging(journal.database)
    await save(journal, "1", "one")
    async with indexing(journal, IndexSettings(catch_up_s=0.01), rows=rows) as (indexer, _):
        assert await asyncio.wait_for(indexer.catch_up(TENANT), 30) == 1
        rows.may.set()


async def test_a_state_of_any_size_is_found_by_its_latest_part(journal: Journal) -> None:
    serde = JsonPlusSerializer()
    messages = [HumanMessage(f"Question {number}. {'word ' * 20}") for number in range(2000)]
    async with indexing(journal) as (indexer, _):
        for number, last in enumerate(("a walrus", "an elephant")):
            messages.append(HumanMessage(f"It is {last}."))
            state = {"messages": Value(*serde.dumps_typed(messages))}
            assert len(state["messages"].data) > 200 * KIB
            made = draft(f"0{number}", f"0{number - 1}" if number else "", state)
            await journal.save_checkpoint(TENANT, made)
        assert await indexer.catch_up(TENANT) == 0
    [first] = await results_of(journal, "elephant")
    assert (first.key, first.truncated) == (key("01"), False)
    [first] = await results_of(journal, "walrus")
    assert (first.key, first.truncated) == (key("00"), True)
    assert len(first.content.encode()) <= LIMITS.max_search_text
    assert await look(journal, '"question 7"') == []
    assert (await journal.finding.status(TENANT)).truncated == 1
