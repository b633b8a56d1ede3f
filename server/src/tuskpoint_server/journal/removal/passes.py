"""Passes over the values of a family: what nothing needs, and what commits refer to meanwhile.

A pass decides from pages that were read one after another which values nothing needs.
Meanwhile the writer goes on, so each commit notes what it refers to, and the pass spares
that. What is noted is in memory: a crash forgets the pass, and nothing depends on it.
Marking removes what no checkpoint needs; eviction gives up the data of what is not needed
soon.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterable, Mapping, Set
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

from sqlalchemy import Connection, Integer, bindparam, func, select

from ..database.database import Database
from ..database.overlay import Batch
from ..database.schema import contents, threads
from ..database.statements import Statement

SCANNED_AT_ONCE = 2000
"""Values that one read transaction looks at."""

TAKEN_AT_ONCE = 500
"""Values or writes that one write transaction takes."""

TAKEN_BYTES = 16 * 1024 * 1024
"""Bytes of them after which it ends."""


class Sized(NamedTuple):
    """A pending write that may be taken; `size` is that of its stored bytes."""

    number: int
    seq: int
    size: int


class ValueRow(NamedTuple):
    """A value as a pass sees it; `size` is that of its stored bytes, 0 if it was evicted."""

    number: int
    digest: bytes
    keyframe: bytes | None
    size: int
    thread: int
    seq: int


@dataclass(frozen=True, slots=True)
class Taken:
    """What was removed or evicted: numbers of values and of writes, and their stored bytes."""

    values: int = 0
    writes: int = 0
    size_bytes: int = 0

    def __add__(self, other: Taken) -> Taken:
        """Return the sum."""
        return Taken(
            self.values + other.values,
            self.writes + other.writes,
            self.size_bytes + other.size_bytes,
        )


_ITEM = TypeVar("_ITEM", Sized, ValueRow)
_GREATEST = Statement(select(func.coalesce(func.max(contents.c.number), 0)))
_THREADS = Statement(
    select(threads.c.number)
    .where(threads.c.family == bindparam("of_family"))
    .order_by(threads.c.number)
)
_VALUES = Statement(
    select(
        contents.c.number,
        contents.c.digest,
        contents.c.keyframe,
        func.coalesce(func.length(contents.c.data), 0),
        contents.c.thread,
        contents.c.seq,
    )
    .where(contents.c.family == bindparam("of_family"), contents.c.digest > bindparam("after"))
    .order_by(contents.c.digest)
    .limit(bindparam("at_most", type_=Integer))
)


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

    def spares(self, batch: Batch, value: ValueRow) -> bool:
        """Tell whether a commit, or the batch that is not committed yet, refers to a value.

        Args:
            batch: The open transaction.
            value: The value; if it is spared, so is its keyframe.
        """
        spared = value.digest in self.noted or value.digest in batch.noted.get(self.family, ())
        if spared:
            self.keep_keyframe(value)
        return spared

    def keep_keyframe(self, value: ValueRow) -> None:
        """Spare the keyframe of a value that stays."""
        if value.keyframe is not None:
            self.noted.add(value.keyframe)


class Passes:
    """The open passes. `note` is given to `Database.noted`, so that every commit is seen."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: list[Pass] = []

    @asynccontextmanager
    async def opened(self, database: Database, family: int) -> AsyncIterator[Pass]:
        """Note what commits refer to, as long as the pass lasts.

        What is read meanwhile, or noted, is all that refers to a value of the family.
        """
        one = Pass(family)
        with self._lock:
            self._open.append(one)
        try:
            # Through the writer: a commit that was under way and is not noted is over then.
            one.last_number = await database.transact(_greatest)
            yield one
        finally:
            with self._lock:
                self._open.remove(one)

    def note(self, referred: Mapping[int, Set[bytes]]) -> None:
        """Note what a batch refers to, in the writer's thread before its commit.

        Args:
            referred: Family to digests.
        """
        with self._lock:
            for one in self._open:
                one.noted |= referred.get(one.family, frozenset())


def _greatest(batch: Batch) -> int:
    row = _GREATEST.run(batch.connection).fetchone()
    return int(row[0]) if row else 0


def threads_of(connection: Connection, family: int) -> list[int]:
    """Return the numbers of the threads of a family, deleted ones too."""
    return [row[0] for row in _THREADS.run(connection, of_family=family).fetchall()]


def scan(
    connection: Connection, family: int, after: bytes = b""
) -> tuple[list[ValueRow], bytes | None]:
    """Return the next values of a family by digest, and where to go on; `None` at the end."""
    rows = _VALUES.run(connection, of_family=family, after=after, at_most=SCANNED_AT_ONCE)
    found = [ValueRow(*row) for row in rows.fetchall()]
    return found, found[-1].digest if len(found) == SCANNED_AT_ONCE else None


async def unneeded(database: Database, one: Pass, needed: Set[bytes]) -> list[ValueRow]:
    """Return the values that are neither needed nor keyframes of such, the oldest first.

    A keyframe stands after the last patch on it: a patch that is spared spares its keyframe.

    Args:
        database: The journal's database.
        one: The open pass.
        needed: Digests of what is needed, read since the pass was opened.
    """
    found: list[ValueRow] = []
    keyframes: set[bytes] = set()
    after: bytes | None = b""
    while after is not None:
        page, after = await database.query(partial(scan, family=one.family, after=after))
        for value in page:
            if value.digest not in needed:
                found.append(value)
            elif value.keyframe is not None:
                keyframes.add(value.keyframe)
    found = [
        value
        for value in found
        if value.digest not in keyframes and value.number <= one.last_number
    ]
    last: dict[bytes, int] = {}
    for value in found:
        if value.keyframe is not None:
            last[value.keyframe] = max(value.number, last.get(value.keyframe, 0))
    found.sort(
        key=lambda value: (max(value.number, last.get(value.digest, 0)), value.keyframe is None)
    )
    return found


def batches(values: Iterable[_ITEM], wanted_bytes: int | None = None) -> list[list[_ITEM]]:
    """Return values in runs that one write transaction takes, in their order.

    Args:
        values: The values, or writes.
        wanted_bytes: Those after so many bytes are left out; `None`: none are.
    """
    found: list[list[_ITEM]] = []
    size = total = 0
    for value in values:
        if wanted_bytes is not None and total >= wanted_bytes:
            break
        if not found or len(found[-1]) >= TAKEN_AT_ONCE or size + value.size > TAKEN_BYTES:
            found.append([])
            size = 0
        found[-1].append(value)
        size += value.size
        total += value.size
    return found
