"""Garbage collection of a family: finds and removes unneeded values while commits continue.

There is no table of references. Once enough of a family was removed, a collection reads all of its
checkpoints, marks the values that they name and the keyframes of these values, and removes the rest
in short transactions. Pending writes have their own values. Eviction is a collection too: it drops
the data of values that are not needed soon.

A collection decides from pages that it read one after another. Meanwhile this server and other
servers commit. So each transaction that removes or evicts values first locks the threads of the
family, reads the checkpoints that changed since in their logs, and spares the values that these
checkpoints name. A keyframe stays as long as any patch on it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeVar

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
    update,
)

from ...core.errors import Reason, Refusal
from ..database.binding import binder_of
from ..database.database import Database
from ..database.thread_rows import KNOWN, CachedCheckpoint, Place, ThreadRef
from ..database.unit_of_work import UnitOfWork
from ..sql.schema import changes, checkpoints, contents, threads
from ..sql.statements import LISTED, SqlRow, Statement, of_thread
from ..values.contents import referred_digests

SCANNED_AT_ONCE = 2000  # values that one read transaction reads
READ_AT_ONCE = 500  # checkpoints that one read transaction reads
TAKEN_AT_ONCE = 500  # values or writes that one write transaction removes or evicts
TAKEN_BYTES = 16 * 1024 * 1024  # bytes of such values or writes, after which the transaction ends
# a collection is due once one in this many checkpoints or bytes of a family was removed
DUE_SHARE = 4

_log = logging.getLogger(__name__)


@contextmanager
def sparing_damaged() -> Iterator[None]:
    """Leave a family as it is if one of its checkpoints is damaged: it may need any value."""
    try:
        yield
    except Refusal as refusal:
        if refusal.reason is not Reason.JOURNAL_DAMAGED:
            raise
        # As text: the traceback has a cursor that must not outlive the connection in a log's queue.
        _log.error("values that may not be needed stay in the journal: %s", str(refusal))


FAMILY = (
    select(threads.c.number, threads.c.seq, threads.c.compacted_seq)
    .where(threads.c.family == bindparam("of_family"))
    .order_by(threads.c.number)
)
"""Threads of a family, deleted ones too, with the last number and `compacted_seq` of their logs."""
_LOCK_FAMILY = Statement(FAMILY.with_for_update())


class SizedWrite(NamedTuple):
    """A pending write that may be evicted; `size` counts its stored bytes."""

    number: int
    seq: int
    size: int


class ValueRow(NamedTuple):
    """A value, as a collection reads it; `size` counts its stored bytes, 0 if it was evicted."""

    number: int
    digest: bytes
    keyframe: bytes | None
    size: int
    thread: int
    seq: int


@dataclass(frozen=True, slots=True)
class FreedValues:
    """Numbers of removed or evicted values and writes, and their stored bytes."""

    values: int = 0
    writes: int = 0
    size_bytes: int = 0

    def __add__(self, other: FreedValues) -> FreedValues:
        return FreedValues(
            self.values + other.values,
            self.writes + other.writes,
            self.size_bytes + other.size_bytes,
        )


_ITEM = TypeVar("_ITEM", SizedWrite, ValueRow)
_FAMILY: BindParameter[int] = bindparam("of_family")
_REMOVED = threads.c.removed_count > 0
_THREADS = Statement(FAMILY)
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
# Family by family with the index: each family may have many values.
_families = select(func.min(contents.c.family).label("family")).cte("families", recursive=True)
_families = _families.union_all(
    select(
        select(func.min(contents.c.family))
        .where(contents.c.family > _families.c.family)
        .scalar_subquery()
    ).where(_families.c.family.is_not(None))
)
# A family without a live thread: the next incarnation started before its values were removed.
_ABANDONED = select(_families.c.family).where(
    _families.c.family.is_not(None),
    ~exists().where(threads.c.family == _families.c.family, threads.c.deleted.is_(False)),
)
_DUE = Statement(union(_MUCH_REMOVED, _ABANDONED))
_PLACE = (checkpoints.c.checkpoint_ns, checkpoints.c.checkpoint_id)
_REF = Statement(
    select(threads.c.tenant, threads.c.thread_id, threads.c.number).where(
        threads.c.number == bindparam("of_number")
    )
)
_STATES = Statement(
    select(*_PLACE, *KNOWN)
    .where(
        of_thread(checkpoints),
        tuple_(checkpoints.c.checkpoint_ns, checkpoints.c.checkpoint_id)
        > tuple_(bindparam("after_ns"), bindparam("after_id")),
    )
    .order_by(checkpoints.c.checkpoint_ns, checkpoints.c.checkpoint_id)
    .limit(bindparam("at_most", type_=Integer))
)
_CHANGED = Statement(
    select(*_PLACE, *KNOWN).where(
        of_thread(checkpoints),
        tuple_(checkpoints.c.checkpoint_ns, checkpoints.c.checkpoint_id).in_(
            select(changes.c.checkpoint_ns, changes.c.checkpoint_id).where(
                of_thread(changes), changes.c.seq > bindparam("after")
            )
        ),
    )
)
_KEYFRAMES = Statement(
    select(contents.c.keyframe)
    .where(contents.c.family == _FAMILY, contents.c.keyframe.in_(LISTED))
    .distinct()
)
_REMOVE = Statement(
    delete(contents).where(contents.c.family == _FAMILY, contents.c.digest == bindparam("gone"))
)
_COUNT_TAKEN = Statement(
    update(threads).where(threads.c.family == _FAMILY).values(taken=threads.c.taken + 1)
)


class _FamilyLogs(NamedTuple):
    """The last number of each log of a family, and the values that later changes name."""

    seqs: Mapping[int, int]
    named: Set[bytes]


@dataclass(eq=False, slots=True)
class FamilyCollection:
    """A garbage collection of one family.

    Attributes:
        seqs: The threads of the family, by number, with the last known number of their logs.
        spared: Digests of values that changes up to these numbers name.
    """

    family: int
    seqs: Mapping[int, int]
    spared: set[bytes] = field(default_factory=set)

    async def catch_up(self, database: Database) -> None:
        """Spare the values that changes so far name, so that the next `take` reads few changes."""

        def read(connection: Connection) -> _FamilyLogs:
            return self._read(connection, threads_of(connection, self.family))

        self._learn(await database.query(read))

    async def take(
        self,
        database: Database,
        values: Sequence[ValueRow],
        drop: Callable[[Connection, Sequence[ValueRow]], FreedValues],
    ) -> FreedValues:
        """Let `drop` remove or evict the given values, except values that are needed by now.

        All of this is one transaction, in which no other transaction changes the family.
        """

        def work(batch: UnitOfWork) -> tuple[_FamilyLogs, FreedValues]:
            connection, total = batch.connection, FreedValues()
            seen = self._read(connection, _lock_family(batch, self.family))
            spared = (self.spared, seen.named)
            candidates = [
                value
                for value in values
                if not any(value.digest in spared_digests for spared_digests in spared)
            ]
            patches = [value for value in candidates if value.keyframe is not None]
            for group in (patches, [value for value in candidates if value.keyframe is None]):
                digests = (value.digest for value in group)
                rows = _KEYFRAMES.run_listed(connection, digests, of_family=self.family)
                keyframes = {row[0] for row in rows}
                total += drop(
                    connection, [value for value in group if value.digest not in keyframes]
                )
            if total.values:
                _COUNT_TAKEN.run(connection, of_family=self.family)
                batch.logs.clear()  # cached keyframes may be among the dropped values
            return seen, total

        seen, total = await database.transact(work)
        self._learn(seen)  # after the commit: the transaction also saw changes of its own batch
        return total

    def _read(self, connection: Connection, rows: Iterable[tuple[int, int, int]]) -> _FamilyLogs:
        """Read changed checkpoints, and all checkpoints of a thread whose log lacks changes."""
        seqs: dict[int, int] = {}
        digests: set[bytes] = set()
        for number, seq, compacted_seq in rows:
            known_seq, seqs[number] = self.seqs.get(number), seq
            if known_seq is None or known_seq < compacted_seq:
                place: Place | None = ("", "")
                while place is not None:
                    page_digests, place = _named_digests(connection, number, place)
                    digests |= page_digests
            elif known_seq < seq:
                changed = _CHANGED.run(connection, of_thread=number, after=known_seq)
                thread_ref = ref_of(connection, number)
                while (row := changed.fetchone()) is not None:
                    digests |= checked_digests(connection, thread_ref, row)
        return _FamilyLogs(seqs, digests)

    def _learn(self, seen: _FamilyLogs) -> None:
        self.seqs = seen.seqs
        self.spared |= seen.named


async def begin(database: Database, family: int) -> FamilyCollection:
    """Start a collection: values that later commits refer to are spared."""
    rows = await database.query(partial(threads_of, family=family))
    return FamilyCollection(family, {number: seq for number, seq, _ in rows})


def threads_of(connection: Connection, family: int) -> list[tuple[int, int, int]]:
    """Return number, `seq` and `compacted_seq` of the threads of a family, deleted ones too."""
    return list(_THREADS.run(connection, of_family=family).fetchall())


def scan(
    connection: Connection, family: int, after: bytes = b""
) -> tuple[list[ValueRow], bytes | None]:
    """Return the next values of a family by digest, and the next position; `None` at the end."""
    rows = _VALUES.run(connection, of_family=family, after=after, at_most=SCANNED_AT_ONCE)
    page = [ValueRow(*row) for row in rows.fetchall()]
    return page, page[-1].digest if len(page) == SCANNED_AT_ONCE else None


async def unneeded_values(database: Database, family: int, needed: Set[bytes]) -> list[ValueRow]:
    """Return the values that are neither needed nor keyframes of needed ones, oldest first.

    A keyframe comes after the last patch on it.
    """
    values: list[ValueRow] = []
    keyframes: set[bytes] = set()
    after: bytes | None = b""
    while after is not None:
        page, after = await database.query(partial(scan, family=family, after=after))
        for value in page:
            if value.digest not in needed:
                values.append(value)
            elif value.keyframe is not None:
                keyframes.add(value.keyframe)
    values = [value for value in values if value.digest not in keyframes]
    last: dict[bytes, int] = {}
    for value in values:
        if value.keyframe is not None:
            last[value.keyframe] = max(value.number, last.get(value.keyframe, 0))
    values.sort(
        key=lambda value: (max(value.number, last.get(value.digest, 0)), value.keyframe is None)
    )
    return values


def batches(values: Iterable[_ITEM], wanted_bytes: int | None = None) -> list[list[_ITEM]]:
    """Return values, or writes, in runs that fit one write transaction, in their order.

    Items after the first `wanted_bytes` are left out.
    """
    runs: list[list[_ITEM]] = []
    size = total = 0
    for value in values:
        if wanted_bytes is not None and total >= wanted_bytes:
            break
        if not runs or len(runs[-1]) >= TAKEN_AT_ONCE or size + value.size > TAKEN_BYTES:
            runs.append([])
            size = 0
        runs[-1].append(value)
        size += value.size
        total += value.size
    return runs


def due_families(connection: Connection) -> list[int]:
    """Return families with enough removals since their last collection, or without live threads."""
    return [row[0] for row in _DUE.run(connection).fetchall()]


async def remove_due(database: Database) -> FreedValues:
    """Remove the unneeded values of the families that are due.

    Families with a damaged checkpoint stay as they are, for an investigation.
    """
    removed = FreedValues()
    for family in await database.query(due_families):
        with sparing_damaged():
            removed += await remove_unneeded(database, family)
    return removed


async def remove_unneeded(database: Database, family: int) -> FreedValues:
    """Remove the values of a family that none of its checkpoints needs."""
    counts = await database.rows(_COUNTS, of_family=family)
    removed = FreedValues()
    collection = await begin(database, family)
    doomed = await unneeded_values(
        database, family, await _needed_digests(database, collection.seqs)
    )
    await collection.catch_up(database)
    for run in batches(doomed):
        removed += await collection.take(database, run, partial(remove, family=family))
    for start in range(0, len(counts), TAKEN_AT_ONCE):
        portion = counts[start : start + TAKEN_AT_ONCE]
        await database.transact(partial(_count_off, family=family, counts=portion))
    return removed


async def _needed_digests(database: Database, numbers: Iterable[int]) -> set[bytes]:
    """Return the digests that the checkpoints of threads name."""
    digests: set[bytes] = set()
    for thread in numbers:
        place: Place | None = ("", "")
        while place is not None:
            page_digests, place = await database.query(
                partial(_named_digests, thread=thread, after=place)
            )
            digests |= page_digests
    return digests


def _named_digests(
    connection: Connection, thread: int, after: Place
) -> tuple[set[bytes], Place | None]:
    """Return the digests that the next checkpoints of a thread name, and the next position."""
    digests: set[bytes] = set()
    count, place = 0, after
    parameters = {"after_ns": after[0], "after_id": after[1], "at_most": READ_AT_ONCE}
    thread_ref = ref_of(connection, thread)
    rows = _STATES.run(connection, of_thread=thread, **parameters)
    while (row := rows.fetchone()) is not None:
        place, count = (row[0], row[1]), count + 1
        digests |= checked_digests(connection, thread_ref, row)
    return digests, place if count == READ_AT_ONCE else None


def ref_of(connection: Connection, thread: int) -> ThreadRef:
    """Return the identity to which the rows of a thread are bound."""
    [row] = _REF.run(connection, of_number=thread).fetchall()
    return ThreadRef(*row)


def checked_digests(connection: Connection, of: ThreadRef, row: SqlRow) -> set[bytes]:
    """Return the digests that a checkpoint names.

    Raises:
        Refusal: `JOURNAL_DAMAGED`: the row was changed, so it may name other digests than before.
    """
    checkpoint_ns, checkpoint_id, *columns = row
    checkpoint = CachedCheckpoint(*columns)
    checkpoint.check(binder_of(connection), of, (checkpoint_ns, checkpoint_id))
    return referred_digests(checkpoint.state, checkpoint.delta_base)


def remove(connection: Connection, gone: Sequence[ValueRow], family: int) -> FreedValues:
    """Remove values of a family."""
    rows = [{"of_family": family, "gone": value.digest} for value in gone]
    count = _REMOVE.count_many(connection, rows)
    return FreedValues(count, size_bytes=sum(value.size for value in gone))


def _count_off(batch: UnitOfWork, family: int, counts: Sequence[SqlRow]) -> None:
    """Subtract removals that a collection has seen from the counts since the last collection."""
    for tenant, thread_id, removed_count, removed_bytes in counts:
        log = batch.find(tenant, thread_id)
        if log is None or log.row.family != family:
            continue
        # Another collection of the family may have subtracted the same removals.
        seen_bytes = min(removed_bytes, log.row.removed_bytes)
        log.row.removed_count -= min(removed_count, log.row.removed_count)
        log.row.removed_bytes -= seen_bytes
        log.row.added_bytes -= seen_bytes
        batch.store(log)


def _lock_family(batch: UnitOfWork, family: int) -> Sequence[tuple[int, int, int]]:
    """Keep other writers from changing the threads of a family; return the rows of `FAMILY`.

    The batch must be written out before.
    """
    previous: Sequence[tuple[int, int, int]] | None = None
    # A thread may have joined the family during the wait for the locks.
    while previous != (rows := _LOCK_FAMILY.run(batch.connection, of_family=family).fetchall()):
        previous = rows
    return rows
