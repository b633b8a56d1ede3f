"""Catalogs: the index of all threads of a tenant, log-structured.

Every flush stores one catalog: what changed (`changes`), and the runs that hold what
changed before. The changes of the flush before are a run of level 0. `FAN_OUT` runs of
a level are merged into one run of the next level, a bounded number of heads per flush,
in pages of at most `PAGE_HEADS`. A reader takes the newest word on each thread: the
changes, then the runs from level 0 upwards, the newest of a level first.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from .manifest import ManifestHead
from .model import BlobLocation
from .stored_json import JsonObject, Reader, dump, location_json, resolved

FORMAT_VERSION = 1
FAN_OUT = 16
PAGE_HEADS = 1000
INDEX_PAGES = 64

Fetch = Callable[[BlobLocation], Awaitable[bytes]]
"""Returns the bytes at a location, hash checked."""


@dataclass(frozen=True, slots=True)
class ThreadHead:
    """The catalog's word on one thread.

    Attributes:
        thread_id: The thread.
        incarnation: Its newest incarnation that the catalog knows.
        ended: That incarnation was deleted.
        deleted_through: Greatest checkpoint ID of any ended incarnation, or empty.
        manifest: Head of the incarnation's manifest; `None` if nothing of it was stored.
        agent_id: Agent that drives the thread, or empty.
        retention_s: Seconds without a change after which the thread is deleted; 0: never.
        unsearchable: Search does not find its checkpoints.
    """

    thread_id: str
    incarnation: int
    ended: bool
    deleted_through: str
    manifest: ManifestHead | None
    agent_id: str = ""
    retention_s: int = 0
    unsearchable: bool = False


@dataclass(frozen=True, slots=True)
class RunRef:
    """Where a run lies.

    Attributes:
        run: Number of the run; greater is newer.
        location: A catalog (level 0: its changes), a page, or an index of pages.
    """

    run: int
    location: BlobLocation


@dataclass(frozen=True, slots=True)
class Merge:
    """A merge that is not finished.

    Attributes:
        run: Number of the run that it makes.
        inputs: Numbers of the runs that it replaces.
        pages: Pages that no index lists yet.
        index: The last index of pages, if there is one.
    """

    run: int
    inputs: tuple[int, ...]
    pages: tuple[BlobLocation, ...] = ()
    index: BlobLocation | None = None


@dataclass(frozen=True, slots=True)
class Runs:
    """What the writer of catalogs knows of its runs.

    Attributes:
        levels: Runs by level, the oldest first.
        merges: Unfinished merges by the level of their inputs.
        next_run: Number of the next run.
    """

    levels: tuple[tuple[RunRef, ...], ...] = ()
    merges: Mapping[int, Merge] = field(default_factory=dict)
    next_run: int = 1


@dataclass(frozen=True, slots=True)
class RunPart:
    """A stored piece of a run: a catalog, a page, or an index of pages.

    Attributes:
        run: Number of the run.
        location: Where the piece lies.
        heads: What it says of threads of which nothing newer was read before.
    """

    run: int
    location: BlobLocation
    heads: tuple[ThreadHead, ...]


@dataclass(frozen=True, slots=True)
class Catalog:
    """A stored catalog.

    Attributes:
        generation: Generation of the chain; recovery starts a new one.
        seq: Number of the flush, from 1.
        previous: The catalog before, or `None`.
        settings: Settings of the tenant.
        runs: Runs by level, the oldest first.
        changes: What this flush changed.
    """

    generation: int
    seq: int
    previous: BlobLocation | None
    settings: JsonObject
    runs: tuple[tuple[RunRef, ...], ...]
    changes: tuple[ThreadHead, ...]


# --- stored forms ----------------------------------------------------------------------


def encode_catalog(catalog: Catalog) -> bytes:
    """Return the stored bytes."""
    previous = catalog.previous
    return dump(
        {
            "format_version": FORMAT_VERSION,
            "kind": "catalog",
            "generation": catalog.generation,
            "seq": catalog.seq,
            "previous": None if previous is None else location_json(previous),
            "settings": catalog.settings,
            "runs": [[_ref_json(ref) for ref in level] for level in catalog.runs],
            "changes": [_head_json(head) for head in catalog.changes],
        }
    )


def decode_catalog(data: bytes, location: BlobLocation) -> Catalog:
    """Return what the stored bytes at a location hold.

    Raises:
        Refusal: `BLOB_MALFORMED`.
    """
    reader = _of_kind(data, location, "catalog")
    holder = location.blob_id
    return Catalog(
        generation=reader.number("generation"),
        seq=reader.number("seq"),
        previous=_optional(reader, "previous", holder),
        settings=reader.object("settings"),
        runs=tuple(tuple(_ref(ref, holder) for ref in level) for level in reader.lists("runs")),
        changes=tuple(_head(head, holder) for head in reader.children("changes")),
    )


def encode_page(heads: Sequence[ThreadHead]) -> bytes:
    """Return the stored bytes of a page of a run."""
    return dump(
        {
            "format_version": FORMAT_VERSION,
            "kind": "page",
            "heads": [_head_json(head) for head in heads],
        }
    )


def encode_index(pages: Sequence[BlobLocation], previous: BlobLocation | None) -> bytes:
    """Return the stored bytes of an index of pages."""
    return dump(
        {
            "format_version": FORMAT_VERSION,
            "kind": "index",
            "previous": None if previous is None else location_json(previous),
            "pages": [location_json(page) for page in pages],
        }
    )


def encode_runs(runs: Runs) -> bytes:
    """Return the form in which the journal keeps the state of the runs."""
    return dump(
        {
            "format_version": FORMAT_VERSION,
            "levels": [[_ref_json(ref) for ref in level] for level in runs.levels],
            "merges": [_merge_json(level, merge) for level, merge in sorted(runs.merges.items())],
            "next_run": runs.next_run,
        }
    )


def decode_runs(data: bytes) -> Runs:
    """Return what `encode_runs` wrote."""
    reader = Reader.parse(data, "runs", FORMAT_VERSION)
    return Runs(
        levels=tuple(tuple(_ref(ref, "") for ref in level) for level in reader.lists("levels")),
        merges={merge.number("level"): _merge(merge) for merge in reader.children("merges")},
        next_run=reader.number("next_run"),
    )


# --- writing ---------------------------------------------------------------------------


def with_run(runs: Runs, level: int, ref: RunRef) -> Runs:
    """Return the runs with one more, the newest of its level."""
    levels = [list(refs) for refs in runs.levels]
    while len(levels) <= level:
        levels.append([])
    levels[level].append(ref)
    return replace(runs, levels=tuple(tuple(refs) for refs in levels))


def begin_merges(runs: Runs) -> Runs:
    """Start a merge in every level that has `FAN_OUT` runs and none yet."""
    merges = dict(runs.merges)
    next_run = runs.next_run
    for level, refs in enumerate(runs.levels):
        if len(refs) >= FAN_OUT and level not in merges:
            inputs = tuple(ref.run for ref in refs[:FAN_OUT])
            merges[level] = Merge(next_run, inputs)
            next_run += 1
    return replace(runs, merges=merges, next_run=next_run)


def add_page(
    runs: Runs, level: int, page: BlobLocation, store: Callable[[bytes], BlobLocation]
) -> Runs:
    """Add a page to the merge of a level; a full list of pages becomes an index.

    Args:
        runs: The runs.
        level: Level of the merge's inputs.
        page: The page.
        store: Takes bytes to be stored and returns their location.
    """
    merge = runs.merges[level]
    pages = (*merge.pages, page)
    index = merge.index
    if len(pages) == INDEX_PAGES:
        index = store(encode_index(pages, index))
        pages = ()
    return replace(runs, merges={**runs.merges, level: replace(merge, pages=pages, index=index)})


def finish_merge(runs: Runs, level: int, store: Callable[[bytes], BlobLocation]) -> Runs:
    """Replace the inputs of a merge by the run that it made; none if it found no heads."""
    merge = runs.merges[level]
    merges = {other: kept for other, kept in runs.merges.items() if other != level}
    levels = [list(refs) for refs in runs.levels]
    levels[level] = [ref for ref in levels[level] if ref.run not in merge.inputs]
    runs = replace(runs, merges=merges, levels=tuple(tuple(refs) for refs in levels))
    if merge.index is None and len(merge.pages) == 1:
        return with_run(runs, level + 1, RunRef(merge.run, merge.pages[0]))
    if merge.pages:
        return with_run(
            runs, level + 1, RunRef(merge.run, store(encode_index(merge.pages, merge.index)))
        )
    if merge.index is not None:
        return with_run(runs, level + 1, RunRef(merge.run, merge.index))
    return runs


def place_runs(runs: Runs, place: Callable[[BlobLocation], BlobLocation]) -> Runs:
    """Return the runs with every location replaced by what `place` says."""
    return replace(
        runs,
        levels=tuple(
            tuple(replace(ref, location=place(ref.location)) for ref in level)
            for level in runs.levels
        ),
        merges={
            level: replace(
                merge,
                pages=tuple(place(page) for page in merge.pages),
                index=merge.index and place(merge.index),
            )
            for level, merge in runs.merges.items()
        },
    )


# --- reading ---------------------------------------------------------------------------


async def read_heads(location: BlobLocation, fetch: Fetch) -> AsyncIterator[ThreadHead]:
    """Yield the newest word on each thread, ended ones included, from a catalog.

    Args:
        location: Where the catalog lies.
        fetch: Returns bytes, hash checked.

    Raises:
        Refusal: `BLOB_MALFORMED`, and whatever `fetch` raises.
    """
    catalog = decode_catalog(await fetch(location), location)
    async for part in read_parts(catalog, location, fetch):
        for head in part.heads:
            yield head


def runs_of(catalog: Catalog, location: BlobLocation) -> Runs:
    """Return what the writer of the next catalog needs: all runs, this one's changes too.

    A merge that was under way begins anew. A catalog does not say which number its own
    changes have as a run; they get one that is above all others.

    Args:
        catalog: The newest catalog.
        location: Where it lies.
    """
    own = 1 + max((ref.run for level in catalog.runs for ref in level), default=0)
    return with_run(Runs(catalog.runs, {}, own + 1), 0, RunRef(own, location))


async def read_parts(
    catalog: Catalog, location: BlobLocation, fetch: Fetch
) -> AsyncIterator[RunPart]:
    """Yield all pieces of a catalog's runs, the newest first, beginning with itself.

    Every thread is told of in exactly one of them. Numbers of runs are those of
    `runs_of`.

    Args:
        catalog: The catalog.
        location: Where it lies.
        fetch: Returns bytes, hash checked.

    Raises:
        Refusal: `BLOB_MALFORMED`, and whatever `fetch` raises.
    """
    levels = runs_of(catalog, location).levels
    seen: set[str] = set()
    yield RunPart(levels[0][-1].run, location, _unseen(catalog.changes, seen))
    for ref in (ref for level in catalog.runs for ref in reversed(level)):
        async for at, heads in _read_run(ref.location, fetch):
            yield RunPart(ref.run, at, _unseen(heads, seen))


def _unseen(heads: Iterable[ThreadHead], seen: set[str]) -> tuple[ThreadHead, ...]:
    fresh = tuple(head for head in heads if head.thread_id not in seen)
    seen.update(head.thread_id for head in fresh)
    return fresh


async def _read_run(
    location: BlobLocation, fetch: Fetch
) -> AsyncIterator[tuple[BlobLocation, tuple[ThreadHead, ...]]]:
    following: BlobLocation | None = location
    while following is not None:
        data = await fetch(following)
        reader = Reader.parse(data, following.blob_id, FORMAT_VERSION)
        kind = reader.text("kind")
        if kind == "catalog":
            yield following, decode_catalog(data, following).changes
            return
        if kind == "page":
            yield following, _page_heads(reader, following.blob_id)
            return
        if kind != "index":
            raise reader.fail(f"a run cannot be a {kind}")
        yield following, ()
        for listed in reader.children("pages"):
            page = resolved(listed.as_location(), following.blob_id)
            page_reader = _of_kind(await fetch(page), page, "page")
            yield page, _page_heads(page_reader, page.blob_id)
        following = _optional(reader, "previous", following.blob_id)


def _of_kind(data: bytes, location: BlobLocation, kind: str) -> Reader:
    reader = Reader.parse(data, location.blob_id, FORMAT_VERSION)
    found = reader.text("kind")
    if found != kind:
        raise reader.fail(f"it is a {found} where a {kind} was expected")
    return reader


def _page_heads(reader: Reader, holder: str) -> tuple[ThreadHead, ...]:
    return tuple(_head(head, holder) for head in reader.children("heads"))


def _head_json(head: ThreadHead) -> JsonObject:
    manifest = head.manifest
    return {
        "thread_id": head.thread_id,
        "incarnation": head.incarnation,
        "ended": head.ended,
        "deleted_through": head.deleted_through,
        "agent_id": head.agent_id,
        "retention_s": head.retention_s,
        "unsearchable": head.unsearchable,
        "manifest": None
        if manifest is None
        else {
            **location_json(manifest.location),
            "segment": manifest.segment,
            "generation": manifest.generation,
            "records": manifest.records,
        },
    }


def _head(reader: Reader, holder: str) -> ThreadHead:
    return ThreadHead(
        thread_id=reader.text("thread_id"),
        incarnation=reader.number("incarnation"),
        ended=reader.flag("ended"),
        deleted_through=reader.text("deleted_through"),
        manifest=_manifest(reader.child("manifest"), holder) if reader.has("manifest") else None,
        agent_id=reader.text("agent_id", ""),
        retention_s=reader.number("retention_s", 0),
        unsearchable=reader.flag("unsearchable", False),
    )


def _manifest(reader: Reader, holder: str) -> ManifestHead:
    return ManifestHead(
        location=resolved(reader.as_location(), holder),
        segment=reader.number("segment"),
        generation=reader.number("generation"),
        records=reader.number("records"),
    )


def _ref_json(ref: RunRef) -> JsonObject:
    return {"run": ref.run, **location_json(ref.location)}


def _ref(reader: Reader, holder: str) -> RunRef:
    return RunRef(reader.number("run"), resolved(reader.as_location(), holder))


def _merge_json(level: int, merge: Merge) -> JsonObject:
    return {
        "level": level,
        "run": merge.run,
        "inputs": list(merge.inputs),
        "pages": [location_json(page) for page in merge.pages],
        "index": None if merge.index is None else location_json(merge.index),
    }


def _merge(reader: Reader) -> Merge:
    return Merge(
        run=reader.number("run"),
        inputs=tuple(reader.numbers("inputs")),
        pages=tuple(page.as_location() for page in reader.children("pages")),
        index=reader.optional_location("index"),
    )


def _optional(reader: Reader, key: str, holder: str) -> BlobLocation | None:
    location = reader.optional_location(key)
    return None if location is None else resolved(location, holder)
