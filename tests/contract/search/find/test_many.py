"""Among 50,000 summaries a search is as exact as among ten, whatever its scope."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.contract.search.find.many_summaries import PER_THREAD, Many, One, store_many
from tests.contract.search.kit import look, make_searchable
from tests.kit.drafts import TENANT
from tests.kit.journal import JournalWorld
from tuskpoint_server.core.limits import KIB, MIB
from tuskpoint_server.core.search import Metric, SearchScope, pack_vector
from tuskpoint_server.search.vectors import VectorIndex

pytestmark = pytest.mark.slow

Singles = NDArray[np.float32]
Floats = NDArray[np.float64]
Places = NDArray[np.int64]

COUNT = 50_000
DIMENSION = 8
SMALL_CACHE, LARGE_CACHE = 256 * KIB, 64 * MIB
LIMIT = 7
DELETED, SILENT = "t00400", "t00401"
"""Threads that a search must not find."""

PHRASE = '"critic rejected the contract"'


@pytest.fixture(scope="module")
def world(database: str) -> Iterator[JournalWorld]:
    opened = JournalWorld(checked=False)  # the rows of this test have no log
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def many(world: JournalWorld) -> Many:
    stored = world.run(store_many(world.journal, COUNT, DIMENSION))
    world.run(world.journal.removal.delete_thread(TENANT, DELETED))
    world.run(make_searchable(world.journal, SILENT, False))
    return stored


NONE = SearchScope(filter={"absent": None})
SCOPES = {
    "all": SearchScope(),
    "a thread": SearchScope(thread_id="t00077"),
    "a deleted thread": SearchScope(thread_id=DELETED),
    "a silent thread": SearchScope(thread_id=SILENT),
    "an agent": SearchScope(agent_id="agent 3"),
    "no agent": SearchScope(agent_id="nobody"),
    "half": SearchScope(filter={"even": True}),
    "one": SearchScope(filter={"rare": "yes"}),
    "one of an agent's": SearchScope(agent_id="agent 7", filter={"rare": "yes"}),
    "one of a thread's": SearchScope(thread_id="t00777", filter={"rare": "yes"}),
    "none of a thread's": SearchScope(thread_id="t00778", filter={"rare": "yes"}),
    "none, by the value": SearchScope(filter={"source": "never"}),
    "none, by the type": SearchScope(filter={"even": 1}),
    "none, by the key": NONE,
}


def in_scope(many: Many, scope: SearchScope) -> Places:
    """Return the places that a search may find, by an independent rule of the test."""
    places = np.arange(many.count)
    threads = places // PER_THREAD
    firsts = [One(thread * PER_THREAD) for thread in range(many.count // PER_THREAD)]
    of_thread = [
        checkpoint.thread_id not in (DELETED, SILENT)
        and scope.thread_id in ("", checkpoint.thread_id)
        and scope.agent_id in ("", checkpoint.agent_id)
        for checkpoint in firsts
    ]
    # There are three kinds of metadata: even, odd and rare.
    of_kind = [has(One(place).metadata(many.rare), scope.filter) for place in (0, 1, many.rare)]
    kinds = np.where(places == many.rare, 2, places % 2)
    return np.flatnonzero(np.array(of_thread)[threads] & np.array(of_kind)[kinds])


def has(metadata: Mapping[str, object], wanted: Mapping[str, object]) -> bool:
    return all(
        key in metadata and (type(metadata[key]), metadata[key]) == (type(value), value)
        for key, value in wanted.items()
    )


@pytest.mark.parametrize("scope", SCOPES.values(), ids=SCOPES)
def test_a_phrase_finds_all_that_have_it_and_nothing_else(
    world: JournalWorld, many: Many, scope: SearchScope
) -> None:
    said = PHRASE.strip('"')
    checkpoints = map(One, in_scope(many, scope).tolist())
    wanted = {checkpoint.key for checkpoint in checkpoints if said in checkpoint.summary}
    keys = world.run(look(world.journal, PHRASE, scope, limit=1000))
    assert set(keys) == wanted
    assert len(keys) == len(wanted)
    assert world.run(look(world.journal, PHRASE, scope, limit=5)) == keys[:5]


def test_words_find_the_one_that_has_most_of_them(world: JournalWorld, many: Many) -> None:
    for place in (0, many.rare, COUNT - 1):
        checkpoint = One(place)
        assert world.run(look(world.journal, checkpoint.summary.split()[-1])) == [checkpoint.key]
        question = f"what did the agent do about {checkpoint.summary.split()[-1]} yesterday"
        assert world.run(look(world.journal, question, limit=1)) == [checkpoint.key]
    gone = One(int(DELETED[1:]) * 100)
    assert gone.key not in world.run(look(world.journal, gone.summary, limit=100))


def test_common_words_narrowed_to_one_find_it(world: JournalWorld, many: Many) -> None:
    rare = One(many.rare)
    scope = SearchScope(filter={"rare": "yes"})
    word = rare.summary.split()[1]
    assert world.run(look(world.journal, word, scope)) == [rare.key]
    scope = SearchScope(rare.thread_id, rare.agent_id, {"rare": "yes", "source": "loop"})
    assert world.run(look(world.journal, word, scope)) == [rare.key]


@pytest.mark.parametrize(
    ("metric", "cache_bytes", "scopes"),
    [
        (Metric.COSINE, LARGE_CACHE, list(SCOPES)),
        (Metric.L2, SMALL_CACHE, ["all", "half", "one", "an agent", "none, by the key"]),
    ],
)
def test_the_vector_index_finds_the_same_as_comparing_all_vectors(
    world: JournalWorld, many: Many, metric: Metric, cache_bytes: int, scopes: list[str]
) -> None:
    index = VectorIndex(world.journal.finding, cache_bytes)
    query = np.random.default_rng(11).standard_normal(DIMENSION).astype(np.float32)
    distances = compare(many, query, metric)
    for name in scopes:
        places = in_scope(many, SCOPES[name])
        order = places[np.argsort(distances[places], kind="stable")[:LIMIT]]
        wanted = [One(place).key for place in order.tolist()]
        scope = SCOPES[name]
        results = world.run(
            index.nearest(TENANT, pack_vector(query.tolist()), metric, scope, LIMIT)
        )
        assert [result.key for result in results] == wanted, name
        assert [result.distance for result in results] == pytest.approx(distances[order].tolist())
        assert index.held_bytes <= cache_bytes
    world.run(index.close())


def compare(many: Many, query: Singles, metric: Metric) -> Floats:
    """Return the distances of all vectors, by brute force."""
    wide, wanted = many.vectors.astype(np.float64), query.astype(np.float64)
    if metric is Metric.L2:
        return np.asarray(np.linalg.norm(wide - wanted, axis=1))
    lengths = np.linalg.norm(wide, axis=1) * np.linalg.norm(wanted)
    return np.asarray(1 - wide @ wanted / lengths)
