"""Eviction of values that stored segments contain, so that the journal stays within its bound.

Eviction visits one family at a time (`journal.removal.garbage_collection`). A value stays, with its
keyframe, if it is named by the latest checkpoint of a namespace, by a change above the watermark,
by a young change, or by a gap. Only data is removed: the rows stay, with the hash of the segment
that contains the value.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import sqlalchemy as sa

from ...core.errors import Refusal
from ...core.limits import MIB
from ...core.values import PREFIX_BYTES, UnopenedBytes, split
from ...journal.database.database import Database
from ...journal.database.thread_rows import KNOWN
from ...journal.database.unit_of_work import UnitOfWork
from ...journal.failpoints import failpoint
from ...journal.removal.garbage_collection import (
    FreedValues,
    SizedWrite,
    ValueRow,
    batches,
    begin,
    checked_digests,
    ref_of,
    sparing_damaged,
    unneeded_values,
)
from ...journal.sql.schema import changes, checkpoints, contents, gaps, members, threads, writes
from ...journal.sql.sealing import seal_of
from ...journal.sql.statements import Statement, of_thread, same_checkpoint
from ...journal.values.segment_refs import by_hash, decode_held
from ..rows.gaps import lost_hashes

_log = logging.getLogger(__name__)

FULL_LOOK = 20  # checks after which families that had nothing to evict are visited again
_ALL = 2**62

# Sum of the last changes of a family's logs, sum of the watermarks, and time of the last change.
_Progress = tuple[int, int, int]


_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 30.0  # pause between two checks of the bound


@dataclass(frozen=True, slots=True)
class EvictionSettings:
    """Settings of eviction."""

    # bytes that the journal may use before values are evicted; 0: evict everything evictable
    journal_bytes: int = 1024 * MIB
    grace_s: float = 60.0  # age below which the values of a change stay

    @property
    def pause_s(self) -> float:
        """Seconds between two checks of the bound: half of the grace, and at most 30."""
        return min(max(self.grace_s / 2, _SHORTEST_PAUSE_S), _LONGEST_PAUSE_S)


_THROUGH: sa.BindParameter[int] = sa.bindparam("through")
_LAST_OLD = (
    sa.select(changes.c.seq)
    .where(of_thread(changes), changes.c.created_us < sa.bindparam("before_us"))
    .order_by(changes.c.seq.desc())
    .limit(1)
    .scalar_subquery()
)
_BEFORE_FIRST = (
    sa.select(sa.func.min(changes.c.seq) - 1).where(of_thread(changes)).scalar_subquery()
)
_WATERMARKS = Statement(
    sa.select(
        threads.c.tenant,
        threads.c.certified_seq,
        # Changes that were swept are older than the changes that remain.
        sa.func.coalesce(_LAST_OLD, _BEFORE_FIRST, threads.c.certified_seq),
    ).where(threads.c.number == sa.bindparam("of_thread"))
)
_PLACE = (checkpoints.c.checkpoint_ns, checkpoints.c.checkpoint_id)
_KEPT = sa.union(
    sa.select(checkpoints.c.checkpoint_ns, sa.func.max(checkpoints.c.checkpoint_id))
    .where(of_thread(checkpoints))
    .group_by(checkpoints.c.checkpoint_ns),
    sa.select(*_PLACE).where(
        of_thread(checkpoints),
        checkpoints.c.seq > _THROUGH,
        # Asked once per thread, not per checkpoint: does the thread have such checkpoints at all?
        sa.exists().where(threads.c.number == sa.bindparam("of_thread"), threads.c.seq > _THROUGH),
    ),
    sa.select(changes.c.checkpoint_ns, changes.c.checkpoint_id).where(
        of_thread(changes), changes.c.seq > _THROUGH
    ),
    sa.select(gaps.c.checkpoint_ns, gaps.c.checkpoint_id).where(
        of_thread(gaps), gaps.c.segment.is_(None)
    ),
)
_STATES = Statement(
    sa.select(*_PLACE, *KNOWN).where(of_thread(checkpoints), sa.tuple_(*_PLACE).in_(_KEPT))
)
_LOST = sa.select(gaps.c.segment).where(
    gaps.c.tenant == sa.bindparam("of_tenant"), gaps.c.segment.is_not(None)
)
_IN_RANGE = sa.exists().where(
    members.c.thread == writes.c.thread,
    members.c.last_seq >= writes.c.seq,
    members.c.first_seq <= writes.c.seq,
    members.c.sha256.not_in(_LOST),
)
_WRITE = (writes.c.number, writes.c.seq, sa.func.length(writes.c.data))
_WRITES = Statement(
    sa.select(writes.c.checkpoint_ns, writes.c.checkpoint_id, *_WRITE)
    .add_columns(checkpoints.c.held, _IN_RANGE)
    .outerjoin(checkpoints, same_checkpoint(checkpoints, writes))
    .where(
        of_thread(writes),
        writes.c.seq <= _THROUGH,
        writes.c.early_us.is_(None),
        writes.c.data.is_not(None),
    )
)
_SEGMENTS = Statement(
    sa.select(members.c.sha256, members.c.digests, members.c.key)
    .where(
        of_thread(members),
        sa.or_(members.c.last_seq >= sa.bindparam("lowest"), members.c.last_seq.is_(None)),
        members.c.digests.is_not(None),
        members.c.sha256.not_in(_LOST),
    )
    .order_by(members.c.last_seq)
)
_KEYS = Statement(
    sa.select(members.c.first_seq, members.c.last_seq, members.c.key).where(
        of_thread(members), members.c.first_seq.is_not(None), members.c.key.is_not(None)
    )
)
_IS_MEMBER = sa.exists().where(
    members.c.tenant == sa.bindparam("of_tenant"), members.c.sha256 == sa.bindparam("held_by")
)
_EVICT_VALUE = Statement(
    sa.update(contents)
    .where(
        contents.c.family == sa.bindparam("of_family"),
        contents.c.digest == sa.bindparam("of_digest"),
        contents.c.data.is_not(None),
        _IS_MEMBER,
    )
    .values(data=None, keyframe=None, segment=sa.bindparam("held_by"))
)
_EVICT_WRITE = Statement(
    sa.update(writes)
    .where(
        # By now, the number alone may belong to another thread's write.
        of_thread(writes),
        writes.c.number == sa.bindparam("of_number"),
        writes.c.seq == sa.bindparam("of_seq"),
        writes.c.data.is_not(None),
    )
    .values(data=None)
)
_LAST = sa.func.max(threads.c.updated_us)
_FAMILIES = Statement(
    sa.select(threads.c.family, *map(sa.func.sum, (threads.c.seq, threads.c.certified_seq)), _LAST)
    .group_by(threads.c.family)
    .order_by(_LAST)
)


class Evictor:
    """Keeps the journal within its bound, over all tenants together.

    Families whose last change is oldest are evicted first. A family without evictable values is
    skipped until its logs change.
    """

    def __init__(self, database: Database, settings: EvictionSettings) -> None:
        self._database = database
        self._settings = settings
        self._spent: dict[int, _Progress] = {}

    async def run(self) -> None:
        """Check at intervals, until cancelled; the journal finishes a running transaction."""
        for look in itertools.count(1):
            if look % FULL_LOOK == 0:
                self._spent.clear()  # values that were read back may be evicted again
            try:
                total = await self.evict()
            except Refusal as refusal:
                _log.warning("eviction is delayed: %s", refusal)
            except Exception:  # noqa: BLE001 - a defect must not end eviction for good
                _log.exception("eviction failed")
            else:
                if total.size_bytes:
                    _log.info("%d bytes were evicted from the journal", total.size_bytes)
            await asyncio.sleep(self._settings.pause_s)

    async def evict(self) -> FreedValues:
        """Evict until the journal is within its bound or no family has evictable values."""
        total, excess = FreedValues(), await self._excess()
        if excess <= 0:
            return total
        before_us = self._database.now_us() - int(self._settings.grace_s * 1e6)
        rows = await self._database.rows(_FAMILIES)
        families: dict[int, _Progress] = {row[0]: tuple(row[1:]) for row in rows}
        self._spent = dict(self._spent.items() & families.items())
        for family, progress in families.items():
            more = family not in self._spent
            while more and excess > 0:
                failpoint("archive.before_evict")
                freed = FreedValues()
                with sparing_damaged():
                    freed = await evict_family(self._database, family, before_us, excess)
                failpoint("archive.after_evict")
                total += freed
                more = freed.size_bytes >= excess
                excess = await self._excess()
            if excess <= 0:
                break
            if progress[2] < before_us:
                self._spent[family] = progress
        return total

    async def _excess(self) -> int:
        """Return the bytes that the journal uses beyond its bound."""
        if self._settings.journal_bytes == 0:
            return _ALL
        return await self._database.used_bytes() - self._settings.journal_bytes


async def evict_family(
    database: Database, family: int, before_us: int, wanted_bytes: int
) -> FreedValues:
    """Evict, oldest first, values and writes neither needed nor changed since `before_us`."""
    total, removal = FreedValues(), await begin(database, family)
    tenant, needed = "", set[bytes]()
    for thread in removal.seqs:
        read = partial(_look, thread=thread, before_us=before_us)
        tenant, digests, sized_writes = await database.query(read)
        needed |= digests
        for doomed in batches(sized_writes, wanted_bytes - total.size_bytes):
            total += await database.transact(partial(_evict_writes, thread=thread, chosen=doomed))
        if total.size_bytes >= wanted_bytes:
            return total
    free = await unneeded_values(database, family, needed)
    by_thread: dict[int, list[ValueRow]] = defaultdict(list)
    for value in free:
        if value.size:
            by_thread[value.thread].append(value)
    segments: dict[bytes, bytes] = {}  # segments that contain values, by digest
    for number, rows in by_thread.items():
        find = partial(_segments_of, tenant=tenant, thread=number, values=rows)
        segments |= await database.query(find)
    keyframes = {value.keyframe for value in free if value.digest not in segments}
    values = [value for value in free if value.digest in segments and value.digest not in keyframes]
    await removal.catch_up(database)
    for batch in batches(values, wanted_bytes - total.size_bytes):
        evict = partial(_evict_values, family=family, tenant=tenant, held=segments)
        total += await removal.take(database, batch, evict)
    return total


def _look(
    connection: sa.Connection, thread: int, before_us: int
) -> tuple[str, set[bytes], list[SizedWrite]]:
    """Return a thread's tenant, the values to keep, and the writes that may be evicted.

    Values and writes of checkpoints that changed since a given time stay. A write up to the change
    in its checkpoint's `held` is in the segments named there; a later write is in the segment whose
    range contains the write's own change. The oldest writes come first.
    """
    row = _WATERMARKS.run(connection, of_thread=thread, before_us=before_us).fetchone()
    tenant, *watermarks = row or ("", 0, 0)
    parameters = {"of_thread": thread, "through": min(watermarks)}
    digests: set[bytes] = set()
    places: set[tuple[str, str]] = set()
    states, ref = _STATES.run(connection, **parameters), ref_of(connection, thread)
    while (row := states.fetchone()) is not None:
        places.add((row[0], row[1]))
        digests |= checked_digests(connection, ref, row)
    rows = _WRITES.run(connection, **parameters, of_tenant=tenant).fetchall()
    rows = [row for row in rows if (row[0], row[1]) not in places]
    foreign_segments = {row[5]: decode_held(row[5]) for row in rows}
    hashes = {sha256 for foreign in foreign_segments.values() for sha256 in foreign.segments}
    locations = by_hash(connection, tenant, hashes)
    readable = {
        sha256
        for sha256, location in locations.items()
        if not isinstance(location.key, UnopenedBytes)
    }
    readable -= lost_hashes(connection, tenant).keys()
    unopened = _unopened_ranges(connection, thread) if rows else []
    sized_writes = []
    for *_, number, seq, size, stored, is_in_range in rows:
        foreign = foreign_segments[stored]
        is_in_range = is_in_range and not any(first <= seq <= last for first, last in unopened)
        if readable.issuperset(foreign.segments) if seq <= foreign.seq else is_in_range:
            sized_writes.append(SizedWrite(number, seq, size))
    return tenant, digests, sorted(sized_writes, key=lambda write: write.seq)


def _unopened_ranges(connection: sa.Connection, thread: int) -> list[tuple[int, int]]:
    """Return the ranges of a thread's segments whose keys do not open in the journal."""
    if seal_of(connection) is None:
        return []
    rows = _KEYS.run(connection, of_thread=thread).fetchall()
    return [(first, last) for first, last, key in rows if isinstance(key, UnopenedBytes)]


