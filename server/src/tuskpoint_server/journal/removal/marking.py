"""Marking passes: values that no checkpoint needs any more are found and removed.

There is no table of references. Once enough of a family was removed, a pass reads all of
its checkpoints, marks the values that they name and the keyframes of these, and removes the
rest in short transactions. Pending writes hold their values themselves. A family of which
no thread lives is removed as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from sqlalchemy import BindParameter, Connection, bindparam, delete, func, select, tuple_

from ..checkpoints.references import referred
from ..database.database import Database
from ..database.overlay import Batch
from ..database.schema import checkpoints, contents, threads
from ..database.statements import Statement
from .passes import Pass, Passes

DUE_SHARE = 4
"""A pass is due once one in so many checkpoints of a family, or of its bytes, was removed."""

READ_AT_ONCE = 500
"""Checkpoints that one read transaction looks at."""

READ_BYTES = 4 * 1024 * 1024
"""Bytes of their states after which it ends."""

SCANNED_AT_ONCE = 2000
"""Values that one read transaction looks at."""

REMOVED_AT_ONCE = 500
"""Values that one write transaction removes."""

REMOVED_BYTES = 16 * 1024 * 1024
"""Bytes of values after which it ends."""

FAMILIES_AT_ONCE = 200
"""Families that one look for abandoned ones examines."""


class Standing(NamedTuple):
    """A value as a pass sees it; `size` is that of its stored bytes."""

    number: int
    digest: bytes
    keyframe: bytes | None
    size: int


class Place(NamedTuple):
    """How far the checkpoints of a family are read."""

    thread: int = 0
    checkpoint_ns: str = ""
    checkpoint_id: str = ""


@dataclass(frozen=True, slots=True)
class Removed:
    """What was removed: the number of values and their stored bytes."""

    values: int = 0
    size_bytes: int = 0

    def __add__(self, other: Removed) -> Removed:
        """Return the sum."""
        return Removed(self.values + other.values, self.size_bytes + other.size_bytes)


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
_NEXT_THREAD = Statement(
    select(threads.c.number)
    .where(threads.c.family == _FAMILY, threads.c.number > bindparam("after"))
    .order_by(threads.c.number)
    .limit(1)
)
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
        checkpoints.c.thread == bindparam("of_thread"),
        tuple_(checkpoints.c.checkpoint_ns, checkpoints.c.checkpoint_id)
        > tuple_(bindparam("after_ns"), bindparam("after_id")),
    )
    .order_by(checkpoints.c.checkpoint_ns, checkpoints.c.checkpoint_id)
    .limit(READ_AT_ONCE)
)
_VALUES = Statement(
    select(
        contents.c.number,
        contents.c.digest,
        contents.c.keyframe,
        func.coalesce(func.length(contents.c.data), 0),
    )
    .where(contents.c.family == _FAMILY, contents.c.digest > bindparam("after"))
    .order_by(contents.c.digest)
    .limit(SCANNED_AT_ONCE)
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


async def remove_due(database: Database, passes: Passes) -> Removed:
    """Remove what is not needed of the families of which enough was removed.

    Raises:
        Refusal: `JOURNAL_UNAVAILABLE`.
    """
    removed = Removed()
    for family in await database.query(due):
        removed += await remove_unneeded(database, passes, family)
    return removed


async def remove_unneeded(database: Database, passes: Passes, family: int) -> Removed:
    """Remove the values of a family that none of its checkpoints needs.

    Args:
        database: The journal's database; its commits are noted by `passes`.
        passes: The open passes.
        family: The family.

    Raises:
        Refusal: `JOURNAL_UNAVAILABLE`.
    """
    counts = await database.query(partial(_counts, family=family))
    if await database.query(partial(lives, family=family)):
        removed = await _mark_and_remove(database, passes, family)
    else:
        removed = await _remove_all(database, family)
    for start in range(0, len(counts), REMOVED_AT_ONCE):
        some = counts[start : start + REMOVED_AT_ONCE]
        await database.transact(partial(_count_off, family=family, counts=some))
    return removed


async def _mark_and_remove(database: Database, passes: Passes, family: int) -> Removed:
    one = Pass(family)
    try:
        await database.transact(partial(passes.open, one=one))
        needed = await _needed(database, family)
        doomed = await _unneeded(database, one, needed)
        # Patches first: one that is spared spares its keyframe, which stands after it.
        doomed.sort(key=lambda value: value.keyframe is None)
        removed = Removed()
        for some in batches(doomed):
            removed += await database.transact(partial(_remove, one=one, doomed=some))
        return removed
    finally:
        passes.close(one)


async def _needed(database: Database, family: int) -> set[bytes]:
    """Return the digests that the checkpoints of a family name."""
    needed: set[bytes] = set()
    place: Place | None = Place()
    while place is not None:
        found, place = await database.query(partial(_roots, family=family, after=place))
        needed |= found
    return needed


async def _unneeded(database: Database, one: Pass, needed: set[bytes]) -> list[Standing]:
    """Return the values that are neither needed nor keyframes of such."""
    unneeded: list[Standing] = []
    keyframes: set[bytes] = set()
    after: bytes | None = b""
    while after is not None:
        found, after = await database.query(partial(standing, family=one.family, after=after))
        for value in found:
            if value.digest not in needed:
                unneeded.append(value)
            elif value.keyframe is not None:
                keyframes.add(value.keyframe)
    return [
        value
        for value in unneeded
        if value.digest not in keyframes and value.number <= one.last_number
    ]


async def _remove_all(database: Database, family: int) -> Removed:
    """Remove all values of a family of which no thread lives."""
    removed = Removed()
    while True:
        found, _ = await database.query(partial(standing, family=family, after=b""))
        if not found:
            return removed
        for some in batches(found):
            gone = await database.transact(partial(_remove_abandoned, family=family, doomed=some))
            if not gone.values:
                return removed
            removed += gone


def batches(values: Sequence[Standing]) -> list[list[Standing]]:
    """Return values in runs that one write transaction takes, in their order."""
    found: list[list[Standing]] = []
    size = 0
    for value in values:
        if not found or len(found[-1]) >= REMOVED_AT_ONCE or size + value.size > REMOVED_BYTES:
            found.append([])
            size = 0
        found[-1].append(value)
        size += value.size
    return found


# --- in a read transaction ---------------------------------------------------------------


def _roots(connection: Connection, family: int, after: Place) -> tuple[set[bytes], Place | None]:
    """Return what the next checkpoints of a family name, and where to go on."""
    found: set[bytes] = set()
    count = size = 0
    place: Place | None = after if after.thread else _first_of_next(connection, family, 0)
    while place is not None and count < READ_AT_ONCE and size < READ_BYTES:
        rows = _STATES.run(
            connection,
            of_thread=place.thread,
            after_ns=place.checkpoint_ns,
            after_id=place.checkpoint_id,
        )
        ended = True
        while size < READ_BYTES and (row := rows.fetchone()) is not None:
            checkpoint_ns, checkpoint_id, state, delta_base = row
            found |= referred(state, delta_base)
            place = Place(place.thread, checkpoint_ns, checkpoint_id)
            count += 1
            size += len(state)
            ended = False
        rows.close()
        if ended:
            count += 1
            place = _first_of_next(connection, family, place.thread)
    return found, place


def _first_of_next(connection: Connection, family: int, after: int) -> Place | None:
    row = _NEXT_THREAD.run(connection, of_family=family, after=after).fetchone()
    return Place(int(row[0])) if row is not None else None


def standing(
    connection: Connection, family: int, after: bytes
) -> tuple[list[Standing], bytes | None]:
    """Return the next values of a family by digest, and where to go on; `None` at the end."""
    rows = _VALUES.run(connection, of_family=family, after=after).fetchall()
    found = [Standing(*row) for row in rows]
    return found, found[-1].digest if len(found) == SCANNED_AT_ONCE else None


def _counts(connection: Connection, family: int) -> list[_Counts]:
    return [_Counts(*row) for row in _COUNTS.run(connection, of_family=family).fetchall()]


# --- in a write transaction --------------------------------------------------------------


def _remove(batch: Batch, one: Pass, doomed: Sequence[Standing]) -> Removed:
    """Remove those of the values to which no commit has referred since."""
    gone = []
    for value in doomed:
        if not one.spares(batch, value.digest):
            gone.append(value)
        elif value.keyframe is not None:
            one.noted.add(value.keyframe)
    return _remove_rows(batch, gone)


def _remove_abandoned(batch: Batch, family: int, doomed: Sequence[Standing]) -> Removed:
    if lives(batch.connection, family):
        return Removed()
    return _remove_rows(batch, doomed)


def _remove_rows(batch: Batch, gone: Sequence[Standing]) -> Removed:
    if not gone:
        return Removed()
    count = _REMOVE.run_many(batch.connection, [{"of_number": value.number} for value in gone])
    batch.forget_all()  # what is known of keyframes may be among them
    return Removed(count, sum(value.size for value in gone))


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
