"""Search through the checkpointer, and the vectors that it sends along with checkpoints."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata

from .. import _search as search
from .._calls import AsyncCalls, SyncCalls
from .._search import MetricName, SearchModeName, SearchResults, search_results
from .._vectors import Vector, components

VECTOR_KEY = "tuskpoint_vector"
"""Key of `config["configurable"]` with which a caller gives the vector."""

Vectorize = Callable[[Checkpoint, CheckpointMetadata], Vector | None]
"""Makes the vector by which a checkpoint is found, or `None` to send none."""


def vector_of(
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    vectorize: Vectorize | None,
) -> array[float] | None:
    """Return the vector: the config's, else what `vectorize` says; `None` sends none.

    Errors of `vectorize` are the caller's and pass through.

    Raises:
        InvalidRequest: It is no vector.
    """
    given = (config.get("configurable") or {}).get(VECTOR_KEY)
    if given is not None:
        return components(VECTOR_KEY, given)
    made = None if vectorize is None else vectorize(checkpoint, metadata)
    return None if made is None else components("vectorize", made)


class SearchMethods:
    """Search, as methods of `TuskPointSaver`.

    Each has a twin to be awaited, whose name begins with "a".
    """

    _calls: SyncCalls
    _async_calls: AsyncCalls

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

        Each result unpacks as `content, metadata, distance`. Its `config` loads exactly the
        checkpoint that was found: `get_tuple(result.config)`, `graph.get_state(result.config)`.

        Args:
            query: What happened, in plain words; in double quotes, exactly these words.
            limit: At most this many, 1 to 100.
            thread_id: Only this thread; `None` for all.
            agent_id: Only threads that this agent drives; `None` for all.
            filter_metadata: Only checkpoints whose metadata has all of these, with equal values
                of the same type. There are no operators.
            mode: "lexical" (by words), "vector" (by meaning) or "memwal"; `None` for the best
                that the server has, which `SearchResults.mode` tells.

        Raises:
            InvalidRequest: The query is empty, or an argument breaks its limits.
            PreconditionFailed: The server does not index, or lacks the mode.
            Unavailable: MemWal or the embedder, which `mode` asks for, does not answer.
        """
        request = search.by_words(query, limit, _named(thread_id), agent_id, filter_metadata, mode)
        return search_results(self._calls.search_checkpoints(request))

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
        """Async twin of `search_history`."""
        request = search.by_words(query, limit, _named(thread_id), agent_id, filter_metadata, mode)
        return search_results(await self._async_calls.search_checkpoints(request))

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
            thread_id: Only this thread; `None` for all.
            limit: At most this many, 1 to 100.
            filter_metadata: Only checkpoints whose metadata has all of these, with equal values
                of the same type. There are no operators.
            agent_id: Only threads that this agent drives; `None` for all.
            metric: What is near: "cosine" or "l2".

        Raises:
            InvalidRequest: The vector is empty, has another dimension than those in the index
                or a component that is no finite number, or an argument breaks its limits.
            PreconditionFailed: The server does not index.
        """
        request = search.by_vector(
            query_vector, limit, _named(thread_id), agent_id, filter_metadata, metric
        )
        return search_results(self._calls.search_checkpoints(request))

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
        """Async twin of `search_similar`."""
        request = search.by_vector(
            query_vector, limit, _named(thread_id), agent_id, filter_metadata, metric
        )
        return search_results(await self._async_calls.search_checkpoints(request))


def _named(thread_id: object) -> str | None:
    """Return a thread ID as text, which LangGraph's users need not give."""
    return None if thread_id is None else str(thread_id)
