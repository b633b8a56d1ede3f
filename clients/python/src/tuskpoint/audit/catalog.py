"""Auditing a catalog: all its pieces, then every thread that they tell of."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import replace
from typing import Any

from .formats.catalogs import Catalog, Index, Page, ThreadHead, newest_first, read_piece
from .formats.stored import Location, Malformed
from .manifest import subject_of
from .reading import READS_AT_ONCE, Piece, Reader, all_of
from .roots import Root, read_root
from .threads import ThreadFindings, audit_thread, facts_of, foreseen_checkpoints
from .verdicts import Findings, Item, ItemKind, ThreadTotal, Verdict, ordered

THREADS_AT_ONCE = 8
_GROUP = 512
_QUILT_BYTE = b"\x01"


class UnknownThread(Exception):
    """A thread that was asked for is not in the catalog; the text names it."""


async def audit_catalog(reader: Reader, root: Root, threads: Collection[str] = ()) -> Findings:
    """Audit a catalog.

    Args:
        reader: Reads.
        root: The catalog.
        threads: Only these threads; empty: all.

    Raises:
        UnknownThread: One of them is not in the catalog.
    """
    reader.expect(1)
    piece = await read_root(reader, root, "catalog")
    walk = _Walk(reader)
    catalog = walk.take(piece, root.location.blob_id)
    subject: dict[str, Any] = {"kind": "catalog", **subject_of(root), "threads": sorted(threads)}
    if not isinstance(catalog, Catalog):
        walk.refuse(catalog, "catalog")
        return Findings(subject, walk.items[0].blobs[0], root.trust, tuple(walk.items))
    await walk.follow(catalog)
    heads = _chosen(walk.heads, threads)
    found = await _audit_threads(reader, heads)
    return Findings(
        subject=subject,
        root=walk.items[0].blobs[0],
        trust=root.trust,
        items=ordered((*walk.items, *(item for one in found for item in one.items))),
        threads=tuple(one.total for one in found),
        facts=_facts(catalog, walk.heads),
    )


def _facts(catalog: Catalog, heads: Sequence[ThreadHead]) -> dict[str, Any]:
    live = [head for head in heads if not head.ended]
    return {
        "generation": catalog.generation,
        "seq": catalog.seq,
        "settings": catalog.settings,
        "previous_sha256": catalog.previous.sha256 if catalog.previous else "",
        "live_threads": sum(not head.is_snapshot for head in live),
        "snapshots": sum(head.is_snapshot for head in live),
        "ended_threads": len(heads) - len(live),
    }


class _Walk:
    """Reads the pieces of a catalog; the newest word on a thread counts."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._heads: dict[str, ThreadHead] = {}
        self.items: list[Item] = []

    @property
    def heads(self) -> list[ThreadHead]:
        """The newest word on each thread, by name."""
        return [self._heads[name] for name in sorted(self._heads)]

    async def follow(self, catalog: Catalog) -> None:
        """Read all runs, the newest first."""
        self._believe(catalog.changes)
        async for at, piece in self._pieces(newest_first(catalog), "run"):
            await self._follow_run(at, piece)

    async def _follow_run(self, at: Location, piece: Piece) -> None:
        found = self.take(piece, at.blob_id)
        told: set[str] = set()
        if isinstance(found, Catalog):
            self._believe(found.changes)
        elif isinstance(found, Page):
            self._believe(found.heads)
        while isinstance(found, Index):
            async for page_at, page_piece in self._pieces(found.pages, "page"):
                self._take_page(page_at, page_piece, told)
            if found.previous is None:
                return
            at = found.previous
            [(_, piece)] = [one async for one in self._pieces([at], "index")]
            found = self.take(piece, at.blob_id)
            if not isinstance(found, Index):
                self.refuse(found, "index")

    def _take_page(self, at: Location, piece: Piece, told: set[str]) -> None:
        """Note a page of a run whose other pages told of some threads."""
        page = self.take(piece, at.blob_id)
        if not isinstance(page, Page):
            self.refuse(page, "page")
            return
        names = {head.thread_id for head in page.heads}
        if names & told:
            self._fail(f"another page of its run tells of thread '{min(names & told)}' too")
        told |= names
        self._believe(page.heads)

    async def _pieces(
        self, locations: Sequence[Location], role: str
    ) -> AsyncIterator[tuple[Location, Piece]]:
        """Read pieces in their order, some at a time: what is unread takes no memory."""
        self._reader.expect(len(locations))
        bound = self._reader.bounds.index
        for start in range(0, len(locations), READS_AT_ONCE):
            some = locations[start : start + READS_AT_ONCE]
            pieces = await all_of(self._reader.read(role, at, bound) for at in some)
            for at, piece in zip(some, pieces, strict=True):
                yield at, piece

    def take(self, piece: Piece, holder: str) -> Catalog | Page | Index | None:
        """Note a piece, and return what it says, `None` if it cannot be used."""
        finding = piece.finding
        found: Catalog | Page | Index | None = None
        problem = ""
        if piece.data is not None:
            try:
                found = read_piece(piece.data, holder)
                finding = replace(finding, role=type(found).__name__.lower())
            except Malformed as error:
                problem = str(error)
                if piece.data.startswith(_QUILT_BYTE):
                    problem = "it looks like a quilt: name the patch as BLOB_ID/IDENTIFIER"
        if problem:
            finding = replace(finding, verdict=Verdict.FAIL, reason=problem)
        self.items.append(
            Item(ItemKind.CATALOG, finding.verdict, (finding,), reason=finding.reason)
        )
        self._reader.step("catalog")
        return found

    def refuse(self, found: Catalog | Page | Index | None, wanted: str) -> None:
        """Note that the last piece is another one than belongs there."""
        if found is None:
            return  # its item says what is wrong
        self._fail(f"it is a {type(found).__name__.lower()} where a {wanted} belongs")

    def _fail(self, reason: str) -> None:
        """Say of the last piece that it is wrong."""
        finding = replace(self.items[-1].blobs[0], verdict=Verdict.FAIL, reason=reason)
        self.items[-1] = replace(
            self.items[-1], verdict=Verdict.FAIL, blobs=(finding,), reason=reason
        )

    def _believe(self, heads: Sequence[ThreadHead]) -> None:
        for head in heads:
            self._heads.setdefault(head.thread_id, head)


