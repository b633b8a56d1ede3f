"""Index of certified segments: those that a thread needs, and values that a new one may name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, delete, exists, select

from ...core.values import DIGEST_BYTES, PREFIX_BYTES, UnopenedBytes, split
from ...journal.database.thread_rows import ThreadRow
from ...journal.sql.schema import checkpoints, members, uses
from ...journal.sql.statements import LISTED, Statement, insert_rows, of_thread
from ...journal.values.segment_refs import PLACE, decode_held
from ..formats.segments import MAX_MEMBERS
from .plan import MEMBER_COLUMNS, StoredMember

_RECENT_SEGMENTS, _LOOKUPS = 4, 32
_KEY = PLACE.index("key")
_WORTH_NAMING = 256  # bytes; a smaller value is stored again instead of naming its segment


class NeededValue(NamedTuple):
    """A value that rows of a range need."""

    digest: bytes
    type: str
    size: int  # bytes of the value, unpacked
    encoding: int  # encoding of the journal's copy
    keyframe: bytes | None  # digest of the keyframe, if it is a patch
    thread: int  # thread whose change brought the value
    seq: int  # change that brought the value
    segment: bytes | None  # segment that contains the value, if the value was evicted
    stored: int | None  # bytes in the journal; `None` if it was evicted
    data: bytes | None  # stored bytes, if they were read


_OF_HASH = (members.c.tenant == bindparam("of_tenant"), members.c.sha256 == bindparam("of_sha256"))
_BY_HASH = Statement(select(*MEMBER_COLUMNS).where(*_OF_HASH))
_OF_RANGE = (members.c.last_seq.is_not(None), members.c.incarnation == bindparam("of_incarnation"))
_RECENT = Statement(
    select(*MEMBER_COLUMNS)
    .where(of_thread(members), *_OF_RANGE)
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


@dataclass(slots=True)
class Holders:
    """Looks up the segments that one thread's range may name, in one read transaction.

    Attributes:
        unopened: Segments that were looked up but whose key does not open in the journal, by hash.
    """

    _connection: Connection
    _of: ThreadRow
    _lost: Collection[bytes] = ()
    _found: dict[bytes, StoredMember] = field(default_factory=dict)
    unopened: dict[bytes, StoredMember] = field(default_factory=dict)
    _lookups: int = 0

    def by_hash(self, sha256: bytes) -> StoredMember | None:
        """Return a segment by its hash; `None` if the segment is not recorded or cannot be read."""
        if sha256 not in self._found:
            self._read(_BY_HASH, of_tenant=self._of.tenant, of_sha256=sha256)
        return self._found.get(sha256)

    def why_unreadable(self, segments: Iterable[bytes]) -> str:
        """Return why a key of segments, or of segments they name, does not open; else empty."""
        for sha256 in segments:
            holder = self.by_hash(sha256)
            for needed_sha256 in (sha256, *(holder.needed if holder is not None else ())):
                if self.by_hash(needed_sha256) is None and needed_sha256 in self.unopened:
                    return f"the key of segment {needed_sha256.hex()} does not open in the journal"
        return ""

    def ranges(self) -> list[StoredMember]:
        """Return every segment with a range of the thread's log."""
        return self._read(_RANGES, of_thread=self._of.number)

    def of(self, values: Collection[NeededValue]) -> dict[bytes, list[StoredMember]]:
        """Return, by digest, segments that contain a value and end at or after its change."""
        recent = self._read(_RECENT, of_thread=self._of.number, of_incarnation=self._of.incarnation)
        by_digest: dict[bytes, list[StoredMember]] = {}
        for value in values:
            is_here = value.segment is None
            first = self._at(value) if is_here else self.by_hash(value.segment or b"")
            is_own = value.thread == self._of.number
            holders = [
                member for member in recent if is_own and value.seq <= (member.last_seq or 0)
            ]
            if first is not None and first not in holders:
                holders.append(first)
            if value_holders := [holder for holder in holders if _holds(holder, value)]:
                by_digest[value.digest] = value_holders
        return by_digest

    def _at(self, value: NeededValue) -> StoredMember | None:
        for member in self._found.values():
            if member.thread == value.thread and member.has(value.seq):
                return member
        if self._lookups >= _LOOKUPS:
            return None
        self._lookups += 1
        segments = self._read(_AT, of_thread=value.thread, of_seq=value.seq)
        return segments[0] if segments and segments[0].has(value.seq) else None

    def _read(self, statement: Statement, **values: object) -> list[StoredMember]:
        segments = []
        for row in statement.run(self._connection, **values).fetchall():
            if row[0] in self._lost:
                continue
            if isinstance(row[_KEY], UnopenedBytes):
                self.unopened.setdefault(row[0], StoredMember.of(row))
            else:
                segments.append(self._found.setdefault(row[0], StoredMember.of(row)))
        return segments


