"""Both clients and the saver send searches, read results, and refuse bad arguments."""

from __future__ import annotations

import asyncio
import copy
import inspect
import logging
import math
import pickle
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from inspect import signature
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from tests.unit.client.faces import Face
from tests.unit.client.scripted_services import Refuse, ScriptedServices, serving
from tuskpoint import (
    Client,
    InvalidRequest,
    MemWalStatus,
    Reference,
    SearchResult,
    SearchResults,
    SearchStatus,
    SearchWarning,
    TuskPointSaver,
)
from tuskpoint._transport import warnings
from tuskpoint.v1 import admin_service_pb2 as admin
from tuskpoint.v1 import search_service_pb2 as pb
from tuskpoint.v1.checkpoint_pb2 import CheckpointRef
from tuskpoint.v1.errors_pb2 import WARNING_KIND_SEARCH_FELL_BACK
from tuskpoint.v1.errors_pb2 import Warning as ServiceWarning

FOUND = pb.SearchCheckpointsResponse(
    results=[
        pb.SearchResult(ref=CheckpointRef(thread_id="t", checkpoint_id="1"), summary="Began.")
    ],
    mode=pb.SEARCH_MODE_LEXICAL,
    metric="bm25",
    unindexed_checkpoints=3,
    truncated=True,
)
NOTHING = pb.SearchCheckpointsResponse(mode=pb.SEARCH_MODE_VECTOR, metric="cosine")
FELL_BACK = ServiceWarning(kind=WARNING_KIND_SEARCH_FELL_BACK, message="MemWal does not answer")
NEWER = ServiceWarning(kind=99, message="something else")  # type: ignore[arg-type]


class Searcher:
    """A client or a saver, whose sync or async methods are called in the same way."""

    def __init__(self, kind: str, target: str) -> None:
        self.holder, _, self.kind = kind.partition("-")
        self.face = Face(self.kind, target)
        self.saver = TuskPointSaver(target)

    async def __call__(self, name: str, *arguments: Any, **named: Any) -> Any:
        if self.holder == "client":
            return await self.face.call(name, *arguments, **named)
        if self.kind == "async":
            return await getattr(self.saver, f"a{name}")(*arguments, **named)
        return await asyncio.to_thread(getattr(self.saver, name), *arguments, **named)

    async def aclose(self) -> None:
        await self.face.aclose()
        await self.saver.aclose()


@pytest.fixture(params=["client-sync", "client-async", "saver-sync", "saver-async"])
async def search(request: pytest.FixtureRequest, target: str) -> AsyncIterator[Searcher]:
    made = Searcher(request.param, target)
    yield made
    await made.aclose()


# --- searches -------------------------------------------------------------------------


async def test_results_tell_what_a_search_may_have_missed(
    services: ScriptedServices, search: Searcher
) -> None:
    services.on("SearchCheckpoints", FOUND)
    results = await search("search_history", "writer")
    assert [result.ref for result in results] == [Reference("t", "", "1")]
    assert isinstance(results, SearchResults)
    assert (results.unindexed, results.truncated, results.warnings) == (3, True, ())


async def test_everything_that_a_search_may_ask(
    services: ScriptedServices, search: Searcher
) -> None:
    scope = {"agent_id": "writer", "filter_metadata": {"outcome": "success", "n": 1}}
    for _ in range(2):
        services.on("SearchCheckpoints", NOTHING)
    by_words = await search("search_history", "start", 7, thread_id="t", mode="memwal", **scope)
    by_vector = await search("search_similar", [1, 0.5], "t", 7, metric="l2", **scope)
    assert by_words == by_vector == []
    assert (by_vector.mode, by_vector.metric) == ("vector", "cosine")
    common: Any = {
        "thread_id": "t",
        "agent_id": "writer",
        "limit": 7,
        "filter_json": b'{"outcome":"success","n":1}',
    }
    assert services.requests == [
        pb.SearchCheckpointsRequest(text="start", mode=pb.SEARCH_MODE_MEMWAL, **common),
        pb.SearchCheckpointsRequest(
            vector=pb.QueryVector(values=[1, 0.5]), metric=pb.SEARCH_METRIC_L2, **common
        ),
    ]


