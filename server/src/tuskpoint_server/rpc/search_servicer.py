"""`SearchService` on the wire, and what the limits of the contract say about a search."""

from __future__ import annotations

from dataclasses import dataclass

from tuskpoint.v1 import errors_pb2
from tuskpoint.v1 import search_service_pb2 as pb

from ..domain.limits import LIMITS
from ..domain.search import (
    Metric,
    SearchMode,
    SearchQuery,
    SearchScope,
    pack_vector,
    vector_problem,
)
from ..domain.state import parse_object
from ..service.searching import Search
from .calls import Call
from .checks import Checks
from .convert import number, ref


@dataclass(frozen=True, slots=True)
class SearchServicer:
    """`SearchService`: finds checkpoints by what happened."""

    _search: Search

    async def SearchCheckpoints(
        self, request: pb.SearchCheckpointsRequest, call: Call
    ) -> pb.SearchCheckpointsResponse:
        answer = await self._search.search(call.tenant, search_query(request))
        message = pb.SearchCheckpointsResponse(
            mode=number(answer.mode),
            metric=answer.metric,
            unindexed_checkpoints=answer.unindexed,
            truncated=answer.truncated,
        )
        for found in answer.results:
            message.results.add(
                ref=ref(found.key),
                summary=found.summary,
                content=found.content,
                metadata_json=found.metadata,
                distance=found.distance,
                truncated=found.truncated,
            )
        if answer.fell_back:
            told = f"searched in mode {answer.mode.name.lower()}: {answer.fell_back}"
            message.warnings.add(kind=errors_pb2.WARNING_KIND_SEARCH_FELL_BACK, message=told)
        if answer.dropped:
            told = f"MemWal has {answer.dropped} more matches that it could not return"
            message.warnings.add(kind=errors_pb2.WARNING_KIND_MEMORIES_DROPPED, message=told)
        return message


def search_query(request: pb.SearchCheckpointsRequest) -> SearchQuery:
    """Check a search and return what it asks."""
    checks = Checks()
    kind, vector = request.WhichOneof("query"), request.vector.values
    if kind == "text":
        checks.text("text", request.text, LIMITS.max_query)
        checks.fail("text", "" if request.text.strip() else "must not be empty")
    elif kind == "vector":
        zero_allowed = request.metric == pb.SEARCH_METRIC_L2
        longest = LIMITS.max_vector_dimension
        checks.fail("vector.values", vector_problem(vector, longest, zero_allowed=zero_allowed))
    else:
        checks.fail("query", "must be set: text or vector")
    if request.limit > LIMITS.max_search_results:
        checks.fail("limit", f"must be 1 to {LIMITS.max_search_results}, or 0 for the default")
    wanted = _search_filter(checks, request.filter_json)
    checks.finish()
    return SearchQuery(
        text=request.text,
        vector=pack_vector(vector) if kind == "vector" else b"",
        scope=SearchScope(request.thread_id, request.agent_id, wanted),
        limit=request.limit or LIMITS.default_results,
        mode=SearchMode(request.mode) if request.mode else None,
        metric=Metric(request.metric) if request.metric else Metric.COSINE,
    )


def _search_filter(checks: Checks, raw: bytes) -> dict[str, object]:
    """Check a filter; an operator of another query language would match nothing, silently."""
    if not checks.at_most("filter_json", len(raw), LIMITS.max_metadata, " bytes"):
        return {}
    wanted = parse_object(raw, "filter_json")
    values: list[object] = [wanted]  # no recursion: a filter may be nested as deep as JSON may be
    while values:
        value = values.pop()
        if isinstance(value, dict):
            if operator := next((key for key in value if key.startswith("$")), ""):
                # JSON can spell halves of surrogate pairs, which no message can hold.
                told = operator[:80].encode(errors="backslashreplace").decode()
                problem = "is no operator: a filter names the values that metadata must equal"
                checks.fail("filter_json", f"'{told}' {problem}")
                return {}
            values += value.values()
        elif isinstance(value, list):
            values += value
    return wanted
