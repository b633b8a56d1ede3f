"""What a family may give up: values and writes that stored segments hold and nobody reads soon.

Everything is kept that the latest checkpoint of a namespace names, that a change above the
watermark (or a young one) names, or that a hole covers; and the keyframe of whatever keeps
its data. All functions read in one read transaction and change nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple

from sqlalchemy import BindParameter, Connection, bindparam, func, or_, select, tuple_

from ..checkpoints.references import referred
from ..database.schema import changes, checkpoints, contents, holes, members, threads, writes
from ..database.statements import Statement, of_checkpoint, parameters_of
from .held import decode_held

PREFIX_BYTES = 16
"""Bytes of each digest that a member's row names it by."""

SCANNED_AT_ONCE = 2000
"""Values, or writes, that one read transaction looks at."""

_Place = tuple[str, str]


class Candidate(NamedTuple):
    """A value whose data is here; `size` is that of its stored bytes."""

    number: int
    digest: bytes
    keyframe: bytes | None
    size: int
    thread: int
    seq: int


class WriteCandidate(NamedTuple):
    """A pending write whose data is here; `size` is that of its stored bytes."""

    number: int
    checkpoint_ns: str
    checkpoint_id: str
    task_id: str
    idx: int
    size: int
    seq: int


class WritePosition(NamedTuple):
    """How far the writes of a thread are read."""

    checkpoint_ns: str = ""
    checkpoint_id: str = ""
    task_id: str = ""
    idx: int = 0


class Kept(NamedTuple):
    """What one thread of the family keeps.

    Attributes:
        thread: Its number.
        tenant: The tenant.
        through: Changes up to here may be given up.
        places: Checkpoints that keep everything.
        digests: The values that these name.
    """

    thread: int
    tenant: str
    through: int
    places: frozenset[_Place]
    digests: frozenset[bytes]


_FAMILY: BindParameter[int] = bindparam("of_family")
_OF_THREAD: BindParameter[int] = bindparam("of_thread")
_NEXT_THREAD = Statement(
    select(
        threads.c.number,
        threads.c.tenant,
        threads.c.seq,
        threads.c.certified_seq,
        threads.c.updated_us,
    )
    .where(threads.c.family == _FAMILY, threads.c.number > bindparam("after"))
    .order_by(threads.c.number)
    .limit(1)
)
_LAST_OLD = Statement(
    select(changes.c.seq)
    .where(changes.c.thread == _OF_THREAD, changes.c.created_us < bindparam("before_us"))
    .order_by(changes.c.seq.desc())
    .limit(1)
)
_FIRST = Statement(select(func.min(changes.c.seq)).where(changes.c.thread == _OF_THREAD))
_HEADS = Statement(
    select(checkpoints.c.checkpoint_ns, func.max(checkpoints.c.checkpoint_id))
    .where(checkpoints.c.thread == _OF_THREAD)
    .group_by(checkpoints.c.checkpoint_ns)
)
_CHANGED = Statement(
    select(changes.c.checkpoint_ns, changes.c.checkpoint_id).where(
        changes.c.thread == _OF_THREAD, changes.c.seq > bindparam("through")
    )
)
_NEWER = Statement(
    select(checkpoints.c.checkpoint_ns, checkpoints.c.checkpoint_id).where(
        checkpoints.c.thread == _OF_THREAD, checkpoints.c.seq > bindparam("through")
    )
)
_UNSTORED = Statement(
    select(holes.c.checkpoint_ns, holes.c.checkpoint_id).where(
        holes.c.thread == _OF_THREAD, holes.c.segment.is_(None)
    )
)
_STATE = Statement(
    select(checkpoints.c.state, checkpoints.c.delta_base).where(of_checkpoint(checkpoints))
)
_VALUES = Statement(
    select(
        contents.c.number,
        contents.c.digest,
        contents.c.keyframe,
        func.coalesce(func.length(contents.c.data), -1),
        contents.c.thread,
        contents.c.seq,
    )
    .where(contents.c.family == _FAMILY, contents.c.digest > bindparam("after"))
    .order_by(contents.c.digest)
    .limit(SCANNED_AT_ONCE)
)
_WRITE_KEY = (
    writes.c.checkpoint_ns,
    writes.c.checkpoint_id,
    writes.c.task_id,
    writes.c.idx,
)
_WRITES = Statement(
    select(writes.c.number, *_WRITE_KEY, func.length(writes.c.data), writes.c.seq)
    .where(
        writes.c.thread == _OF_THREAD,
        writes.c.seq <= bindparam("through"),
        writes.c.early_us.is_(None),
        writes.c.data.is_not(None),
        tuple_(*_WRITE_KEY) > tuple_(*(bindparam(f"after_{column.name}") for column in _WRITE_KEY)),
    )
    .order_by(*_WRITE_KEY)
    .limit(SCANNED_AT_ONCE)
)
_HELD = Statement(select(checkpoints.c.held).where(of_checkpoint(checkpoints)))
_SEGMENTS = Statement(
    select(members.c.sha256, members.c.digests)
    .where(
        members.c.thread == _OF_THREAD,
        or_(members.c.last_seq >= bindparam("lowest"), members.c.last_seq.is_(None)),
    )
    .order_by(members.c.last_seq)
)
_RANGES = Statement(
    select(members.c.sha256, members.c.first_seq, members.c.last_seq)
    .where(members.c.thread == _OF_THREAD, members.c.last_seq >= bindparam("lowest"))
    .order_by(members.c.last_seq)
)
_MEMBER = Statement(
    select(members.c.sha256).where(
        members.c.tenant == bindparam("of_tenant"), members.c.sha256 == bindparam("of_sha256")
    )
)
_LOST = Statement(
    select(holes.c.segment).where(
        holes.c.tenant == bindparam("of_tenant"), holes.c.segment.is_not(None)
    )
)


