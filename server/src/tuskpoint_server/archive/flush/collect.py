"""Reads what a flush stores: the ranges of dirty threads, and gaps that are due for a retry."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from google.protobuf.message import DecodeError
from sqlalchemy import Connection, and_, bindparam, case, func, select

from ...core.limits import MIB
from ...core.model import Damage, DamagedValue
from ...core.values import Encoding, compress
from ...journal.database.put_back import STORED_THROUGH
from ...journal.database.thread_rows import THREAD, Place
from ...journal.sql.schema import checkpoints, contents, handoffs, removed, threads, writes
from ...journal.sql.statements import LISTED, Statement, of_checkpoint, of_thread, parameters_of
from ...journal.values import segment_refs
from ...journal.values.contents import StoredValue, compare_values, referred_digests, stored_value
from ...journal.values.segment_refs import NOWHERE
from ..rows import gaps, status
from ..rows.damaged_threads import (
    CHANGES,
    RANGE_CHANGES,
    DamagedThread,
    damaged_change,
    find_damaged,
    lacks_row,
    sound_threads,
)
from ..rows.dirty import (
    CHECKPOINT_COLUMNS,
    WRITE_COLUMNS,
    DirtyPlace,
    DirtyRange,
    DirtyThread,
    Pin,
    RemovedCheckpoint,
    dirty_checkpoint,
)
from ..rows.gaps import Gap
from ..rows.segment_index import Holders, NeededValue, choose, used_segments
from ..rows.status import NewestCatalog
from .ranges import LOGGED, SCANNED, RangeStatements, in_range

_log = logging.getLogger(__name__)

RANGE_BYTES = 8 * MIB  # content of one range; a single checkpoint may be larger
_CHANGES_PER_CHECKPOINT = 4
_READ_AT_ONCE = 32


class RangeBounds(NamedTuple):
    """Bounds of one flush over all threads; each visited thread gives at least one checkpoint."""

    threads: int
    checkpoints: int
    size_bytes: int


_THREADS = Statement(
    select(*THREAD, STORED_THROUGH)
    .where(threads.c.tenant == bindparam("of_tenant"), threads.c.dirty_since_us.is_not(None))
    .order_by(threads.c.dirty_since_us)
    .limit(bindparam("most"))
)
_THREAD = Statement(
    select(*THREAD, STORED_THROUGH).where(threads.c.number == bindparam("of_number"))
)
_ROW = Statement(select(*CHECKPOINT_COLUMNS).where(of_checkpoint(checkpoints)))
_WRITES_OF_ROW = Statement(
    select(*WRITE_COLUMNS).where(of_checkpoint(writes), writes.c.early_us.is_(None))
)
_REMOVED = Statement(
    select(*(removed.c[name] for name in RemovedCheckpoint._fields))
    .where(in_range(removed))
    .order_by(removed.c.seq)
)
_PINS = Statement(select(*(handoffs.c[name] for name in Pin._fields)).where(in_range(handoffs)))
_OF_VALUES = (contents.c.family == bindparam("of_family"), contents.c.digest.in_(LISTED))
_STORED_SIZES = Statement(
    select(contents.c.digest, func.length(contents.c.data)).where(*_OF_VALUES)
)
_DATA = Statement(select(contents.c.digest, contents.c.data).where(*_OF_VALUES))
_IS_NEW = and_(of_thread(contents), contents.c.seq > bindparam("after"))
_NEEDED = Statement(
    select(
        *(contents.c[name] for name in NeededValue._fields[:-2]),
        func.length(contents.c.data),
        case((_IS_NEW, contents.c.data), else_=None),
    ).where(*_OF_VALUES)
)


@dataclass(slots=True)
class CollectedRanges:
    """Ranges that a flush stores."""

    # catalog that the new catalog follows; `None`: the new catalog is the first
    catalog: NewestCatalog | None
    # ranges of threads, longest waiting first, then single checkpoints
    ranges: list[DirtyRange] = field(default_factory=list)
    # numbers of gaps whose checkpoint no longer exists
    filled: list[int] = field(default_factory=list)
    # recorded uses: segment and thread
    used: set[tuple[bytes, int]] = field(default_factory=set)
    complete: bool = True  # whether nothing else waits
    # visited threads that are not stored, by number
    damaged: dict[int, DamagedThread] = field(default_factory=dict)


def collect(
    connection: Connection,
    tenant: str,
    bounds: RangeBounds,
    *,
    lone: Collection[int] | None,
    rejected: Mapping[tuple[int, Place], str],
    due_us: int,
    doubtful: Collection[int] = (),
) -> CollectedRanges:
    """Read the ranges of a flush, and the gaps that are due by `due_us`, in a transaction.

    Each checkpoint of the threads `lone` (`None`: of all threads) gets a segment of its own.
    `rejected` are checkpoints that the store does not accept. Threads in `doubtful` are checked for
    damage even if no flush reaches them.
    """
    collected = CollectedRanges(
        status.catalog(connection, tenant), damaged=find_damaged(connection, doubtful)
    )
    lost = gaps.lost_hashes(connection, tenant)
    unstored = gaps.unstored_checkpoints(connection, tenant)
    standalone: dict[int, set[Place]] = defaultdict(set)
    for gap in unstored:
        standalone[gap.thread].add(gap.place)
    alone: list[DirtyRange | None] = []
    changed: dict[int, DirtyThread] = {}
    budget = bounds
    waiting = _waiting_threads(connection, tenant, bounds.threads + 1, collected.damaged)
    for number, thread in enumerate(waiting):
        if number == bounds.threads or budget.checkpoints <= 0 or budget.size_bytes <= 0:
            collected.complete = False
            break
        if damage := lacks_row(connection, thread):
            collected.damaged[thread.number] = damage
            continue
        changed[thread.number] = thread
        dirty = read_range(connection, thread, budget, standalone[thread.number], lost)
        collected.ranges.append(dirty)
        collected.complete = collected.complete and dirty.through == thread.seq
        limits = (budget.checkpoints - len(dirty.places), budget.size_bytes - dirty.size_bytes)
        budget = RangeBounds(budget.threads, *limits)
        if lone is None or thread.number in lone:
            alone += _separate_checkpoints(connection, dirty)
    for gap in unstored:
        gap_thread = changed.get(gap.thread)
        if gap.thread in collected.damaged:
            continue
        # the thread of the gap has no other change
        if gap_thread is None and gap.retry_us <= due_us:
            rows = _THREAD.run(connection, of_number=gap.thread).fetchall()
            gap_thread = next(iter(sound_threads(connection, rows, collected.damaged)), None)
        if gap_thread is not None:
            alone.append(read_alone(connection, gap_thread, gap.place, gap))
            collected.filled += [gap.number] if alone[-1] is None else []
    collected.ranges += [dirty for dirty in alone if dirty is not None]
    for dirty in collected.ranges:
        for checkpoint in dirty.places:
            checkpoint.problem = (
                rejected.get((dirty.thread.number, checkpoint.place)) or checkpoint.problem
            )
        hashes = {holder.location.sha256 for holder in dirty.named.values()} | dirty.holders.keys()
        collected.used |= used_segments(connection, tenant, dirty.thread.number, hashes)
    return collected


def _waiting_threads(
    connection: Connection, tenant: str, count: int, bad: dict[int, DamagedThread]
) -> list[DirtyThread]:
    """Return the sound threads that waited longest; damaged threads do not count in `count`."""
    most = count
    while True:
        rows = _THREADS.run(connection, of_tenant=tenant, most=most).fetchall()
        sound = sound_threads(connection, rows, bad)
        if len(sound) >= count or len(rows) < most:
            return sound[:count]
        most *= 2


def _separate_checkpoints(connection: Connection, dirty: DirtyRange) -> list[DirtyRange | None]:
    """Move each checkpoint of a range that is not a copy into a segment of its own."""
    places, dirty.places = dirty.places, []
    ranges = []
    for checkpoint in places:
        if checkpoint.held_row and not checkpoint.writes:
            dirty.places.append(checkpoint)
        else:
            ranges.append(read_alone(connection, dirty.thread, checkpoint.place))
    dirty.values.clear()
    dirty.named.clear()
    return ranges


def read_range(
    connection: Connection,
    thread: DirtyThread,
    bounds: RangeBounds,
    standalone: Collection[Place],
    lost: Collection[bytes],
) -> DirtyRange:
    """Return the next range of a thread, within bounds, with one checkpoint at least.

    The range leaves out the checkpoints that are stored standalone.
    """
    reading, through = LOGGED, _last_change(connection, thread, bounds)
    if through is None:
        reading, through = SCANNED, thread.seq
    parameters = {"of_thread": thread.number, "after": thread.certified_seq, "through": through}
    dirty = DirtyRange(
        thread,
        through,
        thread.dirty_bytes,
        places=_places(connection, thread, reading, parameters, standalone),
        removed=[
            RemovedCheckpoint(*row) for row in _REMOVED.run(connection, **parameters).fetchall()
        ],
        pins=[Pin(*row) for row in _PINS.run(connection, **parameters).fetchall()],
    )
    holders = Holders(connection, thread, lost)
    _read_values(connection, dirty, holders)
    _find_holders(dirty, holders)
    if through < thread.seq:
        content = sum(checkpoint.size for checkpoint in dirty.places) + sum(
            len(value.data or b"") for value in dirty.values.values()
        )
        dirty.size_bytes = min(thread.dirty_bytes, content)
    return dirty


def _last_change(connection: Connection, thread: DirtyThread, bounds: RangeBounds) -> int | None:
    """Return the last change of a range; `None` if the log of the thread is damaged."""
    most = min(_CHANGES_PER_CHECKPOINT * bounds.checkpoints, RANGE_CHANGES)
    parameters = {"of_thread": thread.number, "after": thread.certified_seq}
    logged = CHANGES.run(connection, **parameters, most=most).fetchall()
    seq = damaged_change(connection, thread, logged, most)
    if seq is not None:
        _log.error(
            "change %d of the log of thread '%s' of tenant %s is missing or was changed; what is "
            "above the watermark is found by the rows themselves",
            *(seq, thread.thread_id, thread.tenant),
        )
        return None
    rows = [(row[2], row[5], row[6]) for row in logged]
    firsts: dict[Place, int] = {}
    for seq, checkpoint_ns, checkpoint_id in rows:
        if checkpoint_id:
            firsts.setdefault((checkpoint_ns, checkpoint_id), seq)
    last = thread.seq if len(rows) < most else rows[-1][0]
    if len(firsts) > bounds.checkpoints:
        last = list(firsts.values())[bounds.checkpoints] - 1
    limit = min(RANGE_BYTES, bounds.size_bytes)
    if thread.dirty_bytes > limit:
        last = _last_change_within(connection, thread, firsts, last, limit)
    return int(last)


def _last_change_within(
    connection: Connection, thread: DirtyThread, firsts: Mapping[Place, int], last: int, limit: int
) -> int:
    """Return the last change of a range with at most `limit` bytes, or with one checkpoint."""
    ordered = [(place, seq) for place, seq in firsts.items() if seq <= last]
    size, after = 0, thread.certified_seq
    counted_digests: set[bytes] = set()
    for start in range(0, len(ordered), _READ_AT_ONCE):
        batch = ordered[start : start + _READ_AT_ONCE]
        parameters = {"of_thread": thread.number, "after": after, "through": batch[-1][1]}
        sizes = _sizes(connection, thread, parameters, counted_digests)
        for number, (place, seq) in enumerate(batch, start):
            size += sizes.get(place, 0)
            if size > limit and number > 0:
                return seq - 1
        after = batch[-1][1]
    return last


def _sizes(
    connection: Connection,
    thread: DirtyThread,
    parameters: Mapping[str, int],
    counted_digests: set[bytes],
) -> dict[Place, int]:
    """Return the bytes of a range's checkpoints; a value counts for the first that needs it."""
    written = LOGGED.write_sizes.run(connection, **parameters).fetchall()
    sizes = {(row[0], row[1]): int(row[2]) for row in written}
    needed: dict[Place, set[bytes]] = {}
    for row in LOGGED.rows.run(connection, **parameters).fetchall():
        checkpoint = dirty_checkpoint(connection, thread, row)
        sizes[checkpoint.place] = sizes.get(checkpoint.place, 0) + checkpoint.size
        needed[checkpoint.place] = _referred_digests(checkpoint) - counted_digests
        counted_digests |= needed[checkpoint.place]
    digests = {digest for place_digests in needed.values() for digest in place_digests}
    stored: dict[bytes, int] = dict(
        _STORED_SIZES.run_listed(connection, digests, of_family=thread.family)
    )
    for place, place_digests in needed.items():
        sizes[place] += sum(stored.get(digest) or 0 for digest in place_digests)
    return sizes


