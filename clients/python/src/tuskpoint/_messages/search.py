"""Records and requests of searches. Pure."""

from __future__ import annotations

import json
import operator
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ..v1 import search_service_pb2 as search
from ..v1.errors_pb2 import Warning as ServiceWarning
from ..v1.errors_pb2 import WarningKind
from .arguments import Vector, check_text, components, invalid_field
from .records import Reference
from .reports import mode_name
from .requests import choice, metadata_json

if TYPE_CHECKING:  # LangGraph is an optional dependency
    from langchain_core.runnables import RunnableConfig

SearchModeName = Literal["lexical", "vector", "memwal"]
MetricName = Literal["cosine", "l2"]

_MODES: dict[str, search.SearchMode] = {
    "lexical": search.SEARCH_MODE_LEXICAL,
    "vector": search.SEARCH_MODE_VECTOR,
    "memwal": search.SEARCH_MODE_MEMWAL,
}
_METRICS: dict[str, search.SearchMetric] = {
    "cosine": search.SEARCH_METRIC_COSINE,
    "l2": search.SEARCH_METRIC_L2,
}
MAX_LIMIT = 2**32 - 1


@dataclass(frozen=True, slots=True)
class SearchResult:
    """A checkpoint that a search returned: its identity, and the text that matched.

    A result unpacks as `content, metadata, distance`.

    Attributes:
        thread_id: The thread.
        checkpoint_ns: The namespace inside the thread; empty is the root.
        checkpoint_id: The checkpoint.
        summary: One sentence about what happened; may be empty.
        content: The searched text of the state, or the summary if the state has no text. Empty only
            if both are empty.
        metadata: Metadata that was saved with the checkpoint.
        distance: Distance from the query; smaller is nearer. Distances are comparable within one
            answer only.
        mode: Mode of the search, as in `SearchResults`.
        truncated: Whether the new part of the state has more text than was searched. The index has
            the latest part of a long text.
    """

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str
    summary: str
    content: str
    metadata: dict[str, Any]
    distance: float
    mode: str
    truncated: bool = False

    def __iter__(self) -> Iterator[Any]:
        return iter((self.content, self.metadata, self.distance))

    @property
    def ref(self) -> Reference:
        """Identity of the checkpoint."""
        return Reference(self.thread_id, self.checkpoint_ns, self.checkpoint_id)

    @property
    def config(self) -> RunnableConfig:
        """Config with which LangGraph loads this checkpoint."""
        return {
            "configurable": {
                "thread_id": self.thread_id,
                "checkpoint_ns": self.checkpoint_ns,
                "checkpoint_id": self.checkpoint_id,
            }
        }


@dataclass(frozen=True, slots=True)
class SearchWarning:
    """A warning about a search. `str()` returns the message.

    Attributes:
        kind: "search_fell_back" (another mode was used), "memories_dropped" (MemWal has matches
            that it could not return), "no_vectors" (nothing in the scope of the search has a
            vector), "values_sealed" (only summaries were searched), "text_truncated" (checkpoints
            with more text than is indexed may have been missed), or the number of a kind that only
            newer servers have.
        message: The message, for people.
    """

    kind: str
    message: str

    def __str__(self) -> str:
        return self.message


class SearchResults(list[SearchResult]):
    """The results of a search, nearest first.

    Attributes:
        mode: "lexical" (by words), "vector" or "memwal"; the number of a mode
            that only newer servers have.
        metric: Metric of `distance`: "cosine", "l2", or "bm25" for words.
        unindexed: Number of checkpoints that the search could not find yet: they are not indexed,
            or the embedder has not computed their vector.
        truncated: Whether matches may exist that were not examined.
        warnings: Warnings about this search.
    """

    def __init__(
        self,
        results: Iterable[SearchResult] = (),
        *,
        mode: str,
        metric: str,
        unindexed: int = 0,
        truncated: bool = False,
        warnings: tuple[SearchWarning, ...] = (),
    ) -> None:
        super().__init__(results)
        self.mode = mode
        self.metric = metric
        self.unindexed = unindexed
        self.truncated = truncated
        self.warnings = warnings