# --- what is kept ------------------------------------------------------------------------


def kept(connection: Connection, family: int, after: int, before_us: int) -> Kept | None:
    """Return what the next thread of a family keeps; `None` after the last one.

    Args:
        connection: In a transaction.
        family: The family.
        after: Number of the thread before; 0: none.
        before_us: What changed since keeps everything.
    """
    row = _NEXT_THREAD.run(connection, of_family=family, after=after).fetchone()
    if row is None:
        return None
    thread, tenant, seq, certified_seq, updated_us = row
    through = int(certified_seq)
    if updated_us >= before_us:
        through = min(through, _last_old(connection, thread, before_us, certified_seq))
    of_thread = {"of_thread": thread}
    places: set[_Place] = {tuple(head) for head in _HEADS.run(connection, **of_thread).fetchall()}
    places.update(map(tuple, _UNSTORED.run(connection, **of_thread).fetchall()))
    if seq > through:
        for statement in (_CHANGED, _NEWER):
            places.update(
                map(tuple, statement.run(connection, **of_thread, through=through).fetchall())
            )
    digests: set[bytes] = set()
    for place in places:
        state = _STATE.run(connection, **parameters_of(thread, *place)).fetchone()
        if state is not None:
            digests |= referred(*state)
    return Kept(thread, tenant, through, frozenset(places), frozenset(digests))


def _last_old(connection: Connection, thread: int, before_us: int, certified_seq: int) -> int:
    """Return the number of the last change before a time; swept changes are older."""
    row = _LAST_OLD.run(connection, of_thread=thread, before_us=before_us).fetchone()
    if row is not None:
        return int(row[0])
    first = _FIRST.run(connection, of_thread=thread).fetchone()
    return int(first[0]) - 1 if first is not None and first[0] is not None else certified_seq


# --- what may go -------------------------------------------------------------------------


def values(
    connection: Connection, family: int, after: bytes
) -> tuple[list[Candidate], bytes | None]:
    """Return the next values of a family whose data is here, and where to go on."""
    rows = _VALUES.run(connection, of_family=family, after=after).fetchall()
    end = None if len(rows) < SCANNED_AT_ONCE else rows[-1][1]
    return [Candidate(*row) for row in rows if row[3] >= 0], end


