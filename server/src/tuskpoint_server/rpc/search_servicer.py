"""`SearchService` on the wire."""

from __future__ import annotations

from tuskpoint.v1 import errors_pb2
from tuskpoint.v1 import search_service_pb2 as pb

from ..domain.search import Found, SearchAnswer
from ..service.searching import Search
from . import convert
from .calls import Call
from .search_validation import search_query


class SearchServicer:
    """Finds checkpoints by what happened."""

    def __init__(self, search: Search) -> None:
        self._search = search

    async def SearchCheckpoints(
        self, request: pb.SearchCheckpointsRequest, call: Call
    ) -> pb.SearchCheckpointsResponse:
        """Return pointers, nearest first."""
        answer = await self._search.search(call.tenant, search_query(request))
        return pb.SearchCheckpointsResponse(
            results=[_result(found) for found in answer.results],
            mode=pb.SearchMode.Name(answer.mode),
            metric=answer.metric,
            unindexed_checkpoints=answer.unindexed,
            truncated=answer.truncated,
            warnings=_warnings(answer),
        )


def _result(found: Found) -> pb.SearchResult:
    return pb.SearchResult(
        ref=convert.ref(found.key),
        summary=found.summary,
        content=found.content,
        metadata_json=found.metadata,
        distance=found.distance,
        truncated=found.truncated,
    )


def _warnings(answer: SearchAnswer) -> list[errors_pb2.Warning]:
    told = []
    if answer.fell_back:
        told.append(
            errors_pb2.Warning(
                kind=errors_pb2.WARNING_KIND_SEARCH_FELL_BACK,
                message=f"searched in mode {answer.mode.name.lower()}: {answer.fell_back}",
            )
        )
    if answer.dropped:
        told.append(
            errors_pb2.Warning(
                kind=errors_pb2.WARNING_KIND_MEMORIES_DROPPED,
                message=f"MemWal has {answer.dropped} more matches that it could not return",
            )
        )
    return told
