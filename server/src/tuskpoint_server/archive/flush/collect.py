"""Reading what a flush stores: the ranges of dirty threads, and gaps that are due again."""

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
from ...journal.values.contents import StoredValue, compared, referred, stored_value
from ...journal.values.segment_refs import NOWHERE
from ..rows import gaps, status
from ..rows.damaged_threads import (
    CHANGES,
    RANGE_CHANGES,
    DamagedThread,
    damaged,
    damaged_change,
    lacking,
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
from ..rows.segment_index import Holders, NeededValue, choose, used
from ..rows.status import KnownCatalog
from .ranges import LOGGED, SCANNED, Reading, in_range

_log = logging.getLogger(__name__)

RANGE_BYTES = 8 * MIB  # content of one range; a single checkpoint may have more
_CHANGES_PER_CHECKPOINT = 4
_READ_AT_ONCE = 32


class RangeBounds(NamedTuple):
    """How much one flush takes over all threads, and at least one checkpoint of each it reaches."""

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
class Collected:
    """The ranges that a flush stores."""

    catalog: KnownCatalog | None  # the catalog that its own follows; `None`: it is the first
    # ranges of threads, those that waited longest first, then single checkpoints
    ranges: list[DirtyRange] = field(default_factory=list)
    filled: list[int] = field(default_factory=list)  # numbers of gaps of which nothing is left
    # recorded needs: a segment, and a thread
    used: set[tuple[bytes, int]] = field(default_factory=set)
    complete: bool = True  # nothing else waits
    # by number the threads that were looked at, and are not stored
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
) -> Collected:
    """Read the ranges of a flush, in a transaction; also gaps that are due by `due_us`.

    Each checkpoint of the threads `lone`, or of all, gets a segment of its own. The store does not
    accept those that are `rejected`. Whether the threads `doubtful` are damaged is said in any
    case.
    """
    found = Collected(status.catalog(connection, tenant), damaged=damaged(connection, doubtful))
    lost = gaps.lost(connection, tenant)
    unstored = gaps.unstored(connection, tenant)
    standalone: dict[int, set[Place]] = defaultdict(set)
    for gap in unstored:
        standalone[gap.thread].add(gap.place)
    alone: list[DirtyRange | None] = []
    changed: dict[int, DirtyThread] = {}
    left = bounds
    waiting = _waiting(connection, tenant, bounds.threads + 1, found.damaged)
    for number, thread in enumerate(waiting):
        if number == bounds.threads or left.checkpoints <= 0 or left.size_bytes <= 0:
            found.complete = False
            break
        if damage := lacking(connection, thread):
            found.damaged[thread.number] = damage
            continue
        changed[thread.number] = thread
        one = read_range(connection, thread, left, standalone[thread.number], lost)
        found.ranges.append(one)
        found.complete = found.complete and one.through == thread.seq
        taken = (left.checkpoints - len(one.places), left.size_bytes - one.size_bytes)
        left = RangeBounds(left.threads, *taken)
        if lone is None or thread.number in lone:
            alone += _separate(connection, one)
    for gap in unstored:
        known = changed.get(gap.thread)
        if gap.thread in found.damaged:
            continue
        if known is None and gap.retry_us <= due_us:  # nothing else changed in its thread
            rows = _THREAD.run(connection, of_number=gap.thread).fetchall()
            known = next(iter(sound_threads(connection, rows, found.damaged)), None)
        if known is not None:
            alone.append(read_alone(connection, known, gap.place, gap))
            found.filled += [gap.number] if alone[-1] is None else []
    found.ranges += [one for one in alone if one is not None]
    for one in found.ranges:
        for dirty in one.places:
            dirty.problem = rejected.get((one.thread.number, dirty.place)) or dirty.problem
        named = {holder.location.sha256 for holder in one.named.values()} | one.holders.keys()
        found.used |= used(connection, tenant, one.thread.number, named)
    return found


def _waiting(
    connection: Connection, tenant: str, count: int, bad: dict[int, DamagedThread]
) -> list[DirtyThread]:
    """Return the sound threads that have waited longest, however many damaged ones have, too."""
    most = count
    while True:
        rows = _THREADS.run(connection, of_tenant=tenant, most=most).fetchall()
        sound = sound_threads(connection, rows, bad)
        if len(sound) >= count or len(rows) < most:
            return sound[:count]
        most *= 2


def _separate(connection: Connection, one: DirtyRange) -> list[DirtyRange | None]:
    """Move each checkpoint of a range that is no copy into a segment of its own."""
    places, one.places = one.places, []
    found = []
    for dirty in places:
        if dirty.held_row and not dirty.writes:
            one.places.append(dirty)
        else:
            found.append(read_alone(connection, one.thread, dirty.place))
    one.values.clear()
    one.named.clear()
    return found


