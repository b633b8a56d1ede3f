"""What one flush of a tenant takes, read in one snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sqlalchemy import Connection

from . import holes, status
from .alone import LoneCheckpoint, read_alone, thread_of
from .dirty import dirty_threads, read_range
from .dirty_rows import Bounds, DirtyPlace, DirtyRange, DirtyThread, Place
from .holding import is_used, lost
from .holes import Hole
from .status import KnownCatalog

Rejected = Mapping[tuple[int, Place], str]
"""Thread and checkpoint to the reason why the store does not take it."""


@dataclass(slots=True)
class Collected:
    """What a flush takes.

    Attributes:
        catalog: The catalog that its own follows; `None`: it is the first.
        ranges: Ranges of threads, those that waited longest first.
        alone: Checkpoints that are stored in segments of their own.
        filled: Numbers of holes of which nothing is left.
        used: Segments and threads of which it is recorded that the thread needs the segment.
        complete: Nothing waits beside it.
    """

    catalog: KnownCatalog | None
    ranges: list[DirtyRange] = field(default_factory=list)
    alone: list[LoneCheckpoint] = field(default_factory=list)
    filled: list[int] = field(default_factory=list)
    used: set[tuple[bytes, int]] = field(default_factory=set)
    complete: bool = True

    @property
    def checkpoints(self) -> int:
        """How many checkpoints are in it."""
        return len(self.alone) + sum(len(one.places) for one in self.ranges)


def collect(
    connection: Connection,
    tenant: str,
    bounds: Bounds,
    *,
    lone: bool,
    rejected: Rejected,
    fewer: Mapping[int, int],
    due_us: int,
) -> Collected:
    """Read what a flush takes.

    Args:
        connection: In a transaction.
        tenant: The tenant.
        bounds: How much it takes.
        lone: Store each checkpoint in a segment of its own.
        rejected: Checkpoints that the store does not take.
        fewer: Threads of which no more checkpoints than this are taken.
        due_us: Holes that are to be tried again by then are tried.
    """
    found = Collected(status.catalog(connection, tenant))
    unreadable = lost(connection, tenant)
    unstored: dict[int, list[Hole]] = {}
    for hole in holes.unstored(connection, tenant):
        unstored.setdefault(hole.thread, []).append(hole)
    left = bounds
    threads = dirty_threads(connection, tenant, bounds.threads + 1)
    for number, thread in enumerate(threads):
        if number == bounds.threads or left.checkpoints <= 0 or left.size_bytes <= 0:
            found.complete = False
            break
        fills = unstored.pop(thread.number, [])
        apart = {(hole.checkpoint_ns, hole.checkpoint_id) for hole in fills}
        most = min(left.checkpoints, fewer.get(thread.number, left.checkpoints))
        of_thread = replace(left, checkpoints=most)
        one = read_range(connection, tenant, thread, of_thread, apart, unreadable)
        found.ranges.append(one)
        found.complete = found.complete and one.whole
        taken = len(one.places)
        _fill(connection, tenant, found, thread, fills)
        if lone:
            _separate(connection, tenant, found, one)
        left = replace(
            left,
            checkpoints=left.checkpoints - taken,
            size_bytes=left.size_bytes - one.size_bytes,
        )
    _fill_due(connection, tenant, found, unstored, due_us)
    _reject(found, rejected)
    for one in found.ranges:
        named = {holder.location.sha256 for holder in one.named.values()} | one.holders.keys()
        thread_number = one.thread.number
        found.used |= {
            (sha256, thread_number)
            for sha256 in named
            if is_used(connection, tenant, sha256, thread_number)
        }
    return found


def _fill_due(
    connection: Connection,
    tenant: str,
    found: Collected,
    unstored: Mapping[int, list[Hole]],
    due_us: int,
) -> None:
    """Try holes of threads in which nothing else changed."""
    for number, fills in unstored.items():
        due = [hole for hole in fills if hole.retry_us <= due_us]
        thread = thread_of(connection, number) if due else None
        if thread is not None:
            _fill(connection, tenant, found, thread, due)


def _fill(
    connection: Connection, tenant: str, found: Collected, thread: DirtyThread, fills: list[Hole]
) -> None:
    for hole in fills:
        place = (hole.checkpoint_ns, hole.checkpoint_id)
        one = read_alone(connection, tenant, thread, place, hole.number)
        if one is None:
            found.filled.append(hole.number)
        else:
            one.hole_seq = hole.seq
            found.alone.append(one)


def _separate(connection: Connection, tenant: str, found: Collected, one: DirtyRange) -> None:
    """Give each checkpoint of a range that is no copy a segment of its own."""
    copies: list[DirtyPlace] = []
    for dirty in one.places:
        if dirty.held_row and not dirty.writes:
            copies.append(dirty)
            continue
        lone = read_alone(connection, tenant, one.thread, dirty.place)
        if lone is not None:
            found.alone.append(lone)
    one.places = copies
    one.values.clear()
    one.data.clear()
    one.named.clear()


def _reject(found: Collected, rejected: Rejected) -> None:
    if not rejected:
        return
    for one in found.ranges:
        for dirty in one.places:
            reason = rejected.get((one.thread.number, dirty.place))
            dirty.problem = reason or dirty.problem
    for lone in found.alone:
        reason = rejected.get((lone.thread.number, lone.dirty.place))
        lone.dirty.problem = reason or lone.dirty.problem
