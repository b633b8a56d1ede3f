"""The vector index finds the same vectors as a comparison one by one."""

from __future__ import annotations

import asyncio
import random
import struct
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests.unit.search.search_shelf import TENANT, Shelf
from tuskpoint_server.core.search import Metric, SearchHit, SearchScope, pack_vector
from tuskpoint_server.search.finding import VectorRow
from tuskpoint_server.search.vectors import Block, VectorIndex

PLENTY = 1 << 24
ANYWHERE = SearchScope()


@asynccontextmanager
async def index_of(shelf: Shelf, cache_bytes: int = PLENTY) -> AsyncIterator[VectorIndex]:
    index = VectorIndex(shelf, cache_bytes)
    try:
        yield index
    finally:
        await index.close()


def numbers_of(results: Sequence[SearchHit]) -> list[tuple[int, float]]:
    """Return numbers and distances of the results."""
    return [(int(result.key.checkpoint_id), result.distance) for result in results]


async def check(
    index: VectorIndex,
    shelf: Shelf,
    query: Sequence[float],
    metric: Metric = Metric.COSINE,
    scope: SearchScope = ANYWHERE,
    limit: int = 5,
) -> None:
    """Search, and compare with a brute-force search."""
    neighbours = numbers_of(await index.nearest(TENANT, pack_vector(query), metric, scope, limit))
    assert neighbours == shelf.expected(query, metric, scope, limit)


# Sums of products of small whole numbers are exact in any order of addition, so that equal
# distances are equal to the last bit.
WHOLE = st.lists(st.integers(-3, 3).map(float), min_size=4, max_size=4)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), WHOLE, st.sampled_from("ab"), st.sampled_from(["good", "bad"])),
        st.tuples(st.just("other dimension")),
        st.tuples(st.just("delete"), st.integers(0, 99)),
        st.tuples(st.just("replace"), st.integers(0, 99), WHOLE),
        st.tuples(
            st.just("search"),
            WHOLE,
            st.sampled_from(Metric),
            st.sampled_from(["", "a"]),
            st.sampled_from(["", "good"]),
            st.integers(1, 7),
        ),
    ),
    max_size=40,
)


@given(
    steps=STEPS,
    initial=st.integers(0, 600),
    cache_bytes=st.sampled_from([0, 100, 3000, 10_000, PLENTY]),
    page=st.sampled_from([3, 64, 1000]),
    asks_first=st.booleans(),
)
@hypothesis_settings(max_examples=60)
@example(
    steps=[("search", [1.0, 0.0, 0.0, 0.0], Metric.L2, "", "", 5)],
    initial=600,
    cache_bytes=10_000,
    page=3,
    asks_first=False,
)
def test_the_index_finds_the_same_as_comparing_one_by_one(
    steps: list[tuple[object, ...]], initial: int, cache_bytes: int, page: int, asks_first: bool
) -> None:
    async def go() -> None:
        shelf = Shelf(page=page, asks_first=asks_first)
        source = random.Random(initial)
        for _ in range(initial):
            shelf.add([float(source.randint(-3, 3)) for _ in range(4)], "b", "bad")
        async with index_of(shelf, cache_bytes) as index:
            for step in steps:
                await take(step, shelf, index)
            assert index.held_bytes <= cache_bytes

    asyncio.run(go())


async def take(step: tuple[object, ...], shelf: Shelf, index: VectorIndex) -> None:
    match step:
        case ("add", list() as components, str() as thread_id, str() as outcome):
            shelf.add(components, thread_id, outcome)
        case ("other dimension",):
            shelf.add([1.0, 2.0])
        case ("delete", int() as at) if shelf.rows:
            del shelf.rows[list(shelf.rows)[at % len(shelf.rows)]]
        case ("replace", int() as at, list() as components) if shelf.rows:
            gone = shelf.rows.pop(list(shelf.rows)[at % len(shelf.rows)])
            shelf.add(components, gone.thread_id, gone.outcome)
        case (
            "search",
            list() as query,
            Metric() as metric,
            str() as thread_id,
            str() as outcome,
            int() as limit,
        ):
            wanted = {"outcome": outcome} if outcome else {}
            await check(index, shelf, query, metric, SearchScope(thread_id, "", wanted), limit)


