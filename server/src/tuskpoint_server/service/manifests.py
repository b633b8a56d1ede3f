"""What the call that returns a thread's manifest means."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from ..archive.archive import Archive
from ..archive.read.manifest import page_of
from ..domain.errors import Reason, Refusal
from ..domain.formats.manifests import Key, Manifest, ManifestEntry
from ..domain.model import BlobLocation
from ..journal.archiving.status import KnownCatalog
from ..journal.checkpoints.store import Checkpoints
from .page_tokens import PageTokens, page_size

_KEPT = 4
"""Manifests that are kept for the next page of their listing."""


@dataclass(frozen=True, slots=True)
class ManifestPage:
    """Stored checkpoints by (namespace, ID).

    Attributes:
        entries: The checkpoints.
        incarnation: Incarnation of the thread.
        manifest: What they are a page of; `None` if nothing of the incarnation is stored.
        catalog: The catalog that leads to it.
        stored: Where the whole manifest was stored, if that was asked for.
        next_token: Token of the next page; empty on the last.
    """

    entries: Sequence[tuple[Key, ManifestEntry]]
    incarnation: int
    manifest: Manifest | None = None
    catalog: KnownCatalog | None = None
    stored: BlobLocation | None = None
    next_token: str = ""


class Manifests:
    """Manifests of threads of all tenants.

    What was folded for one page is kept for the next: a page costs what it holds, and all
    pages are of the same catalog, unless others ask for many manifests meanwhile.
    """

    def __init__(self, checkpoints: Checkpoints, archive: Archive, tokens: PageTokens) -> None:
        self._journal = checkpoints
        self._archive = archive
        self._tokens = tokens
        self._kept: OrderedDict[tuple[str, str, str], tuple[Manifest, KnownCatalog]] = OrderedDict()

    async def page(
        self, tenant: str, thread_id: str, size: int, token: str, *, store: bool
    ) -> ManifestPage:
        """Return a page of a thread's manifest; a size of 0 means the default.

        Args:
            tenant: The tenant.
            thread_id: The thread.
            size: Most entries of the page.
            token: Token of the page; empty: the first.
            store: Store the whole manifest as a blob.

        Raises:
            Refusal: `THREAD_NOT_FOUND`, `PAGE_TOKEN_INVALID`; what `Archive.manifest` and
                `Archive.store_manifest` raise.
        """
        detail = await self._journal.thread(tenant, thread_id)
        if detail is None:
            raise Refusal(Reason.THREAD_NOT_FOUND, thread_id=thread_id)
        incarnation = detail.thread.incarnation
        listing = ("manifest", tenant, thread_id, incarnation)
        after: Key | None = None
        known = None
        if token:
            catalog, *last = self._tokens.open(listing, token, 3)
            after = (last[0], last[1])
            known = self._kept.pop((tenant, thread_id, catalog), None)
        if known is None:
            known = await self._archive.manifest(tenant, thread_id)
        if known is None or known[0].ended or known[0].incarnation != incarnation:
            return ManifestPage((), incarnation)
        stored = await self._archive.store_manifest(tenant, known[0]) if store else None
        entries, more = page_of(known[0], after, page_size(size))
        next_token = ""
        if more:
            catalog = known[1].location.sha256.hex()
            next_token = self._tokens.seal(listing, [catalog, *entries[-1][0]])
            self._keep((tenant, thread_id, catalog), known)
        return ManifestPage(entries, incarnation, *known, stored, next_token)

    def _keep(self, key: tuple[str, str, str], known: tuple[Manifest, KnownCatalog]) -> None:
        self._kept[key] = known
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