def search_results(answer: search.SearchCheckpointsResponse) -> SearchResults:
    """Return the records of a search."""
    mode = mode_name(answer.mode)
    return SearchResults(
        (_result(result, mode) for result in answer.results),
        mode=mode,
        metric=answer.metric,
        unindexed=answer.unindexed_checkpoints,
        truncated=answer.truncated,
        warnings=tuple(map(warning_of, answer.warnings)),
    )


def _result(message: search.SearchResult, mode: str) -> SearchResult:
    return SearchResult(
        thread_id=message.ref.thread_id,
        checkpoint_ns=message.ref.checkpoint_ns,
        checkpoint_id=message.ref.checkpoint_id,
        summary=message.summary,
        content=message.content or message.summary,
        metadata=json.loads(message.metadata_json or b"{}"),
        distance=message.distance,
        mode=mode,
        truncated=message.truncated,
    )


def warning_of(message: ServiceWarning) -> SearchWarning:
    """Return the record of a warning."""
    return SearchWarning(kind_name(message.kind), message.message)


def by_words(
    query: str,
    limit: int,
    thread_id: str | None,
    agent_id: str | None,
    filter_metadata: Mapping[str, Any] | None,
    mode: SearchModeName | None,
) -> search.SearchCheckpointsRequest:
    """Return the request of a search with words; see `Client.search_history`.

    Raises:
        InvalidRequest: An argument is of a wrong type, or cannot be sent.
    """
    request = _searching(limit, thread_id, agent_id, filter_metadata)
    request.text = _text("query", query)
    if mode is not None:
        request.mode = choice("mode", mode, _MODES)
    return request


def by_vector(
    query_vector: Vector,
    limit: int,
    thread_id: str | None,
    agent_id: str | None,
    filter_metadata: Mapping[str, Any] | None,
    metric: MetricName,
) -> search.SearchCheckpointsRequest:
    """Return the request of a search with a vector; see `Client.search_similar`.

    Raises:
        InvalidRequest: An argument is of a wrong type, or cannot be sent.
    """
    request = _searching(limit, thread_id, agent_id, filter_metadata)
    request.vector.values.extend(components("query_vector", query_vector))
    request.metric = choice("metric", metric, _METRICS)
    return request


def _searching(
    limit: int,
    thread_id: str | None,
    agent_id: str | None,
    filter_metadata: Mapping[str, Any] | None,
) -> search.SearchCheckpointsRequest:
    return search.SearchCheckpointsRequest(
        thread_id=_thread(thread_id),
        agent_id=_text("agent_id", "" if agent_id is None else agent_id),
        filter_json=metadata_json(filter_metadata, "filter_metadata"),
        limit=limit_sent(limit),
    )


def _thread(thread_id: str | None) -> str:
    """Return a thread filter for a request: an empty text searches all threads."""
    if thread_id is None:
        return ""
    if thread_id == "":
        raise invalid_field("thread_id", "it must not be empty; None searches all threads")
    return _text("thread_id", thread_id)


def limit_sent(limit: int, what: str = "limit") -> int:
    """Return a limit for a request. The service checks its upper bound.

    Raises:
        InvalidRequest: The limit is not a whole number above 0. The message names it by `what`.
    """
    try:
        most = operator.index(limit)
    except TypeError:
        raise invalid_field(what, f"it must be a whole number, not {limit!r:.80}") from None
    if most < 1:
        raise invalid_field(what, f"it must be 1 or more, not {most}")
    return min(most, MAX_LIMIT)


def _text(name: str, text: str) -> str:
    check_text(name, text)
    return text


def kind_name(kind: int) -> str:
    """Return the name of a kind of warning, or its number if only newer servers have the kind."""
    kinds = WarningKind.values()
    if kind not in kinds:
        return str(kind)
    return WarningKind.Name(WarningKind.ValueType(kind)).removeprefix("WARNING_KIND_").lower()
