"""What the records of a tenant have to say, told from the journal alone.

The runs of a catalog that cannot be read any more are replaced by a run of these.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, exists, select

from ...domain.digests import DIGEST_BYTES
from ...domain.formats.members import Kind
from ...domain.formats.records import (
    CheckpointRecord,
    EndRecord,
    GapRecord,
    MemberRecord,
    PinRecord,
    Record,
    SettingRecord,
    WritesRecord,
)
from ...domain.model import BlobLocation, Lineage
from ..database.schema import checkpoints, handoffs, holes, members, removed, threads, writes
from ..database.statements import Statement, in_lists, of_thread
from .held import Held, decode_held
from .holding import split

_NOWHERE = Held(0, ())


class _Thread(NamedTuple):
    number: int
    thread_id: str
    incarnation: int
    certified_seq: int
    deleted: bool
    deleted_through: str
    settings_seq: int
    agent_id: str
    retention_s: int
    unsearchable: bool


class _Segment(NamedTuple):
    sha256: bytes
    size: int
    blob_id: str
    identifier: str
    kind: str
    thread: int | None
    incarnation: int | None
    first_seq: int | None
    last_seq: int | None
    needs: bytes | None
    parts: bytes | None


_THREADS = Statement(
    select(*(threads.c[name] for name in _Thread._fields))
    .where(
        threads.c.tenant == bindparam("of_tenant"),
        threads.c.thread_id > bindparam("after"),
        threads.c.certified_seq > 0,
    )
    .order_by(threads.c.thread_id)
    .limit(bindparam("most"))
)
_ENDING = Statement(
    select(exists().where(of_thread(removed), removed.c.checkpoint_id == bindparam("none")))
)
_RANGES = Statement(
    select(*(members.c[name] for name in _Segment._fields)).where(
        of_thread(members), members.c.first_seq.is_not(None)
    )
)
_ROWS = Statement(
    select(
        checkpoints.c.checkpoint_ns,
        checkpoints.c.checkpoint_id,
        checkpoints.c.seq,
        checkpoints.c.parent_id,
        checkpoints.c.created_us,
        checkpoints.c.label,
        checkpoints.c.summary,
        checkpoints.c.forked_from,
        checkpoints.c.rolled_back_from,
        checkpoints.c.adopted_from,
        checkpoints.c.state,
        checkpoints.c.held,
    ).where(of_thread(checkpoints))
)
_WRITES = Statement(
    select(writes.c.checkpoint_ns, writes.c.checkpoint_id, writes.c.seq).where(
        of_thread(writes), writes.c.early_us.is_(None)
    )
)
_HOLES = Statement(
    select(holes.c.seq, holes.c.reason, holes.c.checkpoint_ns, holes.c.checkpoint_id).where(
        of_thread(holes), holes.c.segment.is_(None)
    )
)
_LOST = Statement(
    select(holes.c.segment, holes.c.reason).where(
        holes.c.tenant == bindparam("of_tenant"), holes.c.segment.is_not(None)
    )
)
_PINS = Statement(
    select(
        handoffs.c.sha256, handoffs.c.checkpoint_ns, handoffs.c.checkpoint_id, handoffs.c.seq
    ).where(of_thread(handoffs))
)


def records(
    connection: Connection, tenant: str, generation: int, after: str, most: int
) -> tuple[list[Record], str]:
    """Return the records of the next threads, and the name of the last of these.

    Args:
        connection: In a transaction.
        tenant: The tenant.
        generation: Generation of the logs.
        after: Name of the last thread before them.
        most: How many threads.

    Returns:
        An empty name when there are no more.
    """
    found: list[Record] = []
    name = ""
    lost = dict(_LOST.run(connection, of_tenant=tenant).fetchall())
    for row in _THREADS.run(connection, of_tenant=tenant, after=after, most=most).fetchall():
        thread = _Thread(*row)
        name = thread.thread_id
        found += _Records(connection, tenant, generation, thread, lost).all()
    return found, name


class _Records:
    """The records of one thread, up to its watermark."""

    def __init__(
        self,
        connection: Connection,
        tenant: str,
        generation: int,
        thread: _Thread,
        lost: Mapping[bytes, str],
    ) -> None:
        self._connection = connection
        self._tenant = tenant
        self._generation = generation
        self._thread = thread
        self._lost = lost
        self._named: dict[bytes, None] = {}
        self._ranges = [_Segment(*row) for row in self._of(_RANGES)]
        self._own = {one.sha256 for one in self._ranges if one.incarnation == thread.incarnation}

    def all(self) -> list[Record]:
        """Return them."""
        thread = self._thread
        if thread.deleted:
            ending = _ENDING.run(self._connection, of_thread=thread.number, none="").fetchone()
            if ending is not None and ending[0]:
                return []  # the next flush records the end
            end = EndRecord(*self._at(thread.certified_seq), thread.deleted_through)
            return [end]
        found = list(self._earlier())
        gaps = self._gaps()
        unstored = {(gap.checkpoint_ns, gap.checkpoint_id) for gap in gaps}
        found += gaps
        found += self._stored(unstored)
        found += self._pins()
        if 0 < thread.settings_seq <= thread.certified_seq:
            where = self._at(thread.settings_seq)
            found.append(
                SettingRecord(
                    *where, thread.agent_id, thread.retention_s, bool(thread.unsearchable)
                )
            )
        return found + self._members()

    def _of(self, statement: Statement) -> list[Any]:
        cursor = statement.run(self._connection, of_thread=self._thread.number)
        return list(cursor.fetchall())

    def _at(self, seq: int) -> tuple[str, int, int, int]:
        thread = self._thread
        return (thread.thread_id, thread.incarnation, self._generation, seq)

    def _earlier(self) -> Iterable[Record]:
        """Say what earlier incarnations left: which IDs were deleted with them."""
        thread = self._thread
        if thread.deleted_through and thread.incarnation > 0:
            yield EndRecord(
                thread.thread_id,
                thread.incarnation - 1,
                self._generation,
                0,
                thread.deleted_through,
            )

    def _gaps(self) -> list[GapRecord]:
        return [GapRecord(*self._at(seq), *said) for seq, *said in self._of(_HOLES)]

    def _stored(self, unstored: set[tuple[str, str]]) -> Iterable[Record]:
        certified = self._thread.certified_seq
        written: dict[tuple[str, str], list[int]] = {}
        for checkpoint_ns, checkpoint_id, seq in self._of(_WRITES):
            if seq <= certified:
                written.setdefault((checkpoint_ns, checkpoint_id), []).append(seq)
        for row in _ROWS.run(self._connection, of_thread=self._thread.number).fetchall():
            place = (row[0], row[1])
            held = decode_held(row[11]) if row[11] is not None else _NOWHERE
            segment = held.segments[0] if row[2] <= held.seq else self._range(row[2])
            if row[2] <= certified and place not in unstored and segment is not None:
                yield self._checkpoint(row, segment)
            if place not in unstored:
                yield from self._writes(place, held, written.get(place, []))

    def _checkpoint(self, row: Sequence[Any], segment: bytes) -> Record:
        self._named[segment] = None
        ns, name, seq, parent_id, created_us, label, summary, *lineage, state, _ = row
        return CheckpointRecord(
            *self._at(seq),
            ns,
            name,
            parent_id,
            created_us,
            segment,
            hashlib.sha256(state).digest(),
            label,
            summary,
            Lineage(*lineage),
            None if segment in self._own else ns,
        )

    def _writes(self, place: tuple[str, str], held: Held, seqs: list[int]) -> Iterable[Record]:
        newest: dict[bytes, int] = {}
        for seq in seqs:
            if seq <= held.seq:
                newest.update(dict.fromkeys(held.segments, held.seq))
            elif (segment := self._range(seq)) is not None:
                newest[segment] = max(seq, newest.get(segment, 0))
        for segment, seq in newest.items():
            self._named[segment] = None
            held_ns = None if segment in self._own else place[0]
            yield WritesRecord(*self._at(seq), *place, segment, held_ns)

    def _range(self, seq: int) -> bytes | None:
        for one in self._ranges:
            if (one.first_seq or 0) <= seq <= (one.last_seq or 0):
                return one.sha256
        return None

    def _pins(self) -> Iterable[Record]:
        for sha256, ns, name, seq in self._of(_PINS):
            if seq <= self._thread.certified_seq:
                self._named[sha256] = None
                yield PinRecord(*self._at(seq), sha256, ns, name)

    def _members(self) -> list[Record]:
        """Say where everything lies that is named, with what that names, and the parts."""
        found: dict[bytes, _Segment] = {}
        wanted = set(self._named)
        while wanted:
            rows = [
                _Segment(*row)
                for some in in_lists(sorted(wanted))
                for row in self._connection.execute(
                    select(*(members.c[name] for name in _Segment._fields)).where(
                        members.c.tenant == self._tenant, members.c.sha256.in_(some)
                    )
                )
            ]
            found.update((one.sha256, one) for one in rows)
            wanted = {other for one in rows for other in _needs(one)} - found.keys()
        where = self._at(self._thread.certified_seq)
        lost: list[Record] = [
            GapRecord(*where, self._lost[sha256], segment=sha256)
            for sha256 in found
            if sha256 in self._lost
        ]
        return lost + [
            MemberRecord(
                *where,
                BlobLocation(one.sha256, one.size, one.blob_id, one.identifier),
                Kind(one.kind),
                tuple(other for other in _needs(one) if other in found),
                (one.first_seq or 0) if one.sha256 in self._own else 0,
                (one.last_seq or 0) if one.sha256 in self._own else 0,
            )
            for one in found.values()
        ]


def _needs(one: _Segment) -> list[bytes]:
    return split((one.needs or b"") + (one.parts or b""), DIGEST_BYTES)
