"""What is to be stored: threads with changes above their watermark, and the rows of these.

A range of a thread's log goes from its watermark up to a bound in bytes. Rows stand in it as they
are: one that was changed again above it is in it as it is now, and in the next range again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from google.protobuf.message import DecodeError
from sqlalchemy import ColumnElement, Connection, Join, Table, and_, bindparam, case, func, select

from ...domain.limits import MIB
from ...domain.values import Encoding
from ..checkpoints import located
from ..checkpoints.contents import referred
from ..database.logs import Place
from ..database.schema import changes, checkpoints, contents, handoffs, removed, threads, writes
from ..database.statements import EMPTY, LISTED, Statement, of_checkpoint, of_thread, parameters_of
from . import holes, status
from .dirty_rows import (
    CHECKPOINT_COLUMNS,
    WRITE_COLUMNS,
    Bounds,
    DirtyPlace,
    DirtyRange,
    DirtyThread,
    Pin,
    Removal,
    dirty_checkpoint,
)
from .holding import Holders, NeededValue, choose, used
from .holes import Hole
from .status import KnownCatalog

RANGE_BYTES = 8 * MIB  # content of one range; a single checkpoint may have more
_CHANGES_PER_CHECKPOINT = 4
_READ_AT_ONCE = 32

_DIRTY_THREAD = select(*(threads.c[name] for name in DirtyThread._fields))
_THREADS = Statement(
    _DIRTY_THREAD.where(
        threads.c.tenant == bindparam("of_tenant"), threads.c.dirty_since_us.is_not(None)
    )
    .order_by(threads.c.dirty_since_us)
    .limit(bindparam("most"))
)
_THREAD = Statement(_DIRTY_THREAD.where(threads.c.number == bindparam("of_number")))
_CHANGES = Statement(
    select(changes.c.seq, changes.c.checkpoint_ns, changes.c.checkpoint_id)
    .where(of_thread(changes), changes.c.seq > bindparam("after"))
    .order_by(changes.c.seq)
    .limit(bindparam("most"))
)


def _in_range(table: Table) -> ColumnElement[bool]:
    seq = table.c.seq
    return and_(of_thread(table), seq > bindparam("after"), seq <= bindparam("through"))


_PLACES = (
    select(changes.c.checkpoint_ns, changes.c.checkpoint_id)
    .where(_in_range(changes), changes.c.checkpoint_id != EMPTY)
    .distinct()
    .subquery()
)


def _of_places(table: Table) -> Join:
    """Join the checkpoints that changed in a range with what a table has of them."""
    same_ns = table.c.checkpoint_ns == _PLACES.c.checkpoint_ns
    same_id = table.c.checkpoint_id == _PLACES.c.checkpoint_id
    return _PLACES.join(table, and_(of_thread(table), same_ns, same_id))


_CLAIMED_SINCE = and_(writes.c.seq > bindparam("after"), writes.c.early_us.is_(None))
_ROWS = Statement(
    select(*CHECKPOINT_COLUMNS)
    .select_from(_of_places(checkpoints))
    .where(checkpoints.c.seq > bindparam("after"))
)
_WRITES = Statement(select(*WRITE_COLUMNS).select_from(_of_places(writes)).where(_CLAIMED_SINCE))
_WRITTEN = (writes.c.checkpoint_ns, writes.c.checkpoint_id)
_WRITE_SIZES = Statement(
    select(*_WRITTEN, func.sum(func.coalesce(func.length(writes.c.data), 0)))
    .select_from(_of_places(writes))
    .where(_CLAIMED_SINCE)
    .group_by(*_WRITTEN)
)
_ROW = Statement(select(*CHECKPOINT_COLUMNS).where(of_checkpoint(checkpoints)))
_WRITES_OF_ROW = Statement(
    select(*WRITE_COLUMNS).where(of_checkpoint(writes), writes.c.early_us.is_(None))
)
_REMOVED = Statement(
    select(*(removed.c[name] for name in Removal._fields))
    .where(_in_range(removed))
    .order_by(removed.c.seq)
)
_PINS = Statement(select(*(handoffs.c[name] for name in Pin._fields)).where(_in_range(handoffs)))
_OF_VALUES = (contents.c.family == bindparam("of_family"), contents.c.digest.in_(LISTED))
_STORED_SIZES = Statement(
    select(contents.c.digest, func.length(contents.c.data)).where(*_OF_VALUES)
)
_DATA = Statement(select(contents.c.digest, contents.c.data).where(*_OF_VALUES))
_IS_NEW = and_(of_thread(contents), contents.c.seq > bindparam("after"))
_NEEDED = Statement(
    select(
        *(contents.c[name] for name in NeededValue._fields[:-1]),
        func.length(contents.c.data),
        case((_IS_NEW, contents.c.data), else_=None),
    ).where(*_OF_VALUES)
)


@dataclass(slots=True)
class Collected:
    """What a flush takes."""

    catalog: KnownCatalog | None  # the catalog that its own follows; `None`: it is the first
    # ranges of threads, those that waited longest first, then what stands alone
    ranges: list[DirtyRange] = field(default_factory=list)
    filled: list[int] = field(default_factory=list)  # numbers of holes of which nothing is left
    # segments and threads of which it is recorded that the thread needs the segment
    used: set[tuple[bytes, int]] = field(default_factory=set)
    complete: bool = True  # nothing waits beside it


def collect(
    connection: Connection,
    tenant: str,
    bounds: Bounds,
    *,
    lone: Collection[int] | None,
    rejected: Mapping[tuple[int, Place], str],
    due_us: int,
) -> Collected:
    """Read what a flush takes, in a transaction; also holes that are to be tried by `due_us`.

    Each checkpoint of the threads `lone`, or of all, gets a segment of its own. Those that are
    `rejected` are not taken by the store.
    """
    found = Collected(status.catalog(connection, tenant))
    lost = holes.lost(connection, tenant)
    unstored: dict[int, list[Hole]] = {}
    for hole in holes.unstored(connection, tenant):
        unstored.setdefault(hole.thread, []).append(hole)
    alone: list[DirtyRange | None] = []

    def fill(thread: DirtyThread, some: Sequence[Hole]) -> None:
        for hole in some:
            one = read_alone(connection, tenant, thread, hole.place, hole)
            alone.append(one)
            if one is None:
                found.filled.append(hole.number)

    left = bounds
    waiting = _THREADS.run(connection, of_tenant=tenant, most=bounds.threads + 1).fetchall()
    for number, thread in enumerate(map(DirtyThread._make, waiting)):
        if number == bounds.threads or left.checkpoints <= 0 or left.size_bytes <= 0:
            found.complete = False
            break
        fills = unstored.pop(thread.number, [])
        apart = {hole.place for hole in fills}
        one = read_range(connection, tenant, thread, left, apart, lost)
        found.ranges.append(one)
        found.complete = found.complete and one.whole
        taken = (left.checkpoints - len(one.places), left.size_bytes - one.size_bytes)
        left = Bounds(left.threads, *taken)
        fill(thread, fills)
        if lone is None or thread.number in lone:
            alone += _separate(connection, tenant, one)
    for number, fills in unstored.items():  # of threads in which nothing else changed
        due = [hole for hole in fills if hole.retry_us <= due_us]
        row = _THREAD.run(connection, of_number=number).fetchone() if due else None
        if row is not None:
            fill(DirtyThread(*row), due)
    found.ranges += [one for one in alone if one is not None]
    for one in found.ranges:
        for dirty in one.places:
            dirty.problem = rejected.get((one.thread.number, dirty.place)) or dirty.problem
        named = {holder.location.sha256 for holder in one.named.values()} | one.holders.keys()
        found.used |= used(connection, tenant, one.thread.number, named)
    return found


def _separate(connection: Connection, tenant: str, one: DirtyRange) -> list[DirtyRange | None]:
    """Take out of a range each checkpoint that is no copy, for a segment of its own."""
    places, one.places = one.places, []
    found = []
    for dirty in places:
        if dirty.held_row and not dirty.writes:
            one.places.append(dirty)
        else:
            found.append(read_alone(connection, tenant, one.thread, dirty.place))
    for read in (one.values, one.data, one.named):
        read.clear()
    return found


def read_range(
    connection: Connection,
    tenant: str,
    thread: DirtyThread,
    bounds: Bounds,
    apart: Collection[Place],
    lost: Collection[bytes],
) -> DirtyRange:
    """Return the next range of a thread, within bounds but for one checkpoint, and not `apart`."""
    through = _bound(connection, thread, bounds)
    whole = through == thread.seq
    of = {"of_thread": thread.number, "after": thread.certified_seq, "through": through}
    found = DirtyRange(
        thread,
        through,
        thread.dirty_bytes,
        whole,
        places=_places(connection, of, apart),
        removed=[Removal(*row) for row in _REMOVED.run(connection, **of).fetchall()],
        pins=[Pin(*row) for row in _PINS.run(connection, **of).fetchall()],
    )
    holders = Holders(connection, tenant, thread.number, thread.incarnation, lost)
    _read_values(connection, found, holders)
    _find_holders(found, holders)
    if not whole:
        content = sum(one.size for one in found.places) + sum(map(len, found.data.values()))
        found.size_bytes = min(thread.dirty_bytes, content)
    return found


def _bound(connection: Connection, thread: DirtyThread, bounds: Bounds) -> int:
    """Return the last change of a range."""
    most = _CHANGES_PER_CHECKPOINT * bounds.checkpoints
    of = {"of_thread": thread.number, "after": thread.certified_seq}
    rows = _CHANGES.run(connection, **of, most=most).fetchall()
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
    """Return the bytes of the checkpoints of a range, each value with the first that needs it."""
    sizes = {(row[0], row[1]): int(row[2]) for row in _WRITE_SIZES.run(connection, **of).fetchall()}
    needed: dict[Place, set[bytes]] = {}
    for one in map(dirty_checkpoint, _ROWS.run(connection, **of).fetchall()):
        sizes[one.place] = sizes.get(one.place, 0) + one.size
        needed[one.place] = _referred(one) - known
        known |= needed[one.place]
    digests = {digest for some in needed.values() for digest in some}
    stored = dict(_STORED_SIZES.run_listed(connection, digests, of_family=thread.family))
    for place, some in needed.items():
        sizes[place] += sum(stored.get(digest) or 0 for digest in some)
    return sizes


def _places(
    connection: Connection, of: Mapping[str, int], apart: Collection[Place]
) -> list[DirtyPlace]:
    """Return the checkpoints that changed in a range, with their rows."""
    rows = _ROWS.run(connection, **of).fetchall()
    found = {one.place: one for one in map(dirty_checkpoint, rows)}
    for write in _WRITES.run(connection, **of).fetchall():
        place = (write[0], write[1])
        found.setdefault(place, DirtyPlace(place)).add(write)
    kept = [one for place, one in found.items() if place not in apart]
    return sorted(kept, key=lambda one: one.last_seq)


def read_alone(
    connection: Connection, tenant: str, thread: DirtyThread, place: Place, hole: Hole | None = None
) -> DirtyRange | None:
    """Return a checkpoint as it is, which may be a hole; `None` if it does not exist any more."""
    of = parameters_of(thread.number, *place)
    row = _ROW.run(connection, **of).fetchone()
    if row is None:
        return None
    one = dirty_checkpoint(row)
    one.held = None
    for write in _WRITES_OF_ROW.run(connection, **of).fetchall():
        one.add(write)
    found = DirtyRange(thread, one.last_seq, alone=True, places=[one])
    if hole is not None:
        found.hole, found.hole_seq = hole.number, hole.seq
    holders = Holders(connection, tenant, thread.number, thread.incarnation)
    if one.gone:
        seqs = list(one.gone.values())
        found.sources += located.of_writes(connection, tenant, thread.number, row[-1], seqs)
    _read_values(connection, found, holders)
    return found


def _read_values(connection: Connection, dirty: DirtyRange, holders: Holders) -> None:
    """Read the values that the rows of a range need, and choose what is named for them."""
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
    older = [value for digest, value in values.items() if digest not in dirty.data]
    if older and not dirty.alone:
        dirty.named = choose(values, holders.of(older))
    dirty.values = {digest: value for digest, value in values.items() if digest not in dirty.named}
    evicted = {digest: value for digest, value in dirty.values.items() if value.stored is None}
    lacking = dirty.values.keys() - dirty.data.keys() - evicted.keys()
    dirty.data.update(_DATA.run_listed(connection, lacking, of_family=dirty.thread.family))
    for one in dirty.places if evicted else ():
        one.gone.update(dict.fromkeys(one.needs & evicted.keys(), 0))
    for sha256 in {value.segment for value in evicted.values() if value.segment is not None}:
        if (holder := holders.by_hash(sha256)) is not None:
            dirty.sources.append(holder.location)


def _referred(one: DirtyPlace) -> set[bytes]:
    """Return what the row of a checkpoint refers to; if it cannot be read, note that."""
    try:
        return referred(one.row.state, one.row.delta_base) if one.row is not None else set()
    except DecodeError:
        one.problem = "its state cannot be read"
        return set()


def _read_needed(
    connection: Connection, dirty: DirtyRange, digests: Collection[bytes]
) -> dict[bytes, NeededValue]:
    """Return what the journal knows of values, and take the data of those that are new."""
    thread = dirty.thread
    of = {"of_family": thread.family, "of_thread": thread.number, "after": thread.certified_seq}
    found: dict[bytes, NeededValue] = {}
    for *known, data in _NEEDED.run_listed(connection, digests, **of):
        found[known[0]] = NeededValue(*known)
        if data is not None:
            dirty.data[known[0]] = data
    return found


def _find_holders(dirty: DirtyRange, holders: Holders) -> None:
    """Find the segments that hold copies, what these need, bundles, and the parts of all."""

    def find(hashes: Iterable[bytes]) -> None:
        found = {sha256: holders.by_hash(sha256) for sha256 in hashes}
        dirty.holders.update({sha256: one for sha256, one in found.items() if one is not None})

    for one in dirty.places:
        find(one.elsewhere)
        lacking = [sha256 for sha256 in one.elsewhere if sha256 not in dirty.holders]
        if lacking:
            one.problem = f"segment {lacking[0].hex()}, which holds it, is not readable"
    for holder in list(dirty.holders.values()):
        find(holder.needed)
    find(pin.sha256 for pin in dirty.pins)
    for holder in [*dirty.holders.values(), *dirty.named.values()]:
        find(holder.part_hashes)
