"""Catalogs: the root of a tenant's stored data, and the merging of the runs that they name.

Every flush stores a catalog. It names the live runs and the previous catalog by hash, so the
history is linked by hashes, and every record can be reached from one blob ID.

Merging keeps the number of live runs small, at a bounded cost per flush. The run of a flush joins
level 0. Once a level has `FAN_OUT` runs, its oldest `FAN_OUT` are merged into one run of the next
level, so the number of levels grows with the logarithm of the number of flushes. Runs of a higher
level are older than all runs of a lower level. A merge may take many flushes: each flush reads a
bounded part of the inputs and stores the live records of that part; readers read the inputs until
the merge ends.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Container,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter

from ...core.limits import MIB
from ...core.model import BlobLocation
from .manifests import live_facts
from .records import EndRecord, Line, Position, Record, decode_record, line_of
from .runs import (
    BRANCH_RUNS,
    Fetch,
    RunPut,
    RunRef,
    branch,
    children_of,
    leaves,
    members_of,
    read_pages,
    read_position,
    read_ref,
    stack_runs,
)
from .stored_json import Fields, Kind, dump_document, row_json

FAN_OUT = 8  # runs of a level that are merged into one run of the next level
STEP_BYTES = MIB  # unpacked bytes of records that one step of a merge may always read
_POSITION = attrgetter("position")


@dataclass(frozen=True, slots=True)
class Merge:
    """Unfinished merge of the oldest `FAN_OUT` runs of a level."""

    level: int
    after: Position = ()  # position up to which the inputs are merged
    ended: int | None = None  # ended incarnation of the thread at `after`, if known
    made: tuple[tuple[RunRef, ...], ...] = ()  # stored parts of the merged run, in order, by height


@dataclass(frozen=True, slots=True)
class LiveRuns:
    """Live runs of a tenant."""

    levels: tuple[tuple[RunRef, ...], ...] = ()  # runs of each level, oldest first
    merges: tuple[Merge, ...] = ()  # at most one merge for each level

    def oldest_first(self) -> list[RunRef]:
        """Return the live runs, oldest first."""
        return [ref for level in reversed(self.levels) for ref in level]


@dataclass(frozen=True, slots=True)
class AdvancedRuns:
    """Runs after a flush."""

    runs: LiveRuns
    read_bytes: int = 0  # unpacked bytes of records that were read
    dropped: tuple[BlobLocation, ...] = ()  # members that are no longer part of a live run


async def advance(runs: LiveRuns, new: RunRef | None, fetch: Fetch, put: RunPut) -> AdvancedRuns:
    """Add the run of a flush, if there is one, and advance every merge by one step.

    Exceptions of `fetch` propagate, and change nothing.
    """
    read_bytes = 0
    dropped: list[BlobLocation] = []
    levels = [list(level) for level in runs.levels]
    merges = {merge.level: merge for merge in runs.merges}
    for level, refs in enumerate(levels):
        if level not in merges and len(refs) >= FAN_OUT:
            merges[level] = Merge(level)
    for level, merge in sorted(merges.items(), reverse=True):
        inputs = levels[level][:FAN_OUT]
        oldest = not any(levels[level + 1 :])
        lines, next_merge, step_bytes = await _step(inputs, merge, fetch, oldest=oldest)
        read_bytes += step_bytes
        heights = _add_leaves(merge.made, leaves(lines, put), put)
        if next_merge is None:
            del merges[level]
            del levels[level][:FAN_OUT]
            _append(levels, level + 1, _merged_run(heights, put))
            for ref in inputs:
                dropped += await members_of(ref, fetch)
        else:
            merges[level] = replace(next_merge, made=heights)
    _append(levels, 0, new)
    unfinished = tuple(merge for _, merge in sorted(merges.items()))
    return AdvancedRuns(LiveRuns(tuple(map(tuple, levels)), unfinished), read_bytes, tuple(dropped))


async def relocate_members(
    runs: LiveRuns, places: Mapping[bytes, BlobLocation], fetch: Fetch, put: RunPut
) -> tuple[LiveRuns, list[bytes]]:
    """Return runs with new locations for the members whose hashes are in `places`.

    Branches that name a moved run are written again. The second result is the list of the replaced
    branches' hashes.
    """

    async def moved(ref: RunRef) -> RunRef:
        place = places.get(ref.location.sha256, ref.location)
        return replace(ref, location=ref.location.moved(place))

    # A branch that moves would name a run in "this quilt" at the wrong place.
    return await _rewrite_leaves(runs, moved, fetch, put, also=places) if places else (runs, [])


async def without_threads(
    runs: LiveRuns, ended: Mapping[str, EndRecord], fetch: Fetch, put: RunPut
) -> tuple[LiveRuns, list[bytes]]:
    """Return runs without the records of ended incarnations, and lower ones, of some threads.

    No key of an ended incarnation can be reached afterwards. Leaves that have such records, and the
    branches above these leaves, are written again. The second result is the list of the replaced
    members' hashes.
    """

    async def purged(ref: RunRef) -> RunRef:
        if not any(ref.first[0] <= thread_id <= ref.last[0] for thread_id in ended):
            return ref
        lines = [line async for page in read_pages(ref, fetch) for line in page]
        live_lines = [
            line
            for line in lines
            if line.thread_id not in ended or line.incarnation > ended[line.thread_id].incarnation
        ]
        if len(live_lines) == len(lines):
            return ref
        # A run must not be empty; the thread's own end record also tells that the thread ended.
        [leaf] = leaves(live_lines or [line_of(ended[lines[0].thread_id])], put)
        return leaf

    return await _rewrite_leaves(runs, purged, fetch, put) if ended else (runs, [])


async def _rewrite_leaves(
    runs: LiveRuns,
    change: Callable[[RunRef], Awaitable[RunRef]],
    fetch: Fetch,
    put: RunPut,
    also: Container[bytes] = (),
) -> tuple[LiveRuns, list[bytes]]:
    """Return runs with their leaves changed, and the hashes of the members that were replaced.

    A branch is written again if a run below it has changed, or if the branch's hash is in `also`.
    """
    replaced: list[bytes] = []

    async def changed(ref: RunRef) -> RunRef:
        if not ref.height:
            new = await change(ref)
        else:
            children = await children_of(ref, fetch)
            new_children = [await changed(child) for child in children]
            same = new_children == list(children) and ref.location.sha256 not in also
            new = ref if same else branch(new_children, put)
        if new.location.sha256 != ref.location.sha256:
            replaced.append(ref.location.sha256)
        return new

    async def of_lists(lists: Iterable[Sequence[RunRef]]) -> tuple[tuple[RunRef, ...], ...]:
        return tuple([tuple([await changed(ref) for ref in refs]) for refs in lists])

    merges = [replace(merge, made=await of_lists(merge.made)) for merge in runs.merges]
    return LiveRuns(await of_lists(runs.levels), tuple(merges)), replaced


async def read_thread(runs: LiveRuns, thread_id: str, fetch: Fetch) -> list[Record]:
    """Return all records of a thread, records of older runs first, for `manifests.fold`."""
    return [
        decode_record(line.stored, ref.location.blob_id)
        for ref in runs.oldest_first()
        async for lines in read_pages(ref, fetch, thread_id=thread_id)
        for line in lines
    ]


async def read_threads(runs: LiveRuns, fetch: Fetch) -> AsyncGenerator[tuple[str, list[Record]]]:
    """Yield every thread, in order, with its records, for `manifests.fold`."""
    thread_id, records = "", list[Record]()
    async for lines in _side_by_side(runs.oldest_first(), fetch, ()):
        for line in lines:
            if line.thread_id != thread_id:
                if records:
                    yield thread_id, records
                thread_id, records = line.thread_id, []
            records.append(decode_record(line.stored, thread_id))
    if records:
        yield thread_id, records


async def _step(
    inputs: Sequence[RunRef], merge: Merge, fetch: Fetch, *, oldest: bool
) -> tuple[list[Line], Merge | None, int]:
    """Take one step of a merge of runs, which may be the tenant's oldest runs.

    Returns the live records in order, the state of the merge (`None` at the end of the inputs), and
    the number of bytes of records that were read.
    """
    # Level `level` gets `FAN_OUT` further runs in `FAN_OUT ** (level + 1)` flushes. At twice that
    # pace a merge ends before those runs exist.
    pace = 2 * sum(ref.plain_bytes for ref in inputs) // FAN_OUT ** (merge.level + 1)
    after, ended, read_bytes = merge.after, merge.ended, 0
    live_lines: list[Line] = []
    async with aclosing(_side_by_side(inputs, fetch, after)) as windows:
        async for window in windows:
            for position, group in groupby(window, _POSITION):
                if read_bytes >= max(STEP_BYTES, pace):
                    return live_lines, replace(merge, after=after, ended=ended), read_bytes
                if after[:1] != position[:1]:
                    ended = None
                after, lines = position, list(group)
                read_bytes += sum([len(line.stored) + 1 for line in lines])
                if ended is not None:
                    lines = [line for line in lines if line.incarnation > ended]
                if len(lines) > 1:
                    lines = live_facts(lines)
                if lines and lines[0].identity[0] == EndRecord.kind:
                    ended = lines[0].incarnation
                live_lines += [line for line in lines if not (oldest and line.passing)]
    return live_lines, None, read_bytes


async def _side_by_side(
    refs: Sequence[RunRef], fetch: Fetch, after: Position
) -> AsyncGenerator[list[Line]]:
    """Yield the records of runs in order, all records of a position together, oldest run first.

    Only about one page of each run is in memory at a time.
    """
    pages = [read_pages(ref, fetch, after=after) for ref in refs]
    buffers: list[list[Line]] = [[] for _ in refs]
    unfinished = set(range(len(refs)))
    try:
        while unfinished or any(buffers):
            for number in sorted(unfinished):
                # The next page may start with the last position of this page.
                while (
                    not buffers[number]
                    or buffers[number][0].position == buffers[number][-1].position
                ):
                    page = await anext(pages[number], None)
                    if page is None:
                        unfinished.discard(number)
                        break
                    buffers[number] += page
            limit = min((buffers[number][-1].position for number in unfinished), default=None)
            window: list[Line] = []
            for lines in buffers:
                end = len(lines) if limit is None else bisect_left(lines, limit, key=_POSITION)
                window += lines[:end]
                del lines[:end]
            window.sort(key=_POSITION)
            if window:
                yield window
    finally:
        for reader in pages:
            await reader.aclose()


def _append(levels: list[list[RunRef]], level: int, ref: RunRef | None) -> None:
    if ref is not None:
        while len(levels) <= level:
            levels.append([])
        levels[level].append(ref)


def _add_leaves(
    runs: Sequence[Sequence[RunRef]], refs: Iterable[RunRef], put: RunPut
) -> tuple[tuple[RunRef, ...], ...]:
    """Add leaves to the parts of a merged run; a full height becomes a branch."""
    heights = [list(height) for height in runs]
    for ref in refs:
        height = 0
        _append(heights, height, ref)
        while len(heights[height]) == BRANCH_RUNS:
            full, heights[height] = heights[height], []
            height += 1
            _append(heights, height, branch(full, put))
    return tuple(map(tuple, heights))


def _merged_run(heights: Sequence[Sequence[RunRef]], put: RunPut) -> RunRef | None:
    """Return the run that a merge has built. Parts of greater height precede lower parts."""
    last: list[RunRef] = []
    for height in heights:
        joined = stack_runs([*height, *last], put)
        last = [] if joined is None else [joined]
    return last[0] if last else None


_MAX_LEVELS = 32
NO_RUNS = LiveRuns()


@dataclass(frozen=True, slots=True)
class Catalog:
    """A stored catalog."""

    tenant: str
    journal_id: str  # ID of the journal that wrote the catalog
    generation: int  # generation of the logs; a recovery starts a new generation
    number: int  # number of the catalog in its generation, from 1
    created_us: int
    previous: BlobLocation | None = None  # previous catalog
    runs: LiveRuns = NO_RUNS


def encode_catalog(catalog: Catalog) -> bytes:
    """Return the stored bytes of a catalog."""
    return dump_document(Kind.CATALOG, row_json(catalog))


def decode_catalog(data: bytes, name: str) -> Catalog:
    """Return the catalog in stored bytes."""
    fields = Fields.document(data, name, Kind.CATALOG)
    return Catalog(
        tenant=fields.name("tenant"),
        journal_id=fields.name("journal_id"),
        generation=fields.number("generation"),
        number=fields.number("number"),
        created_us=fields.number("create_time_us"),
        previous=fields.child("previous").settled() if fields.has("previous") else None,
        runs=_read_runs(fields),
    )


def _read_runs(fields: Fields) -> LiveRuns:
    levels = _read_lists(fields, "levels")
    merges = tuple(_read_merge(merge) for merge in fields.children("merges"))
    if len(levels) > _MAX_LEVELS:
        raise fields.fail(f"it has more than {_MAX_LEVELS} levels of runs")
    numbers = [merge.level for merge in merges]
    if numbers != sorted(set(numbers)):
        raise fields.fail("its merges are not in order, or two are of one level")
    for number in numbers:
        if number >= len(levels) or len(levels[number]) < FAN_OUT:
            raise fields.fail(f"it merges level {number}, which has fewer than {FAN_OUT} runs")
    return LiveRuns(levels, merges)


def _read_merge(fields: Fields) -> Merge:
    heights = _read_lists(fields, "made")
    if any(len(height) >= BRANCH_RUNS for height in heights) or len(heights) > _MAX_LEVELS:
        raise fields.fail("a merge has made more runs than it could")
    return Merge(
        level=fields.number("level"),
        after=read_position(fields, "after"),
        ended=fields.number("ended") if fields.has("ended") else None,
        made=heights,
    )


def _read_lists(fields: Fields, key: str) -> tuple[tuple[RunRef, ...], ...]:
    return tuple(tuple(map(read_ref, child.children("runs"))) for child in fields.children(key))
