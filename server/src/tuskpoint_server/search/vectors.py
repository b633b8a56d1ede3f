"""Search by vectors: compares all vectors, in memory as far as they fit.

Vectors are stored in 32 bits and compared in 64, so the order is exact. The module imports numpy,
and is therefore imported at the first search by vectors.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..core.search import Metric, SearchHit, SearchScope
from .finding import Candidate, FindRows, VectorRow

T = TypeVar("T")

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

PAGE_BYTES = 4 * 1024 * 1024  # approximate number of bytes of vectors that are read at once
PASSED_BY = 4096  # candidates without a result, after which dead rows are counted
DEAD = 256  # dead rows from which on the vectors are read again
# rows that are sorted first, and the growth factor of each further step
FIRST_CANDIDATES, GROWTH = 256, 4
# approximate memory for comparing at a time: fast if it fits a processor's cache
WIDENED_AT_ONCE_BYTES = 512 * 1024
_STORED = np.dtype("<f4")


class Query:
    """A packed vector that other vectors are compared with."""

    def __init__(self, vector: bytes, metric: Metric) -> None:
        self._metric = metric
        self._wide: Floats = np.frombuffer(vector, _STORED).astype(np.float64)
        self._square = float(np.vecdot(self._wide, self._wide))

    def distances(self, wide: Floats, squares: Floats) -> Floats:
        """Return the distances of rows; the distance of an identical row is 0.

        Distances are computed row by row, not as one matrix product, for which BLAS starts threads
        that slow saves down. Sums of equal rows are therefore equal to the last bit, too.
        """
        if self._metric is Metric.L2:
            differences = wide - self._wide
            return np.asarray(np.sqrt(np.vecdot(differences, differences)))
        along: Floats = np.vecdot(wide, self._wide)
        products = np.sqrt(squares * self._square)
        cosines = np.divide(along, products, out=np.zeros_like(along), where=products > 0)
        return np.asarray(np.clip(1.0 - cosines, 0.0, 2.0))


class Block(NamedTuple):
    """Vectors of one dimension, with their numbers and their squared lengths."""

    numbers: Integers
    vectors: NDArray[np.float32]
    squares: Floats

    @classmethod
    def of(cls, rows: Sequence[VectorRow], size: int) -> Block:
        """Return a block of the rows whose vectors have `size` bytes."""
        fitting = [row for row in rows if len(row.vector) == size]
        stored = np.frombuffer(b"".join(row.vector for row in fitting), _STORED)
        vectors = stored.reshape(len(fitting), size // _STORED.itemsize).astype(np.float32)
        squares: Floats = np.empty(len(fitting), np.float64)
        for at, wide in _widen(vectors):
            squares[at] = np.vecdot(wide, wide)
        return cls(np.array([row.number for row in fitting], np.int64), vectors, squares)

    def joined(self, other: Block) -> Block:
        """Return a block with the rows of both blocks."""
        return Block(
            np.concatenate([self.numbers, other.numbers]),
            np.concatenate([self.vectors, other.vectors]),
            np.concatenate([self.squares, other.squares]),
        )

    @property
    def size_bytes(self) -> int:
        """Bytes that the block uses."""
        return sum(part.nbytes for part in self)

    def compare(self, query: Query) -> tuple[Integers, Floats]:
        """Return numbers and distances of all rows."""
        distances: Floats = np.empty(len(self.numbers), np.float64)
        for at, wide in _widen(self.vectors):
            distances[at] = query.distances(wide, self.squares[at])
        return self.numbers, distances


def cosines(vector: bytes, rows: Sequence[tuple[int, bytes]]) -> Iterator[tuple[int, float]]:
    """Yield number and cosine of the rows whose vectors have the same dimension as `vector`."""
    block = Block.of([VectorRow(*row) for row in rows], len(vector))
    numbers, distances = block.compare(Query(vector, Metric.COSINE))
    yield from zip(numbers.tolist(), (1.0 - distances).tolist(), strict=True)


def _widen(vectors: NDArray[np.float32]) -> Iterator[tuple[slice, Floats]]:
    step = max(1, WIDENED_AT_ONCE_BYTES // (8 * vectors.shape[1]))
    for start in range(0, len(vectors), step):
        at = slice(start, start + step)
        yield at, vectors[at].astype(np.float64)


class Ranking:
    """Ranking of `size` rows; equal distances by number. `given` counts the rows that were read."""

    def __init__(self, parts: Sequence[tuple[Integers, Floats]]) -> None:
        self.given = 0
        self._numbers: Integers = np.concatenate([np.empty(0, np.int64), *(n for n, _ in parts)])
        self._distances: Floats = np.concatenate([np.empty(0), *(d for _, d in parts)])
        self.size = len(self._numbers)

    def __call__(self, numbers: AbstractSet[int] | None) -> Iterator[Candidate]:
        """Yield rows that have one of the numbers, nearest first; sort no further than read."""
        indexes: Integers = np.arange(self.size, dtype=np.int64)
        if numbers is not None:
            subset = np.fromiter(numbers, np.int64, len(numbers))
            indexes = np.flatnonzero(np.isin(self._numbers, subset))
        size = FIRST_CANDIDATES
        while len(indexes):
            distances = self._distances[indexes]
            last = np.partition(distances, size)[size] if size < len(indexes) else np.inf
            rows, indexes = indexes[distances <= last], indexes[distances > last]
            rows = rows[np.lexsort((self._numbers[rows], self._distances[rows]))]
            for number, distance in zip(
                self._numbers[rows].tolist(), self._distances[rows].tolist(), strict=True
            ):
                self.given += 1
                yield Candidate(number, distance)
            size *= GROWTH


class _HeldVectors:
    """First vectors of a tenant and size, in memory; deleted vectors stay and give no result."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.blocks: list[Block] = []
        self.through = 0
        self.passed_by = 0


