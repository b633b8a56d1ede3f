"""Holes: certified changes that cannot be read from the blob store.

A hole has the checkpoint that was never stored (and is tried again), or a lost member's hash.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, delete, func, select, update

from ...journal.sql.schema import holes, threads
from ...journal.sql.statements import Statement, inserting, of_checkpoint
from .plan import PlannedHole

RETRY_US = 600_000_000  # after which it is tried again: its cause may be gone


class Hole(NamedTuple):
    """A hole; fields as the columns, `segment` only of a lost one, and the thread's name."""

    number: int
    thread: int
    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str
    seq: int
    segment: bytes | None
    reason: str
    retry_us: int

    @property
    def place(self) -> tuple[str, str]:
        """Namespace and ID of the checkpoint."""
        return self.checkpoint_ns, self.checkpoint_id


_HOLES = (
    select(*((threads if name == "thread_id" else holes).c[name] for name in Hole._fields))
    .join(threads, threads.c.number == holes.c.thread)
    .where(holes.c.tenant == bindparam("of_tenant"))
    .order_by(holes.c.number)
)
_UNSTORED = Statement(_HOLES.where(holes.c.segment.is_(None)))
_LOST_SEGMENTS = Statement(_HOLES.where(holes.c.segment.is_not(None)))
_FIRST = Statement(_HOLES.limit(bindparam("most")))
_LOST = Statement(
    select(holes.c.segment, holes.c.reason).where(
        holes.c.tenant == bindparam("of_tenant"), holes.c.segment.is_not(None)
    )
)
_INSERT = Statement(inserting(holes, (one.name for one in holes.columns if one.name != "number")))
_FORGET = Statement(delete(holes).where(holes.c.number == bindparam("of_number")))
_OF_CHECKPOINT = Statement(delete(holes).where(of_checkpoint(holes), holes.c.segment.is_(None)))
_POSTPONE = Statement(
    update(holes)
    .where(holes.c.number == bindparam("of_number"))
    .values(reason=bindparam("new_reason"), retry_us=bindparam("new_retry"))
)


def unstored(connection: Connection, tenant: str) -> list[Hole]:
    """Return the checkpoints of a tenant that are not stored; there are few."""
    return [Hole(*row) for row in _UNSTORED.run(connection, of_tenant=tenant).fetchall()]


def lost_segments(connection: Connection, tenant: str) -> list[Hole]:
    """Return the holes of a tenant that are segments which cannot be read any more."""
    return [Hole(*row) for row in _LOST_SEGMENTS.run(connection, of_tenant=tenant).fetchall()]


def lost(connection: Connection, tenant: str) -> dict[bytes, str]:
    """Return the hashes of segments that cannot be read any more, and why, for people."""
    return dict(_LOST.run(connection, of_tenant=tenant).fetchall())


def count(connection: Connection, tenant: str) -> int:
    """Return the number of a tenant's holes of both kinds."""
    statement = select(func.count()).select_from(holes).where(holes.c.tenant == tenant)
    return int(connection.execute(statement).scalar_one())


def first(connection: Connection, tenant: str, most: int) -> list[Hole]:
    """Return the holes of both kinds that were found first."""
    return [Hole(*row) for row in _FIRST.run(connection, of_tenant=tenant, most=most).fetchall()]


def record(connection: Connection, tenant: str, made: Iterable[PlannedHole], now_us: int) -> None:
    """Record the checkpoints that a certified flush did not store, replacing earlier holes."""
    made = list(made)
    _OF_CHECKPOINT.run_rows(connection, ("of_thread", "of_ns", "of_id"), [one[:3] for one in made])
    rows = [
        {"tenant": tenant, "segment": None, "retry_us": now_us + RETRY_US, **one._asdict()}
        for one in made
    ]
    _INSERT.run_many(connection, rows)


def record_lost(
    connection: Connection, tenant: str, thread: int, segment: bytes, reason: str, now_us: int
) -> None:
    """Record that a member with the log of a thread cannot be read any more, and why; once."""
    if segment not in lost(connection, tenant):
        hole = PlannedHole(thread, "", "", 0, reason, 0)
        of = {"tenant": tenant, "segment": segment, "retry_us": now_us + RETRY_US}
        _INSERT.run(connection, **of, **hole._asdict())


def forget(connection: Connection, numbers: Iterable[int]) -> None:
    """Remove holes that are no more."""
    _FORGET.run_rows(connection, ("of_number",), [(number,) for number in numbers])


def postpone(connection: Connection, failed: Iterable[tuple[int, str]], now_us: int) -> None:
    """Record that holes could not be filled or read once more, by number and with the reason."""
    rows = [(reason, now_us + RETRY_US, number) for number, reason in failed]
    _POSTPONE.run_rows(connection, ("new_reason", "new_retry", "of_number"), rows)
