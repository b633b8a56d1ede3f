"""Calls on items of stores."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from ...archive.archive import Archive
from ...core.items import Admits, Item, ItemChange, Namespace, matches, thread_of
from ...core.model import Durability
from ...core.search import SearchMode
from ...search.embedders import EmbedderError
from ...search.search import SearchEngine
from ..checkpoints.completing import reach
from .item_rows import ItemRows

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ItemQuery:
    """A search for items below a namespace."""

    prefix: Namespace
    admits: Admits | None  # the condition of a filter
    text: str  # text for a search by meaning; empty: last put first
    offset: int
    limit: int
    refresh: bool  # whether reads restart the time of expiring items


@dataclass(frozen=True, slots=True)
class FoundItems:
    """Found items, and their scores; `None` without a comparison."""

    items: Sequence[Item]
    scores: Sequence[float | None]
    cut: bool  # there are more within the limit, which make the answer too large
    fell_back: str = ""  # why they were not compared with the query
    damaged: tuple[str, ...] = ()  # why items were left out: their rows were changed

    def sound(self) -> FoundItems:
        """Return the items with unchanged rows, and the reasons why other items are left out."""
        damaged = tuple(str(item.damage) for item in self.items if item.damage is not None)
        if not damaged:
            return self
        for damage in damaged:
            _log.error("left out of a search: %s", damage)
        pairs = zip(self.items, self.scores, strict=True)
        sound_pairs = [(item, score) for item, score in pairs if item.damage is None]
        items, scores = [item for item, _ in sound_pairs], [score for _, score in sound_pairs]
        return replace(self, items=items, scores=scores, damaged=damaged)


@dataclass(frozen=True, slots=True)
class Pattern:
    """Labels at the start or the end of a namespace; "*" matches any label."""

    labels: Namespace
    at_end: bool


@dataclass(frozen=True, slots=True)
class Store:
    """Stores of all tenants. `_engine` is `None` without a search index."""

    _journal: ItemRows
    _archive: Archive
    _engine: SearchEngine | None

    async def put(self, tenant: str, changes: Sequence[ItemChange], wanted: Durability) -> bool:
        """Put and delete items; return whether the backlog of certification is large."""
        backlog = self._archive.backlog(tenant)
        if any(change.value for change in changes):
            backlog.admit()
        await self._journal.put(tenant, changes)
        names = {thread_of(change.namespace) for change in changes}
        await reach(self._archive, tenant, wanted, names.__contains__)
        return backlog.warning()

    async def get(
        self, tenant: str, keys: Sequence[tuple[Namespace, str]], *, refresh: bool
    ) -> tuple[Sequence[Item], int]:
        """Return the unexpired items, and the number of answered keys."""
        items, answered = await self._journal.get(tenant, keys)
        for item in items:
            if item.damage is not None:
                raise item.damage
        if refresh:
            items = await self._journal.put_off(tenant, items)
        return items, answered

    async def search(self, tenant: str, query: ItemQuery) -> FoundItems:
        """Find items below a namespace."""
        results = (await (self._nearest if query.text else self._latest)(tenant, query)).sound()
        if not query.refresh:
            return results
        items = await self._journal.put_off(tenant, results.items)
        return replace(results, items=items)

    async def namespaces(
        self, tenant: str, patterns: Sequence[Pattern], depth: int
    ) -> Sequence[Namespace]:
        """Return the matching namespaces in order, cut to a depth unless the depth is 0."""
        labels = next((pattern.labels for pattern in patterns if not pattern.at_end), ())
        prefix = labels[: labels.index("*")] if "*" in labels else labels
        namespaces = await self._journal.namespaces(tenant, prefix)
        matching = (
            namespace
            for namespace in namespaces
            if all(
                matches(namespace, pattern.labels, at_end=pattern.at_end) for pattern in patterns
            )
        )
        return list(dict.fromkeys(namespace[: depth or None] for namespace in matching))

    async def _latest(self, tenant: str, query: ItemQuery, fell_back: str = "") -> FoundItems:
        arguments = (query.prefix, query.admits, query.offset, query.limit)
        page = await self._journal.latest(tenant, *arguments)
        return FoundItems(page.items, [None] * len(page.items), page.cut, fell_back)

    async def _nearest(self, tenant: str, query: ItemQuery) -> FoundItems:
        if self._engine is None or SearchMode.VECTOR not in self._engine.modes:
            return await self._latest(tenant, query, "the server has no embedder")
        owed = partial(self._journal.awaits_vectors, tenant, query.prefix)
        try:
            compare = await self._engine.comparing(tenant, query.text, owed)
        except EmbedderError as error:
            return await self._latest(tenant, query, f"the embedder does not answer: {error}")
        ranked = await self._journal.ranked(tenant, query.prefix, query.admits, compare)
        scores = dict(ranked[query.offset : query.offset + query.limit])
        page, numbers = await self._journal.numbered(list(scores))
        return FoundItems(page.items, [scores[number] for number in numbers], page.cut)
