"""Gaps: certified changes that cannot be read from the blob store.

A gap names the checkpoint that was never stored (and is retried), or a lost member's hash.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, delete, func, select, update

from ...journal.sql.schema import gaps, threads
from ...journal.sql.statements import Statement, insert_rows, of_checkpoint
from .plan import PlannedGap

RETRY_US = 600_000_000  # time after which a gap is retried: its cause may be gone


class Gap(NamedTuple):
    """Gap; fields as the columns, `segment` only for a lost segment, plus the thread's name."""

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


_GAPS = (
    select(*((threads if name == "thread_id" else gaps).c[name] for name in Gap._fields))
    .join(threads, threads.c.number == gaps.c.thread)
    .where(gaps.c.tenant == bindparam("of_tenant"))
    .order_by(gaps.c.number)
)
_UNSTORED = Statement(_GAPS.where(gaps.c.segment.is_(None)))
_LOST_SEGMENTS = Statement(_GAPS.where(gaps.c.segment.is_not(None)))
_FIRST = Statement(_GAPS.limit(bindparam("most")))
_LOST = Statement(
    select(gaps.c.segment, gaps.c.reason).where(
        gaps.c.tenant == bindparam("of_tenant"), gaps.c.segment.is_not(None)
    )
)
_INSERT = Statement(
    insert_rows(gaps, (column.name for column in gaps.columns if column.name != "number"))
)
_FORGET = Statement(delete(gaps).where(gaps.c.number == bindparam("of_number")))
_OF_CHECKPOINT = Statement(delete(gaps).where(of_checkpoint(gaps), gaps.c.segment.is_(None)))
_POSTPONE = Statement(
    update(gaps)
    .where(gaps.c.number == bindparam("of_number"))
    .values(reason=bindparam("new_reason"), retry_us=bindparam("new_retry"))
)


def unstored_checkpoints(connection: Connection, tenant: str) -> list[Gap]:
    """Return a tenant's checkpoints that are not stored; there are few."""
    return [Gap(*row) for row in _UNSTORED.run(connection, of_tenant=tenant).fetchall()]


def lost_segments(connection: Connection, tenant: str) -> list[Gap]:
    """Return a tenant's gaps that are unreadable segments."""
    return [Gap(*row) for row in _LOST_SEGMENTS.run(connection, of_tenant=tenant).fetchall()]


def lost_hashes(connection: Connection, tenant: str) -> dict[bytes, str]:
    """Return the hashes of unreadable segments, with the reasons for people."""
    return dict(_LOST.run(connection, of_tenant=tenant).fetchall())


def count(connection: Connection, tenant: str) -> int:
    """Return the number of a tenant's gaps of both kinds."""
    statement = select(func.count()).select_from(gaps).where(gaps.c.tenant == tenant)
    return int(connection.execute(statement).scalar_one())


def first_found(connection: Connection, tenant: str, most: int) -> list[Gap]:
    """Return the gaps of both kinds that were found first."""
    return [Gap(*row) for row in _FIRST.run(connection, of_tenant=tenant, most=most).fetchall()]


def record(connection: Connection, tenant: str, made: Iterable[PlannedGap], now_us: int) -> None:
    """Record the checkpoints that a certified flush did not store; replace their earlier gaps."""
    made = list(made)
    _OF_CHECKPOINT.run_rows(connection, ("of_thread", "of_ns", "of_id"), [gap[:3] for gap in made])
    rows = [
        {"tenant": tenant, "segment": None, "retry_us": now_us + RETRY_US, **gap._asdict()}
        for gap in made
    ]
    _INSERT.run_many(connection, rows)


def record_lost(
    connection: Connection, tenant: str, thread: int, segment: bytes, reason: str, now_us: int
) -> None:
    """Record once that a member with the log of a thread cannot be read, and why."""
    if segment not in lost_hashes(connection, tenant):
        gap = PlannedGap(thread, "", "", 0, reason, 0)
        row = {"tenant": tenant, "segment": segment, "retry_us": now_us + RETRY_US}
        _INSERT.run(connection, **row, **gap._asdict())


def forget(connection: Connection, numbers: Iterable[int]) -> None:
    """Remove gaps that are closed."""
    _FORGET.run_rows(connection, ("of_number",), [(number,) for number in numbers])


def postpone(connection: Connection, failed: Iterable[tuple[int, str]], now_us: int) -> None:
    """Record that gaps failed again to be stored or read, by number and with the reason."""
    rows = [(reason, now_us + RETRY_US, number) for number, reason in failed]
    _POSTPONE.run_rows(connection, ("new_reason", "new_retry", "of_number"), rows)