def read_range(
    connection: Connection,
    thread: DirtyThread,
    bounds: RangeBounds,
    standalone: Collection[Place],
    lost: Collection[bytes],
) -> DirtyRange:
    """Return the next range of a thread, within bounds but for one checkpoint.

    Without the checkpoints that are stored standalone.
    """
    reading, through = LOGGED, _bound(connection, thread, bounds)
    if through is None:
        reading, through = SCANNED, thread.seq
    of = {"of_thread": thread.number, "after": thread.certified_seq, "through": through}
    found = DirtyRange(
        thread,
        through,
        thread.dirty_bytes,
        places=_places(connection, thread, reading, of, standalone),
        removed=[RemovedCheckpoint(*row) for row in _REMOVED.run(connection, **of).fetchall()],
        pins=[Pin(*row) for row in _PINS.run(connection, **of).fetchall()],
    )
    holders = Holders(connection, thread, lost)
    _read_values(connection, found, holders)
    _find_holders(found, holders)
    if through < thread.seq:
        content = sum(one.size for one in found.places) + sum(
            len(value.data or b"") for value in found.values.values()
        )
        found.size_bytes = min(thread.dirty_bytes, content)
    return found


def _bound(connection: Connection, thread: DirtyThread, bounds: RangeBounds) -> int | None:
    """Return the last change of a range; `None` if the log of the thread is damaged."""
    most = min(_CHANGES_PER_CHECKPOINT * bounds.checkpoints, RANGE_CHANGES)
    of = {"of_thread": thread.number, "after": thread.certified_seq}
    logged = CHANGES.run(connection, **of, most=most).fetchall()
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
        last = _within(connection, thread, firsts, last, limit)
    return int(last)


def _within(
    connection: Connection, thread: DirtyThread, firsts: Mapping[Place, int], last: int, limit: int
) -> int:
    """Return the last change of a range with at most `limit` bytes, or with one checkpoint."""
    ordered = [(place, seq) for place, seq in firsts.items() if seq <= last]
    size, after = 0, thread.certified_seq
    known: set[bytes] = set()
    for start in range(0, len(ordered), _READ_AT_ONCE):
        some = ordered[start : start + _READ_AT_ONCE]
        of = {"of_thread": thread.number, "after": after, "through": some[-1][1]}
        sizes = _sizes(connection, thread, of, known)
        for number, (place, seq) in enumerate(some, start):
            size += sizes.get(place, 0)
            if size > limit and number > 0:
                return seq - 1
        after = some[-1][1]
    return last


def _sizes(
    connection: Connection, thread: DirtyThread, of: Mapping[str, int], known: set[bytes]
) -> dict[Place, int]:
    """Return the bytes of a range's checkpoints; a value counts for the first that needs it."""
    written = LOGGED.write_sizes.run(connection, **of).fetchall()
    sizes = {(row[0], row[1]): int(row[2]) for row in written}
    needed: dict[Place, set[bytes]] = {}
    for row in LOGGED.rows.run(connection, **of).fetchall():
        one = dirty_checkpoint(connection, thread, row)
        sizes[one.place] = sizes.get(one.place, 0) + one.size
        needed[one.place] = _referred(one) - known
        known |= needed[one.place]
    digests = {digest for some in needed.values() for digest in some}
    stored: dict[bytes, int] = dict(
        _STORED_SIZES.run_listed(connection, digests, of_family=thread.family)
    )
    for place, some in needed.items():
        sizes[place] += sum(stored.get(digest) or 0 for digest in some)
    return sizes


def _places(
    connection: Connection,
    thread: DirtyThread,
    reading: Reading,
    of: Mapping[str, int],
    standalone: Collection[Place],
) -> list[DirtyPlace]:
    """Return the checkpoints that changed in a range, with their rows."""
    rows = reading.rows.run(connection, **of).fetchall()
    made = [dirty_checkpoint(connection, thread, row) for row in rows]
    found = {one.place: one for one in made}
    for write in reading.writes.run(connection, **of).fetchall():
        place = (write[1], write[2])
        found.setdefault(place, DirtyPlace(place)).add(connection, thread, write)
    kept = [one for place, one in found.items() if place not in standalone]
    return sorted(kept, key=lambda one: one.last_seq)


def read_alone(
    connection: Connection, thread: DirtyThread, place: Place, gap: Gap | None = None
) -> DirtyRange | None:
    """Return a checkpoint as it is, which may be a gap; `None` if it does not exist any more."""
    of = parameters_of(thread.number, *place)
    row = _ROW.run(connection, **of).fetchone()
    if row is None:
        return None
    one = dirty_checkpoint(connection, thread, row)
    one.held = NOWHERE
    for write in _WRITES_OF_ROW.run(connection, **of).fetchall():
        one.add(connection, thread, write)
    found = DirtyRange(thread, one.last_seq, alone=True, gap=gap, places=[one])
    holders = Holders(connection, thread)
    if one.gone:
        seqs = list(one.gone.values())
        of_writes = (connection, thread.tenant, thread.number, row[-1], seqs)
        found.sources += segment_refs.of_writes(*of_writes)
    _read_values(connection, found, holders)
    return found


