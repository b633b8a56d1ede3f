"""Finding checkpoints by their vectors: all are compared, in memory as far as they fit."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from ..domain.search import COMPONENT_BYTES, Found, Metric, SearchScope
from ..journal.search.finding import FindRows, VectorRow

if TYPE_CHECKING:  # numpy is imported at the first search by vectors, in a thread
    from .scoring import Block, Floats, Integers, Query, Ranking

    _Distances = tuple[Integers, Floats]

T = TypeVar("T")

THREADS = 2

PAGE_BYTES = 4 * 1024 * 1024
"""About how many bytes of vectors are read at once."""

PASSED_BY = 4096
"""Candidates that found nothing, after which it is asked how many rows are dead."""

DEAD = 256
"""Dead rows for which vectors are read anew."""

_Place = tuple[str, int]
"""Tenant, and bytes of a vector."""


class _Held:
    """Vectors of a tenant that are in memory: the first ones, by number.

    What was replaced or deleted since stays in it and finds nothing.
    """

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.blocks: list[Block] = []
        self.through = 0
        self.passed_by = 0

    @property
    def size_bytes(self) -> int:
        """Bytes that they take."""
        return sum(block.size_bytes for block in self.blocks)


class VectorIndex:
    """Compares a vector with all of a tenant, or of a thread.

    Vectors are held in memory, those of whom was searched last; what does not fit is read
    for each search. Either way the answer is exact.

    Args:
        rows: The index.
        cache_bytes: Most bytes of vectors held in memory, of all tenants together.
    """

    def __init__(self, rows: FindRows, cache_bytes: int) -> None:
        self._rows = rows
        self._cache_bytes = cache_bytes
        self._held: OrderedDict[_Place, _Held] = OrderedDict()
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="search-vectors")

    @property
    def held_bytes(self) -> int:
        """Bytes of vectors held in memory."""
        return sum(held.size_bytes for held in self._held.values())

    async def close(self) -> None:
        """Finish what is being computed, and let go of everything."""
        await asyncio.to_thread(self._pool.shutdown)
        self._held.clear()

    async def nearest(
        self, tenant: str, vector: bytes, metric: Metric, scope: SearchScope, limit: int
    ) -> list[Found]:
        """Return the checkpoints in scope with the nearest vectors, nearest first.

        Vectors of another dimension are passed over.

        Args:
            tenant: The tenant.
            vector: To compare with, packed.
            metric: How to compare.
            scope: Which checkpoints may be found.
            limit: At most so many.

        Raises:
            Refusal: `JOURNAL_UNAVAILABLE`.
        """
        query = await self._run(partial(_query, vector, metric))
        if scope.thread_id:
            rows = _fitting(await self._rows.scan_thread(tenant, scope.thread_id), len(vector))
            ranking = await self._run(lambda: _ranking([_compared(query, rows, len(vector))]))
            return await self._rows.by_vectors(tenant, ranking, scope, limit)
        place = (tenant, len(vector))
        held = self._held.setdefault(place, _Held())
        self._held.move_to_end(place)
        ranking = await self._compare(place, held, query)
        found = await self._rows.by_vectors(tenant, ranking, scope, limit)
        held.passed_by += ranking.given - len(found)
        if held.passed_by >= max(PASSED_BY, len(ranking) // 4):
            await self._review(place, held, len(ranking))
        return found

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    # --- all vectors of a tenant -------------------------------------------------------

    async def _compare(self, place: _Place, held: _Held, query: Query) -> Ranking:
        """Compare all vectors: those in memory, then those that are not."""
        async with held.turn:
            page = await self._bring_up_to_date(place, held)
            blocks = list(held.blocks)
        parts = await self._run(lambda: [block.compare(query) for block in blocks])
        while page:
            rows = _fitting(page, place[1])
            parts.append(await self._run(partial(_compared, query, rows, place[1])))
            page = await self._page(place, page[-1].number)
        return await self._run(lambda: _ranking(parts))

    async def _page(self, place: _Place, after: int) -> list[VectorRow]:
        tenant, size = place
        return await self._rows.scan(tenant, after, max(1, PAGE_BYTES // size))

    async def _bring_up_to_date(self, place: _Place, held: _Held) -> list[VectorRow]:
        """Take in what is new; return the first rows that do not fit."""
        while page := await self._page(place, held.through):
            rows = _fitting(page, place[1])
            before = held.blocks[-1] if held.blocks else None
            if before is not None and before.size_bytes >= PAGE_BYTES:
                before = None  # it is long enough as it is
            block = await self._run(partial(_block, before, rows, place[1]))
            added = block.size_bytes - (before.size_bytes if before is not None else 0)
            if not self._make_room(place, added) or self._held.get(place) is not held:
                return page
            held.blocks[len(held.blocks) - (before is not None) :] = [block]
            held.through = page[-1].number
        return []

    def _make_room(self, place: _Place, size_bytes: int) -> bool:
        """Let go of what others hold, the longest unused first; tell whether there is room."""
        for other, held in list(self._held.items()):
            if self.held_bytes + size_bytes <= self._cache_bytes:
                break
            if other != place and not held.turn.locked():
                del self._held[other]
        return self.held_bytes + size_bytes <= self._cache_bytes

    async def _review(self, place: _Place, held: _Held, compared: int) -> None:
        """Let go of the vectors if many are dead, so that the next search reads them anew."""
        held.passed_by = 0
        standing = await self._rows.standing(place[0])
        if compared - standing.vectors >= DEAD and self._held.get(place) is held:
            del self._held[place]


def _fitting(rows: Sequence[VectorRow], size: int) -> list[VectorRow]:
    """Return the rows whose vectors have the size."""
    return [row for row in rows if len(row.vector) == size]


# --- with numpy, which the first of these imports: it is called in a thread ---------------


def _query(vector: bytes, metric: Metric) -> Query:
    from .scoring import Query

    return Query(vector, metric)


def _compared(query: Query, rows: Sequence[VectorRow], size: int) -> _Distances:
    return _block(None, rows, size).compare(query)


def _ranking(parts: Sequence[_Distances]) -> Ranking:
    from .scoring import Ranking

    return Ranking(parts)


def _block(before: Block | None, rows: Sequence[VectorRow], size: int) -> Block:
    from .scoring import Block

    block = Block.of(rows, size // COMPONENT_BYTES)
    return block if before is None else before.joined(block)
