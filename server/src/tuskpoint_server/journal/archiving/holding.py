"""Which certified segments hold values that a new segment needs and need not hold again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, exists, select

from ...domain.formats.segments import MAX_MEMBERS, PREFIX_BYTES
from ...domain.model import BlobLocation
from ...domain.values import DIGEST_BYTES, Encoding
from ..database.schema import holes, members, uses
from ..database.statements import Statement

_RECENT_SEGMENTS = 4
_LOOKUPS = 32
_WORTH_NAMING = 256
"""Bytes below which a value is stored again rather than another segment named for it."""


class NeededValue(NamedTuple):
    """A value that rows of a range need.

    Attributes:
        digest: Its digest.
        type: Its type.
        size: Bytes of the value, whole.
        encoding: How the journal has it.
        keyframe: Of a patch the digest of its keyframe.
        thread: Thread whose change brought it.
        seq: That change.
        segment: Of an evicted one the segment that holds it.
        stored: Bytes that the journal has of it; `None` if it was evicted.
    """

    digest: bytes
    type: str
    size: int
    encoding: int
    keyframe: bytes | None
    thread: int
    seq: int
    segment: bytes | None
    stored: int | None


@dataclass(slots=True)
class Holder:
    """A certified segment.

    Attributes:
        location: Where it lies.
        thread: Whose log it holds.
        incarnation: Of the thread.
        first_seq: Begin of its range; `None` if it has none.
        last_seq: End of its range.
        kind: A `domain.formats.stored_json.Kind`.
        parts: Hashes of its parts, if it is cut.
        needs: Hashes of the members that it names.
        prefixes: Prefixes of the digests of the values in it.
        patched: Of those the patches whose keyframe is in another segment.
    """

    location: BlobLocation
    thread: int | None
    incarnation: int | None
    first_seq: int | None
    last_seq: int | None
    kind: str
    parts: tuple[bytes, ...]
    needs: tuple[bytes, ...]
    prefixes: frozenset[bytes] = frozenset()
    patched: frozenset[bytes] = frozenset()

    def holds(self, value: NeededValue) -> bool:
        """Return whether it holds a value in a form that can be read.

        A value that the journal has whole again, or not any more, may be a patch here; that
        takes a keyframe which the journal does not name.
        """
        prefix = value.digest[:PREFIX_BYTES]
        if prefix not in self.prefixes:
            return False
        return value.keyframe is not None or prefix not in self.patched

    def is_of(self, thread: int, incarnation: int) -> bool:
        """Return whether it holds a piece of the log of a thread's incarnation."""
        return self.thread == thread and self.incarnation == incarnation

    def has(self, seq: int) -> bool:
        """Return whether its range has a change."""
        return (self.first_seq or 0) <= seq <= (self.last_seq or 0)


_COLUMNS = (
    members.c.sha256,
    members.c.size,
    members.c.blob_id,
    members.c.identifier,
    members.c.thread,
    members.c.incarnation,
    members.c.first_seq,
    members.c.last_seq,
    members.c.kind,
    members.c.parts,
    members.c.needs,
    members.c.digests,
    members.c.patched,
)
_IN_USE = exists().where(uses.c.tenant == members.c.tenant, uses.c.segment == members.c.sha256)
_BY_HASH = Statement(
    select(*_COLUMNS).where(
        members.c.tenant == bindparam("of_tenant"), members.c.sha256 == bindparam("of_sha256")
    )
)
_RECENT = Statement(
    select(*_COLUMNS)
    .where(
        members.c.thread == bindparam("of_thread"),
        members.c.last_seq.is_not(None),
        members.c.incarnation == bindparam("of_incarnation"),
    )
    .order_by(members.c.last_seq.desc())
    .limit(_RECENT_SEGMENTS)
)
_RANGES = Statement(
    select(*_COLUMNS).where(
        members.c.thread == bindparam("of_thread"), members.c.first_seq.is_not(None)
    )
)
_AT = Statement(
    select(*_COLUMNS)
    .where(
        members.c.thread == bindparam("of_thread"),
        members.c.last_seq >= bindparam("of_seq"),
        _IN_USE,
    )
    .order_by(members.c.last_seq)
    .limit(1)
)
_LOST = Statement(
    select(holes.c.segment).where(
        holes.c.tenant == bindparam("of_tenant"), holes.c.segment.is_not(None)
    )
)
_USED = Statement(
    select(uses.c.segment).where(
        uses.c.tenant == bindparam("of_tenant"),
        uses.c.segment == bindparam("of_sha256"),
        uses.c.thread == bindparam("of_thread"),
    )
)