@pytest.mark.parametrize("metric", Metric)
@pytest.mark.parametrize("cache_bytes", [0, PLENTY])
async def test_vectors_closer_to_each_other_than_single_precision_resolves_are_in_order(
    metric: Metric, cache_bytes: int
) -> None:
    source = random.Random(7)
    query = [source.uniform(-1, 1) for _ in range(64)]
    shelf = Shelf()
    for _ in range(2000):
        near = list(query)
        near[source.randrange(64)] += source.uniform(0, 3e-5)
        shelf.add(near)
    async with index_of(shelf, cache_bytes) as index:
        neighbours = numbers_of(
            await index.nearest(TENANT, pack_vector(query), metric, ANYWHERE, 300)
        )
    expected = shelf.expected(query, metric, ANYWHERE, 300)
    for (number, apart), (_, should) in zip(neighbours, expected, strict=True):
        assert apart == pytest.approx(should, rel=1e-6, abs=1e-15), number
    assert [apart for _, apart in neighbours] == sorted(apart for _, apart in neighbours)


@pytest.mark.parametrize("metric", Metric)
async def test_an_identical_vector_is_at_distance_0(metric: Metric) -> None:
    source = random.Random(3)
    shelf = Shelf()
    rows = [[source.gauss(0, 1) for _ in range(384)] for _ in range(50)]
    for row in rows:
        shelf.add(row)
    async with index_of(shelf) as index:
        for number, row in enumerate(rows, 1):
            [first] = numbers_of(await index.nearest(TENANT, pack_vector(row), metric, ANYWHERE, 1))
            assert first == (number, 0.0)


@pytest.mark.parametrize("metric", Metric)
@pytest.mark.parametrize("cache_bytes", [0, PLENTY])
async def test_extreme_components_are_compared(metric: Metric, cache_bytes: int) -> None:
    [greatest] = struct.unpack("<f", bytes.fromhex("ffff7f7f"))
    shelf = Shelf()
    rows = [[0.0, 0.0], [greatest, -greatest], [1e-45, 0.0], [1e-30, 1e-30], [1e15, -1e15]]
    rows += [[-greatest, greatest], [1.0, 1.0], [3.0, -3.0]]
    for row in rows:
        shelf.add(row)
    async with index_of(shelf, cache_bytes) as index:
        for query in rows:
            neighbours = numbers_of(
                await index.nearest(TENANT, pack_vector(query), metric, ANYWHERE, 8)
            )
            expected = shelf.expected(query, metric, ANYWHERE, 8)
            assert [apart for _, apart in neighbours] == pytest.approx(
                [apart for _, apart in expected], abs=1e-15
            )
            assert {number for number, _ in neighbours} == {number for number, _ in expected}


async def test_a_vector_without_direction_is_at_right_angles_to_all() -> None:
    shelf = Shelf()
    nowhere, behind = shelf.add([0.0, 0.0]), shelf.add([-1.0, 0.0])
    async with index_of(shelf) as index:
        query = pack_vector([1.0, 0.0])
        neighbours = numbers_of(await index.nearest(TENANT, query, Metric.COSINE, ANYWHERE, 2))
    assert neighbours == [(nowhere, 1.0), (behind, 2.0)]


async def test_vectors_in_memory_are_not_read_again() -> None:
    shelf = Shelf()
    for number in range(500):
        shelf.add([number, 1.0])
    async with index_of(shelf) as index:
        await check(index, shelf, [3.0, 1.0])
        assert shelf.scanned == 500
        shelf.add([3.0, 1.1])
        await check(index, shelf, [3.0, 1.0])
        assert shelf.scanned == 501


async def test_only_as_many_candidates_are_computed_as_are_needed() -> None:
    shelf = Shelf()
    source = random.Random(5)
    for _ in range(5000):
        shelf.add([float(source.randint(-9, 9)) for _ in range(8)])
    async with index_of(shelf) as index:
        await check(index, shelf, [1.0] * 8)
    assert shelf.read == 16


