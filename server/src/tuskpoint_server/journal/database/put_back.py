"""Detects threads that were put back to an earlier state, with consistent rows.

One commit moves the watermark of a thread and records the segments up to it. So where a recorded
segment ends above the watermark, the row of the thread is older than the segment.
"""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection, func, select

from ..sql.schema import members, threads
from ..sql.statements import LISTED, Statement
from .binding import binder_of

STORED_THROUGH = (
    select(func.max(members.c.last_seq))
    .where(members.c.thread == threads.c.number)
    .scalar_subquery()
)
"""The last change in a recorded segment of a thread; a column beside the columns of `threads`."""

_NUMBERED = Statement(
    select(threads.c.number, threads.c.certified_seq, STORED_THROUGH).where(
        threads.c.number.in_(LISTED)
    )
)


def problems(connection: Connection, numbers: Collection[int]) -> dict[int, str]:
    """Return the problems of the threads, by number, that were put back."""
    if not binder_of(connection).is_complete:
        return {}
    rows = _NUMBERED.run_listed(connection, sorted(numbers))
    return {number: problem(*watermarks) for number, *watermarks in rows if is_older(*watermarks)}


def is_older(certified_seq: int, stored_through: int | None) -> bool:
    """Return whether the row of a thread is older than a recorded segment of the thread."""
    return stored_through is not None and stored_through > certified_seq


def problem(certified_seq: int, stored_through: int | None) -> str:
    """Return the problem of a thread that was put back, for people."""
    return (
        f"it says that it is certified up to change {certified_seq}, and change {stored_through} "
        "of it is certified: an older state of it was put in its place"
    )
