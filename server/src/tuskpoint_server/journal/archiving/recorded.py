"""What the records of a tenant say, told from the journal alone when runs cannot be read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, bindparam, exists, select

from ...domain.formats import records as told
from ..checkpoints.located import Held
from ..database.schema import checkpoints, handoffs, removed, threads, writes
from ..database.statements import Statement, of_thread
from . import holes
from .dirty_rows import CHECKPOINT_COLUMNS, DirtyThread, Pin, dirty_checkpoint
from .holding import Holders
from .holes import Hole
from .plan import StoredMember

_NOWHERE = Held(0, ())
_THREADS = Statement(
    select(*(threads.c[name] for name in DirtyThread._fields))
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
_ROWS = Statement(select(*CHECKPOINT_COLUMNS).where(of_thread(checkpoints)))
_WRITES = Statement(
    select(writes.c.checkpoint_ns, writes.c.checkpoint_id, writes.c.seq).where(
        of_thread(writes), writes.c.early_us.is_(None)
    )
)
_PINS = Statement(select(*(handoffs.c[name] for name in Pin._fields)).where(of_thread(handoffs)))


def records(
    connection: Connection, tenant: str, generation: int, after: str, most: int
) -> tuple[list[told.Record], str]:
    """Return the records of the next threads by name, and the last name; empty: no more."""
    found: list[told.Record] = []
    name = ""
    lost = holes.lost(connection, tenant)
    unstored: dict[int, list[Hole]] = {}
    for hole in holes.unstored(connection, tenant):
        unstored.setdefault(hole.thread, []).append(hole)
    for row in _THREADS.run(connection, of_tenant=tenant, after=after, most=most).fetchall():
        thread = DirtyThread(*row)
        name = thread.thread_id
        some = unstored.get(thread.number, ())
        holders = Holders(connection, tenant, thread.number, thread.incarnation)
        ranges = holders.ranges()
        found += _Records(connection, generation, thread, lost, some, holders, ranges).all()
    return found, name


@dataclass(slots=True)
class _Records:
    """The records of one thread, up to its watermark."""

    _connection: Connection
    _generation: int
    _thread: DirtyThread
    _lost: Mapping[bytes, str]
    _unstored: Sequence[Hole]
    _holders: Holders
    _ranges: Sequence[StoredMember]
    _named: dict[bytes, None] = field(default_factory=dict)

    def all(self) -> list[told.Record]:
        """Return them."""
        thread = self._thread
        if thread.deleted:
            ending = _ENDING.run(self._connection, of_thread=thread.number, none="").fetchone()
            if ending is not None and ending[0]:
                return []  # the next flush records the end
            return [told.EndRecord(*self._at(thread.certified_seq), thread.deleted_through)]
        found: list[told.Record] = []
        if thread.deleted_through and thread.incarnation > 0:
            # Earlier incarnations left which IDs were deleted with them.
            ended = (thread.thread_id, thread.incarnation - 1, self._generation, 0)
            found.append(told.EndRecord(*ended, thread.deleted_through))
        found += [
            told.GapRecord(*self._at(one.seq), one.reason, *one.place) for one in self._unstored
        ]
        found += self._stored({hole.place for hole in self._unstored})
        for pin in map(Pin._make, self._of(_PINS)):
            if pin.seq <= thread.certified_seq:
                self._named[pin.sha256] = None
                found.append(told.PinRecord(*self._at(pin.seq), *pin[:3]))
        if 0 < thread.settings_seq <= thread.certified_seq:
            found.append(thread.setting(self._generation))
        return found + self._members()

    def _of(self, statement: Statement) -> list[Any]:
        cursor = statement.run(self._connection, of_thread=self._thread.number)
        return list(cursor.fetchall())

    def _at(self, seq: int) -> tuple[str, int, int, int]:
        return self._thread.at(self._generation, seq)

    def _stored(self, unstored: set[tuple[str, str]]) -> Iterable[told.Record]:
        certified = self._thread.certified_seq
        written: dict[tuple[str, str], list[int]] = {}
        for checkpoint_ns, checkpoint_id, seq in self._of(_WRITES):
            if seq <= certified:
                written.setdefault((checkpoint_ns, checkpoint_id), []).append(seq)
        for one in map(dirty_checkpoint, self._of(_ROWS)):
            row, held, place = one.row, one.held or _NOWHERE, one.place
            if row is None or place in unstored:
                continue
            segment = held.segments[0] if row.seq <= held.seq else self._range(row.seq)
            if row.seq <= certified and segment is not None:
                held_ns = self._held_ns(segment, row.checkpoint_ns)
                yield self._thread.record(self._generation, row, segment, held_ns)
            yield from self._writes(place, held, written.get(place, []))

    def _held_ns(self, segment: bytes, checkpoint_ns: str) -> str | None:
        """Note that a segment is named; return the namespace that a copy has in it."""
        self._named[segment] = None
        thread, holder = self._thread, self._holders.by_hash(segment)
        own = holder is not None and holder.is_of(thread.number, thread.incarnation)
        return None if own else checkpoint_ns

    def _writes(self, place: tuple[str, str], held: Held, seqs: list[int]) -> Iterable[told.Record]:
        newest: dict[bytes, int] = {}
        for seq in seqs:
            if seq <= held.seq:
                newest.update(dict.fromkeys(held.segments, held.seq))
            elif (segment := self._range(seq)) is not None:
                newest[segment] = max(seq, newest.get(segment, 0))
        for segment, seq in newest.items():
            held_ns = self._held_ns(segment, place[0])
            yield told.WritesRecord(*self._at(seq), *place, segment, held_ns)

    def _range(self, seq: int) -> bytes | None:
        return next((one.location.sha256 for one in self._ranges if one.has(seq)), None)

    def _members(self) -> list[told.Record]:
        """Say where everything lies that is named, with what that names, and the parts."""
        found: dict[bytes, StoredMember] = {}
        waiting = list(self._named)
        while waiting:
            sha256 = waiting.pop()
            holder = self._holders.by_hash(sha256)
            if holder is not None and sha256 not in found:
                found[sha256] = holder
                waiting += (*holder.needed, *holder.part_hashes)
        where = self._at(self._thread.certified_seq)
        lost: list[told.Record] = [
            told.GapRecord(*where, self._lost[sha256], segment=sha256)
            for sha256 in found
            if sha256 in self._lost
        ]
        for one in found.values():
            own = one.is_of(self._thread.number, self._thread.incarnation)
            ends = (one.first_seq or 0, one.last_seq or 0) if own else (0, 0)
            needs = tuple(other for other in (*one.needed, *one.part_hashes) if other in found)
            lost.append(told.MemberRecord(*where, one.location, one.kind, needs, *ends))
        return lost
