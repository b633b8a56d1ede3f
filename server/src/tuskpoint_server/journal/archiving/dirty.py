"""What is to be stored: threads with changes above their watermark, and the rows of these.

A range of a thread's log goes from its watermark up to a bound in bytes. Rows stand in it as
they are, each with its number: one that was changed again above the range is in it as it is
now, and in the next range again. The number of statements depends on the number of threads.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from google.protobuf.message import DecodeError
from sqlalchemy import Connection, and_, bindparam, case, func, literal_column, select

from ...domain.limits import MIB
from ..checkpoints.contents import referred
from ..checkpoints.located import decode_held
from ..database.schema import changes, checkpoints, contents, handoffs, removed, threads, writes
from ..database.statements import Statement
from . import values_of
from .dirty_rows import (
    Bounds,
    CheckpointRow,
    DirtyPlace,
    DirtyRange,
    DirtyThread,
    Pin,
    Place,
    Removal,
    WriteRow,
)
from .holding import Holder, Holders, NeededValue, choose, keyframes_of

RANGE_BYTES = 8 * MIB
"""Content of one range; a single checkpoint may have more."""

_CHANGES_PER_CHECKPOINT = 4
_READ_AT_ONCE = 32

# --- statements --------------------------------------------------------------------------

_THREADS = Statement(
    select(*(threads.c[name] for name in DirtyThread._fields))
    .where(threads.c.tenant == bindparam("of_tenant"), threads.c.dirty_since_us.is_not(None))
    .order_by(threads.c.dirty_since_us)
    .limit(bindparam("most"))
)
_IN_RANGE = and_(
    changes.c.thread == bindparam("of_thread"),
    changes.c.seq > bindparam("after"),
    changes.c.seq <= bindparam("through"),
    changes.c.checkpoint_id != literal_column("''"),
)
_CHANGES = Statement(
    select(changes.c.seq, changes.c.checkpoint_ns, changes.c.checkpoint_id)
    .where(changes.c.thread == bindparam("of_thread"), changes.c.seq > bindparam("after"))
    .order_by(changes.c.seq)
    .limit(bindparam("most"))
)
_PLACES = (
    select(changes.c.checkpoint_ns, changes.c.checkpoint_id).where(_IN_RANGE).distinct().subquery()
)
_ROWS = Statement(
    select(*(checkpoints.c[name] for name in CheckpointRow._fields))
    .select_from(
        _PLACES.join(
            checkpoints,
            and_(
                checkpoints.c.thread == bindparam("of_thread"),
                checkpoints.c.checkpoint_ns == _PLACES.c.checkpoint_ns,
                checkpoints.c.checkpoint_id == _PLACES.c.checkpoint_id,
            ),
        )
    )
    .where(checkpoints.c.seq > bindparam("after"))
)
_OF_PLACES = _PLACES.join(
    writes,
    and_(
        writes.c.thread == bindparam("of_thread"),
        writes.c.checkpoint_ns == _PLACES.c.checkpoint_ns,
        writes.c.checkpoint_id == _PLACES.c.checkpoint_id,
    ),
)
_CLAIMED_SINCE = and_(writes.c.seq > bindparam("after"), writes.c.early_us.is_(None))
_WRITES = Statement(
    select(*(writes.c[name] for name in WriteRow._fields))
    .select_from(_OF_PLACES)
    .where(_CLAIMED_SINCE)
)
_WRITE_SIZES = Statement(
    select(
        writes.c.checkpoint_ns,
        writes.c.checkpoint_id,
        func.sum(func.coalesce(func.length(writes.c.data), 0)),
    )
    .select_from(_OF_PLACES)
    .where(_CLAIMED_SINCE)
    .group_by(writes.c.checkpoint_ns, writes.c.checkpoint_id)
)
_REMOVED = Statement(
    select(*(removed.c[name] for name in Removal._fields))
    .where(
        removed.c.thread == bindparam("of_thread"),
        removed.c.seq > bindparam("after"),
        removed.c.seq <= bindparam("through"),
    )
    .order_by(removed.c.seq)
)
_PINS = Statement(
    select(*(handoffs.c[name] for name in Pin._fields)).where(
        handoffs.c.thread == bindparam("of_thread"),
        handoffs.c.seq > bindparam("after"),
        handoffs.c.seq <= bindparam("through"),
    )
)
_STORED_SIZES = (contents.c.digest, func.length(contents.c.data))
_NEEDED = tuple(
    func.length(contents.c.data) if name == "stored" else contents.c[name]
    for name in NeededValue._fields
)
_NEW_DATA = case(
    (
        and_(contents.c.thread == bindparam("of_thread"), contents.c.seq > bindparam("after")),
        contents.c.data,
    ),
    else_=None,
)
_NEEDED_AND_DATA = (*_NEEDED, _NEW_DATA)


# --- reading -----------------------------------------------------------------------------


def dirty_threads(connection: Connection, tenant: str, most: int) -> list[DirtyThread]:
    """Return the threads with changes above their watermark, longest waiting first."""
    rows = _THREADS.run(connection, of_tenant=tenant, most=most).fetchall()
    return [DirtyThread(*row) for row in rows]


def read_range(
    connection: Connection,
    tenant: str,
    thread: DirtyThread,
    bounds: Bounds,
    apart: Collection[Place],
    lost: frozenset[bytes],
) -> DirtyRange:
    """Return the next range of a thread.

    Args:
        connection: In a transaction.
        tenant: The tenant.
        thread: The thread.
        bounds: How much of it is read: checkpoints, at least one, and bytes.
        apart: Checkpoints that are left out, because they are stored beside the range.
        lost: Segments that are not to be named.
    """
    through, whole = _bound(connection, thread, bounds)
    of = {"of_thread": thread.number, "after": thread.certified_seq, "through": through}
    places = _places(connection, of, apart)
    found = DirtyRange(
        thread,
        through,
        thread.dirty_bytes if whole else 0,
        whole,
        places,
        removed=[Removal(*row) for row in _REMOVED.run(connection, **of).fetchall()],
        pins=[Pin(*row) for row in _PINS.run(connection, **of).fetchall()],
    )
    holders = Holders(connection, tenant, thread.number, thread.incarnation, lost)
    _read_values(connection, found, holders)
    _find_copies(found, holders)
    _find_bundles(found, holders)
    if not whole:
        content = sum(one.size for one in places) + sum(map(len, found.data.values()))
        found.size_bytes = min(thread.dirty_bytes, content)
    return found


def _bound(connection: Connection, thread: DirtyThread, bounds: Bounds) -> tuple[int, bool]:
    """Return the last change of a range, and whether it is the thread's last one."""
    most = _CHANGES_PER_CHECKPOINT * bounds.checkpoints
    rows = _CHANGES.run(
        connection, of_thread=thread.number, after=thread.certified_seq, most=most
    ).fetchall()
    firsts: dict[Place, int] = {}
    for seq, checkpoint_ns, checkpoint_id in rows:
        if checkpoint_id:
            firsts.setdefault((checkpoint_ns, checkpoint_id), seq)
    last = thread.seq if len(rows) < most else rows[-1][0]
    ordered = sorted(firsts.items(), key=lambda item: item[1])
    if len(ordered) > bounds.checkpoints:
        last = ordered[bounds.checkpoints][1] - 1
    limit = min(RANGE_BYTES, bounds.size_bytes)
    if thread.dirty_bytes > limit:
        last = _within(connection, thread, [seq for _, seq in ordered], last, limit)
    return last, last == thread.seq


