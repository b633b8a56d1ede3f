"""Distances of many vectors, with numpy. Imported where it is first needed, in a thread.

Vectors are held in 32 bits and compared in 64: the order is exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

import numpy as np
from numpy.typing import NDArray

from ..domain.search import Metric
from ..journal.search.records import Candidate, VectorRow

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

FIRST_CANDIDATES = 256
"""Vectors that are put in order at first."""

GROWTH = 4
"""How many times more are put in order in each further step."""

WIDENED_AT_ONCE_BYTES = 2 * 1024 * 1024
"""About how much memory comparing takes at a time: what fits a processor's cache is fast."""

_STORED = np.dtype("<f4")


class Query:
    """A vector that others are compared with.

    Args:
        vector: The vector, packed.
        metric: How to compare.
    """

    def __init__(self, vector: bytes, metric: Metric) -> None:
        self._metric = metric
        self._wide: Floats = np.frombuffer(vector, _STORED).astype(np.float64)
        self._square = float(np.vecdot(self._wide, self._wide))

    def distances(self, wide: Floats, squares: Floats) -> Floats:
        """Return the distances of rows; that of an identical one is 0.

        Row by row, and not as one product of a matrix: for that BLAS starts threads, which
        take from saves what they need. So sums of equal rows are equal to the last bit, too.
        """
        if self._metric is Metric.L2:
            apart = wide - self._wide
            lengths: Floats = np.sqrt(np.vecdot(apart, apart))
            return lengths
        along: Floats = np.vecdot(wide, self._wide)
        products = np.sqrt(squares * self._square)
        cosines = np.divide(along, products, out=np.zeros_like(along), where=products > 0)
        found: Floats = np.clip(1.0 - cosines, 0.0, 2.0)
        return found


class Block:
    """Vectors of one dimension with their numbers. Rows are added, and never changed.

    Args:
        capacity: Rows that it has room for.
        dimension: Of the vectors.

    Attributes:
        count: Rows that are there.
        through: Number of the last one.
    """

    def __init__(self, capacity: int, dimension: int) -> None:
        self.capacity = capacity
        self.count = 0
        self.through = 0
        self._numbers: Integers = np.empty(capacity, np.int64)
        self._vectors: NDArray[np.float32] = np.empty((capacity, dimension), np.float32)
        self._squares: Floats = np.empty(capacity, np.float64)

    @classmethod
    def of(cls, rows: Sequence[VectorRow], dimension: int) -> Block:
        """Return a block of rows, which all are of the dimension."""
        block = cls(len(rows), dimension)
        block.append(rows)
        return block

    def append(self, rows: Sequence[VectorRow]) -> None:
        """Add rows for which there is room."""
        begin, end = self.count, self.count + len(rows)
        self._numbers[begin:end] = [row.number for row in rows]
        stored = np.frombuffer(b"".join(row.vector for row in rows), _STORED)
        self._vectors[begin:end] = stored.reshape(len(rows), self._vectors.shape[1])
        for at, wide in self._widened(begin, end):
            self._squares[at] = np.vecdot(wide, wide)
        if rows:
            self.count, self.through = end, rows[-1].number

    @property
    def size_bytes(self) -> int:
        """Bytes that it takes, with the room for more."""
        return self._numbers.nbytes + self._vectors.nbytes + self._squares.nbytes

    def compare(self, query: Query, count: int) -> tuple[Integers, Floats]:
        """Return numbers and distances of the first rows."""
        distances: Floats = np.empty(count, np.float64)
        for at, wide in self._widened(0, count):
            distances[at] = query.distances(wide, self._squares[at])
        return self._numbers[:count], distances

    def _widened(self, begin: int, end: int) -> Iterator[tuple[slice, Floats]]:
        """Yield rows in 64 bits, some at a time."""
        step = max(1, WIDENED_AT_ONCE_BYTES // (8 * self._vectors.shape[1]))
        for start in range(begin, end, step):
            at = slice(start, min(start + step, end))
            yield at, self._vectors[at].astype(np.float64)


class Ranking:
    """Rows in order of their distance; those at the same distance by number.

    Args:
        parts: Numbers and distances of the rows.

    Attributes:
        given: How many were read.
    """

    def __init__(self, parts: Sequence[tuple[Integers, Floats]]) -> None:
        self.given = 0
        self._numbers: Integers = np.concatenate([np.empty(0, np.int64), *(n for n, _ in parts)])
        self._distances: Floats = np.concatenate([np.empty(0), *(d for _, d in parts)])

    def __len__(self) -> int:
        """Return how many rows there are."""
        return len(self._numbers)

    def __iter__(self) -> Iterator[Candidate]:
        """Go through all rows, nearest first, putting no more in order than is read."""
        return self._nearest_of(np.arange(len(self), dtype=np.int64))

    def among(self, numbers: AbstractSet[int]) -> Iterator[Candidate]:
        """Go through the rows that have one of these numbers, nearest first."""
        wanted = np.fromiter(numbers, np.int64, len(numbers))
        return self._nearest_of(np.flatnonzero(np.isin(self._numbers, wanted)))

    def _nearest_of(self, left: Integers) -> Iterator[Candidate]:
        size = FIRST_CANDIDATES
        while len(left):
            distances = self._distances[left]
            last = np.partition(distances, size)[size] if size < len(left) else np.inf
            rows, left = left[distances <= last], left[distances > last]
            rows = rows[np.lexsort((self._numbers[rows], self._distances[rows]))]
            for number, distance in zip(
                self._numbers[rows].tolist(), self._distances[rows].tolist(), strict=True
            ):
                self.given += 1
                yield Candidate(number, distance)
            size *= GROWTH
