"""Distances of many vectors, with numpy. Imported where it is first needed, in a thread.

All vectors are compared in 32 bits, which is fast, and that gives each a bound below its
distance. Those that may be near are then computed in 64 bits, and only what is certainly
nearer than all others is given away: the order is exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..domain.search import Metric
from ..journal.search.records import Candidate, VectorRow

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Integers = NDArray[np.int64]

FIRST_CANDIDATES = 256
"""Vectors that are compared exactly at first."""

GROWTH = 4
"""How many times more are compared exactly in each further step."""

EXACT_AT_ONCE_BYTES = 8 * 1024 * 1024
"""About how much memory exact comparing takes at a time."""

_STORED = np.dtype("<f4")
_LEAST_NORM, _GREATEST_NORM = 1e-12, 1e12
_NO_BOUND = -1.0


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
        self._vectors: Singles = np.empty((capacity, dimension), np.float32)
        self._norms: Floats = np.empty(capacity, np.float64)

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
        for at in _slices(begin, end, self._vectors.shape[1]):
            wide = self._vectors[at].astype(np.float64)
            self._norms[at] = np.sqrt((wide * wide).sum(axis=1))
        if rows:
            self.count, self.through = end, rows[-1].number

    @property
    def size_bytes(self) -> int:
        """Bytes that it takes, with the room for more."""
        return self._numbers.nbytes + self._vectors.nbytes + self._norms.nbytes

    def view(self) -> View:
        """Return the rows that are there now."""
        return View(
            self._numbers[: self.count], self._vectors[: self.count], self._norms[: self.count]
        )


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """Rows of a block as of one moment; more may be added to the block meanwhile."""

    numbers: Integers
    vectors: Singles
    norms: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """Rows and bounds below their distances from a query.

    Attributes:
        numbers: Of the rows.
        bounds: No row is nearer than this.
        vectors: To compute exact distances of; `None`: the bounds are the distances.
    """

    numbers: Integers
    bounds: Floats
    vectors: Singles | None


class Query:
    """A vector that others are compared with.

    Args:
        vector: The vector, packed.
        metric: How to compare.
    """

    def __init__(self, vector: bytes, metric: Metric) -> None:
        self._metric = metric
        self._wide: Floats = np.frombuffer(vector, _STORED).astype(np.float64)
        self._square = float((self._wide * self._wide)[np.newaxis].sum(axis=1)[0])
        self._norm = math.sqrt(self._square)
        unit = self._wide / self._norm if self._norm else self._wide
        self._unit: Singles = unit.astype(np.float32)
        # A dot product of n components in 32 bits is off by less than n * 2^-24 of the
        # product of the norms, however it is added up; rounding the unit vector adds one.
        self._error = (len(self._wide) + 8) * 2.0**-23

    def score(self, view: View) -> Scored:
        """Bound the distances of rows from below.

        Row by row, and not as one product of a matrix: for that BLAS starts threads, which
        take from saves what they need and wait for each other while the machine is busy.
        """
        with np.errstate(all="ignore"):  # what overflows has no bound, as decided below
            along = np.vecdot(view.vectors, self._unit).astype(np.float64)
            bounds = self._bounds(along, view.norms)
        sound = (view.norms > _LEAST_NORM) & (view.norms < _GREATEST_NORM)
        return Scored(view.numbers, np.where(sound, bounds, _NO_BOUND), view.vectors)

    def score_once(self, rows: Sequence[VectorRow]) -> Scored:
        """Compute the distances of rows that are not kept; all are of the query's dimension."""
        block = Block.of(rows, len(self._wide)).view()
        return Scored(block.numbers, self.distances(block.vectors), None)

    def distances(self, vectors: Singles) -> Floats:
        """Return the exact distances of rows; that of an identical one is 0."""
        found: Floats = np.empty(len(vectors), np.float64)
        for at in _slices(0, len(vectors), len(self._wide)):
            found[at] = self._distances(vectors[at].astype(np.float64))
        return found

    def _bounds(self, along: Floats, norms: Floats) -> Floats:
        if self._metric is Metric.COSINE:
            return 1.0 - along / norms - self._error
        squares = norms * norms + self._square
        apart = squares * (1 - 1e-14) - 2 * self._norm * (along + norms * self._error)
        lengths: Floats = np.sqrt(np.maximum(apart, 0.0)) * (1 - 1e-12)
        return lengths

    def _distances(self, wide: Floats) -> Floats:
        # Sums of equal rows are equal to the last bit: each is added up in the same order.
        if self._metric is Metric.L2:
            apart = wide - self._wide
            lengths: Floats = np.sqrt((apart * apart).sum(axis=1))
            return lengths
        products = np.sqrt((wide * wide).sum(axis=1) * self._square)
        along = (wide * self._wide).sum(axis=1)
        directed = products > 0
        cosines = np.divide(along, products, out=np.zeros_like(along), where=directed)
        found: Floats = np.clip(1.0 - cosines, 0.0, 2.0)
        return found