def _within(
    connection: Connection, thread: DirtyThread, firsts: Sequence[int], last: int, limit: int
) -> int:
    """Return the last change of a range with so many bytes, or with one checkpoint.

    Args:
        connection: In a transaction.
        thread: The thread.
        firsts: Number of the first change of each checkpoint, ascending.
        last: The last change that it may have.
        limit: Bytes of content.
    """
    firsts = [seq for seq in firsts if seq <= last]
    size, after = 0, thread.certified_seq
    known: set[bytes] = set()
    for start in range(0, len(firsts), _READ_AT_ONCE):
        some = firsts[start : start + _READ_AT_ONCE]
        of = {"of_thread": thread.number, "after": after, "through": some[-1]}
        sizes = _sizes(connection, thread, of, known)
        order = {first: index for index, first in enumerate(some)}
        for seq, place in _first_changes(connection, of):
            size += sizes.pop(place, 0)
            at = order.get(seq)
            if at is not None and size > limit and start + at > 0:
                return seq - 1
        after = some[-1]
    return last


def _first_changes(connection: Connection, of: Mapping[str, int]) -> list[tuple[int, Place]]:
    rows = _CHANGES.run(
        connection,
        of_thread=of["of_thread"],
        after=of["after"],
        most=of["through"] - of["after"],
    ).fetchall()
    firsts: dict[Place, int] = {}
    for seq, *place in rows:
        if seq <= of["through"]:
            firsts.setdefault((place[0], place[1]), seq)
    return [(seq, place) for place, seq in firsts.items()]


def _sizes(
    connection: Connection, thread: DirtyThread, of: Mapping[str, int], known: set[bytes]
) -> dict[Place, int]:
    """Return the bytes of the checkpoints of a range, each value with the first that needs it."""
    sizes = {(row[0], row[1]): int(row[2]) for row in _WRITE_SIZES.run(connection, **of).fetchall()}
    needed: dict[Place, set[bytes]] = {}
    for one in map(CheckpointRow._make, _ROWS.run(connection, **of).fetchall()):
        place = (one.checkpoint_ns, one.checkpoint_id)
        sizes[place] = sizes.get(place, 0) + len(one.state) + len(one.metadata)
        needed[place] = referred(one.state, one.delta_base) - known
        known |= needed[place]
    digests = {digest for some in needed.values() for digest in some}
    stored = dict(values_of.rows(connection, _STORED_SIZES, thread.family, digests))
    for place, some in needed.items():
        sizes[place] += sum(stored.get(digest) or 0 for digest in some)
    return sizes