def _places(
    connection: Connection,
    thread: DirtyThread,
    reading: RangeStatements,
    parameters: Mapping[str, int],
    standalone: Collection[Place],
) -> list[DirtyPlace]:
    """Return the checkpoints that changed in a range, with their rows."""
    rows = reading.rows.run(connection, **parameters).fetchall()
    row_checkpoints = [dirty_checkpoint(connection, thread, row) for row in rows]
    by_place = {checkpoint.place: checkpoint for checkpoint in row_checkpoints}
    for write in reading.writes.run(connection, **parameters).fetchall():
        place = (write[1], write[2])
        by_place.setdefault(place, DirtyPlace(place)).add(connection, thread, write)
    dirty_checkpoints = [
        checkpoint for place, checkpoint in by_place.items() if place not in standalone
    ]
    return sorted(dirty_checkpoints, key=lambda checkpoint: checkpoint.last_seq)


def read_alone(
    connection: Connection, thread: DirtyThread, place: Place, gap: Gap | None = None
) -> DirtyRange | None:
    """Return a checkpoint as stored now, which may be a gap; `None` if it no longer exists."""
    parameters = parameters_of(thread.number, *place)
    row = _ROW.run(connection, **parameters).fetchone()
    if row is None:
        return None
    checkpoint = dirty_checkpoint(connection, thread, row)
    checkpoint.held = NOWHERE
    for write in _WRITES_OF_ROW.run(connection, **parameters).fetchall():
        checkpoint.add(connection, thread, write)
    dirty = DirtyRange(thread, checkpoint.last_seq, alone=True, gap=gap, places=[checkpoint])
    holders = Holders(connection, thread)
    if checkpoint.gone:
        seqs = list(checkpoint.gone.values())
        of_writes = (connection, thread.tenant, thread.number, row[-1], seqs)
        dirty.sources += segment_refs.of_writes(*of_writes)
    _read_values(connection, dirty, holders)
    return dirty


