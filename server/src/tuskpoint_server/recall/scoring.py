"""Distances of many vectors, with numpy. Imported where it is first needed, in a thread.

Vectors are held in 32 bits and compared in 64: the order is exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..domain.search import Metric
from ..journal.search.finding import Candidate, VectorRow

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

FIRST_CANDIDATES = 256
"""Vectors that are put in order at first."""

GROWTH = 4
"""How many times more are put in order in each further step."""

WIDENED_AT_ONCE_BYTES = 512 * 1024
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


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Vectors of one dimension, with their numbers and the squares of their lengths."""

    numbers: Integers
    vectors: NDArray[np.float32]
    squares: Floats

    @classmethod
    def of(cls, rows: Sequence[VectorRow], dimension: int) -> Block:
        """Return a block of rows, which all are of the dimension."""
        stored = np.frombuffer(b"".join(row.vector for row in rows), _STORED)
        vectors = stored.reshape(len(rows), dimension).astype(np.float32)
        squares: Floats = np.empty(len(rows), np.float64)
        for at, wide in _widened(vectors):
            squares[at] = np.vecdot(wide, wide)
        return cls(np.array([row.number for row in rows], np.int64), vectors, squares)

    def joined(self, other: Block) -> Block:
        """Return the rows of both."""
        return Block(
            np.concatenate([self.numbers, other.numbers]),
            np.concatenate([self.vectors, other.vectors]),
            np.concatenate([self.squares, other.squares]),
        )

    @property
    def size_bytes(self) -> int:
        """Bytes that it takes."""
        return self.numbers.nbytes + self.vectors.nbytes + self.squares.nbytes

    def compare(self, query: Query) -> tuple[Integers, Floats]:
        """Return numbers and distances of the rows."""
        distances: Floats = np.empty(len(self.numbers), np.float64)
        for at, wide in _widened(self.vectors):
            distances[at] = query.distances(wide, self.squares[at])
        return self.numbers, distances


def _widened(vectors: NDArray[np.float32]) -> Iterator[tuple[slice, Floats]]:
    """Yield rows in 64 bits, some at a time."""
    step = max(1, WIDENED_AT_ONCE_BYTES // (8 * vectors.shape[1]))
    for start in range(0, len(vectors), step):
        at = slice(start, start + step)
        yield at, vectors[at].astype(np.float64)


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

    def __call__(self, numbers: AbstractSet[int] | None) -> Iterator[Candidate]:
        """Go through all rows, or those that have one of these numbers, nearest first.

        No more are put in order than are read.
        """
        left: Integers = np.arange(len(self), dtype=np.int64)
        if numbers is not None:
            wanted = np.fromiter(numbers, np.int64, len(numbers))
            left = np.flatnonzero(np.isin(self._numbers, wanted))
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
