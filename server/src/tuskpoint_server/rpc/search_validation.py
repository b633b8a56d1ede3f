"""What the limits of the contract say about a search."""

from __future__ import annotations

from tuskpoint.v1 import search_service_pb2 as pb

from ..domain.limits import LIMITS
from ..domain.metadata import parse_object
from ..domain.search import (
    Metric,
    SearchMode,
    SearchQuery,
    SearchScope,
    pack_vector,
    vector_problem,
)
from .checks import Checks

_TOLD_CHARS = 80


def search_query(request: pb.SearchCheckpointsRequest) -> SearchQuery:
    """Check a search and return what it asks.

    Raises:
        Refusal: `INVALID_FIELD`, `METADATA_NOT_JSON`.
    """
    checks = Checks()
    vector = _query(checks, request)
    if request.limit > LIMITS.max_results:
        checks.fail("limit", f"must be 1 to {LIMITS.max_results}, or 0 for the default")
    wanted = _filter(checks, request.filter_json)
    checks.finish()
    return SearchQuery(
        text=request.text,
        vector=vector,
        scope=SearchScope(request.thread_id, request.agent_id, wanted),
        limit=request.limit or LIMITS.default_results,
        mode=SearchMode(request.mode) if request.mode else None,
        metric=Metric(request.metric) if request.metric else Metric.COSINE,
    )


def _query(checks: Checks, request: pb.SearchCheckpointsRequest) -> bytes:
    """Check what is searched for; return the vector if it is one."""
    kind = request.WhichOneof("query")
    if kind == "text":
        checks.text("text", request.text, LIMITS.max_query)
        if not request.text.strip():
            checks.fail("text", "must not be empty")
    elif kind == "vector":
        values = request.vector.values
        zero_allowed = request.metric == pb.SEARCH_METRIC_L2
        if told := vector_problem(values, LIMITS.max_vector_dimension, zero_allowed=zero_allowed):
            checks.fail("vector.values", told)
        else:
            return pack_vector(values)
    else:
        checks.fail("query", "must be set: text or vector")
    return b""


def _filter(checks: Checks, raw: bytes) -> dict[str, object]:
    """Check a filter; an operator of another query language would match nothing, silently."""
    if len(raw) > LIMITS.max_metadata:
        checks.fail("filter_json", f"must be at most {LIMITS.max_metadata} bytes")
        return {}
    wanted = parse_object(raw, "filter_json")
    if operator := _operator(wanted):
        checks.fail(
            "filter_json",
            f"'{_told(operator)}' is no operator: a filter names the values that metadata must "
            "equal",
        )
    return wanted


def _operator(wanted: dict[str, object]) -> str:
    """Return a key, at any depth, that looks like an operator; empty if there is none."""
    values: list[object] = [wanted]  # no recursion: a filter may be nested as deep as JSON may be
    while values:
        value = values.pop()
        if isinstance(value, dict):
            if found := next((key for key in value if key.startswith("$")), ""):
                return found
            values += value.values()
        elif isinstance(value, list):
            values += value
    return ""


def _told(key: str) -> str:
    """Return a key as a message can hold it: JSON can spell halves of surrogate pairs."""
    return key[:_TOLD_CHARS].encode(errors="backslashreplace").decode()