def _read_values(connection: Connection, dirty: DirtyRange, holders: Holders) -> None:
    """Read the values that the rows of a range need, and choose the segments to name for them."""
    for checkpoint in dirty.places:
        if not checkpoint.held_row:
            checkpoint.needs = _referred_digests(checkpoint)
    digests = set[bytes]().union(*(checkpoint.needs for checkpoint in dirty.places))
    values = _read_needed(connection, dirty, digests)
    for checkpoint in dirty.places:
        if unknown := checkpoint.needs.difference(values):
            checkpoint.problem = f"value {min(unknown).hex()} is not stored"
    keyframes = {value.keyframe for value in values.values() if value.encoding == Encoding.PATCH}
    missing = {
        keyframe for keyframe in keyframes if keyframe is not None and keyframe not in values
    }
    values.update(_read_needed(connection, dirty, missing))
    older = [value for value in values.values() if value.data is None]
    if older and not dirty.alone:
        dirty.named = choose(values, holders.of(older))
    dirty.values = {digest: value for digest, value in values.items() if digest not in dirty.named}
    evicted = {digest: value for digest, value in dirty.values.items() if value.stored is None}
    lacking = {
        value.digest for value in dirty.values.values() if value.data is None
    } - evicted.keys()
    for digest, data in _DATA.run_listed(connection, lacking, of_family=dirty.thread.family):
        dirty.values[digest] = dirty.values[digest]._replace(data=data)
    _compare(connection, dirty)
    for checkpoint in dirty.places if evicted else ():
        checkpoint.gone.update(dict.fromkeys(checkpoint.needs & evicted.keys(), 0))
    for sha256 in {value.segment for value in evicted.values() if value.segment is not None}:
        if holder := holders.by_hash(sha256) or holders.unopened.get(sha256):
            # the read of this segment reports a key that does not open
            dirty.sources.append(holder.location)


