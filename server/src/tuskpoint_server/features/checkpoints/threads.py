"""Calls on threads: describe, list, verify, manifests."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter

from ...archive.archive import Archive
from ...archive.formats.manifests import Key, Manifest, ManifestEntry
from ...archive.read.read import page_of
from ...archive.rows.status import NewestCatalog
from ...core.effects.records import effects_of
from ...core.errors import Reason, Refusal
from ...core.model import BlobLocation
from ...core.threads import (
    Thread,
    ThreadDetail,
    Verdict,
    VerdictKind,
    VerificationTotal,
)
from ..cursors import decode_cursor, encode_cursor, page, page_size
from .checkpoint_rows import CheckpointRows
from .listed_threads import ThreadQuery

_MANIFESTS_KEPT = 4  # manifests in memory for the next pages of listings


@dataclass(frozen=True, slots=True)
class ManifestPage:
    """A part of a manifest: stored checkpoints by (namespace, ID)."""

    incarnation: int  # incarnation of the thread
    entries: Sequence[tuple[Key, ManifestEntry]] = ()
    manifest: Manifest | None = None  # `None` if no part of the incarnation is stored
    catalog: NewestCatalog | None = None  # catalog that leads to the manifest
    stored: BlobLocation | None = None  # blob with the manifest, if it was stored
    next_token: str = ""


@dataclass(frozen=True, slots=True)
class Threads:
    """Threads of all tenants, and their manifests."""

    _journal: CheckpointRows
    _archive: Archive
    _journal_id: str
    _kept: OrderedDict[tuple[str, str, str], tuple[Manifest, NewestCatalog]] = field(
        default_factory=OrderedDict
    )

    async def get(self, tenant: str, thread_id: str) -> ThreadDetail:
        """Describe a thread."""
        detail = await self._journal.thread(tenant, thread_id)
        if detail is None:
            raise Refusal(Reason.THREAD_NOT_FOUND, thread_id=thread_id)
        return detail

    async def list(
        self, tenant: str, query: ThreadQuery, size: int, token: str
    ) -> tuple[Sequence[Thread], str]:
        """Return a page of threads, and the token of the next."""
        filters = (query.agent_id, query.label, query.state or 0)
        # As text, in which a missing time differs from the time 0.
        times = (str(query.since_us), str(query.until_us))
        listing = ("threads", self._journal_id, tenant, *filters, *times, query.latest_first)
        read = partial(self._journal.list_threads, tenant, query)
        if query.latest_first:
            place = attrgetter("updated_us", "thread_id")
            return await page(listing, size, token, read, place, int, str)
        return await page(listing, size, token, read, lambda thread: (thread.thread_id,))

    async def verify(
        self, tenant: str, thread_id: str
    ) -> AsyncGenerator[Verdict | VerificationTotal, None]:
        """Yield a verdict on each checkpoint and effect of a thread, then the total."""
        counts: Counter[VerdictKind] = Counter()
        chain_problem, journal = "", list[str]()
        for name in (thread_id, effects_of(thread_id)):
            verification = await self._archive.verification(tenant, name)
            if verification is None and name == thread_id:
                raise Refusal(Reason.THREAD_NOT_FOUND, thread_id=thread_id)
            if verification is None:
                continue
            async with aclosing(verification.verdicts()) as verdicts:
                async for verdict in verdicts:
                    counts[verdict.kind] += 1
                    yield verdict
            journal += await verification.journal_problems()
            chain_problem = chain_problem or verification.chain_problem
        yield VerificationTotal(counts, chain_problem, tuple(journal))

    async def manifest(
        self, tenant: str, thread_id: str, size: int, token: str, *, store: bool
    ) -> ManifestPage:
        """Return a page of a thread's manifest; the first page may store the whole as a blob.

        The folded manifest of a page is kept for the next page. So a page costs only its entries,
        and all pages have the same catalog, unless other callers ask for many manifests in between.
        """
        incarnation = (await self.get(tenant, thread_id)).thread.incarnation
        listing = ("manifest", self._journal_id, tenant, thread_id, incarnation)
        position: Key | None = None
        pair = None
        if token:
            catalog, *last = decode_cursor(listing, token, str, str, str)
            position = (last[0], last[1])
            pair = self._kept.pop((tenant, thread_id, catalog), None)
        if pair is None:
            pair = await self._archive.manifest(tenant, thread_id)
        if pair is None or pair[0].ended or pair[0].incarnation != incarnation:
            return ManifestPage(incarnation)
        location = await self._archive.store_manifest(tenant, pair[0]) if store else None
        entries, has_more = page_of(pair[0], position, page_size(size))
        next_token = ""
        if has_more:
            catalog = pair[1].location.sha256.hex()
            next_token = encode_cursor(listing, [catalog, *entries[-1][0]])
            self._kept[(tenant, thread_id, catalog)] = pair
            if len(self._kept) > _MANIFESTS_KEPT:
                self._kept.popitem(last=False)
        return ManifestPage(incarnation, entries, *pair, location, next_token)
