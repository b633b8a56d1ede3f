"""Marking passes: values that no checkpoint needs any more are found and removed.

There is no table of references. Once enough of a family was removed, a pass reads all of
its checkpoints, marks the values that they name and the keyframes of these, and removes the
rest in short transactions. Pending writes hold their values themselves. A family of which
no thread lives is removed as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from sqlalchemy import BindParameter, Connection, bindparam, delete, func, select, tuple_

from ..checkpoints.contents import referred
from ..database.database import Database
from ..database.overlay import Batch
from ..database.schema import checkpoints, contents, threads
from ..database.statements import Statement, of_thread
from .passes import (
    TAKEN_AT_ONCE,
    Pass,
    Passes,
    Taken,
    ValueRow,
    batches,
    scan,
    threads_of,
    unneeded,
)

DUE_SHARE = 4
"""A pass is due once one in so many checkpoints of a family, or of its bytes, was removed."""

READ_AT_ONCE = 500
"""Checkpoints that one read transaction looks at."""

READ_BYTES = 4 * 1024 * 1024
"""Bytes of their states after which it ends."""

FAMILIES_AT_ONCE = 200
"""Families that one look for abandoned ones examines."""


_Place = tuple[str, str]


class _Counts(NamedTuple):
    """What was removed of a thread since the last pass."""

    tenant: str
    thread_id: str
    removed_count: int
    removed_bytes: int


_REMOVED = threads.c.removed_count > 0
_LIVES = threads.c.deleted.is_(False)
_FAMILY: BindParameter[int] = bindparam("of_family")
_DUE = Statement(
    select(
        threads.c.family,
        func.sum(threads.c.removed_count),
        func.sum(threads.c.checkpoint_count),
        func.sum(threads.c.removed_bytes),
        func.sum(threads.c.added_bytes),
    )
    .where(threads.c.family.in_(select(threads.c.family).where(_REMOVED)))
    .group_by(threads.c.family)
)
_COUNTS = Statement(
    select(
        threads.c.tenant, threads.c.thread_id, threads.c.removed_count, threads.c.removed_bytes
    ).where(threads.c.family == _FAMILY, _REMOVED)
)
_LIVING = Statement(select(threads.c.number).where(threads.c.family == _FAMILY, _LIVES).limit(1))
_NEXT_FAMILY = Statement(
    select(func.min(contents.c.family)).where(contents.c.family > bindparam("after"))
)
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
    .limit(READ_AT_ONCE)
)
_REMOVE = Statement(delete(contents).where(contents.c.number == bindparam("of_number")))


# --- which families ----------------------------------------------------------------------


def due(connection: Connection) -> list[int]:
    """Return the families of which enough was removed since their last pass.

    One without a checkpoint is always among them.
    """
    return [
        int(family)
        for family, removed, left, removed_bytes, added_bytes in _DUE.run(connection).fetchall()
        if removed * DUE_SHARE >= removed + left or removed_bytes * DUE_SHARE >= added_bytes > 0
    ]


def abandoned(connection: Connection, after: int) -> tuple[list[int], int]:
    """Return families with values of which no thread lives, and where to go on.

    That is what is left of a thread whose next incarnation began before its values were
    removed. A bounded number of families is examined; 0 is the end, and the beginning.

    Args:
        connection: In a transaction.
        after: The family that was examined last; 0: none.
    """
    found: list[int] = []
    for _ in range(FAMILIES_AT_ONCE):
        row = _NEXT_FAMILY.run(connection, after=after).fetchone()
        if row is None or row[0] is None:
            return found, 0
        after = int(row[0])
        if not lives(connection, after):
            found.append(after)
    return found, after


def lives(connection: Connection, family: int) -> bool:
    """Tell whether a thread of a family lives."""
    return _LIVING.run(connection, of_family=family).fetchone() is not None


# --- removing ----------------------------------------------------------------------------


async def remove_due(database: Database, passes: Passes) -> Taken:
    """Remove what is not needed of the families of which enough was removed.

    Raises:
        Refusal: `JOURNAL_UNAVAILABLE`.
    """
    removed = Taken()
    for family in await database.query(due):
        removed += await remove_unneeded(database, passes, family)
    return removed


async def remove_unneeded(database: Database, passes: Passes, family: int) -> Taken:
    """Remove the values of a family that none of its checkpoints needs.

    Args:
        database: The journal's database; its commits are noted by `passes`.
        passes: The open passes.
        family: The family.

    Raises:
        Refusal: `JOURNAL_UNAVAILABLE`.
    """
    counts = await database.query(partial(_counts, family=family))
    removed = Taken()
    if await database.query(partial(lives, family=family)):
        async with passes.opened(database, family) as one:
            doomed = await unneeded(database, one, await _needed(database, family))
            for some in batches(doomed):
                removed += await database.transact(partial(_remove, one=one, doomed=some))
    else:
        removed = await _remove_all(database, family)
    for start in range(0, len(counts), TAKEN_AT_ONCE):
        seen = counts[start : start + TAKEN_AT_ONCE]
        await database.transact(partial(_count_off, family=family, counts=seen))
    return removed


async def _needed(database: Database, family: int) -> set[bytes]:
    """Return the digests that the checkpoints of a family name."""
    needed: set[bytes] = set()
    for thread in await database.query(partial(threads_of, family=family)):
        place: _Place | None = ("", "")
        while place is not None:
            found, place = await database.query(partial(_named, thread=thread, after=place))
            needed |= found
    return needed


async def _remove_all(database: Database, family: int) -> Taken:
    """Remove all values of a family of which no thread lives."""
    removed = Taken()
    while True:
        found, _ = await database.query(partial(scan, family=family))
        if not found:
            return removed
        for some in batches(found):
            gone = await database.transact(partial(_remove_abandoned, family=family, doomed=some))
            if not gone.values:
                return removed
            removed += gone


# --- in a read transaction ---------------------------------------------------------------


def _named(connection: Connection, thread: int, after: _Place) -> tuple[set[bytes], _Place | None]:
    """Return what the next checkpoints of a thread name, and where to go on."""
    found: set[bytes] = set()
    count = size = 0
    rows = _STATES.run(connection, of_thread=thread, after_ns=after[0], after_id=after[1])
    while (row := rows.fetchone()) is not None:
        checkpoint_ns, checkpoint_id, state, delta_base = row
        found |= referred(state, delta_base)
        count += 1
        size += len(state)
        if count >= READ_AT_ONCE or size >= READ_BYTES:
            rows.close()
            return found, (checkpoint_ns, checkpoint_id)
    return found, None


def _counts(connection: Connection, family: int) -> list[_Counts]:
    return [_Counts(*row) for row in _COUNTS.run(connection, of_family=family).fetchall()]


# --- in a write transaction --------------------------------------------------------------


def _remove(batch: Batch, one: Pass, doomed: Sequence[ValueRow]) -> Taken:
    """Remove those of the values to which no commit has referred since."""
    return _remove_rows(batch, [value for value in doomed if not one.spares(batch, value)])


def _remove_abandoned(batch: Batch, family: int, doomed: Sequence[ValueRow]) -> Taken:
    if lives(batch.connection, family):
        return Taken()
    return _remove_rows(batch, doomed)


def _remove_rows(batch: Batch, gone: Sequence[ValueRow]) -> Taken:
    if not gone:
        return Taken()
    count = _REMOVE.run_many(batch.connection, [{"of_number": value.number} for value in gone])
    batch.forget_all()  # what is known of keyframes may be among them
    return Taken(count, size_bytes=sum(value.size for value in gone))


def _count_off(batch: Batch, family: int, counts: Sequence[_Counts]) -> None:
    """Take what a pass has seen off the counts of what was removed since the last one."""
    for one in counts:
        log = batch.find(one.tenant, one.thread_id)
        if log is None or log.row.family != family:
            continue
        log.row.removed_count -= one.removed_count
        log.row.removed_bytes -= one.removed_bytes
        log.row.added_bytes -= one.removed_bytes
        batch.store(log)
