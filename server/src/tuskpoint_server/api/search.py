"""`SearchService` on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from tuskpoint.v1 import errors_pb2
from tuskpoint.v1 import search_service_pb2 as search_pb

from ..core.limits import LIMITS
from ..core.search import (
    Metric,
    SearchMode,
    SearchQuery,
    SearchScope,
    pack_vector,
    vector_problem,
)
from ..core.state import parse_object
from ..features.searching import Search
from .messages.convert import damaged_warning, fill_fields, ref
from .messages.validation import Check, Checks
from .middleware.pipeline import Call


def _check_search(checks: Checks, request: search_pb.SearchCheckpointsRequest) -> None:
    kind, vector = request.WhichOneof("query"), request.vector.values
    if kind == "text":
        checks.text("text", request.text, LIMITS.max_query)
        checks.fail("text", "" if request.text.strip() else "must not be empty")
    elif kind == "vector":
        zero_allowed = request.metric == search_pb.SEARCH_METRIC_L2
        longest = LIMITS.max_vector_dimension
        checks.fail("vector.values", vector_problem(vector, longest, zero_allowed=zero_allowed))
    else:
        checks.fail("query", "must be set: text or vector")
    if request.limit > LIMITS.max_search_results:
        checks.fail("limit", f"must be 1 to {LIMITS.max_search_results}, or 0 for the default")
    raw = request.filter_json
    if not checks.at_most("filter_json", len(raw), LIMITS.max_metadata, " bytes"):
        return
    # No recursion: a filter may be nested as deep as JSON allows.
    values: list[object] = [parse_object(raw, "filter_json")]
    while values:
        value = values.pop()
        if isinstance(value, dict):
            # An operator of another query language would silently match nothing.
            if operator := next((key for key in value if key.startswith("$")), ""):
                # JSON can express halves of surrogate pairs, which no message can contain.
                text = operator[:80].encode(errors="backslashreplace").decode()
                problem = "is not an operator: a filter names the values that metadata must equal"
                checks.fail("filter_json", f"'{text}' {problem}")
                return
            values += value.values()
        elif isinstance(value, list):
            values += value


@dataclass(frozen=True, slots=True)
class SearchServicer:
    """`SearchService`: finds checkpoints by their content."""

    checks: ClassVar[Mapping[str, Check]] = {"SearchCheckpointsRequest": _check_search}
    _search: Search

    async def SearchCheckpoints(
        self, request: search_pb.SearchCheckpointsRequest, call: Call
    ) -> search_pb.SearchCheckpointsResponse:
        query = SearchQuery(
            text=request.text,
            vector=pack_vector(request.vector.values),
            scope=SearchScope(
                request.thread_id,
                request.agent_id,
                parse_object(request.filter_json, "filter_json"),
            ),
            limit=request.limit or LIMITS.default_results,
            mode=SearchMode(request.mode) if request.mode else None,
            metric=Metric(request.metric) if request.metric else Metric.COSINE,
        )
        answer = await self._search.search(call.tenant, query)
        message = search_pb.SearchCheckpointsResponse(unindexed_checkpoints=answer.unindexed)
        fill_fields(message, answer)
        for result in answer.results:
            result_message = message.results.add(ref=ref(result.key), metadata_json=result.metadata)
            fill_fields(result_message, result)
        if answer.fell_back:
            text = f"searched in mode {answer.mode.name.lower()}: {answer.fell_back}"
            message.warnings.add(kind=errors_pb2.WARNING_KIND_SEARCH_FELL_BACK, message=text)
        if answer.dropped:
            text = f"MemWal has {answer.dropped} more matches that it could not return"
            message.warnings.add(kind=errors_pb2.WARNING_KIND_MEMORIES_DROPPED, message=text)
        if answer.no_vectors:
            kind = errors_pb2.WARNING_KIND_NO_VECTORS
            message.warnings.add(kind=kind, message=answer.no_vectors)
        if answer.damaged:
            message.warnings.append(damaged_warning(answer.damaged))
        if answer.sealed:
            text = "the journal is sealed: summaries were searched, and no values"
            message.warnings.add(kind=errors_pb2.WARNING_KIND_VALUES_SEALED, message=text)
        if answer.cut:
            text = (
                f"checkpoints with more text than is indexed that were not found: {answer.cut}; "
                "search finds words of their summaries and of the latest part of their text"
            )
            message.warnings.add(kind=errors_pb2.WARNING_KIND_TEXT_TRUNCATED, message=text)
        return message
