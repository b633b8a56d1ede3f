"""Search finds what people ask for: names and numbers by words, meaning by vectors.

Measured with the committed set, through a running server: of 32 questions with a name, a number or
a quotation, words find the answer to every question first. Of 40 paraphrases, which share no word
with their answers, words find none, and vectors of MiniLM find 35 first (0.88) and 39 among the
first ten (0.98). The bounds below are a little lower.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing

import numpy as np
import pytest

from tests.integration.search.search_kit import has_vectors
from tests.integration.search.search_quality import questions
from tests.kit.servers.embedding_endpoint import serving
from tests.unit.search.embedders.local_model import CACHE, NEEDS_MODEL
from tuskpoint import AsyncClient
from tuskpoint_server.api.server.server import Server
from tuskpoint_server.commands import serve
from tuskpoint_server.config.settings import Config
from tuskpoint_server.core.search import analyse
from tuskpoint_server.search.embedders.local import LocalEmbedder

from .questions import Question, Saved, checkpoints, exact_terms, paraphrases, vectors

HIT_AT_1 = 0.8
HIT_AT_10 = 0.92


@pytest.fixture
async def client(server: Server) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(f"127.0.0.1:{server.port}") as made:
        yield made


async def save_all(client: AsyncClient, *, with_vectors: bool) -> dict[str, str]:
    """Save the set; return the ID of each checkpoint by its name."""

    async def save(saved: Saved) -> str:
        return await client.save(
            saved.thread,
            {"n": saved.metadata["step"]},
            metadata=saved.metadata,
            summary=saved.summary,
            agent_id=saved.agent,
            vector=vectors()[saved.summary] if with_vectors else None,
        )

    return {saved.name: await save(saved) for saved in checkpoints()}


def hits(ranks: Sequence[int], among: int) -> float:
    """Return the share of questions with the answer among the first; rank 0 means not found."""
    return sum(0 < rank <= among for rank in ranks) / len(ranks)


def rank(ids: Sequence[str], sought: str) -> int:
    return ids.index(sought) + 1 if sought in ids else 0


# --- the set ---------------------------------------------------------------------------------


def test_every_question_is_about_one_checkpoint() -> None:
    names = [saved.name for saved in checkpoints()]
    assert len(set(names)) == len(names) == 60
    assert len(set(questions.texts())) == len(questions.texts())
    assert {question.finds for question in (*exact_terms(), *paraphrases())} <= set(names)
    assert (len(exact_terms()), len(paraphrases())) == (32, 40)


def test_no_paraphrase_has_a_word_of_its_summary() -> None:
    """Not even a stem: full text, which compares stems, finds no paraphrase."""
    summaries = {saved.name: saved.summary for saved in checkpoints()}
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("CREATE VIRTUAL TABLE held USING fts5(summary, tokenize='porter')")
        for question in paraphrases():
            database.execute("DELETE FROM held")
            database.execute("INSERT INTO held VALUES (?)", (summaries[question.finds],))
            for word in analyse(question.question).words:
                cursor = database.execute("SELECT 1 FROM held WHERE held MATCH ?", (f'"{word}"',))
                assert cursor.fetchone() is None, (word, question)


def test_the_vectors_belong_to_the_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    held = vectors()
    assert list(held) == questions.texts()
    lengths = np.linalg.norm(np.array(list(held.values())), axis=1)
    assert lengths == pytest.approx(np.ones(len(held)), abs=2e-3)
    changed = [*questions.texts()[:-1], "another question"]
    monkeypatch.setattr(questions, "texts", lambda: changed)
    with pytest.raises(ValueError, match="not of these texts"):
        questions.vectors.__wrapped__()


@NEEDS_MODEL
async def test_the_vectors_are_those_that_the_model_makes() -> None:
    embedder = LocalEmbedder(CACHE)
    sample = questions.texts()[::20]
    made = np.array([np.frombuffer(vector, "<f4") for vector in await embedder.embed(sample)])
    held = np.array([vectors()[text] for text in sample])
    # Committed with 16 bits (11 of them digits), from another program with the same weights.
    assert np.abs(made - held).max() < 2**-9
    await embedder.close()


# --- results ---------------------------------------------------------------------------------


async def test_words_find_names_and_numbers_first(client: AsyncClient) -> None:
    ids = await save_all(client, with_vectors=True)
    for question in exact_terms():
        results = await client.search_history(question.question, limit=5)
        assert results.mode == "lexical"
        assert results[0].checkpoint_id == ids[question.finds], question
        loaded = await client.load(results[0].thread_id, results[0].checkpoint_id)
        assert loaded.summary == results[0].summary
    for question in paraphrases():
        results = await client.search_history(question.question, limit=100)
        assert ids[question.finds] not in {result.checkpoint_id for result in results}


async def test_vectors_find_by_meaning(client: AsyncClient) -> None:
    ids = await save_all(client, with_vectors=True)

    async def rank_of(question: Question) -> int:
        results = await client.search_similar(vectors()[question.question], limit=10)
        assert (results.mode, results.metric) == ("vector", "cosine")
        assert [result.distance for result in results] == sorted(
            result.distance for result in results
        )
        return rank([result.checkpoint_id for result in results], ids[question.finds])

    ranks = [await rank_of(question) for question in paraphrases()]
    assert hits(ranks, 1) >= HIT_AT_1
    assert hits(ranks, 10) >= HIT_AT_10


async def test_a_narrower_search_finds_the_nearest_of_what_is_left(client: AsyncClient) -> None:
    ids = await save_all(client, with_vectors=True)
    by_name = {saved.name: saved for saved in checkpoints()}
    for question in paraphrases():
        sought = by_name[question.finds]
        query = vectors()[question.question]
        threads = {result.thread_id for result in await client.search_similar(query, sought.thread)}
        assert threads == {sought.thread}
        same = {"outcome": sought.metadata["outcome"]}
        results = await client.search_similar(query, limit=10, filter_metadata=same)
        assert {result.metadata["outcome"] for result in results} == {sought.metadata["outcome"]}
        whole = await client.search_similar(query, limit=10)
        place = rank([result.checkpoint_id for result in whole], ids[question.finds])
        narrowed = rank([result.checkpoint_id for result in results], ids[question.finds])
        assert (0 < narrowed <= place) or not place


async def test_text_is_found_by_words_or_meaning_with_an_embedder(config: Config) -> None:
    async with searched_by_an_endpoint(config) as (client, ids):
        ranks = []
        for question in paraphrases():
            results = await client.search_history(question.question, limit=10)
            assert results.mode == "vector"
            ranks.append(rank([result.checkpoint_id for result in results], ids[question.finds]))
        assert hits(ranks, 1) >= HIT_AT_1
        assert hits(ranks, 10) >= HIT_AT_10
        exact = []
        for question in exact_terms():
            results = await client.search_history(question.question, limit=5)
            # Questions with a number or a quotation use words, which match exactly.
            expected = "lexical" if analyse(question.question).asks_exactly else "vector"
            assert (results.mode, results.warnings) == (expected, ())
            exact.append(rank([result.checkpoint_id for result in results], ids[question.finds]))
        assert hits(exact, 1) == 1


@asynccontextmanager
async def searched_by_an_endpoint(
    config: Config,
) -> AsyncIterator[tuple[AsyncClient, dict[str, str]]]:
    """Run a server whose embedder serves the committed vectors, with the set indexed."""
    elsewhere = [1.0, *[0.0] * (len(vectors()[questions.texts()[0]]) - 1)]
    async with serving(lambda text: vectors().get(text, elsewhere)) as endpoint:
        settings = {
            "embedder": "openai",
            "embedder_url": endpoint.url,
            "embedder_model": "minilm",
        }
        async with (
            serve.running_server(config.model_copy(update=settings)) as server,
            AsyncClient(f"127.0.0.1:{server.port}") as client,
        ):
            ids = await save_all(client, with_vectors=False)
            await has_vectors(client, len(checkpoints()))
            sent = {text for body in endpoint.requests for text in body["input"]}
            assert {saved.summary for saved in checkpoints()} <= sent
            yield client, ids