def _read_values(connection: Connection, dirty: DirtyRange, holders: Holders) -> None:
    """Read the values that the rows of a range need, and choose the segments named for them."""
    for one in dirty.places:
        if not one.held_row:
            one.needs = _referred(one)
    digests = set[bytes]().union(*(one.needs for one in dirty.places))
    values = _read_needed(connection, dirty, digests)
    for one in dirty.places:
        if unknown := one.needs.difference(values):
            one.problem = f"value {min(unknown).hex()} is not stored"
    keyframes = {one.keyframe for one in values.values() if one.encoding == Encoding.PATCH}
    missing = {one for one in keyframes if one is not None and one not in values}
    values.update(_read_needed(connection, dirty, missing))
    older = [value for value in values.values() if value.data is None]
    if older and not dirty.alone:
        dirty.named = choose(values, holders.of(older))
    dirty.values = {digest: value for digest, value in values.items() if digest not in dirty.named}
    evicted = {digest: value for digest, value in dirty.values.items() if value.stored is None}
    lacking = {one.digest for one in dirty.values.values() if one.data is None} - evicted.keys()
    for digest, data in _DATA.run_listed(connection, lacking, of_family=dirty.thread.family):
        dirty.values[digest] = dirty.values[digest]._replace(data=data)
    _compare(connection, dirty)
    for one in dirty.places if evicted else ():
        one.gone.update(dict.fromkeys(one.needs & evicted.keys(), 0))
    for sha256 in {value.segment for value in evicted.values() if value.segment is not None}:
        if holder := holders.by_hash(sha256) or holders.unopened.get(sha256):
            dirty.sources.append(holder.location)  # what does not open is refused there


def _compare(connection: Connection, dirty: DirtyRange) -> None:
    """Compare values and writes with their digests; a checkpoint that needs a damaged one waits.

    A sound patch on a damaged keyframe is stored whole: no damaged bytes go into a segment.
    """
    of, damaged = dirty.thread, dict[bytes, Damage]()
    rows = {
        digest: StoredValue(digest, one.type, one.size, one.encoding, one.data, one.keyframe)
        for digest, one in dirty.values.items()
        if one.data is not None
    }
    for digest, value in compared(connection, of.family, rows):
        if isinstance(value, DamagedValue):
            damaged[digest] = value.damage
    for one in dirty.places:
        found = [damaged[digest] for digest in one.needs & damaged.keys()]
        for write in one.writes:
            if write.digest not in one.gone:
                packed = (write.type, write.size, write.encoding, write.data)
                value = stored_value(of.number, write.digest, *packed)
                found += [value.damage] if isinstance(value, DamagedValue) else []
        if found:
            one.problem = f"value {found[0].digest.hex()} is damaged: {found[0].problem}"
            dirty.damages += [(one.place, damage) for damage in found]
    based = {digest: row for digest, row in rows.items() if row.keyframe in damaged}
    for digest, value in compared(connection, of.family, based) if based else ():
        if digest not in damaged:
            packed_again = compress(value.data)
            dirty.values[digest] = dirty.values[digest]._replace(
                encoding=packed_again.encoding, data=packed_again.data, keyframe=None
            )


def _referred(one: DirtyPlace) -> set[bytes]:
    """Return the digests that the row of a checkpoint names; if it cannot be read, note that."""
    try:
        return referred(one.row.state, one.row.delta_base) if one.row is not None else set()
    except DecodeError:
        one.problem = "its state cannot be read"
        return set()


def _read_needed(
    connection: Connection, dirty: DirtyRange, digests: Collection[bytes]
) -> dict[bytes, NeededValue]:
    """Return the journal's rows of values, with the data of those that are new."""
    thread = dirty.thread
    of = {"of_family": thread.family, "of_thread": thread.number, "after": thread.certified_seq}
    rows = _NEEDED.run_listed(connection, digests, **of)
    return {row[0]: NeededValue(*row) for row in rows}


def _find_holders(dirty: DirtyRange, holders: Holders) -> None:
    """Find the segments that hold copies, those they need, bundles, and the parts of all."""

    def find(hashes: Iterable[bytes]) -> None:
        found = ((sha256, holders.by_hash(sha256)) for sha256 in hashes)
        dirty.holders |= {sha256: one for sha256, one in found if one is not None}

    for one in dirty.places:
        find(one.elsewhere)
        lacking = [sha256 for sha256 in one.elsewhere if sha256 not in dirty.holders]
        if lacking:
            one.problem = f"segment {lacking[0].hex()}, which holds it, is not readable"
        one.problem = holders.why_unreadable(one.elsewhere) or one.problem
    for holder in list(dirty.holders.values()):
        find(holder.needed)
    find(pin.sha256 for pin in dirty.pins)
    for holder in [*dirty.holders.values(), *dirty.named.values()]:
        find(holder.part_hashes)