def _compare(connection: Connection, dirty: DirtyRange) -> None:
    """Compare values and writes with their digests; a checkpoint with a damaged one waits.

    A sound patch on a damaged keyframe is stored whole: segments never contain damaged bytes.
    """
    thread, damaged = dirty.thread, dict[bytes, Damage]()
    rows = {
        digest: StoredValue(
            digest, value.type, value.size, value.encoding, value.data, value.keyframe
        )
        for digest, value in dirty.values.items()
        if value.data is not None
    }
    for digest, value in compare_values(connection, thread.family, rows):
        if isinstance(value, DamagedValue):
            damaged[digest] = value.damage
    for checkpoint in dirty.places:
        damages = [damaged[digest] for digest in checkpoint.needs & damaged.keys()]
        for write in checkpoint.writes:
            if write.digest not in checkpoint.gone:
                packed = (write.type, write.size, write.encoding, write.data)
                value = stored_value(thread.number, write.digest, *packed)
                damages += [value.damage] if isinstance(value, DamagedValue) else []
        if damages:
            checkpoint.problem = f"value {damages[0].digest.hex()} is damaged: {damages[0].problem}"
            dirty.damages += [(checkpoint.place, damage) for damage in damages]
    based = {digest: row for digest, row in rows.items() if row.keyframe in damaged}
    for digest, value in compare_values(connection, thread.family, based) if based else ():
        if digest not in damaged:
            packed_again = compress(value.data)
            dirty.values[digest] = dirty.values[digest]._replace(
                encoding=packed_again.encoding, data=packed_again.data, keyframe=None
            )


