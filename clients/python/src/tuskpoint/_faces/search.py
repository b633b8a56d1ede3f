"""Finding checkpoints by what happened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import _search as search
from .._search import MetricName, SearchModeName, SearchResults, search_results
from .._vectors import Vector
from .base import AsyncFace, SyncFace, twin_of


class SyncSearch(SyncFace):
    """Finding checkpoints by what happened."""

    def search_history(
        self,
        query: str,
        limit: int = 5,
        *,
        thread_id: str | None = None,
        agent_id: str | None = None,
        filter_metadata: Mapping[str, Any] | None = None,
        mode: SearchModeName | None = None,
    ) -> SearchResults:
        """Find checkpoints by words, nearest first.

        Each result unpacks as `content, metadata, distance`, and names a checkpoint that can be
        loaded: `load(result.thread_id, result.checkpoint_id, checkpoint_ns=result.checkpoint_ns)`.
        No results is an empty list, not an error.

        Args:
            query: What happened, in plain words; in double quotes, exactly these words.
            limit: At most this many, 1 to 100.
            thread_id: Only this thread. Default: all.
            agent_id: Only threads that this agent drives. Default: all.
            filter_metadata: Only checkpoints whose metadata has all of these, with equal values
                of the same type. There are no operators.
            mode: "lexical" (by words), "vector" (by meaning) or "memwal". Default: the best that
                the server has, which `SearchResults.mode` tells.

        Raises:
            InvalidRequest: The query is empty, or an argument breaks its limits.
            PreconditionFailed: The server does not index, or lacks the mode.
            Unavailable: MemWal or the embedder, which `mode` asks for, does not answer.
        """
        request = search.by_words(query, limit, thread_id, agent_id, filter_metadata, mode)
        return search_results(self._calls.search_checkpoints(request))

    def search_similar(
        self,
        query_vector: Vector,
        thread_id: str | None = None,
        limit: int = 5,
        filter_metadata: Mapping[str, Any] | None = None,
        *,
        agent_id: str | None = None,
        metric: MetricName = "cosine",
    ) -> SearchResults:
        """Find checkpoints by a vector, nearest first. The results are as in `search_history`.

        Args:
            query_vector: Numbers, as many as the vectors in the index have: a list, an
                `array.array`, a NumPy array.
            thread_id: Only this thread. Default: all.
            limit: At most this many, 1 to 100.
            filter_metadata: Only checkpoints whose metadata has all of these, with equal values
                of the same type. There are no operators.
            agent_id: Only threads that this agent drives. Default: all.
            metric: What is near: "cosine" or "l2".

        Raises:
            InvalidRequest: The vector is empty, has another dimension than those in the index
                or a component that is no finite number, or an argument breaks its limits.
            PreconditionFailed: The server does not index.
        """
        request = search.by_vector(
            query_vector, limit, thread_id, agent_id, filter_metadata, metric
        )
        return search_results(self._calls.search_checkpoints(request))


class AsyncSearch(AsyncFace):
    """Finding checkpoints by what happened."""

    @twin_of(SyncSearch.search_history)
    async def search_history(
        self,
        query: str,
        limit: int = 5,
        *,
        thread_id: str | None = None,
        agent_id: str | None = None,
        filter_metadata: Mapping[str, Any] | None = None,
        mode: SearchModeName | None = None,
    ) -> SearchResults:
        request = search.by_words(query, limit, thread_id, agent_id, filter_metadata, mode)
        return search_results(await self._calls.search_checkpoints(request))

    @twin_of(SyncSearch.search_similar)
    async def search_similar(
        self,
        query_vector: Vector,
        thread_id: str | None = None,
        limit: int = 5,
        filter_metadata: Mapping[str, Any] | None = None,
        *,
        agent_id: str | None = None,
        metric: MetricName = "cosine",
    ) -> SearchResults:
        request = search.by_vector(
            query_vector, limit, thread_id, agent_id, filter_metadata, metric
        )
        return search_results(await self._calls.search_checkpoints(request))