class Ranking:
    """Rows in order of their distance; those at the same distance by number.

    Args:
        query: What they are compared with.
        parts: The rows.

    Attributes:
        given: How many were read.
    """

    def __init__(self, query: Query, parts: Sequence[Scored]) -> None:
        self.given = 0
        self._query = query
        self._parts = parts
        self._starts = np.cumsum([0, *(len(part.numbers) for part in parts)])
        self._numbers: Integers = np.concatenate(
            [np.empty(0, np.int64), *(part.numbers for part in parts)]
        )
        self._bounds: Floats = np.concatenate([np.empty(0), *(part.bounds for part in parts)])

    def __len__(self) -> int:
        """Return how many rows there are."""
        return len(self._numbers)

    def __iter__(self) -> Iterator[Candidate]:
        """Go through all rows, nearest first, doing no more work than is read."""
        return self._nearest_of(np.arange(len(self), dtype=np.int64))

    def among(self, numbers: AbstractSet[int]) -> Iterator[Candidate]:
        """Go through the rows that have one of these numbers, nearest first."""
        wanted = np.fromiter(numbers, np.int64, len(numbers))
        return self._nearest_of(np.flatnonzero(np.isin(self._numbers, wanted)))

    def _nearest_of(self, left: Integers) -> Iterator[Candidate]:
        """Go through rows, nearest first, doing no more work than is read."""
        distances, rows = np.empty(0), np.empty(0, np.int64)
        size = FIRST_CANDIDATES
        while len(left) or len(rows):
            taken, left, bound = self._nearest(left, size)
            distances = np.concatenate([distances, self._distances(taken)])
            rows = np.concatenate([rows, taken])
            order = np.lexsort((self._numbers[rows], distances))
            distances, rows = distances[order], rows[order]
            certain = len(rows) if bound is None else int(np.searchsorted(distances, bound))
            numbers = self._numbers[rows[:certain]]
            for number, distance in zip(
                numbers.tolist(), distances[:certain].tolist(), strict=True
            ):
                self.given += 1
                yield Candidate(number, distance)
            distances, rows = distances[certain:], rows[certain:]
            size *= GROWTH

    def _nearest(self, left: Integers, size: int) -> tuple[Integers, Integers, float | None]:
        """Part rows into those of the least bounds and the rest, and bound the rest."""
        if size >= len(left):
            return np.sort(left), left[:0], None
        order = np.argpartition(self._bounds[left], size)
        taken, rest = left[order[:size]], left[order[size:]]
        return np.sort(taken), rest, float(self._bounds[rest].min())

    def _distances(self, rows: Integers) -> Floats:
        """Return exact distances of rows, which are in ascending order."""
        found: Floats = self._bounds[rows]
        cuts = np.searchsorted(rows, self._starts)
        for part, begin, end, start in zip(
            self._parts, cuts[:-1], cuts[1:], self._starts[:-1], strict=True
        ):
            if part.vectors is not None:
                for some in _slices(begin, end, part.vectors.shape[1]):
                    found[some] = self._query.distances(part.vectors[rows[some] - start])
        return found


def _slices(begin: int, end: int, dimension: int) -> Iterator[slice]:
    """Cut rows into parts that take little memory in 64 bits."""
    step = max(1, EXACT_AT_ONCE_BYTES // (8 * dimension))
    for at in range(begin, end, step):
        yield slice(at, min(at + step, end))