def _holds(holder: StoredMember, value: NeededValue) -> bool:
    """Return whether a segment contains a value, and not as a patch on an unknown keyframe."""
    prefix = value.digest[:PREFIX_BYTES]
    readable = value.keyframe is not None or prefix not in holder.patched_prefixes
    return readable and prefix in holder.held_prefixes


def choose(
    values: Mapping[bytes, NeededValue], holders: Mapping[bytes, Sequence[StoredMember]]
) -> dict[bytes, StoredMember]:
    """Return, by digest, the segments, `MAX_MEMBERS` at most, that a new segment names."""
    offers: dict[bytes, tuple[StoredMember, set[bytes]]] = {}
    for digest, candidates in holders.items():
        for holder in candidates:
            offers.setdefault(holder.location.sha256, (holder, set()))[1].add(digest)
    choice: dict[bytes, StoredMember] = {}
    for _ in range(MAX_MEMBERS):
        best, gain = None, 0
        for holder, digests in offers.values():
            saved = sum(_saved_bytes(values[digest]) for digest in digests if digest not in choice)
            if saved > gain:
                best, gain = (holder, digests), saved
        if best is None or gain < _WORTH_NAMING:
            break
        for digest in best[1]:
            choice.setdefault(digest, best[0])
    return choice


def _saved_bytes(value: NeededValue) -> int:
    """Return the bytes that naming a segment saves; an evicted value also saves a fetch."""
    return value.stored if value.stored is not None else _WORTH_NAMING + value.size


_ADD_USE = Statement(insert_rows(uses).on_conflict_do_nothing())
_DROP_USES = Statement(delete(uses).where(of_thread(uses)))
_USED = Statement(
    select(uses.c.segment).where(
        uses.c.tenant == bindparam("of_tenant"), uses.c.segment.in_(LISTED), of_thread(uses)
    )
)
USED_BY = Statement(select(uses.c.segment).where(of_thread(uses)).order_by(uses.c.segment))
"""Segments that a thread is recorded to need."""

_HELD = Statement(
    select(checkpoints.c.held).where(of_thread(checkpoints), checkpoints.c.held.is_not(None))
)
_NEEDS = Statement(select(members.c.needs).where(*_OF_HASH))


def used_segments(
    connection: Connection, tenant: str, thread: int, segments: Iterable[bytes]
) -> set[tuple[bytes, int]]:
    """Return the given segments that a thread is recorded to need, each paired with the thread."""
    rows = _USED.run_listed(connection, segments, of_tenant=tenant, of_thread=thread)
    return {(row[0], thread) for row in rows}


def add_uses(connection: Connection, tenant: str, used: Iterable[tuple[bytes, int]]) -> None:
    """Record that threads need segments (pairs of hash and thread), in a write transaction."""
    rows = [(tenant, segment, thread) for segment, thread in used]
    _ADD_USE.run_rows(connection, ("tenant", "segment", "thread"), rows)


def with_needs(connection: Connection, tenant: str, segments: Iterable[bytes]) -> list[bytes]:
    """Return segments and the segments that they name, each once, in order."""
    hashes: dict[bytes, None] = {}
    for sha256 in segments:
        hashes[sha256] = None
        row = _NEEDS.run(connection, of_tenant=tenant, of_sha256=sha256).fetchone()
        if row is not None:
            hashes.update(dict.fromkeys(split(row[0] or b"", DIGEST_BYTES)))
    return list(hashes)


def restart_threads(connection: Connection, tenant: str, threads: Iterable[int]) -> None:
    """Forget the needs of threads' ended incarnations, except segments with copies of the next."""
    for thread in threads:
        _DROP_USES.run(connection, of_thread=thread)
        rows = _HELD.run(connection, of_thread=thread).fetchall()
        segments = {sha256 for row in rows for sha256 in decode_held(row[0]).segments}
        needed = with_needs(connection, tenant, sorted(segments))
        add_uses(connection, tenant, ((sha256, thread) for sha256 in needed))
