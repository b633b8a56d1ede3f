"""Passes over the values of a family: what commits refer to while one is open.

A pass decides from pages that were read one after another which values nothing needs.
Meanwhile the writer goes on, so each commit notes what it refers to, and the pass spares
that. What is noted is in memory: a crash forgets the pass, and nothing depends on it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Set

from sqlalchemy import func, select

from ..database.overlay import Batch
from ..database.schema import contents
from ..database.statements import Statement

_GREATEST = Statement(select(func.coalesce(func.max(contents.c.number), 0)))


class Pass:
    """One pass over a family.

    Args:
        family: The family.

    Attributes:
        family: The family.
        last_number: Greatest number of a value when it was opened; newer ones are spared.
        noted: Digests that commits have referred to since, and keyframes of values that
            were spared for it.
    """

    def __init__(self, family: int) -> None:
        self.family = family
        self.last_number = 0
        self.noted: set[bytes] = set()

    def spares(self, batch: Batch, digest: bytes) -> bool:
        """Tell whether a commit, or the batch that is not committed yet, refers to a value.

        Args:
            batch: The open transaction.
            digest: The value.
        """
        return digest in self.noted or digest in batch.noted.get(self.family, ())


class Passes:
    """The open passes. It is given to `Database.noted`, so that every commit is seen."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[int, tuple[Pass, ...]] = {}

    def open(self, batch: Batch, one: Pass) -> None:
        """Begin to note what commits refer to.

        What is read after the commit of `batch`, or noted, is all that refers to a value.

        Args:
            batch: In a change of its own; committed before the pass reads anything.
            one: The pass.
        """
        row = _GREATEST.run(batch.connection).fetchone()
        one.last_number = int(row[0]) if row else 0
        with self._lock:
            others = self._open.get(one.family, ())
            if one not in others:
                self._open[one.family] = (*others, one)

    def close(self, one: Pass) -> None:
        """End a pass, opened or not."""
        with self._lock:
            left = tuple(other for other in self._open.get(one.family, ()) if other is not one)
            if left:
                self._open[one.family] = left
            else:
                self._open.pop(one.family, None)

    def note(self, referred: Mapping[int, Set[bytes]]) -> None:
        """Note what a batch refers to, in the writer's thread before its commit.

        Args:
            referred: Family to digests.
        """
        if not self._open:
            return
        with self._lock:
            for family, passes in self._open.items():
                for one in passes:
                    one.noted |= referred.get(family, frozenset())