def _chosen(heads: Sequence[ThreadHead], threads: Collection[str]) -> Sequence[ThreadHead]:
    if not threads:
        return heads
    unknown = set(threads) - {head.thread_id for head in heads}
    if unknown:
        raise UnknownThread(f"the catalog tells of no thread '{min(unknown)}'")
    return [head for head in heads if head.thread_id in threads]


async def _audit_threads(reader: Reader, heads: Sequence[ThreadHead]) -> list[ThreadFindings]:
    turn = asyncio.Semaphore(THREADS_AT_ONCE)

    async def audit(head: ThreadHead) -> ThreadFindings:
        if head.ended or head.manifest is None:
            return ThreadFindings(_bare(head), ())
        async with turn:
            return await audit_thread(reader, head.manifest, head)

    for head in heads:
        if not head.ended and head.manifest is not None:
            reader.expect(1 + (head.manifest.number or 0) + foreseen_checkpoints(head))
    found: list[ThreadFindings] = []
    for start in range(0, len(heads), _GROUP):
        found += await all_of(audit(head) for head in heads[start : start + _GROUP])
    return found


def _bare(head: ThreadHead) -> ThreadTotal:
    """Return the total of a thread of which nothing is stored any more, or yet."""
    return ThreadTotal(
        head.thread_id,
        head.incarnation,
        ended=head.ended,
        snapshot=head.is_snapshot,
        facts=facts_of(head),
    )
