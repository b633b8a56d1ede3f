"""What one flush of a tenant takes, read in one snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection

from ..database.logs import Place
from . import holes, status
from .dirty import dirty_threads, read_alone, read_range, thread_of
from .dirty_rows import Bounds, DirtyRange, DirtyThread
from .holding import is_used
from .holes import Hole
from .status import KnownCatalog

Rejected = Mapping[tuple[int, Place], str]
"""Thread and checkpoint to the reason why the store does not take it."""


@dataclass(slots=True)
class Collected:
    """What a flush takes."""

    catalog: KnownCatalog | None  # the catalog that its own follows; `None`: it is the first
    # ranges of threads, those that waited longest first, then what stands alone
    ranges: list[DirtyRange] = field(default_factory=list)
    filled: list[int] = field(default_factory=list)  # numbers of holes of which nothing is left
    # segments and threads of which it is recorded that the thread needs the segment
    used: set[tuple[bytes, int]] = field(default_factory=set)
    complete: bool = True  # nothing waits beside it


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
    lost = holes.lost(connection, tenant)
    unstored: dict[int, list[Hole]] = {}
    for hole in holes.unstored(connection, tenant):
        unstored.setdefault(hole.thread, []).append(hole)
    alone: list[DirtyRange | None] = []

    def fill(thread: DirtyThread, some: Sequence[Hole]) -> None:
        for hole in some:
            one = read_alone(connection, tenant, thread, hole.place, hole)
            alone.append(one)
            if one is None:
                found.filled.append(hole.number)

    left = bounds
    for number, thread in enumerate(dirty_threads(connection, tenant, bounds.threads + 1)):
        if number == bounds.threads or left.checkpoints <= 0 or left.size_bytes <= 0:
            found.complete = False
            break
        fills = unstored.pop(thread.number, [])
        apart = {hole.place for hole in fills}
        most = min(left.checkpoints, fewer.get(thread.number, left.checkpoints))
        of_thread = left._replace(checkpoints=most)
        one = read_range(connection, tenant, thread, of_thread, apart, lost)
        found.ranges.append(one)
        found.complete = found.complete and one.whole
        left = left._replace(
            checkpoints=left.checkpoints - len(one.places),
            size_bytes=left.size_bytes - one.size_bytes,
        )
        fill(thread, fills)
        if lone:
            alone += _separate(connection, tenant, one)
    for number, fills in unstored.items():  # of threads in which nothing else changed
        due = [hole for hole in fills if hole.retry_us <= due_us]
        quiet = thread_of(connection, number) if due else None
        if quiet is not None:
            fill(quiet, due)
    found.ranges += [one for one in alone if one is not None]
    for one in found.ranges:
        for dirty in one.places:
            dirty.problem = rejected.get((one.thread.number, dirty.place)) or dirty.problem
        named = {holder.location.sha256 for holder in one.named.values()} | one.holders.keys()
        found.used |= {
            (sha256, one.thread.number)
            for sha256 in named
            if is_used(connection, tenant, sha256, one.thread.number)
        }
    return found


def _separate(connection: Connection, tenant: str, one: DirtyRange) -> list[DirtyRange | None]:
    """Take out of a range each checkpoint that is no copy, for a segment of its own."""
    places, one.places = one.places, []
    found = []
    for dirty in places:
        if dirty.held_row and not dirty.writes:
            one.places.append(dirty)
        else:
            found.append(read_alone(connection, tenant, one.thread, dirty.place))
    one.values.clear()
    one.data.clear()
    one.named.clear()
    return found
