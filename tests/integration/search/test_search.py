"""Search over the network uses the server's own index."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from tests.kit.messages import channel, ref, refused, save_request
from tuskpoint.v1 import admin_service_pb2, thread_service_pb2, value_pb2
from tuskpoint.v1 import search_service_pb2 as pb
from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from tuskpoint.v1.search_service_pb2_grpc import SearchServiceStub
from tuskpoint_server.commands import serve
from tuskpoint_server.config.settings import Config

if TYPE_CHECKING:
    from tuskpoint.v1.admin_service_pb2_grpc import AdminServiceAsyncStub
    from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceAsyncStub
    from tuskpoint.v1.search_service_pb2_grpc import SearchServiceAsyncStub
    from tuskpoint.v1.thread_service_pb2_grpc import ThreadServiceAsyncStub

pytestmark = pytest.mark.usefixtures("database")

INVALID = grpc.StatusCode.INVALID_ARGUMENT
STEP = "1f000000-0000-6000-8000-{:012d}"


@pytest.fixture
def search(grpc_channel: grpc.aio.Channel) -> SearchServiceAsyncStub:
    return SearchServiceStub(grpc_channel)


async def save(
    checkpoints: CheckpointServiceAsyncStub,
    number: int,
    summary: str,
    *,
    thread_id: str = "thread",
    state: dict[str, object] | None = None,
    metadata: dict[str, object] | None = None,
    **fields: Any,
) -> str:
    """Save a checkpoint with JSON state; return its ID."""
    checkpoint_id = STEP.format(number)
    request = save_request(
        checkpoint_id,
        [
            channel(name, value=value_pb2.Value(type="json", data=json.dumps(value).encode()))
            for name, value in (state or {}).items()
        ],
        thread_id=thread_id,
        metadata=json.dumps(metadata or {}).encode(),
        **fields,
    )
    request.checkpoint.summary = summary
    await checkpoints.SaveCheckpoint(request)
    return checkpoint_id


async def find(search: SearchServiceAsyncStub, **fields: Any) -> list[str]:
    """Return the IDs of the results of a search, nearest first."""
    answer = await search.SearchCheckpoints(pb.SearchCheckpointsRequest(**fields))
    return [result.ref.checkpoint_id for result in answer.results]


def vector(*values: float) -> pb.QueryVector:
    return pb.QueryVector(values=values)


async def test_a_saved_checkpoint_is_found_at_once_and_loads(
    checkpoints: CheckpointServiceAsyncStub, search: SearchServiceAsyncStub
) -> None:
    await save(checkpoints, 1, "The planner split the report into sections")
    started = await save(
        checkpoints,
        2,
        "The writer started on the introduction",
        state={"draft": "Walruses live in the Arctic."},
        metadata={"outcome": "success"},
    )
    answer = await search.SearchCheckpoints(
        pb.SearchCheckpointsRequest(text="When did the writer start?")
    )
    assert (answer.mode, answer.metric) == (pb.SEARCH_MODE_LEXICAL, "bm25")
    assert (answer.unindexed_checkpoints, answer.truncated, list(answer.warnings)) == (0, False, [])
    result = answer.results[0]
    assert result.ref == ref(started)
    assert result.summary == "The writer started on the introduction"
    assert json.loads(result.content) == {"draft": "Walruses live in the Arctic."}
    assert json.loads(result.metadata_json) == {"outcome": "success"}
    assert 0 < result.distance < 1
    assert await find(search, text="walruses") == [started]


async def test_only_the_plan_of_a_state_is_searched(
    checkpoints: CheckpointServiceAsyncStub, search: SearchServiceAsyncStub
) -> None:
    planned = await save(
        checkpoints, 1, "step", state={"current_plan": "interview the crew", "other": "seal"}
    )
    assert await find(search, text="crew") == [planned]
    assert await find(search, text="seal") == []


@pytest.mark.parametrize("size", [10_000, 100_000])
async def test_a_long_plan_is_found_by_its_latest_part(
    checkpoints: CheckpointServiceAsyncStub, search: SearchServiceAsyncStub, size: int
) -> None:
    plan = "begin with walruses " + "and then " * (size // 9) + "end with puffins"
    planned = await save(checkpoints, 1, "step", state={"current_plan": plan})
    answer = await search.SearchCheckpoints(pb.SearchCheckpointsRequest(text="puffins"))
    [result] = answer.results
    assert result.ref.checkpoint_id == planned
    assert result.truncated
    assert result.content.endswith("end with puffins")
    assert await find(search, text="walruses") == []


async def test_a_re_save_is_found_by_its_new_text(
    checkpoints: CheckpointServiceAsyncStub, search: SearchServiceAsyncStub
) -> None:
    saved = await save(checkpoints, 1, "reviewed the budget")
    assert await find(search, text="budget") == [saved]
    await save(checkpoints, 1, "approved the schedule")
    assert await find(search, text="budget") == []
    assert await find(search, text="schedule") == [saved]


async def test_callers_vectors_are_searched_by_distance(
    checkpoints: CheckpointServiceAsyncStub, search: SearchServiceAsyncStub
) -> None:
    east = await save(checkpoints, 1, "east", vector=[1.0, 0.0])
    north = await save(checkpoints, 2, "north", vector=[0.0, 2.0])
    await save(checkpoints, 3, "nowhere")
    answer = await search.SearchCheckpoints(
        pb.SearchCheckpointsRequest(vector=vector(0.0, 1.0), limit=10)
    )
    assert (answer.mode, answer.metric) == (pb.SEARCH_MODE_VECTOR, "cosine")
    assert [result.ref.checkpoint_id for result in answer.results] == [north, east]
    assert [result.distance for result in answer.results] == pytest.approx([0.0, 1.0])
    answer = await search.SearchCheckpoints(
        pb.SearchCheckpointsRequest(vector=vector(0.0, 0.0), metric=pb.SEARCH_METRIC_L2)
    )
    assert answer.metric == "l2"
    assert [result.ref.checkpoint_id for result in answer.results] == [east, north]
    assert [result.distance for result in answer.results] == pytest.approx([1.0, 2.0])


async def test_scopes_keep_everything_else_out(
    checkpoints: CheckpointServiceAsyncStub, search: SearchServiceAsyncStub
) -> None:
    number = 0
    ids: dict[tuple[str, str], str] = {}
    for thread_id in ("one", "two"):
        for outcome in ("success", "failure"):
            number += 1
            ids[thread_id, outcome] = await save(
                checkpoints,
                number,
                "wrote the report",
                thread_id=thread_id,
                metadata={"outcome": outcome, "step": number, "done": True},
                agent_id=f"agent-{thread_id}",
                vector=[1.0, float(number)],
            )
    queries: tuple[dict[str, Any], ...] = ({"text": "report"}, {"vector": vector(1.0, 1.0)})
    for query in queries:
        assert set(await find(search, **query)) == set(ids.values())
        assert set(await find(search, **query, thread_id="one")) == {
            ids["one", "success"],
            ids["one", "failure"],
        }
        assert set(await find(search, **query, agent_id="agent-two")) == {
            ids["two", "success"],
            ids["two", "failure"],
        }
        assert await find(
            search, **query, thread_id="two", filter_json=b'{"outcome": "success"}'
        ) == [ids["two", "success"]]
        assert await find(search, **query, filter_json=b'{"step": 2.0}') == [ids["one", "failure"]]
        assert await find(search, **query, filter_json=b'{"done": 1}') == []
        assert await find(search, **query, filter_json=b'{"missing": null}') == []
        assert len(await find(search, **query, limit=3)) == 3


async def test_deleted_and_unsearchable_threads_are_not_found_from_then_on(
    checkpoints: CheckpointServiceAsyncStub,
    threads: ThreadServiceAsyncStub,
    search: SearchServiceAsyncStub,
) -> None:
    for thread_id in ("gone", "private"):
        await save(checkpoints, 1, "wrote the report", thread_id=thread_id, vector=[1.0])
    queries: tuple[dict[str, Any], ...] = ({"text": "report"}, {"vector": vector(1.0)})
    for query in queries:
        assert len(await find(search, **query)) == 2
    await threads.DeleteThread(thread_service_pb2.DeleteThreadRequest(thread_id="gone"))
    await threads.SetSearchable(
        thread_service_pb2.SetSearchableRequest(thread_id="private", searchable=False)
    )
    for query in queries:
        assert await find(search, **query) == []
    await threads.SetSearchable(
        thread_service_pb2.SetSearchableRequest(thread_id="private", searchable=True)
    )
    assert await find(search, text="report") == [STEP.format(1)]


BAD: list[tuple[dict[str, Any], str]] = [
    ({}, "query"),
    ({"text": ""}, "text"),
    ({"text": " \n\t"}, "text"),
    ({"text": "x" * 4097}, "text"),
    ({"vector": vector()}, "vector.values"),
    ({"vector": vector(float("nan"))}, "vector.values"),
    ({"vector": vector(1.0, float("inf"))}, "vector.values"),
    ({"vector": vector(0.0, 0.0)}, "vector.values"),
    ({"vector": vector(*[1.0] * 8193)}, "vector.values"),
    ({"vector": vector(1.0, 2.0, 3.0)}, "vector.values"),
    ({"vector": vector(1.0, 2.0), "mode": pb.SEARCH_MODE_LEXICAL}, "mode"),
    ({"text": "x", "limit": 101}, "limit"),
    ({"text": "x", "mode": 99}, "mode"),
    ({"text": "x", "metric": 99}, "metric"),
    ({"text": "x", "thread_id": "x" * 513}, "thread_id"),
    ({"text": "x", "thread_id": "$snapshot/1"}, "thread_id"),
    ({"text": "x", "agent_id": "x" * 257}, "agent_id"),
    ({"text": "x", "filter_json": b'{"step": {"$gt": 1}}'}, "filter_json"),
    ({"text": "x", "filter_json": b'{"$or": []}'}, "filter_json"),
    ({"text": "x", "filter_json": b'{"step": [{"a": {"$gt": 1}}]}'}, "filter_json"),
    ({"text": "x", "filter_json": rb'{"$\ud800": 1}'}, "filter_json"),
]


async def test_bad_searches_name_the_field(
    checkpoints: CheckpointServiceAsyncStub, search: SearchServiceAsyncStub
) -> None:
    await save(checkpoints, 1, "north", vector=[0.0, 1.0])
    for fields, violated in BAD:
        answer = await refused(search.SearchCheckpoints(pb.SearchCheckpointsRequest(**fields)))
        assert (answer.code, answer.reason) == (INVALID, "INVALID_FIELD"), fields
        assert violated in answer.fields, fields


NO_OBJECTS = [b"[]", b"{", b"null", b'{"x": NaN}', b"\xff"]


async def test_a_filter_that_is_no_json_object_is_refused(search: SearchServiceAsyncStub) -> None:
    for raw in NO_OBJECTS:
        request = pb.SearchCheckpointsRequest(text="x", filter_json=raw)
        answer = await refused(search.SearchCheckpoints(request))
        assert (answer.code, answer.reason) == (INVALID, "METADATA_NOT_JSON"), raw


@pytest.mark.parametrize("mode", [pb.SEARCH_MODE_VECTOR, pb.SEARCH_MODE_MEMWAL])
async def test_a_mode_that_the_server_lacks_is_refused(
    search: SearchServiceAsyncStub, mode: pb.SearchMode
) -> None:
    answer = await refused(
        search.SearchCheckpoints(pb.SearchCheckpointsRequest(text="x", mode=mode))
    )
    assert (answer.code, answer.reason) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        "SEARCH_UNAVAILABLE",
    )


async def test_status_and_info_report_the_state_of_search(
    checkpoints: CheckpointServiceAsyncStub,
    search: SearchServiceAsyncStub,
    admin: AdminServiceAsyncStub,
) -> None:
    await save(checkpoints, 1, "north", vector=[0.0, 1.0])
    await find(search, text="north")
    info = await admin.GetServerInfo(admin_service_pb2.GetServerInfoRequest())
    assert (list(info.search_modes), info.embedder) == ([pb.SEARCH_MODE_LEXICAL], "")
    assert "tuskpoint.v1.SearchService/SearchCheckpoints" in info.methods
    status = await admin.GetArchiveStatus(admin_service_pb2.GetArchiveStatusRequest())
    reported = status.search
    assert (reported.unindexed_checkpoints, reported.indexed_checkpoints, reported.vectors) == (
        0,
        1,
        1,
    )
    assert not reported.HasField("oldest_unindexed_time")
    assert not reported.HasField("memwal")


async def test_checkpoints_saved_without_an_index_are_indexed_once_there_is_one(
    config: Config,
) -> None:
    async with (
        serve.running_server(config.model_copy(update={"search": False})) as server,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as grpc_channel,
    ):
        await save(CheckpointServiceStub(grpc_channel), 1, "written while it was off")
        stub = SearchServiceStub(grpc_channel)
        answer = await refused(stub.SearchCheckpoints(pb.SearchCheckpointsRequest(text="written")))
        assert answer.reason == "SEARCH_UNAVAILABLE"
    async with (
        serve.running_server(config) as server,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as grpc_channel,
    ):
        assert await find(SearchServiceStub(grpc_channel), text="written") == [STEP.format(1)]
