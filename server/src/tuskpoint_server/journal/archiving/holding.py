"""Which certified segments a thread needs, and which hold values that a new one may name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, delete, exists, select

from ...domain.formats.segments import MAX_MEMBERS, PREFIX_BYTES
from ...domain.values import DIGEST_BYTES, Encoding
from ..checkpoints.located import decode_held
from ..database.schema import checkpoints, members, uses
from ..database.statements import Statement, inserting, of_thread
from .plan import MEMBER_COLUMNS, StoredMember, split

_RECENT_SEGMENTS = 4
_LOOKUPS = 32
_WORTH_NAMING = 256
"""Bytes below which a value is stored again rather than another segment named for it."""


class NeededValue(NamedTuple):
    """A value that rows of a range need."""

    digest: bytes
    type: str
    size: int  # bytes of the value, whole
    encoding: int  # how the journal has it
    keyframe: bytes | None  # of a patch the digest of its keyframe
    thread: int  # thread whose change brought it
    seq: int  # that change
    segment: bytes | None  # of an evicted one the segment that holds it
    stored: int | None  # bytes that the journal has of it; `None` if it was evicted


_OF_HASH = (members.c.tenant == bindparam("of_tenant"), members.c.sha256 == bindparam("of_sha256"))
_BY_HASH = Statement(select(*MEMBER_COLUMNS).where(*_OF_HASH))
_RECENT = Statement(
    select(*MEMBER_COLUMNS)
    .where(
        of_thread(members),
        members.c.last_seq.is_not(None),
        members.c.incarnation == bindparam("of_incarnation"),
    )
    .order_by(members.c.last_seq.desc())
    .limit(_RECENT_SEGMENTS)
)
_RANGES = Statement(
    select(*MEMBER_COLUMNS).where(of_thread(members), members.c.first_seq.is_not(None))
)
_AT = Statement(
    select(*MEMBER_COLUMNS)
    .where(
        of_thread(members),
        members.c.last_seq >= bindparam("of_seq"),
        exists().where(uses.c.tenant == members.c.tenant, uses.c.segment == members.c.sha256),
    )
    .order_by(members.c.last_seq)
    .limit(1)
)


class Holders:
    """Looks up the segments that one thread's range may name, in one read transaction."""

    def __init__(
        self,
        connection: Connection,
        tenant: str,
        thread: int,
        incarnation: int,
        lost: Collection[bytes] = (),
    ) -> None:
        self._connection = connection
        self._tenant = tenant
        self._thread = thread
        self._incarnation = incarnation
        self._lost = lost
        self._found: dict[bytes, StoredMember] = {}
        self._lookups = 0

    def by_hash(self, sha256: bytes) -> StoredMember | None:
        """Return a segment by its hash; `None` if it is not recorded or cannot be read."""
        found = self._found.get(sha256)
        if found is None:
            some = self._read(_BY_HASH, of_tenant=self._tenant, of_sha256=sha256)
            found = some[0] if some else None
        return found

    def ranges(self) -> list[StoredMember]:
        """Return every segment with a range of the thread's log."""
        return self._read(_RANGES, of_thread=self._thread)

    def of(self, values: Collection[NeededValue]) -> dict[bytes, list[StoredMember]]:
        """Return by digest the segments that hold a value, where there is one.

        A segment counts only if its range does not end before the change that brought the
        value: what was brought anew may be kept in another form than before.
        """
        recent = self._read(_RECENT, of_thread=self._thread, of_incarnation=self._incarnation)
        found: dict[bytes, list[StoredMember]] = {}
        for value in values:
            if value.segment is not None:
                first = self.by_hash(value.segment)
            else:
                first = self._at(value.thread, value.seq)
            holders = [
                holder
                for holder in recent
                if value.thread == self._thread and value.seq <= (holder.last_seq or 0)
            ]
            if first is not None and first not in holders:
                holders.append(first)
            holding = [holder for holder in holders if _holds(holder, value)]
            if holding:
                found[value.digest] = holding
        return found

    def _at(self, thread: int, seq: int) -> StoredMember | None:
        for known in self._found.values():
            if known.thread == thread and known.has(seq):
                return known
        if self._lookups >= _LOOKUPS:
            return None
        self._lookups += 1
        found = self._read(_AT, of_thread=thread, of_seq=seq)
        return found[0] if found and found[0].has(seq) else None

    def _read(self, statement: Statement, **values: object) -> list[StoredMember]:
        rows = statement.run(self._connection, **values).fetchall()
        return [
            self._found.get(row[0]) or self._found.setdefault(row[0], StoredMember.of(row))
            for row in rows
            if row[0] not in self._lost
        ]