async def test_warnings_come_with_the_results_and_are_logged(
    services: ScriptedServices,
    search: Searcher,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(warnings.WARNINGS, "_logged", {})
    warning = pb.SearchCheckpointsResponse(
        mode=pb.SEARCH_MODE_LEXICAL, metric="bm25", warnings=[FELL_BACK, NEWER]
    )
    services.on("SearchCheckpoints", warning)
    with caplog.at_level(logging.WARNING, "tuskpoint"):
        results = await search("search_history", "writer")
    assert results.warnings == (
        SearchWarning("search_fell_back", "MemWal does not answer"),
        SearchWarning("99", "something else"),
    )
    assert str(results.warnings[0]) == "MemWal does not answer"
    assert "warns (search_fell_back): MemWal does not answer" in caplog.messages[0]


async def test_a_mode_of_a_newer_server_is_its_number(
    services: ScriptedServices, search: Searcher
) -> None:
    newer = pb.SearchCheckpointsResponse(results=FOUND.results, mode=99)  # type: ignore[arg-type]
    services.on("SearchCheckpoints", newer)
    results = await search("search_history", "writer")
    assert [results.mode, results[0].mode] == ["99", "99"]


async def test_a_search_is_sent_again(services: ScriptedServices, search: Searcher) -> None:
    services.on("SearchCheckpoints", Refuse(grpc.StatusCode.UNAVAILABLE, "SEARCH_UNAVAILABLE"))
    services.on("SearchCheckpoints", FOUND)
    assert len(await search("search_history", "writer")) == 1
    first, second = services.requests
    assert first == second


BAD_SEARCHES: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("search_history", (5,), {}, "query: it must be a string, not 5"),
    (
        "search_history",
        ("\ud800",),
        {},
        "query: it has half of a surrogate pair, which UTF-8 cannot encode",
    ),
    ("search_history", ("q", 0), {}, "limit: it must be 1 or more, not 0"),
    ("search_history", ("q", -1), {}, "limit: it must be 1 or more, not -1"),
    ("search_history", ("q", 2.5), {}, "limit: it must be a whole number, not 2.5"),
    ("search_history", ("q",), {"thread_id": ""}, "thread_id: it must not be empty; None"),
    ("search_history", ("q",), {"agent_id": 5}, "agent_id: it must be a string, not 5"),
    ("search_history", ("q",), {"mode": "fuzzy"}, "mode: it must be 'lexical' or 'vector' or 'mem"),
    ("search_history", ("q",), {"filter_metadata": ["a"]}, "filter_metadata: it must be a mapping"),
    (
        "search_history",
        ("q",),
        {"filter_metadata": {"a": {1}}},
        "filter_metadata['a']: it cannot be",
    ),
    ("search_similar", ([1],), {"metric": "dot"}, "metric: it must be 'cosine' or 'l2', not 'dot'"),
    ("search_similar", ([],), {}, "query_vector: it must have at least one component"),
    (
        "search_similar",
        ([1, math.nan],),
        {},
        "query_vector: component 1 is nan, which is not finite",
    ),
]


@pytest.mark.parametrize(("name", "arguments", "named", "reported"), BAD_SEARCHES)
async def test_an_invalid_search_is_refused_before_it_is_sent(
    services: ScriptedServices,
    search: Searcher,
    name: str,
    arguments: tuple[Any, ...],
    named: dict[str, Any],
    reported: str,
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        await search(name, *arguments, **named)
    assert caught.value.message.startswith(reported)
    assert caught.value.reason == "INVALID_FIELD"
    assert services.requests == []


async def test_a_limit_above_the_services_is_the_services_to_refuse(
    services: ScriptedServices, search: Searcher
) -> None:
    services.on("SearchCheckpoints", NOTHING)
    await search("search_history", "writer", 2**40)
    assert services.requests[0].limit == 2**32 - 1


async def test_a_saver_takes_a_thread_id_of_any_type(services: ScriptedServices) -> None:
    with serving(services) as target:
        async with TuskPointSaver(target) as saver:
            for _ in range(2):
                services.on("SearchCheckpoints", NOTHING)
            clone = copy.copy(saver)
            await clone.asearch_history("q", thread_id=7)  # type: ignore[arg-type]
            await clone.asearch_similar([1], 0)  # type: ignore[arg-type]
    assert [request.thread_id for request in services.requests] == ["7", "0"]


@pytest.mark.parametrize("name", ["search_history", "search_similar"])
def test_the_saver_searches_as_the_clients_do(name: str) -> None:
    parameters = signature(getattr(Client, name)).parameters
    assert signature(getattr(TuskPointSaver, name)).parameters == parameters
    assert signature(getattr(TuskPointSaver, f"a{name}")).parameters == parameters
    reported = inspect.getdoc(getattr(TuskPointSaver, name)) or ""
    assert [name for name in [*parameters][1:] if f"    {name}: " not in reported] == []


def test_results_can_be_copied_and_pickled() -> None:
    result = SearchResult("t", "", "1", "s", "c", {"a": 1}, 0.5, "vector")
    results = SearchResults([result], mode="vector", metric="l2", unindexed=1)
    for again in (copy.copy(results), copy.deepcopy(results), pickle.loads(pickle.dumps(results))):  # noqa: S301
        assert again == results
        assert (again.mode, again.metric, again.unindexed) == ("vector", "l2", 1)


async def test_the_status_of_search_is_read(services: ScriptedServices, face: Face) -> None:
    time = Timestamp(seconds=1_700_000_000)
    when = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    memwal = admin.MemWalStatus(
        healthy=True,
        waiting=1,
        underway=2,
        delivered=3,
        oldest_waiting_time=time,
        last_error="429",
        last_error_time=time,
        last_recall_time=time,
    )
    status = admin.SearchStatus(
        unindexed_checkpoints=4,
        oldest_unindexed_time=time,
        indexed_checkpoints=5,
        vectors=6,
        last_error="disk full",
        memwal=memwal,
    )
    services.on("GetArchiveStatus", admin.GetArchiveStatusResponse(search=status))
    reported = MemWalStatus(True, 1, 2, 3, when, "429", when, when)
    assert (await face.call("status")).search == SearchStatus(4, when, 5, 6, "disk full", reported)
    services.on("GetArchiveStatus", admin.GetArchiveStatusResponse(search=admin.SearchStatus()))
    assert (await face.call("status")).search == SearchStatus(0, None, 0, 0, "", None)
    services.on("GetArchiveStatus", admin.GetArchiveStatusResponse())
    assert (await face.call("status")).search is None


async def test_the_search_modes_of_the_server_are_read(
    services: ScriptedServices, face: Face
) -> None:
    modes: list[Any] = [pb.SEARCH_MODE_LEXICAL, pb.SEARCH_MODE_VECTOR, 99]
    services.on("GetServerInfo", admin.GetServerInfoResponse(search_modes=modes, embedder="local"))
    info = await face.call("info")
    assert (info.search_modes, info.embedder) == (("lexical", "vector", "99"), "local")
