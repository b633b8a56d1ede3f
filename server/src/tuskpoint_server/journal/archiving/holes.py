"""Holes: what is at or below a watermark and cannot be read from the blob store.

One that was never stored is keyed by its checkpoint, and tried again after a while; a member
that was lost is one hole, keyed by its hash, whatever lies in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from ..database.schema import holes, threads
from ..database.statements import Statement
from .plan import PlannedHole

RETRY_US = 600_000_000
"""After this time it is tried again: its cause may have gone."""


class Hole(NamedTuple):
    """A checkpoint that is not stored; fields as the columns, and the thread's name."""

    number: int
    thread: int
    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str
    seq: int
    reason: str
    size: int
    retry_us: int


_UNSTORED = (
    select(
        holes.c.number,
        holes.c.thread,
        threads.c.thread_id,
        holes.c.checkpoint_ns,
        holes.c.checkpoint_id,
        holes.c.seq,
        holes.c.reason,
        holes.c.size,
        holes.c.retry_us,
    )
    .join(threads, threads.c.number == holes.c.thread)
    .where(holes.c.tenant == bindparam("of_tenant"), holes.c.segment.is_(None))
)
_ALL = Statement(_UNSTORED.order_by(holes.c.number))
_INSERT = Statement(
    insert(holes).values(
        {column.name: bindparam(column.name) for column in holes.columns if column.name != "number"}
    )
)
_FORGET = Statement(delete(holes).where(holes.c.number == bindparam("of_number")))
_OF_CHECKPOINT = Statement(
    delete(holes).where(
        holes.c.thread == bindparam("of_thread"),
        holes.c.checkpoint_ns == bindparam("of_ns"),
        holes.c.checkpoint_id == bindparam("of_id"),
        holes.c.segment.is_(None),
    )
)
_POSTPONE = Statement(
    update(holes)
    .where(holes.c.number == bindparam("of_number"))
    .values(reason=bindparam("new_reason"), retry_us=bindparam("new_retry"))
)


def unstored(connection: Connection, tenant: str) -> list[Hole]:
    """Return the checkpoints of a tenant that are not stored; there are few."""
    return [Hole(*row) for row in _ALL.run(connection, of_tenant=tenant).fetchall()]


def count(connection: Connection, tenant: str) -> int:
    """Return how many holes a tenant has, of whatever kind."""
    statement = select(func.count()).select_from(holes).where(holes.c.tenant == tenant)
    return int(connection.execute(statement).scalar_one())


class ShownHole(NamedTuple):
    """A hole of whatever kind, for people; `segment` is the hash of a lost one, or `None`."""

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str
    segment: bytes | None
    reason: str
    retry_us: int


def first(connection: Connection, tenant: str, limit: int) -> list[ShownHole]:
    """Return the holes that were found first."""
    columns = (holes.c[name] for name in ShownHole._fields if name != "thread_id")
    statement = (
        select(threads.c.thread_id, *columns)
        .join(threads, threads.c.number == holes.c.thread)
        .where(holes.c.tenant == tenant)
        .order_by(holes.c.number)
        .limit(limit)
    )
    return [ShownHole(*row) for row in connection.execute(statement)]


def record(connection: Connection, tenant: str, made: Sequence[PlannedHole], now_us: int) -> None:
    """Record what a certified flush did not store, in the place of what was known of it."""
    _OF_CHECKPOINT.run_many(
        connection,
        [
            {"of_thread": one.thread, "of_ns": one.checkpoint_ns, "of_id": one.checkpoint_id}
            for one in made
        ],
    )
    _INSERT.run_many(
        connection,
        [
            {
                "tenant": tenant,
                "thread": one.thread,
                "checkpoint_ns": one.checkpoint_ns,
                "checkpoint_id": one.checkpoint_id,
                "seq": one.seq,
                "segment": None,
                "reason": one.reason,
                "size": one.size,
                "retry_us": now_us + RETRY_US,
            }
            for one in made
        ],
    )


def record_lost(
    connection: Connection, tenant: str, thread: int, segment: bytes, reason: str, now_us: int
) -> None:
    """Record that a stored member cannot be read any more; one hole, however often it is found.

    Args:
        connection: In a write transaction.
        tenant: The tenant.
        thread: The thread whose log it holds.
        segment: Its hash.
        reason: Why, for people.
        now_us: Time.
    """
    known = select(holes.c.number).where(holes.c.tenant == tenant, holes.c.segment == segment)
    if connection.execute(known).first() is None:
        _INSERT.run(
            connection,
            tenant=tenant,
            thread=thread,
            checkpoint_ns="",
            checkpoint_id="",
            seq=0,
            segment=segment,
            reason=reason,
            size=0,
            retry_us=now_us + RETRY_US,
        )


def forget(connection: Connection, numbers: Iterable[int]) -> None:
    """Remove holes that are no more."""
    _FORGET.run_many(connection, [{"of_number": number} for number in numbers])


def postpone(connection: Connection, failed: Iterable[tuple[int, str]], now_us: int) -> None:
    """Record that holes could not be filled once more, by number and with the reason."""
    _POSTPONE.run_many(
        connection,
        [
            {"of_number": number, "new_reason": reason, "new_retry": now_us + RETRY_US}
            for number, reason in failed
        ],
    )
