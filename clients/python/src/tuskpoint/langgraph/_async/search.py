"""Methods that search checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..._messages import search
from ..._messages.arguments import Vector
from ..._messages.search import MetricName, SearchModeName, SearchResults, search_results
from .._base import SaverBase


class AsyncSearch(SaverBase):
    """Methods that search checkpoints."""

    async def asearch_history(
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

        Each result unpacks as `content, metadata, distance`. Its `config` loads the
        checkpoint: `aget_tuple(result.config)`, `graph.aget_state(result.config)`.

        Args:
            query: Words that describe what happened. Words in double quotes match exactly.
            limit: Maximum number of results, 1 to 100.
            thread_id: Only this thread; `None` for all threads.
            agent_id: Only threads that this agent drives; `None` for all agents.
            filter_metadata: Only checkpoints whose metadata has all of these keys with equal values
                of the same type. There are no operators.
            mode: "lexical" (by words), "vector" (by meaning) or "memwal"; `None` for the best mode
                of the server, which `SearchResults.mode` names.

        Raises:
            InvalidRequest: The query is empty, or an argument breaks its limits.
            PreconditionFailed: The server has no search index, or does not have the mode.
            Unavailable: `mode` needs MemWal or the embedder, which does not answer.
        """
        request = search.by_words(query, limit, _named(thread_id), agent_id, filter_metadata, mode)
        return search_results(await self._async_calls.search_checkpoints(request))

    async def asearch_similar(
        self,
        query_vector: Vector,
        thread_id: str | None = None,
        limit: int = 5,
        filter_metadata: Mapping[str, Any] | None = None,
        *,
        agent_id: str | None = None,
        metric: MetricName = "cosine",
    ) -> SearchResults:
        """Find checkpoints by a vector, nearest first. The results are as in `asearch_history`.

        If no checkpoint in the scope of the search has a vector, `SearchResults.warnings` has a
        warning.

        Args:
            query_vector: Numbers, in the dimension of the index: a list, an `array.array` or a
                NumPy array.
            thread_id: Only this thread; `None` for all threads.
            limit: Maximum number of results, 1 to 100.
            filter_metadata: Only checkpoints whose metadata has all of these keys with equal values
                of the same type. There are no operators.
            agent_id: Only threads that this agent drives; `None` for all agents.
            metric: The distance: "cosine" or "l2".

        Raises:
            InvalidRequest: The vector is empty, differs in dimension from the vectors in the index
                or has a component that is not finite, or an argument breaks its limits.
            PreconditionFailed: The server has no search index.
        """
        request = search.by_vector(
            query_vector, limit, _named(thread_id), agent_id, filter_metadata, metric
        )
        return search_results(await self._async_calls.search_checkpoints(request))


def _named(thread_id: object) -> str | None:
    """Return a thread ID as text; LangGraph's users may omit it."""
    return None if thread_id is None else str(thread_id)