def _segments_of(
    connection: sa.Connection, tenant: str, thread: int, values: Iterable[ValueRow]
) -> dict[bytes, bytes]:
    """Return, by digest, the segments of a thread that contain values its changes brought."""
    by_prefix = {value.digest[:PREFIX_BYTES]: value for value in values}
    segments: dict[bytes, bytes] = {}
    lowest = min(value.seq for value in by_prefix.values())
    rows = _SEGMENTS.run(connection, of_thread=thread, of_tenant=tenant, lowest=lowest)
    while by_prefix and (row := rows.fetchone()) is not None:
        sha256, digests, key = row
        if isinstance(key, UnopenedBytes):
            continue
        for prefix in by_prefix.keys() & split(digests, PREFIX_BYTES):
            segments[by_prefix.pop(prefix).digest] = sha256
    rows.close()
    return segments


def _evict_values(
    connection: sa.Connection,
    values: Sequence[ValueRow],
    family: int,
    tenant: str,
    held: Mapping[bytes, bytes],
) -> FreedValues:
    """Evict the values whose segment is still recorded."""
    count = size = 0
    for value in values:
        parameters = {"of_family": family, "of_digest": value.digest, "held_by": held[value.digest]}
        row_count = _EVICT_VALUE.run(connection, **parameters, of_tenant=tenant).rowcount
        count += row_count
        size += row_count * value.size
    return FreedValues(count, size_bytes=size)


def _evict_writes(batch: UnitOfWork, thread: int, chosen: Sequence[SizedWrite]) -> FreedValues:
    rows = [
        {"of_thread": thread, "of_number": write.number, "of_seq": write.seq} for write in chosen
    ]
    count = _EVICT_WRITE.count_many(batch.connection, rows)
    return FreedValues(0, count, sum(write.size for write in chosen))
