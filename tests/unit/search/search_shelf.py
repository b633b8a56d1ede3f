"""An index of vectors in a dictionary, for comparison."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tuskpoint_server.core.model import CheckpointKey
from tuskpoint_server.core.search import Metric, SearchHit, SearchScope, pack_vector, unpack_vector
from tuskpoint_server.search.finding import (
    Candidate,
    Candidates,
    FindRows,
    IndexStatus,
    VectorRow,
)

TENANT = "default"


@dataclass(frozen=True)
class Row:
    """A vector and the known fields of its checkpoint."""

    thread_id: str
    vector: bytes
    outcome: str


@dataclass
class Shelf(FindRows):
    """Rows with vectors. Numbers rise and are never used again."""

    page: int = 1000
    asks_first: bool = False
    rows: dict[int, Row] = field(default_factory=dict)
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    scanned: int = 0
    read: int = 0

    def add(self, components: Sequence[float], thread_id: str = "t", outcome: str = "") -> int:
        """Add a vector; return its number."""
        number = next(self.numbers)
        self.rows[number] = Row(thread_id, pack_vector(components), outcome)
        return number

    async def scan(self, tenant: str, after: int, limit: int) -> list[VectorRow]:
        """Return the next vectors of the tenant."""
        assert tenant == TENANT
        await asyncio.sleep(0)
        numbers = [number for number in sorted(self.rows) if number > after]
        page = numbers[: min(limit, self.page)]
        self.scanned += len(page)
        return [VectorRow(number, self.rows[number].vector) for number in page]

    async def scan_thread(self, tenant: str, thread_id: str) -> list[VectorRow]:
        """Return the vectors of a thread."""
        assert tenant == TENANT
        return [
            VectorRow(number, row.vector)
            for number, row in sorted(self.rows.items())
            if row.thread_id == thread_id
        ]

    async def by_vectors(
        self, tenant: str, candidates: Candidates, scope: SearchScope, limit: int
    ) -> list[SearchHit]:
        """Look candidates up in batches and in a thread, as a journal does."""
        assert tenant == TENANT
        if self.asks_first:
            numbers = {number for number in self.rows if self.in_scope(number, scope)}
            return await asyncio.to_thread(self._look_up, candidates(numbers), scope, limit)
        return await asyncio.to_thread(self._look_up, candidates(None), scope, limit)

    def _look_up(
        self, candidates: Iterable[Candidate], scope: SearchScope, limit: int
    ) -> list[SearchHit]:
        results: list[SearchHit] = []
        rest = iter(candidates)
        while len(results) < limit and (batch := list(itertools.islice(rest, 16))):
            self.read += len(batch)
            results += [
                self.hit(candidate.number, candidate.distance)
                for candidate in batch
                if candidate.number in self.rows and self.in_scope(candidate.number, scope)
            ]
        return results[:limit]

    def in_scope(self, number: int, scope: SearchScope) -> bool:
        """Return whether a search may find a row."""
        row = self.rows[number]
        return (not scope.thread_id or row.thread_id == scope.thread_id) and (
            not scope.filter or row.outcome == scope.filter["outcome"]
        )

    def hit(self, number: int, distance: float) -> SearchHit:
        """Return the search result of a row."""
        key = CheckpointKey(self.rows[number].thread_id, "", str(number))
        return SearchHit(key, "", "", b"{}", distance)

    async def status(self, tenant: str) -> IndexStatus:
        """Count the vectors."""
        assert tenant == TENANT
        return IndexStatus(vectors=len(self.rows))

    def expected(
        self, query: Sequence[float], metric: Metric, scope: SearchScope, limit: int
    ) -> list[tuple[int, float]]:
        """Return numbers and distances of the nearest vectors by brute force."""
        wanted = unpack_vector(pack_vector(query))
        compared = sorted(
            (distance(unpack_vector(row.vector), wanted, metric), number)
            for number, row in self.rows.items()
            if len(row.vector) == 4 * len(wanted) and self.in_scope(number, scope)
        )
        return [(number, away) for away, number in compared[:limit]]


def distance(left: Sequence[float], right: Sequence[float], metric: Metric) -> float:
    """Return the distance of two vectors of the same dimension."""
    if metric is Metric.L2:
        return math.sqrt(math.fsum((a - b) ** 2 for a, b in zip(left, right, strict=True)))
    products = math.sqrt(math.fsum(a * a for a in left) * math.fsum(b * b for b in right))
    if not products:
        return 1.0
    along = math.fsum(a * b for a, b in zip(left, right, strict=True))
    return min(max(1.0 - along / products, 0.0), 2.0)
