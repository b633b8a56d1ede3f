"""Audit of a catalog: its runs, and every thread in their records."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Iterable
from typing import Any

from ..formats.records import fold, read_record
from ..formats.runs import Catalog, Part, read_catalog, read_run
from ..formats.stored import Fields, MalformedError
from ..reading import READS_AT_ONCE, Piece, Reader, all_of, in_pool
from ..roots import Root, read_root, subject_of
from ..verdicts import Findings, Item, ItemKind, Verdict, ordered
from .threads import SNAPSHOT_MEMBERS, SNAPSHOTS, STORES, Shelf, ThreadFindings, audit_thread

THREADS_AT_ONCE = 8
_GROUP = 512


class UnknownThread(Exception):
    """A requested thread is not in the catalog; the text names it."""


async def audit_catalog(
    reader: Reader, root: Root, threads: Collection[str] = (), history: int = 0
) -> Findings:
    """Audit a catalog.

    Args:
        reader: Reads the stored bytes.
        root: The catalog.
        threads: Only these threads; empty for all threads.
        history: Number of earlier catalogs to read too.

    Raises:
        UnknownThread: A thread in `threads` is not in the catalog.
    """
    reader.expect(1)
    piece = await reader.content(await read_root(reader, root, "catalog"), root.location)
    item, catalog = _taken(piece)
    reader.step("catalog")
    subject = {**subject_of(root, "catalog"), "threads": sorted(threads), "history": history}
    if catalog is None:
        return Findings(subject, piece.finding, root.trust, (item,))
    walk = _Walk(reader, frozenset(threads))
    walk.items.append(item)
    await walk.follow(catalog)
    walk.items += (earlier := await _history(reader, catalog, history))
    names = sorted(walk.lines)
    unknown = sorted(set(threads) - walk.lines.keys())
    if unknown and all(item.verdict in (Verdict.PASS, Verdict.TRUSTED) for item in walk.items):
        raise UnknownThread(f"the catalog has no thread '{unknown[0]}'")
    thread_findings = await _audit_threads(reader, walk, names)
    items = [*walk.items, *(item for thread in thread_findings for item in thread.items)]
    if not threads:
        items += _snapshots(thread_findings)
    return Findings(
        subject=subject,
        root=piece.finding,
        trust=root.trust,
        items=ordered(items),
        threads=tuple(thread.total for thread in thread_findings),
        facts=_facts(catalog, thread_findings, len(earlier)),
    )


def _taken(piece: Piece) -> tuple[Item, Catalog | None]:
    """Return the item of a catalog, and the catalog if it is usable."""
    catalog, problem = None, ""
    if piece.data is not None:
        try:
            catalog = read_catalog(piece.data, piece.finding.blob_id)
        except MalformedError as error:
            problem = str(error)
            if piece.data.startswith(b"\x01"):
                problem = "it looks like a quilt: name the patch as BLOB_ID/IDENTIFIER"
    return Item.of(ItemKind.CATALOG, (piece.finding,), problem), catalog


def _facts(
    catalog: Catalog, thread_findings: Iterable[ThreadFindings], history: int
) -> dict[str, Any]:
    totals = [thread.total for thread in thread_findings]
    live = [total for total in totals if not total.ended]
    return {
        "tenant": catalog.tenant,
        "journal_id": catalog.journal_id,
        "generation": catalog.generation,
        "number": catalog.number,
        "create_time_us": catalog.create_time_us,
        "previous_sha256": catalog.previous.sha256 if catalog.previous else "",
        "history": history,
        "live_threads": sum(not total.thread_id.startswith((SNAPSHOTS, STORES)) for total in live),
        "snapshots": sum(
            total.snapshot and not total.thread_id.startswith(SNAPSHOT_MEMBERS) for total in live
        ),
        "item_namespaces": sum(
            total.thread_id.startswith(STORES) and any(total.checkpoints.values()) for total in live
        ),
        "ended_threads": len(totals) - len(live),
    }


async def _history(reader: Reader, catalog: Catalog, count: int) -> list[Item]:
    """Read the catalogs before a catalog, each by the hash in its successor.

    Nothing renews earlier catalogs, so a missing catalog ends the history without a failure.
    """
    items: list[Item] = []
    while len(items) < count and catalog.previous is not None:
        piece = await reader.read_content("catalog", catalog.previous)
        if piece.finding.verdict is Verdict.MISSING:
            break
        item, earlier = _taken(piece)
        if earlier is not None and (
            earlier.tenant != catalog.tenant
            or (earlier.generation, earlier.number) >= (catalog.generation, catalog.number)
        ):
            problem = "it is of another tenant than its successor, or not older"
            item, earlier = Item.of(ItemKind.CATALOG, (piece.finding,), problem), None
        items.append(item)
        if earlier is None:
            break
        catalog = earlier
    return items


class _Walk:
    """Reads the runs of a catalog and keeps their records by thread.

    Attributes:
        lines: Maps each thread to its stored records: the number of the catalog's run, the blob
            with the run, and the record.
        items: The pieces of the catalog, in the order of reading.
    """

    def __init__(self, reader: Reader, threads: frozenset[str]) -> None:
        self._reader = reader
        self._threads = threads
        self._seen: set[str] = set()
        self._bytes = 0
        self.lines: dict[str, list[tuple[int, str, str]]] = {}
        self.items: list[Item] = []

    async def follow(self, catalog: Catalog) -> None:
        """Read all runs that may have records of the threads, several at a time."""
        pending = deque(enumerate(catalog.runs))
        while pending:
            batch = [pending.popleft() for _ in range(min(READS_AT_ONCE, len(pending)))]
            batch = [entry for entry in batch if entry[1].may_hold(self._threads)]
            self._reader.expect(len(batch))
            pieces = await all_of(
                self._reader.read_content("run", ref.location) for _, ref in batch
            )
            for (number, ref), piece in zip(batch, pieces, strict=True):
                pending.extend((number, child) for child in await self._take(number, ref, piece))
                self._reader.step("runs")

    async def _take(self, number: int, ref: Part, piece: Piece) -> tuple[Part, ...]:
        """Record a run; return the runs that the run names."""
        children: tuple[Part, ...] = ()
        lines: list[tuple[str, str]] = []
        data, problem = piece.data, ""
        try:
            self._allow(ref)
            if data is not None:
                children, lines = await in_pool(
                    ref.plain_bytes, lambda: read_run(data, ref, self._threads)
                )
        except MalformedError as error:
            problem = str(error)
        for thread_id, line in lines:
            self.lines.setdefault(thread_id, []).append((number, ref.location.blob_id, line))
        self._bytes += sum(len(line) for _, line in lines)
        self.items.append(Item.of(ItemKind.CATALOG, (piece.finding,), problem))
        return children

    def _allow(self, ref: Part) -> None:
        """Refuse a run that was named before, or that exceeds the bound on kept records.

        Raises:
            MalformedError: The run is refused.
        """
        if ref.location.sha256 in self._seen:
            raise MalformedError("it is named twice")
        self._seen.add(ref.location.sha256)
        bound = self._reader.bounds.records
        if ref.height == 0 and self._bytes + ref.plain_bytes > bound:
            raise MalformedError(
                f"it has more than {bound} bytes of records with the runs before it: audit some "
                "threads at a time, with --thread"
            )


async def _audit_threads(
    reader: Reader, walk: _Walk, names: Collection[str]
) -> list[ThreadFindings]:
    turn = asyncio.Semaphore(THREADS_AT_ONCE)
    shelf = Shelf(reader)

    async def audit(thread_id: str) -> ThreadFindings:
        async with turn:
            lines = sorted(walk.lines.pop(thread_id), key=lambda line: line[0])
            records = (read_record(Fields.parse(line, holder)) for _, holder, line in lines)
            return await audit_thread(shelf, fold(thread_id, records))

    findings: list[ThreadFindings] = []
    waiting = list(names)
    for start in range(0, len(waiting), _GROUP):
        findings += await all_of(map(audit, waiting[start : start + _GROUP]))
    return findings


def _snapshots(thread_findings: Iterable[ThreadFindings]) -> list[Item]:
    """Check that the checkpoints that snapshots captured are stored.

    A snapshot that a flush has stored only in part does not count yet.
    """
    members = {
        (item.thread_id, item.checkpoint_id)
        for thread in thread_findings
        for item in thread.items
        if thread.total.thread_id.startswith(SNAPSHOT_MEMBERS)
    }
    reason = "the snapshot says that it captured it, and nothing of it is stored"
    return [
        Item(ItemKind.CHECKPOINT, name, "", checkpoint_id, Verdict.GAP, reason)
        for thread in thread_findings
        for number, checkpoint_id in enumerate(thread.captured)
        if (
            name := SNAPSHOT_MEMBERS
            + thread.total.thread_id.removeprefix(SNAPSHOTS)
            + f"/{number}",
            checkpoint_id,
        )
        not in members
    ]
