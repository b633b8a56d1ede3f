"""Search as one object: runs its tasks, and finds checkpoints in each mode."""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from ..core.errors import Refusal
from ..core.search import Compare, Metric, SearchAnswer, SearchHit, SearchMode, SearchScope
from ..journal.database.database import Database
from ..journal.lease import Lease
from .embedders import Embedder, EmbedderError
from .finding import FindRows, IndexStatus
from .index import IndexRows
from .memories import MemoriesStatus
from .memwal.api import MAX_RECALLED
from .pacing import IndexSettings
from .tasks import EmbeddingTask, IndexTask
from .telemetry import SearchInstruments

if TYPE_CHECKING:  # most servers have no MemWal, and need neither its HTTP client nor numpy
    from .memwal.memwal import MemWal
    from .memwal.relayer import Count
    from .vectors import VectorIndex

# extra memories to ask for: some belong to removed checkpoints, or several to the same one
SPARE_MEMORIES = 10
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SearchStatus:
    """Status of search. `memwal` and the counts of its `memories` are `None` without MemWal."""

    index: IndexStatus
    last_error: str
    memwal: MemWal | None
    memories: MemoriesStatus | None


class SearchEngine:
    """Keeps the index and MemWal up to date, from creation to `stop`; finds checkpoints.

    If several servers share the journal, only the leader indexes, embeds saved checkpoints, and
    delivers. A leader that loses its lease meanwhile does no harm, because each change compares the
    rows with what was read. But MemWal may get a batch of summaries from both servers.
    """

    def __init__(
        self,
        journal: Database,
        lease: Lease,
        settings: IndexSettings,  # settings of the embedded index
        *,
        embedder: Embedder | None,  # closed by `stop`
        memwal: Callable[[Count, Callable[[], bool]], MemWal] | None,  # stopped with the engine
    ) -> None:
        def keeps() -> bool:
            return lease.held

        self._index = IndexRows(journal)
        self.sweep = self._index.sweep
        self.damaged = self._index.damaged
        self.finding = FindRows(journal)
        self._embedder = embedder
        instruments = SearchInstruments(
            lambda: list(self._indexer.backlog.values()),
            lambda: self._memwal.tallies if self._memwal is not None else (),
            clock_us=journal.now_us,
        )
        self.searched = instruments.searched
        self._embedding: EmbeddingTask | None = None
        self.embedder_name = ""
        self.modes = [SearchMode.LEXICAL]
        if embedder is not None:
            self._embedding = EmbeddingTask(
                self._index, embedder, settings, instruments=instruments, keeps=keeps
            )
            self.embedder_name = embedder.name
            self.modes.append(SearchMode.VECTOR)
        self._memwal: MemWal | None = None
        if memwal is not None:
            self._memwal = memwal(instruments.called, keeps)
            self.modes.append(SearchMode.MEMWAL)
        self._indexer = IndexTask(
            self._index,
            journal.waiters.subscribe,
            settings,
            remember=memwal is not None,
            stored=self._stored,
            instruments=instruments,
            keeps=keeps,
        )
        self.catch_up = self._indexer.catch_up
        self._cache_bytes = settings.cache_bytes
        self._vectors: VectorIndex | None = None

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[None]:
        """Continue the work of an earlier leader: a duty of the leader."""
        self._stored()
        yield

    async def start(self) -> None:
        """Allow callers' vectors of any dimension if there is no embedder."""
        if self._embedding is not None:
            return
        try:
            await self._index.forget_embedder()
        except Refusal as refusal:
            _log.warning(
                "until the next start, vectors of callers must have the dimension of the embedder "
                "that was configured before: %s",
                refusal,
            )

    async def stop(self) -> None:
        """Stop at a safe point; the next start continues from there."""
        for task in (self._indexer, self._embedding, self._memwal):
            if task is not None:
                await task.stop()
        for opened in (self._embedder, self._vectors):
            if opened is not None:
                await opened.close()

    def _stored(self) -> None:
        for task in (self._embedding, self._memwal):
            if task is not None:
                task.wake()

    async def status(self, tenant: str) -> SearchStatus:
        """Return the status of the index and of deliveries."""
        problem = self._indexer.trouble.problem
        if self._embedding is not None:
            problem = problem or self._embedding.trouble.problem
        if not problem:
            problem = next((f"not indexed: {damage}" for damage in await self.damaged(tenant)), "")
        memwal = self._memwal
        memories = None if memwal is None else await memwal.memories.status(tenant)
        index = await self.finding.status(tenant)
        if self._embedding is not None:
            owed = (await self.finding.owed(tenant)).missed
            index = replace(index, unindexed=index.unindexed + owed)
        return SearchStatus(index, problem, memwal, memories)

    async def vectors_owed(self, tenant: str) -> int:
        """Return the number of checkpoints that lack the embedder's vector, after a short wait."""
        if self._embedding is None:
            return 0
        return await self._embedding.arrive(tenant, partial(self.finding.owed, tenant))

    async def embed(self, text: str) -> bytes:
        """Return the vector of a query; raise `EmbedderError` if the embedder does not answer."""
        if self._embedding is None:
            raise EmbedderError("none is configured")
        return await self._embedding.query(text)

    async def comparing(
        self, tenant: str, text: str, owed: Callable[[], Awaitable[bool]]
    ) -> Compare:
        """Return a function that compares items' vectors with a query's vector.

        Waits a short time while vectors are `owed`.

        Raises:
            EmbedderError: No embedder is configured, or the embedder does not answer.
        """
        if self._embedding is None:
            raise EmbedderError("none is configured")
        await self.catch_up(tenant)
        await self._embedding.settle(owed)
        vector = await self._embedding.query(text)
        module = await asyncio.to_thread(importlib.import_module, ".vectors", __package__)
        return partial(module.cosines, vector)

    async def nearest(
        self, tenant: str, vector: bytes, metric: Metric, scope: SearchScope, limit: int
    ) -> list[SearchHit]:
        """Return the checkpoints in scope with the nearest vectors, nearest first."""
        if self._vectors is None:
            module = await asyncio.to_thread(importlib.import_module, ".vectors", __package__)
            if self._vectors is None:  # a concurrent search may have created the index
                self._vectors = module.VectorIndex(self.finding, self._cache_bytes)
        return await self._vectors.nearest(tenant, vector, metric, scope, limit)

    async def by_memwal(
        self, tenant: str, text: str, scope: SearchScope, limit: int
    ) -> SearchAnswer:
        """Return checkpoints that MemWal recalls, nearest first, or raise `RelayerError`.

        MemWal does not know threads or metadata: memories out of scope are left out here, so a
        search with a scope asks for as many memories as one call can return.
        """
        memwal = self._memwal
        if memwal is None:
            raise LookupError("there is no MemWal to ask")
        narrow = bool(scope.thread_id or scope.agent_id or scope.filter)
        memory_count = MAX_RECALLED if narrow else min(limit + SPARE_MEMORIES, MAX_RECALLED)
        while True:
            recalled, returned, dropped = await memwal.recall(tenant, text, memory_count)
            # Pointers are resolved by documents, also by documents of new forks.
            unindexed = await self.catch_up(tenant)
            results = await self.finding.by_pointers(tenant, recalled, scope, limit)
            sound = sum(not result.damage for result in results)
            short = sound < limit and returned >= memory_count
            if not short or memory_count == MAX_RECALLED:
                break
            memory_count = MAX_RECALLED
        pending = await memwal.memories.pending(tenant)
        return SearchAnswer(
            tuple(results),
            SearchMode.MEMWAL,
            "cosine",
            unindexed=unindexed + pending,
            truncated=short,
            dropped=dropped,
        )