async def test_rows_that_died_are_dropped_once_they_cost_something() -> None:
    shelf = Shelf()
    for number in range(3000):
        shelf.add([number, 1.0])
    async with index_of(shelf) as index:
        await check(index, shelf, [0.0, 1.0], Metric.L2)
        for number in range(1, 2001):
            del shelf.rows[number]
        for _ in range(3):  # each search skips the dead vectors, until the index is rebuilt
            await check(index, shelf, [0.0, 1.0], Metric.L2)
        shelf.read = 0
        await check(index, shelf, [0.0, 1.0], Metric.L2)
        assert shelf.read == 16
        assert shelf.scanned == 3000 + 1000


async def test_a_filter_that_nothing_passes_drops_no_live_vector() -> None:
    shelf = Shelf()
    for number in range(5000):
        shelf.add([number, 1.0])
    async with index_of(shelf) as index:
        for _ in range(3):
            await check(index, shelf, [1.0, 1.0], scope=SearchScope(filter={"outcome": "none"}))
    assert shelf.read == 15_000
    assert shelf.scanned == 5000


async def test_many_searches_at_once_agree_while_vectors_come_and_go() -> None:
    shelf = Shelf(page=200)
    source = random.Random(11)

    def whole() -> list[float]:
        return [float(source.randint(-9, 9)) for _ in range(6)]

    for _ in range(1000):
        shelf.add(whole())
    async with index_of(shelf, 20_000) as index:
        for _ in range(4):
            await asyncio.gather(*(check(index, shelf, whole(), Metric.L2) for _ in range(10)))
            for _ in range(100):
                shelf.add(whole())
                del shelf.rows[min(shelf.rows)]


async def test_the_cache_is_bounded_over_all_dimensions_and_the_longest_unused_goes() -> None:
    shelf = Shelf()
    for number in range(400):
        shelf.add([number, 1.0])
        shelf.add([number, 1.0, 1.0])
    one_of_each = 400 * (2 * 4 + 16)
    async with index_of(shelf, one_of_each + 4000) as index:
        await check(index, shelf, [3.0, 1.0])
        assert index.held_bytes >= one_of_each
        await check(index, shelf, [3.0, 1.0, 1.0])
        assert index.held_bytes <= one_of_each + 4000
        before = shelf.scanned
        await check(index, shelf, [5.0, 1.0, 1.0])
        assert shelf.scanned < before + 800
        await check(index, shelf, [5.0, 1.0])


async def test_a_search_that_is_cancelled_leaves_nothing_half_done_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shelf = Shelf(page=100)
    for number in range(300):
        shelf.add([float(number), 1.0])
    loop, begun, may = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    block_of = Block.of

    def slowly(rows: Sequence[VectorRow], dimension: int) -> Block:
        loop.call_soon_threadsafe(begun.set)
        assert may.wait(30)
        return block_of(rows, dimension)

    monkeypatch.setattr(Block, "of", slowly)
    async with index_of(shelf) as index:
        query = pack_vector([250.0, 1.0])
        search = asyncio.create_task(index.nearest(TENANT, query, Metric.L2, ANYWHERE, 5))
        await asyncio.wait_for(begun.wait(), 30)
        search.cancel()
        other = asyncio.create_task(check(index, shelf, [250.0, 1.0], Metric.L2, limit=300))
        await asyncio.sleep(0)
        may.set()
        with pytest.raises(asyncio.CancelledError):
            await search
        await other
    assert shelf.scanned == 400, "the page that nobody took in is read again"


async def test_a_journal_that_fails_fails_the_search_and_not_the_next_one() -> None:
    shelf = Shelf(page=100)
    for number in range(300):
        shelf.add([number, 1.0])
    scan, calls = shelf.scan, iter([False, True])

    async def failing(tenant: str, after: int, limit: int) -> list[object]:
        if next(calls, False):
            raise OSError("the disk")
        return list(await scan(tenant, after, limit))

    shelf.scan = failing  # type: ignore[method-assign,assignment]
    async with index_of(shelf) as index:
        with pytest.raises(OSError, match="the disk"):
            await index.nearest(TENANT, pack_vector([1.0, 1.0]), Metric.L2, ANYWHERE, 5)
        await check(index, shelf, [1.0, 1.0], Metric.L2)
    assert shelf.scanned == 300
