"""Passes over the values of a family: what nothing needs, and what commits refer to meanwhile.

There is no table of references. Once enough of a family was removed, a pass reads all of its
checkpoints, marks the values that they name and the keyframes of these, and removes the rest
in short transactions. Pending writes hold their values themselves. Eviction is a pass too: it
gives up the data of what is not needed soon.

A pass decides from pages that were read one after another. Meanwhile the writer goes on, so
each commit notes what it refers to, and the pass spares that. What is noted is in memory: a
crash forgets the pass, and nothing depends on it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence, Set
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import (
    BindParameter,
    Connection,
    Integer,
    bindparam,
    delete,
    exists,
    func,
    select,
    tuple_,
    union,
)

from ..checkpoints.contents import referred
from ..database.database import Database
from ..database.logs import Place
from ..database.overlay import Batch
from ..database.schema import checkpoints, contents, threads
from ..database.statements import Statement, of_thread

SCANNED_AT_ONCE = 2000  # values that one read transaction looks at
READ_AT_ONCE = 500  # checkpoints that one read transaction looks at
TAKEN_AT_ONCE = 500  # values or writes that one write transaction takes
TAKEN_BYTES = 16 * 1024 * 1024  # of them, after which it ends
DUE_SHARE = 4  # one in so many checkpoints of a family, or bytes, was removed: a pass is due


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
        return Taken(
            self.values + other.values,
            self.writes + other.writes,
            self.size_bytes + other.size_bytes,
        )


_ITEM = TypeVar("_ITEM", Sized, ValueRow)
_FAMILY: BindParameter[int] = bindparam("of_family")
_REMOVED = threads.c.removed_count > 0
_GREATEST = Statement(select(func.coalesce(func.max(contents.c.number), 0)))
_THREADS = Statement(
    select(threads.c.number).where(threads.c.family == _FAMILY).order_by(threads.c.number)
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
    .where(contents.c.family == _FAMILY, contents.c.digest > bindparam("after"))
    .order_by(contents.c.digest)
    .limit(bindparam("at_most", type_=Integer))
)
_removed, _removed_bytes, _added_bytes = (
    func.sum(threads.c[name]) for name in ("removed_count", "removed_bytes", "added_bytes")
)
_MUCH_REMOVED = (
    select(threads.c.family)
    .where(threads.c.family.in_(select(threads.c.family).where(_REMOVED)))
    .group_by(threads.c.family)
    .having(
        (_removed * DUE_SHARE >= _removed + func.sum(threads.c.checkpoint_count))
        | ((_removed_bytes * DUE_SHARE >= _added_bytes) & (_added_bytes > 0))
    )
)
_COUNTS = Statement(
    select(
        threads.c.tenant, threads.c.thread_id, threads.c.removed_count, threads.c.removed_bytes
    ).where(threads.c.family == _FAMILY, _REMOVED)
)
# From family to family by the index: each may have many values.
_families = select(func.min(contents.c.family).label("family")).cte("families", recursive=True)
_families = _families.union_all(
    select(
        select(func.min(contents.c.family))
        .where(contents.c.family > _families.c.family)
        .scalar_subquery()
    ).where(_families.c.family.is_not(None))
)
# Such is left of a thread whose next incarnation began before its values were removed.
_ABANDONED = select(_families.c.family).where(
    _families.c.family.is_not(None),
    ~exists().where(threads.c.family == _families.c.family, threads.c.deleted.is_(False)),
)
_DUE = Statement(union(_MUCH_REMOVED, _ABANDONED))
_STATES = Statement(
    select(
        checkpoints.c.checkpoint_ns,
        checkpoints.c.checkpoint_id,
        checkpoints.c.state,
        checkpoints.c.delta_base,
    )
    .where(
        of_thread(checkpoints),
        tuple_(checkpoints.c.checkpoint_ns, checkpoints.c.checkpoint_id)
        > tuple_(bindparam("after_ns"), bindparam("after_id")),
    )
    .order_by(checkpoints.c.checkpoint_ns, checkpoints.c.checkpoint_id)
    .limit(bindparam("at_most", type_=Integer))
)
_REMOVE = Statement(delete(contents).where(contents.c.number == bindparam("of_number")))


@dataclass(eq=False, slots=True)
class Pass:
    """One pass over a family."""

    family: int
    last_number: int = 0  # greatest of a value when it was opened; newer ones are spared
    # Digests that commits have referred to since, and keyframes of values spared for it.
    noted: set[bytes] = field(default_factory=set)

    def spares(self, batch: Batch, value: ValueRow) -> bool:
        """Return whether a commit or the open batch refers to a value; spare its keyframe then."""
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
        self._open: tuple[Pass, ...] = ()  # replaced as a whole: the writer's thread reads it

    @asynccontextmanager
    async def opened(self, database: Database, family: int) -> AsyncIterator[Pass]:
        """Note what commits refer to, as long as the pass lasts.

        What is read meanwhile, or noted, is all that refers to a value of the family.
        """
        one = Pass(family)
        self._open += (one,)
        try:
            # Through the writer: a commit that was under way and is not noted is over then.
            one.last_number = await database.transact(
                lambda batch: (_GREATEST.run(batch.connection).fetchone() or (0,))[0]
            )
            yield one
        finally:
            self._open = tuple(other for other in self._open if other is not one)

    def note(self, referred: Mapping[int, Set[bytes]]) -> None:
        """Note the digests that a batch refers to by family, in the writer's thread."""
        for one in self._open:
            one.noted |= referred.get(one.family, frozenset())


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
    `needed` was read since the pass was opened.
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
    """Return values, or writes, in runs that one write transaction takes, in their order.

    Those after `wanted_bytes` are left out.
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


def due(connection: Connection) -> list[int]:
    """Return families of which enough was removed since their last pass, or no thread lives."""
    return [row[0] for row in _DUE.run(connection).fetchall()]


async def remove_due(database: Database, passes: Passes) -> Taken:
    """Remove what is not needed of the families that are due."""
    removed = Taken()
    for family in await database.query(due):
        removed += await remove_unneeded(database, passes, family)
    return removed


async def remove_unneeded(database: Database, passes: Passes, family: int) -> Taken:
    """Remove the values of a family that none of its checkpoints needs.

    The database's commits are noted by `passes`.
    """
    counts = await database.rows(_COUNTS, of_family=family)
    removed = Taken()
    async with passes.opened(database, family) as one:
        doomed = await unneeded(database, one, await _needed(database, family))
        for some in batches(doomed):
            removed += await database.transact(partial(remove, one=one, doomed=some))
    for start in range(0, len(counts), TAKEN_AT_ONCE):
        seen = counts[start : start + TAKEN_AT_ONCE]
        await database.transact(partial(_count_off, family=family, counts=seen))
    return removed


async def _needed(database: Database, family: int) -> set[bytes]:
    """Return the digests that the checkpoints of a family name."""
    needed: set[bytes] = set()
    for thread in await database.query(partial(threads_of, family=family)):
        place: Place | None = ("", "")
        while place is not None:
            found, place = await database.query(partial(_named, thread=thread, after=place))
            needed |= found
    return needed


def _named(connection: Connection, thread: int, after: Place) -> tuple[set[bytes], Place | None]:
    """Return what the next checkpoints of a thread name, and where to go on."""
    found: set[bytes] = set()
    count, place = 0, after
    since = {"after_ns": after[0], "after_id": after[1], "at_most": READ_AT_ONCE}
    rows = _STATES.run(connection, of_thread=thread, **since)
    while (row := rows.fetchone()) is not None:
        place, count = (row[0], row[1]), count + 1
        found |= referred(row[2], row[3])
    return found, place if count == READ_AT_ONCE else None


def remove(batch: Batch, one: Pass, doomed: Sequence[ValueRow]) -> Taken:
    """Remove those of the values to which no commit has referred since."""
    gone = [value for value in doomed if not one.spares(batch, value)]
    if not gone:
        return Taken()
    count = _REMOVE.run_many(batch.connection, [{"of_number": value.number} for value in gone])
    batch.logs.clear()  # what is known of keyframes may be among them
    return Taken(count, size_bytes=sum(value.size for value in gone))


def _count_off(batch: Batch, family: int, counts: Sequence[Sequence[Any]]) -> None:
    """Take what a pass has seen off the counts of what was removed since the last one."""
    for tenant, thread_id, removed_count, removed_bytes in counts:
        log = batch.find(tenant, thread_id)
        if log is None or log.row.family != family:
            continue
        log.row.removed_count -= removed_count
        log.row.removed_bytes -= removed_bytes
        log.row.added_bytes -= removed_bytes
        batch.store(log)
