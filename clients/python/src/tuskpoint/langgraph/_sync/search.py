# Written by `make sync` from _async/search.py; do not edit.
"""Search through the saver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..._messages import search
from ..._messages.arguments import Vector
from ..._messages.search import MetricName, SearchModeName, SearchResults, search_results
from .._base import SaverBase


class SyncSearch(SaverBase):
    """Search."""

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

        Each result unpacks as `content, metadata, distance`. Its `config` loads the
        checkpoint that was found: `get_tuple(result.config)`, `graph.get_state(result.config)`.

        Args:
            query: What happened, in plain words; in double quotes, exactly these words.
            limit: Maximum number of results, 1 to 100.
            thread_id: Only this thread; `None` for all.
            agent_id: Only threads that this agent drives; `None` for all.
            filter_metadata: Only checkpoints whose metadata has all of these, with equal values
                of the same type. There are no operators.
            mode: "lexical" (by words), "vector" (by meaning) or "memwal"; `None` for the best
                that the server has, see `SearchResults.mode`.

        Raises:
            InvalidRequest: The query is empty, or an argument breaks its limits.
            PreconditionFailed: The server does not index, or lacks the mode.
            Unavailable: MemWal or the embedder, which `mode` asks for, does not answer.
        """
        request = search.by_words(query, limit, _named(thread_id), agent_id, filter_metadata, mode)
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

        If there is nothing to compare with, a warning in `SearchResults.warnings` says so: the
        checkpoints have no vectors.

        Args:
            query_vector: Numbers, as many as the vectors in the index have: a list, an
                `array.array`, a NumPy array.
            thread_id: Only this thread; `None` for all.
            limit: Maximum number of results, 1 to 100.
            filter_metadata: Only checkpoints whose metadata has all of these, with equal values
                of the same type. There are no operators.
            agent_id: Only threads that this agent drives; `None` for all.
            metric: The distance: "cosine" or "l2".

        Raises:
            InvalidRequest: The vector is empty, differs in dimension from the vectors in the index
                or has a component that is not finite, or an argument breaks its limits.
            PreconditionFailed: The server does not index.
        """
        request = search.by_vector(
            query_vector, limit, _named(thread_id), agent_id, filter_metadata, metric
        )
        return search_results(self._calls.search_checkpoints(request))


def _named(thread_id: object) -> str | None:
    """Return a thread ID as text, which LangGraph's users need not give."""
    return None if thread_id is None else str(thread_id)
