"""Copying checkpoints into another thread of the same family.

The values are the family's, so nothing of them is copied. A copy of what is certified is
held by the segments of its origin and is not stored again; it may lack its data. A copy that
has to be stored by itself is whole: evicted values come back with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection, select

from ...domain.model import BlobLocation, Lineage
from ..archiving import uses
from ..checkpoints import contents
from ..checkpoints.references import referred
from ..database.overlay import Batch, Log, Place
from ..database.schema import writes
from ..database.statements import in_lists
from ..database.thread_rows import ThreadRow
from . import sources
from .delta_bases import NO_BASE, delta_base
from .evicted import Supplied, ValuesEvicted, places_of
from .insert import (
    NO_LINEAGE,
    NewCheckpoint,
    StoredValue,
    StoredWrite,
    insert_checkpoint,
    stored_value,
)
from .sources import Source


@dataclass(slots=True)
class Copies:
    """Checkpoints of one thread, ready to be inserted into another.

    Attributes:
        origin: The thread that they are in.
        checkpoints: The copies, with the lineage and the times of their origins.
        missing: Digests of values that are neither here nor supplied; nothing can be
            inserted unless it is empty.
        places: The segments that hold these.
    """

    origin: ThreadRow
    checkpoints: list[NewCheckpoint] = field(default_factory=list)
    missing: set[bytes] = field(default_factory=set)
    places: list[BlobLocation] = field(default_factory=list)


def prepare(
    connection: Connection,
    origin: ThreadRow,
    numbers: Sequence[int],
    supplied: Supplied,
    *,
    with_ancestors: bool = False,
) -> Copies:
    """Return copies of checkpoints.

    Args:
        connection: In a write transaction in which everything is written out.
        origin: The thread that they are in.
        numbers: Numbers of their rows.
        supplied: Evicted values that have been read.
        with_ancestors: All that delta channels are rebuilt from is copied as well. Else each
            copy gets it as its `delta_base`.
    """
    found = sources.read(connection, numbers)
    held = sources.held_by(connection, origin, found)
    plans = [
        _plan(connection, origin, one, segments, with_ancestors=with_ancestors)
        for one, segments in zip(found, held, strict=True)
    ]
    wanted = {digest for plan in plans if not plan.held for digest in plan.digests}
    here = contents.present(connection, origin.family, wanted) if wanted else set()
    of_writes = _values_of_writes(connection, plans, here)
    copies = Copies(origin)
    for plan in plans:
        copies.checkpoints.append(_copy(connection, copies, plan, here, of_writes, supplied))
    return copies


def refuse_lacking(some: Iterable[Copies]) -> None:
    """Refuse copies that lack evicted values.

    Raises:
        ValuesEvicted: Values are neither here nor supplied.
    """
    lacking = [copies for copies in some if copies.missing]
    if lacking:
        raise ValuesEvicted(
            frozenset[bytes]().union(*(copies.missing for copies in lacking)),
            (place for copies in lacking for place in copies.places),
        )


def insert_fork(batch: Batch, log: Log, copies: Copies, origins: Mapping[Place, str]) -> None:
    """Insert copies that begin a thread: they come into being now.

    Args:
        batch: In a write transaction.
        log: The thread; it has the family of the origin.
        copies: The copies.
        origins: What `forked_from` says, by place.
    """
    for new in copies.checkpoints:
        origin = origins.get(new.place, "")
        new.lineage = Lineage(forked_from=origin) if origin else NO_LINEAGE
        new.created_us = batch.now_us
    insert_as_they_are(batch, log, copies)


def insert_as_they_are(batch: Batch, log: Log, copies: Copies) -> None:
    """Insert copies with the lineage and the times of their origins.

    Args:
        batch: In a write transaction.
        log: The thread; it has the family of the origin.
        copies: The copies.
    """
    for new in copies.checkpoints:
        insert_checkpoint(batch, log, new)
    tenant, number = log.row.tenant, log.row.number
    held = dict.fromkeys(sha256 for new in copies.checkpoints for sha256 in new.held)
    needed = uses.with_needs(batch.connection, tenant, held)
    uses.add(batch.connection, tenant, ((sha256, number) for sha256 in needed))


@dataclass(frozen=True, slots=True)
class _Plan:
    """A copy as it is decided upon.

    Attributes:
        source: What is copied.
        base: Its `delta_base`.
        written: Digest to row of `writes`, of values of the base that pending writes hold.
        held: Segments that hold it; none: it has to be stored by itself.
        digests: Values of its state and its base.
    """

    source: Source
    base: bytes | None
    written: dict[bytes, int]
    held: tuple[bytes, ...]
    digests: set[bytes]


def _plan(
    connection: Connection,
    origin: ThreadRow,
    source: Source,
    segments: tuple[bytes, ...],
    *,
    with_ancestors: bool,
) -> _Plan:
    own = source.delta_base or None
    base, written = own, NO_BASE.written
    if not with_ancestors:
        found = delta_base(
            connection, origin.number, source.place, source.state, source.delta_channels
        )
        base, written = found.stored, found.written
    # A segment has the base that its checkpoint had there.
    held = segments if base == own else ()
    return _Plan(source, base, written, held, referred(source.state, base))


def _values_of_writes(
    connection: Connection, plans: Iterable[_Plan], here: set[bytes]
) -> dict[bytes, StoredValue]:
    """Return the values of bases that only pending writes hold."""
    numbers = {
        number
        for plan in plans
        if not plan.held
        for digest, number in plan.written.items()
        if digest not in here
    }
    found: dict[bytes, StoredValue] = {}
    for some in in_lists(sorted(numbers)):
        rows = connection.execute(
            select(*(writes.c[name] for name in StoredValue._fields)).where(
                writes.c.number.in_(some), writes.c.data.is_not(None)
            )
        )
        found.update((row[0], StoredValue(*row)) for row in rows)
    return found


def _copy(
    connection: Connection,
    copies: Copies,
    plan: _Plan,
    here: set[bytes],
    of_writes: Mapping[bytes, StoredValue],
    supplied: Supplied,
) -> NewCheckpoint:
    """Return a copy, and add to `copies.missing` if values of it are not to be had."""
    source = plan.source
    written = [write for _, write in source.written]
    values: list[StoredValue] = []
    if not plan.held:
        missing: set[bytes] = set()
        for digest in sorted(plan.digests - here):
            if digest in of_writes:
                values.append(of_writes[digest])
            elif digest in supplied:
                values.append(stored_value(digest, supplied[digest]))
            else:
                missing.add(digest)
        written = [_whole(write, supplied) for write in written]
        missing.update(write.digest for write in written if write.data is None)
        if missing:
            copies.missing |= missing
            copies.places += places_of(connection, copies.origin, source, plan.written, missing)
    return NewCheckpoint(
        place=source.place,
        parent_id=source.parent_id,
        state=source.state,
        metadata=source.metadata,
        run_id=source.run_id,
        root_id=source.root_id,
        delta_channels=source.delta_channels,
        created_us=source.created_us,
        delta_base=plan.base,
        label=source.label,
        summary=source.summary,
        lineage=source.lineage,
        held=plan.held,
        writes=written,
        values=values,
    )


def _whole(write: StoredWrite, supplied: Supplied) -> StoredWrite:
    """Return a write with its data, if it is here or supplied."""
    value = supplied.get(write.digest) if write.data is None else None
    if value is None:
        return write
    packed = stored_value(write.digest, value)
    return write._replace(encoding=packed.encoding, data=packed.data)
