"""What the journal says of a thread's checkpoints, for comparison with what is stored."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Connection, and_, bindparam, select, tuple_

from ...domain.model import BlobLocation, Lineage
from ...domain.state import decode_channels
from ...domain.verification import RowDigests, WriteFacts, row_digests
from ..checkpoints.load import ROW
from ..database.schema import checkpoints, contents, holes, members, removed, threads, writes
from ..database.statements import Statement, in_lists, of_thread
from . import located, status
from .status import KnownCatalog

Place = tuple[str, str]
"""Namespace and checkpoint ID, inside a thread."""

_ROWS_AT_ONCE = 32


class Incarnation(NamedTuple):
    """An incarnation of a thread: its number, its family, and which incarnation it is."""

    thread: int
    family: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class RecordedCheckpoint:
    """What the journal says of a checkpoint.

    Attributes:
        seq: The change that made its row as it is.
        last_seq: Its last change, those of its writes included.
        certified_seq: The thread's watermark.
        parent_id: Parent, or empty.
        label: Name, or empty.
        summary: One sentence, or empty.
        lineage: Lineage beyond the parent.
        created_us: Time of the first save.
        content: What it holds.
        places: The segments that hold it, that of its state first; empty: it is in none yet.
        hole: Why something of it cannot be read from the blob store, for people; else empty.
        lost: Only what cannot be read any more had some of its values.
    """

    seq: int
    last_seq: int
    certified_seq: int
    parent_id: str
    label: str
    summary: str
    lineage: Lineage
    created_us: int
    content: RowDigests
    places: tuple[BlobLocation, ...]
    hole: str = ""
    lost: bool = False

    @property
    def is_certified(self) -> bool:
        """Whether its last change is certified."""
        return self.last_seq <= self.certified_seq and not self.hole


@dataclass(frozen=True, slots=True)
class Standing:
    """What the journal says of checkpoints of one incarnation at one moment.

    Attributes:
        checkpoints: Those that are there.
        removed: Those whose removal is not certified yet.
        lost: Segments that are known to be lost, and why, for people.
        in_parts: Segments that are stored in parts.
        catalog: The newest certified catalog, or `None`.
        ended: Another incarnation lives now, or none.
    """

    checkpoints: Mapping[Place, RecordedCheckpoint]
    removed: AbstractSet[Place]
    lost: Mapping[bytes, str]
    in_parts: AbstractSet[bytes]
    catalog: KnownCatalog | None
    ended: bool = False


_INCARNATION = Statement(
    select(threads.c.number, threads.c.family, threads.c.incarnation).where(
        threads.c.tenant == bindparam("of_tenant"),
        threads.c.thread_id == bindparam("of_thread_id"),
        threads.c.deleted.is_(False),
    )
)
_NEWEST = Statement(
    select(threads.c.incarnation).where(
        threads.c.number == bindparam("of_number"), threads.c.deleted.is_(False)
    )
)
_PLACES = Statement(
    select(checkpoints.c.checkpoint_ns, checkpoints.c.checkpoint_id)
    .where(of_thread(checkpoints))
    .order_by(checkpoints.c.checkpoint_ns, checkpoints.c.checkpoint_id)
)
_REMOVED = Statement(
    select(removed.c.checkpoint_ns, removed.c.checkpoint_id).where(
        of_thread(removed),
        removed.c.incarnation == bindparam("of_incarnation"),
        removed.c.checkpoint_id != "",
    )
)


def _between(table: Any) -> Any:
    """Match the rows of a thread from one checkpoint to another, by namespace and ID."""
    place = tuple_(table.c.checkpoint_ns, table.c.checkpoint_id)
    return and_(
        of_thread(table),
        place >= tuple_(bindparam("first_ns"), bindparam("first_id")),
        place <= tuple_(bindparam("last_ns"), bindparam("last_id")),
    )


_ROWS = Statement(
    select(*ROW, checkpoints.c.state, checkpoints.c.delta_base)
    .join(threads, threads.c.number == checkpoints.c.thread)
    .where(
        _between(checkpoints),
        threads.c.incarnation == bindparam("of_incarnation"),
        threads.c.deleted.is_(False),
    )
)
_WRITES = Statement(
    select(
        writes.c.checkpoint_ns,
        writes.c.checkpoint_id,
        writes.c.task_id,
        writes.c.task_path,
        writes.c.idx,
        writes.c.channel,
        writes.c.digest,
        writes.c.seq,
        writes.c.data.is_(None),
    ).where(_between(writes))
)
_UNSTORED = Statement(
    select(holes.c.checkpoint_ns, holes.c.checkpoint_id, holes.c.reason).where(
        of_thread(holes), holes.c.segment.is_(None)
    )
)
_LOST = Statement(
    select(holes.c.segment, holes.c.reason).where(
        holes.c.tenant == bindparam("of_tenant"), holes.c.segment.is_not(None)
    )
)


def of_thread_now(
    connection: Connection, tenant: str, thread_id: str
) -> tuple[Incarnation, list[Place], Standing] | None:
    """Return the incarnation of a thread that lives, its checkpoints, and the newest catalog.

    Returns:
        The checkpoints by namespace and ID; `None` if there is no such thread.
    """
    row = _INCARNATION.run(connection, of_tenant=tenant, of_thread_id=thread_id).fetchone()
    if row is None:
        return None
    of = Incarnation(*row)
    places = [(one[0], one[1]) for one in _PLACES.run(connection, of_thread=of.thread).fetchall()]
    return of, places, standing(connection, tenant, of, ())


def standing(
    connection: Connection, tenant: str, of: Incarnation, places: Sequence[Place]
) -> Standing:
    """Return what the journal says of checkpoints; the number of statements is bounded.

    Args:
        connection: In a transaction.
        tenant: The tenant.
        of: The thread's incarnation; of another one nothing is returned.
        places: The checkpoints, by namespace and ID.
    """
    lost = {bytes(row[0]): row[1] for row in _LOST.run(connection, of_tenant=tenant).fetchall()}
    untold = _REMOVED.run(connection, of_thread=of.thread, of_incarnation=of.incarnation).fetchall()
    found = _checkpoints(connection, tenant, of, places, lost) if places else {}
    segments = {place.sha256 for one in found.values() for place in one.places}
    incarnation = _NEWEST.run(connection, of_number=of.thread).fetchone()
    return Standing(
        found,
        {(row[0], row[1]) for row in untold},
        lost,
        _in_parts(connection, tenant, segments),
        status.catalog(connection, tenant),
        incarnation is None or incarnation[0] != of.incarnation,
    )


def _in_parts(connection: Connection, tenant: str, segments: Iterable[bytes]) -> set[bytes]:
    found: set[bytes] = set()
    for some in in_lists(segments):
        statement = select(members.c.sha256).where(
            members.c.tenant == tenant, members.c.sha256.in_(some), members.c.parts.is_not(None)
        )
        found.update(connection.execute(statement).scalars())
    return found


@dataclass(slots=True)
class _Read:
    """A row, reduced to what is compared: states and metadata of many take much memory."""

    row: Sequence[Any]
    content: RowDigests
    values: tuple[bytes, ...]
    numbers: list[int]
    evicted: bool


def _checkpoints(
    connection: Connection,
    tenant: str,
    of: Incarnation,
    places: Sequence[Place],
    lost: Mapping[bytes, str],
) -> dict[Place, RecordedCheckpoint]:
    first, last = places[0], places[-1]
    between = {
        "of_thread": of.thread,
        "first_ns": first[0],
        "first_id": first[1],
        "last_ns": last[0],
        "last_id": last[1],
    }
    wanted = set(places)
    written: dict[Place, list[Sequence[Any]]] = {}
    for row in _WRITES.run(connection, **between).fetchall():
        if (row[0], row[1]) in wanted:
            written.setdefault((row[0], row[1]), []).append(row)
    read: dict[Place, _Read] = {}
    for row in _each(_ROWS.run(connection, **between, of_incarnation=of.incarnation)):
        place = (row[5], row[6])
        if place in wanted:
            read[place] = _reduced(row, written.get(place, ()), keep_values=bool(lost))
    located_at = located.of_rows(
        connection,
        tenant,
        [one.row for one in read.values()],
        [one.numbers for one in read.values()],
    )
    unstored = {
        (row[0], row[1]): row[2]
        for row in _UNSTORED.run(connection, of_thread=of.thread).fetchall()
    }
    gone = _gone(connection, of.family, lost)
    return {
        place: _recorded(one, at, unstored.get(place, ""), lost, gone)
        for (place, one), at in zip(read.items(), located_at, strict=True)
    }


def _each(cursor: Any) -> Iterator[Sequence[Any]]:
    """Yield the rows of a cursor, a few at a time."""
    while some := cursor.fetchmany(_ROWS_AT_ONCE):
        yield from some


def _reduced(row: Sequence[Any], written: Sequence[Sequence[Any]], *, keep_values: bool) -> _Read:
    state, delta_base = row[len(ROW)], row[len(ROW) + 1] or b""
    facts: list[WriteFacts] = [(one[2], one[3], one[4], one[5], one[6]) for one in written]
    values: tuple[bytes, ...] = ()
    if keep_values:
        values = tuple(one.digest for one in decode_channels(state) if one.digest is not None)
    short = list(row[: len(ROW)])
    metadata, short[10] = short[10], b""
    return _Read(
        short,
        row_digests(state, metadata, delta_base, facts),
        values,
        [row[7], *(one[7] for one in written)],
        any(one[8] for one in written),
    )


def _recorded(
    one: _Read,
    places: Sequence[BlobLocation],
    hole: str,
    lost: Mapping[bytes, str],
    gone: AbstractSet[bytes],
) -> RecordedCheckpoint:
    row = one.row
    for place in places:
        hole = hole or lost.get(place.sha256, "")
    in_lost = any(place.sha256 in lost for place in places)
    return RecordedCheckpoint(
        seq=row[7],
        last_seq=max(one.numbers),
        certified_seq=row[4],
        parent_id=row[8],
        label=row[11],
        summary=row[12],
        lineage=Lineage(row[13], row[14], row[15]),
        created_us=row[9],
        content=one.content,
        places=tuple(places),
        hole=hole,
        lost=(in_lost and one.evicted) or not gone.isdisjoint(one.values),
    )


def _gone(connection: Connection, family: int, lost: Collection[bytes]) -> set[bytes]:
    """Return the values of a family that only lost segments had."""
    found: set[bytes] = set()
    for some in in_lists(lost):
        statement = select(contents.c.digest).where(
            contents.c.family == family,
            contents.c.data.is_(None),
            contents.c.segment.in_(some),
        )
        found.update(connection.execute(statement).scalars())
    return found
