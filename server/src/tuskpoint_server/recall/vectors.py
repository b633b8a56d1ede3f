"""Finding checkpoints by their vectors: all are compared, in memory as far as they fit."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from ..domain.search import Found, Metric, SearchScope
from ..domain.vectors import COMPONENT_BYTES
from ..journal.search.finding import FindRows
from ..journal.search.records import VectorRow

if TYPE_CHECKING:  # numpy is imported at the first search by vectors, in a thread
    from .scoring import Block, Floats, Integers, Query, Ranking

    _Distances = tuple[Integers, Floats]

T = TypeVar("T")

THREADS = 2

PAGE_BYTES = 4 * 1024 * 1024
"""About how many bytes of vectors are read at once."""

BLOCK_BYTES = 16 * 1024 * 1024
"""Most bytes that are set aside at once for vectors to come."""

FIRST_BLOCK = 256
"""Vectors that the first block of a tenant has room for."""

BESIDE_BYTES = 16
"""What is held beside each vector: its number and its norm."""

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
        self.scanned = 0
        self.passed_by = 0

    @property
    def through(self) -> int:
        """Number of the last row that was read and taken in, or passed over."""
        return max(self.scanned, self.blocks[-1].through if self.blocks else 0)

    @property
    def size_bytes(self) -> int:
        """Bytes that they take, with the room for more."""
        return sum(block.size_bytes for block in self.blocks)

    @property
    def count(self) -> int:
        """Number of vectors."""
        return sum(block.count for block in self.blocks)

    @property
    def room(self) -> int:
        """Number of vectors that there is room for."""
        return self.blocks[-1].capacity - self.blocks[-1].count if self.blocks else 0

    def drop_block(self) -> None:
        """Let go of the last vectors."""
        self.blocks.pop()
        self.scanned = 0


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

    async def _finish(self, work: Callable[[], None]) -> None:
        """Run work to its end: a search that is cancelled meanwhile ends after it."""
        running = asyncio.ensure_future(self._run(work))
        try:
            await asyncio.shield(running)
        finally:
            await asyncio.wait({running})

    # --- all vectors of a tenant -------------------------------------------------------

    async def _compare(self, place: _Place, held: _Held, query: Query) -> Ranking:
        """Compare all vectors: those in memory, then those that are not."""
        async with held.turn:
            page = await self._bring_up_to_date(place, held)
            blocks = [(block, block.count) for block in held.blocks]
        parts = await self._run(lambda: [block.compare(query, count) for block, count in blocks])
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
            while rows:
                if not held.room and not self._add_block(place, held, len(rows)):
                    return [row for row in page if row.number > held.through]
                some = rows[: held.room]
                await self._finish(partial(held.blocks[-1].append, some))
                rows = rows[len(some) :]
            held.scanned = page[-1].number
        return []

    def _add_block(self, place: _Place, held: _Held, wanted: int) -> bool:
        """Make room for some vectors; tell whether there is any to be had."""
        row_bytes = place[1] + BESIDE_BYTES
        most = max(1, BLOCK_BYTES // row_bytes)
        amount = min(max(FIRST_BLOCK, held.count, wanted), most)
        self._make_room(place, amount * row_bytes)
        amount = min(amount, self._free_bytes // row_bytes)
        if amount < min(wanted, FIRST_BLOCK, most) or self._held.get(place) is not held:
            return False
        held.blocks.append(_block(amount, place[1]))
        return True

    def _make_room(self, place: _Place, size_bytes: int) -> None:
        """Let go of what others hold, those first that were searched the longest ago."""
        for other, held in list(self._held.items()):
            if other == place or held.turn.locked():
                continue
            while held.blocks and self._free_bytes < size_bytes:
                held.drop_block()
            if not held.blocks:
                del self._held[other]

    @property
    def _free_bytes(self) -> int:
        return self._cache_bytes - self.held_bytes

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
    from .scoring import Block

    return Block.of(rows, size // COMPONENT_BYTES).compare(query, len(rows))


def _ranking(parts: Sequence[_Distances]) -> Ranking:
    from .scoring import Ranking

    return Ranking(parts)


def _block(capacity: int, size: int) -> Block:
    from .scoring import Block

    return Block(capacity, size // COMPONENT_BYTES)