def segments_of(
    connection: Connection, tenant: str, thread: int, candidates: Iterable[Candidate]
) -> dict[bytes, bytes]:
    """Return by digest the segments that hold values which a thread's changes brought.

    Args:
        connection: In a transaction.
        tenant: The tenant.
        thread: The thread; its segments from the changes on that brought the values, and
            those without a range, are looked into.
        candidates: The values that its changes brought.

    Returns:
        Digest to hash; values that no segment of the thread holds are left out.
    """
    wanted = {one.digest[:PREFIX_BYTES]: one for one in candidates}
    if not wanted:
        return {}
    lost = lost_segments(connection, tenant)
    found: dict[bytes, bytes] = {}
    lowest = min(one.seq for one in wanted.values())
    rows = _SEGMENTS.run(connection, of_thread=thread, lowest=lowest)
    while wanted and (row := rows.fetchone()) is not None:
        sha256, digests = row
        if sha256 in lost or not digests:
            continue
        for prefix in wanted.keys() & _prefixes(digests):
            found[wanted.pop(prefix).digest] = sha256
    rows.close()
    return found


def lost_segments(connection: Connection, tenant: str) -> set[bytes]:
    """Return the hashes of a tenant's members that are lost."""
    return {row[0] for row in _LOST.run(connection, of_tenant=tenant).fetchall()}


def stored_writes(
    connection: Connection, thread: Kept, after: WritePosition
) -> tuple[list[WriteCandidate], WritePosition | None]:
    """Return the next writes of a thread that may be given up, and where to go on.

    A write lies where its checkpoint says that its rows lie up to a change, and above that
    in the segment whose range has its own change.
    """
    position = {f"after_{name}": item for name, item in after._asdict().items()}
    rows = _WRITES.run(
        connection, of_thread=thread.thread, through=thread.through, **position
    ).fetchall()
    end = None if len(rows) < SCANNED_AT_ONCE else WritePosition(*rows[-1][1:5])
    found = [WriteCandidate(*row) for row in rows]
    found = [one for one in found if (one.checkpoint_ns, one.checkpoint_id) not in thread.places]
    if not found:
        return [], end
    lost = lost_segments(connection, thread.tenant)
    own = _Ranges(connection, thread.thread, min(one.seq for one in found))
    elsewhere = _held(connection, thread, found, lost)
    held = []
    for one in found:
        through, all_here = elsewhere[one.checkpoint_ns, one.checkpoint_id]
        if one.seq <= through:
            if all_here:
                held.append(one)
        elif own.holding(one.seq, lost):
            held.append(one)
    return held, end


class _Ranges:
    """Which segment of a thread has which changes."""

    def __init__(self, connection: Connection, thread: int, lowest: int) -> None:
        self._rows = _RANGES.run(connection, of_thread=thread, lowest=lowest).fetchall()
        self._last = [row[2] for row in self._rows]

    def holding(self, seq: int, lost: set[bytes]) -> bool:
        """Tell whether a segment that is not lost has a change."""
        at = bisect_left(self._last, seq)
        return at < len(self._rows) and self._rows[at][1] <= seq and self._rows[at][0] not in lost


def _held(
    connection: Connection, thread: Kept, found: Iterable[WriteCandidate], lost: set[bytes]
) -> dict[_Place, tuple[int, bool]]:
    """Say of checkpoints up to which change segments besides those of its range hold it.

    Returns:
        By checkpoint the number of the change, 0 if there are none, and whether all of them
        are here.
    """
    answers: dict[_Place, tuple[int, bool]] = {}
    for place in {(one.checkpoint_ns, one.checkpoint_id) for one in found}:
        row = _HELD.run(connection, **parameters_of(thread.thread, *place)).fetchone()
        if row is None or row[0] is None:
            answers[place] = (0, False)
            continue
        held = decode_held(row[0])
        answers[place] = (
            held.seq,
            all(
                sha256 not in lost and _is_member(connection, thread.tenant, sha256)
                for sha256 in held.segments
            ),
        )
    return answers


def _is_member(connection: Connection, tenant: str, sha256: bytes) -> bool:
    row = _MEMBER.run(connection, of_tenant=tenant, of_sha256=sha256).fetchone()
    return row is not None


def _prefixes(digests: bytes) -> set[bytes]:
    return {digests[start : start + PREFIX_BYTES] for start in range(0, len(digests), PREFIX_BYTES)}
