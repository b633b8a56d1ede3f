"""Copies: checkpoints of one thread, made ready to be inserted into another.

The values are the family's, so nothing of them is copied. A copy of what is certified is
held by the segments of its origin and is not stored again; it may lack its data. A copy that
has to be stored by itself is whole: evicted values come back with it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, select

from ...domain.model import EVICTED, BlobLocation, Value
from ..checkpoints import contents, located
from ..checkpoints.contents import referred
from ..checkpoints.located import Row, decode_held
from ..database.logs import Place, ThreadRow
from ..database.overlay import StoredWrite
from ..database.schema import checkpoints, holes, writes
from ..database.statements import in_lists
from .closures import delta_base
from .stored import Stored, StoredValue, read, stored_value

Supplied = Mapping[bytes, Value]
"""Values by digest that were read from segments after `ValuesEvicted`."""


class ValuesEvicted(Exception):
    """Values that are needed were evicted; nothing is stored.

    Attributes:
        digests: The values.
        places: The segments that hold them.
    """

    def __init__(self, digests: Collection[bytes], places: Iterable[BlobLocation]) -> None:
        self.digests = frozenset(digests)
        self.places = tuple(dict.fromkeys(places))
        super().__init__(f"{len(self.digests)} values were evicted")


def prepare(
    connection: Connection,
    sources: Iterable[tuple[ThreadRow, Sequence[int]]],
    supplied: Supplied,
    *,
    with_ancestors: bool = False,
) -> list[list[Stored]]:
    """Return copies of checkpoints for threads of the same family.

    Args:
        connection: In a write transaction in which everything is written out.
        sources: Threads, and the numbers of the rows of checkpoints in them.
        supplied: Evicted values that have been read.
        with_ancestors: All that delta channels are rebuilt from is copied as well. Else each
            copy gets it as its `delta_base`.

    Raises:
        ValuesEvicted: Values are neither here nor supplied.
    """
    prepared: list[list[Stored]] = []
    lacking: list[ValuesEvicted] = []
    for origin, numbers in sources:
        found = read(connection, numbers)
        written: dict[bytes, int] = {}
        held = _held_by(connection, origin, found)
        for one, segments in zip(found, held, strict=True):
            own = one.delta_base or None
            if not with_ancestors:
                state, names = one.known.state, one.known.delta_channels
                base = delta_base(connection, origin.number, one.place, state, names)
                one.delta_base = base.stored
                written |= base.written
            # A segment has the base that its checkpoint had there.
            one.segments = segments if one.delta_base == own else ()
        try:
            bring_values(connection, origin.family, origin, found, supplied, written)
        except ValuesEvicted as lack:
            lacking.append(lack)
        prepared.append(found)
    if lacking:
        raise ValuesEvicted(
            frozenset[bytes]().union(*(lack.digests for lack in lacking)),
            (place for lack in lacking for place in lack.places),
        )
    return prepared


def bring_values(
    connection: Connection,
    family: int,
    at: ThreadRow,
    found: Sequence[Stored],
    supplied: Supplied,
    written: Mapping[bytes, int],
) -> None:
    """Give checkpoints that have to be stored the values that a family lacks.

    Args:
        connection: In a transaction.
        family: The family of the thread that they are to be inserted into.
        at: The thread that they are stored in.
        found: The checkpoints.
        supplied: Evicted values that have been read.
        written: Digest to number of a row of `writes` of that thread that has the value.

    Raises:
        ValuesEvicted: Values are neither here nor supplied.
    """
    needed = {
        one.place: referred(one.known.state, one.delta_base) for one in found if not one.segments
    }
    wanted = frozenset[bytes]().union(*needed.values())
    lacking = wanted - contents.present(connection, family, wanted)
    here = {one: stored_value(one, supplied[one]) for one in lacking if one in supplied}
    rows = {written[digest] for digest in lacking - here.keys() if digest in written}
    here.update((one.digest, one) for one in _values_of_writes(connection, rows))
    if at.family != family:
        others = contents.read(connection, at.family, lacking - here.keys())
        for digest, value in others.items():
            if value is not EVICTED:
                here[digest] = stored_value(digest, value)
    missing: set[bytes] = set()
    places: list[BlobLocation] = []
    for one in found:
        if one.segments:
            continue
        one.values = [here[digest] for digest in sorted(needed[one.place] & here.keys())]
        one.writes = [_whole(write, supplied) for write in one.writes]
        lacks = needed[one.place] & lacking - here.keys()
        lacks |= {write.digest for write in one.writes if write.data is None}
        if lacks:
            missing |= lacks
            places += _places_of(connection, at, one, written, lacks)
    if missing:
        raise ValuesEvicted(missing, places)


def _values_of_writes(connection: Connection, numbers: Collection[int]) -> Iterable[StoredValue]:
    """Yield the values of pending writes that are here."""
    columns = [writes.c[name] for name in StoredValue._fields]
    for some in in_lists(sorted(numbers)):
        stored = select(*columns).where(writes.c.number.in_(some), writes.c.data.is_not(None))
        yield from (StoredValue(*row) for row in connection.execute(stored))


def _whole(write: StoredWrite, supplied: Supplied) -> StoredWrite:
    """Return a write with its data, if it is here or supplied."""
    if write.data is not None or write.digest not in supplied:
        return write
    packed = stored_value(write.digest, supplied[write.digest])
    return write._replace(encoding=packed.encoding, data=packed.data)


# --- where it is stored ------------------------------------------------------------------


def _held_by(
    connection: Connection, thread: ThreadRow, found: Sequence[Stored]
) -> list[tuple[bytes, ...]]:
    """Return for each checkpoint the segments that hold it already, that of its state first.

    Only one of which everything is stored, late writes too, is held as it is.
    """
    numbers = [[one.known.seq, *(write.seq for write in one.writes)] for one in found]
    lost, unstored = _holes(connection, thread)
    rows = [_located(thread, one, one.place in unstored) for one in found]
    locations = located.of_rows(connection, thread.tenant, rows, numbers)
    held: list[tuple[bytes, ...]] = []
    for one, some, places in zip(found, numbers, locations, strict=True):
        segments = tuple(place.sha256 for place in places)
        stored = max(some) <= thread.certified_seq and one.place not in unstored
        if one.held is not None and not stored:
            before = decode_held(one.held)
            segments, stored = before.segments, max(some) <= before.seq
        held.append(segments if stored and not lost.intersection(segments) else ())
    return held


def _located(thread: ThreadRow, one: Stored, hole: bool) -> Row:
    known, lineage = one.known, one.lineage
    columns: tuple[Any, ...] = (
        *(thread.thread_id, thread.number, thread.family, thread.incarnation),
        *(thread.certified_seq, *one.place, known.seq, known.parent_id, known.created_us),
        *(known.metadata, known.label, known.summary),
        *(lineage.forked_from, lineage.rolled_back_from, lineage.adopted_from, one.held, hole),
    )
    return Row(*columns)


def _holes(connection: Connection, thread: ThreadRow) -> tuple[set[bytes], set[Place]]:
    """Return the tenant's lost segments, and which checkpoints of a thread are not stored."""
    rows = connection.execute(
        select(holes.c.segment, holes.c.thread, holes.c.checkpoint_ns, holes.c.checkpoint_id).where(
            holes.c.tenant == thread.tenant
        )
    ).all()
    lost = {bytes(row[0]) for row in rows if row[0] is not None}
    return lost, {(row[2], row[3]) for row in rows if row[1] == thread.number}


def _places_of(
    connection: Connection,
    thread: ThreadRow,
    one: Stored,
    written: Mapping[bytes, int],
    missing: Collection[bytes],
) -> list[BlobLocation]:
    """Return the segments that hold evicted values that a checkpoint needs."""
    places = located.of_values(connection, thread.tenant, thread.family, sorted(missing))
    found: dict[bytes | None, list[int]] = {}
    own = [write.seq for write in one.writes if write.digest in missing]
    if own:
        found[one.held] = own
    for some in in_lists(number for digest, number in written.items() if digest in missing):
        rows = connection.execute(
            select(checkpoints.c.held, writes.c.seq)
            .join(
                checkpoints,
                (checkpoints.c.thread == writes.c.thread)
                & (checkpoints.c.checkpoint_ns == writes.c.checkpoint_ns)
                & (checkpoints.c.checkpoint_id == writes.c.checkpoint_id),
            )
            .where(writes.c.number.in_(some), writes.c.data.is_(None))
        )
        for held, seq in rows:
            found.setdefault(held, []).append(seq)
    for held, seqs in found.items():
        places += located.of_writes(connection, thread.tenant, thread.number, held, seqs)
    return places