def _holds(holder: StoredMember, value: NeededValue) -> bool:
    """Return whether a segment holds a value in a form that can be read.

    A value that the journal has whole again, or not any more, may be a patch there; that
    takes a keyframe which the journal does not name.
    """
    prefix = value.digest[:PREFIX_BYTES]
    if prefix not in holder.held_prefixes:
        return False
    return value.keyframe is not None or prefix not in holder.patched_prefixes


def choose(
    values: Mapping[bytes, NeededValue], holders: Mapping[bytes, Sequence[StoredMember]]
) -> dict[bytes, StoredMember]:
    """Return by digest the segment that a new one names for a value, `MAX_MEMBERS` at most.

    What is left out of the values that it needs has to be held by the new segment itself.
    """
    offers: dict[bytes, tuple[StoredMember, set[bytes]]] = {}
    for digest, some in holders.items():
        for holder in some:
            offers.setdefault(holder.location.sha256, (holder, set()))[1].add(digest)
    chosen: dict[bytes, StoredMember] = {}
    for _ in range(MAX_MEMBERS):
        best, gain = None, 0
        for holder, digests in offers.values():
            saved = sum(_saved(values[digest]) for digest in digests if digest not in chosen)
            if saved > gain:
                best, gain = (holder, digests), saved
        if best is None or gain < _WORTH_NAMING:
            break
        for digest in best[1]:
            chosen.setdefault(digest, best[0])
    return chosen


def _saved(value: NeededValue) -> int:
    """Return what naming a segment saves; an evicted value would have to be fetched first."""
    return value.stored if value.stored is not None else _WORTH_NAMING + value.size


def keyframes_of(values: Iterable[NeededValue]) -> set[bytes]:
    """Return the digests that patches among values are based on."""
    return {
        value.keyframe
        for value in values
        if value.encoding == Encoding.PATCH and value.keyframe is not None
    }


_ADD_USE = Statement(inserting(uses).on_conflict_do_nothing())
_DROP_USES = Statement(delete(uses).where(of_thread(uses)))
_USED = Statement(
    select(uses.c.segment).where(
        uses.c.tenant == bindparam("of_tenant"),
        uses.c.segment == bindparam("of_sha256"),
        of_thread(uses),
    )
)
_HELD = Statement(
    select(checkpoints.c.held).where(of_thread(checkpoints), checkpoints.c.held.is_not(None))
)
_NEEDS = Statement(select(members.c.needs).where(*_OF_HASH))


def is_used(connection: Connection, tenant: str, sha256: bytes, thread: int) -> bool:
    """Return whether it is recorded that a thread needs a segment."""
    of = {"of_tenant": tenant, "of_sha256": sha256, "of_thread": thread}
    return _USED.run(connection, **of).fetchone() is not None


def add_uses(connection: Connection, tenant: str, used: Iterable[tuple[bytes, int]]) -> None:
    """Record in a write transaction of segments, by hash, and threads that these need them."""
    rows = [(tenant, segment, thread) for segment, thread in used]
    _ADD_USE.run_rows(connection, ("tenant", "segment", "thread"), rows)


def with_needs(connection: Connection, tenant: str, segments: Iterable[bytes]) -> list[bytes]:
    """Return segments and those that they name, each once, in order."""
    found: dict[bytes, None] = {}
    for sha256 in segments:
        found[sha256] = None
        row = _NEEDS.run(connection, of_tenant=tenant, of_sha256=sha256).fetchone()
        if row is not None:
            found.update(dict.fromkeys(split(row[0] or b"", DIGEST_BYTES)))
    return list(found)


def begin_anew(connection: Connection, tenant: str, threads: Iterable[int]) -> None:
    """Forget in a write transaction what ended incarnations of threads needed.

    What copies of the incarnation that follows lie in stays in use.
    """
    for thread in threads:
        _DROP_USES.run(connection, of_thread=thread)
        held = _HELD.run(connection, of_thread=thread).fetchall()
        segments = {sha256 for row in held for sha256 in decode_held(row[0]).segments}
        needed = with_needs(connection, tenant, sorted(segments))
        add_uses(connection, tenant, ((sha256, thread) for sha256 in needed))