def _referred_digests(checkpoint: DirtyPlace) -> set[bytes]:
    """Return the digests that a checkpoint's row names; note a row that cannot be read."""
    try:
        return (
            referred_digests(checkpoint.row.state, checkpoint.row.delta_base)
            if checkpoint.row is not None
            else set()
        )
    except DecodeError:
        checkpoint.problem = "its state cannot be read"
        return set()


def _read_needed(
    connection: Connection, dirty: DirtyRange, digests: Collection[bytes]
) -> dict[bytes, NeededValue]:
    """Return the journal's rows of values, with the data of new values."""
    thread = dirty.thread
    parameters = {
        "of_family": thread.family,
        "of_thread": thread.number,
        "after": thread.certified_seq,
    }
    rows = _NEEDED.run_listed(connection, digests, **parameters)
    return {row[0]: NeededValue(*row) for row in rows}


def _find_holders(dirty: DirtyRange, holders: Holders) -> None:
    """Find the segments with copies, segments they need, bundles, and the parts of all of them."""

    def find(hashes: Iterable[bytes]) -> None:
        pairs = ((sha256, holders.by_hash(sha256)) for sha256 in hashes)
        dirty.holders |= {sha256: holder for sha256, holder in pairs if holder is not None}

    for checkpoint in dirty.places:
        find(checkpoint.elsewhere)
        lacking = [sha256 for sha256 in checkpoint.elsewhere if sha256 not in dirty.holders]
        if lacking:
            checkpoint.problem = f"segment {lacking[0].hex()}, which holds it, is not readable"
        checkpoint.problem = holders.why_unreadable(checkpoint.elsewhere) or checkpoint.problem
    for holder in list(dirty.holders.values()):
        find(holder.needed)
    find(pin.sha256 for pin in dirty.pins)
    for holder in [*dirty.holders.values(), *dirty.named.values()]:
        find(holder.part_hashes)
