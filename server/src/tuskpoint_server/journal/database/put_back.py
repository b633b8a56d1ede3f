"""Threads that were put back to an earlier state, with rows that fit one another.

One commit moves the watermark of a thread and records the segments up to it. So where a recorded
segment ends above the watermark, the row of the thread is older than the segment.
"""

from __future__ import annotations

from sqlalchemy import func, select

from ..sql.schema import members, threads

STORED_THROUGH = (
    select(func.max(members.c.last_seq))
    .where(members.c.thread == threads.c.number)
    .scalar_subquery()
)
"""The last change that a recorded segment of a thread holds; a column beside those of `threads`."""


def is_older(certified_seq: int, stored_through: int | None) -> bool:
    """Return whether the row of a thread is older than a segment that is recorded of it."""
    return stored_through is not None and stored_through > certified_seq


def problem(certified_seq: int, stored_through: int | None) -> str:
    """Return what is wrong with such a thread, for people."""
    return (
        f"it says that it is certified up to change {certified_seq}, and change {stored_through} "
        "of it is certified: an older state of it was put in its place"
    )