def _places(
    connection: Connection, of: Mapping[str, int], apart: Collection[Place]
) -> list[DirtyPlace]:
    """Return the checkpoints that changed in a range, with their rows."""
    found: dict[Place, DirtyPlace] = {}
    for row in map(CheckpointRow._make, _ROWS.run(connection, **of).fetchall()):
        place = (row.checkpoint_ns, row.checkpoint_id)
        held = decode_held(row.held) if row.held is not None else None
        found[place] = DirtyPlace(place, row, held=held)
    for write in map(WriteRow._make, _WRITES.run(connection, **of).fetchall()):
        place = (write.checkpoint_ns, write.checkpoint_id)
        one = found.setdefault(place, DirtyPlace(place))
        if one.held is not None and write.seq <= one.held.seq:
            one.held_writes = True
            continue
        one.writes.append(write)
        if write.data is None:
            one.problem = f"a write of task {write.task_id} was evicted"
    if apart:
        found = {place: one for place, one in found.items() if place not in apart}
    return sorted(found.values(), key=lambda one: one.last_seq)


def _read_values(connection: Connection, dirty: DirtyRange, holders: Holders) -> None:
    """Read the values that the rows of a range need, and choose what is named for them."""
    thread = dirty.thread
    digests: set[bytes] = set()
    for one in dirty.places:
        if one.row is not None and not one.held_row:
            _refer(one, one.row)
            digests |= one.needs
    values = _read_needed(connection, dirty, digests)
    for one in dirty.places:
        missing = one.needs.difference(values)
        if missing:
            one.problem = f"value {min(missing).hex()} is not stored"
    missing = keyframes_of(values.values()).difference(values)
    values.update(_read_needed(connection, dirty, missing))
    older = [value for digest, value in values.items() if digest not in dirty.data]
    if older:
        dirty.named = choose(values, holders.of(older))
    dirty.values = {digest: value for digest, value in values.items() if digest not in dirty.named}
    lacking = [
        digest
        for digest, value in dirty.values.items()
        if digest not in dirty.data and value.stored is not None
    ]
    for value in dirty.values.values():
        if value.stored is None and value.segment is not None:
            holder = holders.by_hash(value.segment)
            if holder is not None and holder.location not in dirty.sources:
                dirty.sources.append(holder.location)
    if lacking:
        dirty.data.update(values_of.data(connection, thread.family, lacking))


def _refer(one: DirtyPlace, row: CheckpointRow) -> None:
    try:
        one.needs = referred(row.state, row.delta_base)
    except DecodeError:
        one.problem = "its state cannot be read"


def _read_needed(
    connection: Connection, dirty: DirtyRange, digests: Collection[bytes]
) -> dict[bytes, NeededValue]:
    """Return what the journal knows of values, and take the data of those that are new."""
    found: dict[bytes, NeededValue] = {}
    for *known, data in values_of.rows(
        connection,
        _NEEDED_AND_DATA,
        dirty.thread.family,
        digests,
        of_thread=dirty.thread.number,
        after=dirty.thread.certified_seq,
    ):
        found[known[0]] = NeededValue(*known)
        if data is not None:
            dirty.data[known[0]] = data
    return found


def _find_copies(dirty: DirtyRange, holders: Holders) -> None:
    """Find the segments that hold copies, and the members that these need."""
    for one in dirty.places:
        for sha256 in one.elsewhere:
            holder = dirty.holders.get(sha256) or holders.by_hash(sha256)
            if holder is None:
                one.problem = f"segment {sha256.hex()}, which holds it, is not readable"
                break
            dirty.holders[sha256] = holder
    for holder in list(dirty.holders.values()):
        for sha256 in holder.needs:
            needed = holders.by_hash(sha256)
            if needed is not None:
                dirty.holders.setdefault(sha256, needed)
    for holder in [*dirty.holders.values(), *dirty.named.values()]:
        for sha256 in holder.parts:
            part = holders.by_hash(sha256)
            if part is not None:
                dirty.holders.setdefault(sha256, part)


def _find_bundles(dirty: DirtyRange, holders: Holders) -> None:
    """Find the bundles that were handed off, and their parts."""
    for pin in dirty.pins:
        for sha256 in (pin.sha256, *_parts_of(holders.by_hash(pin.sha256))):
            holder = holders.by_hash(sha256)
            if holder is not None:
                dirty.bundles[sha256] = holder


def _parts_of(holder: Holder | None) -> tuple[bytes, ...]:
    return holder.parts if holder is not None else ()