_Place = tuple[str, int]  # tenant, and size of a vector in bytes


class VectorIndex:
    """Compares a vector with a tenant's vectors, cached up to `cache_bytes`, or with a thread's."""

    def __init__(self, rows: FindRows, cache_bytes: int) -> None:
        self._rows = rows
        self._cache_bytes = cache_bytes
        self._held: OrderedDict[_Place, _HeldVectors] = OrderedDict()
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="search-vectors")

    @property
    def held_bytes(self) -> int:
        """Bytes of vectors held in memory."""
        return sum(block.size_bytes for entry in self._held.values() for block in entry.blocks)

    async def close(self) -> None:
        """Finish running computations, and release all vectors."""
        await asyncio.to_thread(self._pool.shutdown)
        self._held.clear()

    async def nearest(
        self, tenant: str, vector: bytes, metric: Metric, scope: SearchScope, limit: int
    ) -> list[SearchHit]:
        """Return the checkpoints in scope with the nearest vectors of the same dimension."""
        query = Query(vector, metric)
        if scope.thread_id:
            rows = await self._rows.scan_thread(tenant, scope.thread_id)
            parts = [await self._run(lambda: Block.of(rows, len(vector)).compare(query))]
            return await self._rows.by_vectors(tenant, Ranking(parts), scope, limit)
        place = (tenant, len(vector))
        entry = self._held.setdefault(place, _HeldVectors())
        self._held.move_to_end(place)
        ranking = await self._compare(place, entry, query)
        results = await self._rows.by_vectors(tenant, ranking, scope, limit)
        entry.passed_by += ranking.given - len(results)
        if entry.passed_by >= max(PASSED_BY, ranking.size // 4):
            entry.passed_by = 0
            living = (await self._rows.status(tenant)).vectors
            if ranking.size - living >= DEAD and self._held.get(place) is entry:
                # many rows are dead, so the next search reads the vectors again
                del self._held[place]
        return results

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def _compare(self, place: _Place, entry: _HeldVectors, query: Query) -> Ranking:
        async with entry.turn:
            page = await self._bring_up_to_date(place, entry)
            blocks = list(entry.blocks)
        parts = await self._run(lambda: [block.compare(query) for block in blocks])
        while page:
            block = await self._run(partial(Block.of, page, place[1]))
            parts.append(await self._run(partial(block.compare, query)))
            page = await self._page(place, page[-1].number)
        return await self._run(lambda: Ranking(parts))

    async def _page(self, place: _Place, after: int) -> list[VectorRow]:
        return await self._rows.scan(place[0], after, max(1, PAGE_BYTES // place[1]))

    async def _bring_up_to_date(self, place: _Place, entry: _HeldVectors) -> list[VectorRow]:
        """Load new rows; return the first page of rows that does not fit."""
        while page := await self._page(place, entry.through):
            last = entry.blocks[-1:]
            if last and last[0].size_bytes >= PAGE_BYTES:
                last = []  # the last block is long enough
            block = await self._run(partial(Block.of, page, place[1]))
            if last:
                block = await self._run(partial(last[0].joined, block))
            added_bytes = block.size_bytes - sum(part.size_bytes for part in last)
            if not self._make_room(place, added_bytes) or self._held.get(place) is not entry:
                return page
            entry.blocks[len(entry.blocks) - len(last) :] = [block]
            entry.through = page[-1].number
        return []

    def _make_room(self, place: _Place, size_bytes: int) -> bool:
        for other_place, entry in list(self._held.items()):
            if self.held_bytes + size_bytes <= self._cache_bytes:
                break
            if other_place != place and not entry.turn.locked():
                del self._held[other_place]
        return self.held_bytes + size_bytes <= self._cache_bytes