def lost(connection: Connection, tenant: str) -> frozenset[bytes]:
    """Return the hashes of segments that cannot be read any more."""
    return frozenset(row[0] for row in _LOST.run(connection, of_tenant=tenant).fetchall())


def is_used(connection: Connection, tenant: str, sha256: bytes, thread: int) -> bool:
    """Return whether it is recorded that a thread needs a segment."""
    of = {"of_tenant": tenant, "of_sha256": sha256, "of_thread": thread}
    return _USED.run(connection, **of).fetchone() is not None


class Holders:
    """Looks up the segments that hold values; one read transaction, one thread's range.

    Args:
        connection: In a transaction.
        tenant: The tenant.
        thread: The thread that needs the values.
        incarnation: Its incarnation.
        lost: Segments that are not to be named.
    """

    def __init__(
        self,
        connection: Connection,
        tenant: str,
        thread: int,
        incarnation: int,
        lost: frozenset[bytes],
    ) -> None:
        self._connection = connection
        self._tenant = tenant
        self._thread = thread
        self._incarnation = incarnation
        self._lost = lost
        self._found: dict[bytes, Holder] = {}
        self._lookups = 0

    def by_hash(self, sha256: bytes) -> Holder | None:
        """Return a segment by its hash; `None` if it is not recorded or cannot be read."""
        found = self._found.get(sha256)
        if found is None:
            row = _BY_HASH.run(
                self._connection, of_tenant=self._tenant, of_sha256=sha256
            ).fetchone()
            found = self._add(row) if row is not None else None
        return found

    def of(self, values: Collection[NeededValue]) -> dict[bytes, list[Holder]]:
        """Return by digest the segments that hold a value, where there is one.

        A segment counts only if its range does not end before the change that brought the
        value: what was brought anew may be kept in another form than before.
        """
        recent = self._recent() if values else []
        found: dict[bytes, list[Holder]] = {}
        for value in values:
            holders = self._holders(value, recent)
            if holders:
                found[value.digest] = holders
        return found

    def _holders(self, value: NeededValue, recent: Sequence[Holder]) -> list[Holder]:
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
        return [holder for holder in holders if holder.holds(value)]

    def _recent(self) -> list[Holder]:
        rows = _RECENT.run(
            self._connection, of_thread=self._thread, of_incarnation=self._incarnation
        ).fetchall()
        return [holder for row in rows if (holder := self._add(row)) is not None]

    def ranges(self) -> list[Holder]:
        """Return every segment with a range of the thread's log."""
        rows = _RANGES.run(self._connection, of_thread=self._thread).fetchall()
        return [holder for row in rows if (holder := self._add(row)) is not None]

    def _at(self, thread: int, seq: int) -> Holder | None:
        for known in self._found.values():
            if known.thread == thread and known.has(seq):
                return known
        if self._lookups >= _LOOKUPS:
            return None
        self._lookups += 1
        row = _AT.run(self._connection, of_thread=thread, of_seq=seq).fetchone()
        holder = self._add(row) if row is not None else None
        return holder if holder is not None and holder.has(seq) else None

    def _add(self, row: Sequence[Any]) -> Holder | None:
        sha256, size, blob_id, identifier, thread, incarnation, first, last, kind, *joined = row
        if sha256 in self._lost:
            return None
        holder = self._found.get(sha256)
        if holder is None:
            parts, needs, digests, patched = (one or b"" for one in joined)
            holder = Holder(
                BlobLocation(sha256, size, blob_id, identifier),
                thread,
                incarnation,
                first,
                last,
                kind,
                tuple(split(parts, DIGEST_BYTES)),
                tuple(split(needs, DIGEST_BYTES)),
                frozenset(split(digests, PREFIX_BYTES)),
                frozenset(split(patched, PREFIX_BYTES)),
            )
            self._found[sha256] = holder
        return holder


def choose(
    values: Mapping[bytes, NeededValue], holders: Mapping[bytes, Sequence[Holder]]
) -> dict[bytes, Holder]:
    """Choose the segments that a new one names.

    Args:
        values: The values that it needs, by digest.
        holders: By digest the segments that hold a value.

    Returns:
        By digest the segment that is named for it, at most `MAX_MEMBERS` different ones;
        what is left out has to be held by the new segment itself.
    """
    offers: dict[bytes, tuple[Holder, set[bytes]]] = {}
    for digest, some in holders.items():
        for holder in some:
            offers.setdefault(holder.location.sha256, (holder, set()))[1].add(digest)
    chosen: dict[bytes, Holder] = {}
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


def split(joined: bytes, length: int) -> list[bytes]:
    """Return the pieces of joined hashes."""
    return [joined[start : start + length] for start in range(0, len(joined), length)]
