"""Giving values up that stored segments hold, so that the journal keeps within its bound.

Eviction is a pass over one family (`removal.passes`): what the latest checkpoints and
changes that are not certified yet need is kept, and so is what commits refer to while the
pass reads. Only data goes. The rows stay, with the hash of the segment that holds the
value, so that whatever compares keys and digests works as before; no patch is left without
its keyframe.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

from sqlalchemy import bindparam, exists, update

from ..database.database import Database
from ..database.overlay import Batch
from ..database.schema import contents, members, writes
from ..database.statements import Statement
from ..removal.passes import Pass, Passes
from . import evictable
from .evictable import Candidate, Kept, WriteCandidate, WritePosition

EVICTED_AT_ONCE = 200
"""Values or writes that one write transaction evicts."""

EVICTED_BYTES = 16 * 1024 * 1024
"""Bytes after which it ends."""


@dataclass(frozen=True, slots=True)
class Evicted:
    """What was given up: numbers of values and of writes, and their stored bytes."""

    values: int = 0
    writes: int = 0
    size_bytes: int = 0

    def __add__(self, other: Evicted) -> Evicted:
        """Return the sum."""
        return Evicted(
            self.values + other.values,
            self.writes + other.writes,
            self.size_bytes + other.size_bytes,
        )


class _Value(NamedTuple):
    """A value that may go, and what holds it."""

    number: int
    digest: bytes
    keyframe: bytes | None
    size: int
    tenant: str
    segment: bytes


_ROW = TypeVar("_ROW", _Value, WriteCandidate)
_IS_MEMBER = exists().where(
    members.c.tenant == bindparam("of_tenant"), members.c.sha256 == bindparam("held_by")
)
_EVICT_VALUE = Statement(
    update(contents)
    .where(contents.c.number == bindparam("of_number"), contents.c.data.is_not(None), _IS_MEMBER)
    .values(data=None, keyframe=None, segment=bindparam("held_by"))
)
_EVICT_WRITE = Statement(
    update(writes)
    .where(
        writes.c.number == bindparam("of_number"),
        writes.c.seq == bindparam("of_seq"),
        writes.c.data.is_not(None),
    )
    .values(data=None)
)


async def evict_family(
    database: Database, passes: Passes, family: int, before_us: int, wanted_bytes: int
) -> Evicted:
    """Give up what a family can spare, the oldest first.

    Args:
        database: The journal's database; its commits are noted by `passes`.
        passes: The open passes.
        family: The family.
        before_us: What changed since is kept.
        wanted_bytes: Bytes after which it ends.

    Raises:
        Refusal: `JOURNAL_UNAVAILABLE`.
    """
    one = Pass(family)
    gone = Evicted()
    try:
        await database.transact(partial(passes.open, one=one))
        threads = await _kept(database, family, before_us)
        for thread in threads:
            gone += await _evict_writes(database, thread, wanted_bytes - gone.size_bytes)
        if gone.size_bytes < wanted_bytes:
            plan = await _plan(database, family, threads)
            for some in _batches(plan, wanted_bytes - gone.size_bytes):
                gone += await database.transact(partial(_evict_values, one=one, chosen=some))
        return gone
    finally:
        passes.close(one)


async def _kept(database: Database, family: int, before_us: int) -> list[Kept]:
    found: list[Kept] = []
    after = 0
    while True:
        thread = await database.query(
            partial(evictable.kept, family=family, after=after, before_us=before_us)
        )
        if thread is None:
            return found
        found.append(thread)
        after = thread.thread


async def _evict_writes(database: Database, thread: Kept, wanted_bytes: int) -> Evicted:
    """Give up writes of a thread."""
    gone = Evicted()
    after: WritePosition | None = WritePosition()
    while after is not None and gone.size_bytes < wanted_bytes:
        found, after = await database.query(
            partial(evictable.stored_writes, thread=thread, after=after)
        )
        found.sort(key=lambda one: one.seq)
        for some in _batches(found, wanted_bytes - gone.size_bytes):
            gone += await database.transact(partial(_evict_write_rows, chosen=some))
    return gone


# --- choosing values ---------------------------------------------------------------------


async def _plan(database: Database, family: int, threads: Sequence[Kept]) -> list[_Value]:
    """Return the values that may go, a keyframe after the last patch on it."""
    found: list[Candidate] = []
    after: bytes | None = b""
    while after is not None:
        some, after = await database.query(partial(evictable.values, family=family, after=after))
        found += some
    needed = frozenset().union(*(thread.digests for thread in threads))
    chosen = await _held(database, threads, [one for one in found if one.digest not in needed])
    gone = {value.digest for value in chosen}
    based = {value.keyframe for value in found if value.digest not in gone}
    return _in_order(value for value in chosen if value.digest not in based)


async def _held(
    database: Database, threads: Sequence[Kept], unneeded: Iterable[Candidate]
) -> list[_Value]:
    """Return the values that segments hold, with these."""
    by_thread: dict[int, list[Candidate]] = defaultdict(list)
    for value in unneeded:
        by_thread[value.thread].append(value)
    tenant = threads[0].tenant if threads else ""
    held: list[_Value] = []
    for thread, values in by_thread.items():
        segments = await database.query(
            partial(evictable.segments_of, tenant=tenant, thread=thread, candidates=values)
        )
        held += (
            _Value(one.number, one.digest, one.keyframe, one.size, tenant, segments[one.digest])
            for one in values
            if one.digest in segments
        )
    return held


def _in_order(chosen: Iterable[_Value]) -> list[_Value]:
    """Return values oldest first, a keyframe after the last patch on it."""
    values = list(chosen)
    last: dict[bytes, int] = {}
    for value in values:
        if value.keyframe is not None:
            last[value.keyframe] = max(value.number, last.get(value.keyframe, 0))
    return sorted(
        values,
        key=lambda value: (max(value.number, last.get(value.digest, 0)), value.keyframe is None),
    )


def _batches(values: Iterable[_ROW], wanted_bytes: int) -> list[list[_ROW]]:
    """Return as many values as are wanted, in runs that one write transaction takes."""
    found: list[list[_ROW]] = []
    size = total = 0
    for value in values:
        if total >= wanted_bytes:
            break
        if not found or len(found[-1]) >= EVICTED_AT_ONCE or size + value.size > EVICTED_BYTES:
            found.append([])
            size = 0
        found[-1].append(value)
        size += value.size
        total += value.size
    return found


# --- in a write transaction --------------------------------------------------------------


def _evict_values(batch: Batch, one: Pass, chosen: Sequence[_Value]) -> Evicted:
    """Give values up to which no commit has referred since, and whose segment is still known.

    A patch that stays keeps its keyframe, which stands after it.
    """
    count = size = 0
    for value in chosen:
        gone = 0
        if not one.spares(batch, value.digest):
            gone = _EVICT_VALUE.run(
                batch.connection,
                of_number=value.number,
                of_tenant=value.tenant,
                held_by=value.segment,
            ).rowcount
        if not gone and value.keyframe is not None:
            one.noted.add(value.keyframe)
        count += gone
        size += gone * value.size
    if count:
        batch.forget_all()  # what is known of keyframes may be among them
    return Evicted(count, 0, size)


def _evict_write_rows(batch: Batch, chosen: Sequence[WriteCandidate]) -> Evicted:
    count = _EVICT_WRITE.run_many(
        batch.connection, [{"of_number": one.number, "of_seq": one.seq} for one in chosen]
    )
    return Evicted(0, count, sum(one.size for one in chosen))
