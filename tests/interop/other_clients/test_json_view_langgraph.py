"""Clients of any language can read LangGraph's checkpoints, and answer their interrupts."""

from __future__ import annotations

import dataclasses
import datetime
import json
import operator
import uuid
from collections.abc import Iterator
from typing import Annotated, Any, TypedDict

import grpc
import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import interrupt
from pydantic import BaseModel

from tuskpoint.langgraph import TuskPointSaver
from tuskpoint.v1 import checkpoint_pb2, thread_pb2, value_pb2
from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint.v1 import thread_service_pb2 as tpb
from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from tuskpoint.v1.thread_service_pb2_grpc import ThreadServiceStub

from ..graphs import delta_graph
from ..saver_arguments import at

NO_TASK = str(uuid.UUID(int=0))
"""Task that LangGraph records the input and the resume values of the whole graph under."""

INTERRUPTED = thread_pb2.THREAD_STATE_INTERRUPTED
FAILED = thread_pb2.THREAD_STATE_FAILED
IDLE = thread_pb2.THREAD_STATE_IDLE


@dataclasses.dataclass
class Plan:
    steps: list[str]


class Budget(BaseModel):
    euros: int


class State(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    plan: Plan
    budget: Budget
    due: datetime.datetime
    tags: set[str]
    vector: Any
    answer: Any


class Log(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]
    topic: str


@pytest.fixture
def checkpoints(server_target: str) -> Iterator[CheckpointServiceStub]:
    with grpc.insecure_channel(server_target) as channel:
        yield CheckpointServiceStub(channel)


@pytest.fixture
def threads(server_target: str) -> Iterator[ThreadServiceStub]:
    with grpc.insecure_channel(server_target) as channel:
        yield ThreadServiceStub(channel)


@pytest.fixture
def blocking_saver(server_target: str) -> Iterator[TuskPointSaver]:
    with TuskPointSaver(server_target) as saver:
        yield saver


def asking_graph(saver: TuskPointSaver) -> Any:
    """Plan, then ask a person."""
    numpy = pytest.importorskip("numpy")

    def plan(state: State) -> dict[str, Any]:
        return {
            "messages": [AIMessage("a plan", id="2")],
            "plan": Plan(["read", "write"]),
            "budget": Budget(euros=2**60),
            "due": datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC),
            "tags": {"urgent"},
            "vector": numpy.array([1.0], dtype="<f8"),
        }

    def ask(state: State) -> dict[str, Any]:
        return {"answer": interrupt({"question": "proceed?"})}

    graph = StateGraph(State)
    graph.add_node("plan", plan)
    graph.add_node("ask", ask)
    graph.add_edge(START, "plan")
    graph.add_edge("plan", "ask")
    graph.add_edge("ask", END)
    return graph.compile(checkpointer=saver)


def logging_graph(saver: TuskPointSaver) -> Any:
    graph = StateGraph(Log)
    graph.add_node("work", lambda state: {"log": [f"worked on {state['topic']}"]})
    graph.add_edge(START, "work")
    graph.add_edge("work", END)
    return graph.compile(checkpointer=saver)


def latest(thread_id: str) -> checkpoint_pb2.CheckpointRef:
    return checkpoint_pb2.CheckpointRef(thread_id=thread_id)


def viewed(checkpoints: CheckpointServiceStub, thread_id: str) -> checkpoint_pb2.Checkpoint:
    request = pb.GetCheckpointRequest(ref=latest(thread_id), view=checkpoint_pb2.VIEW_JSON)
    return checkpoints.GetCheckpoint(request).checkpoint


def listed(threads: ThreadServiceStub, state: Any) -> set[str]:
    thread_ids: set[str] = set()
    token = ""
    while True:
        request = tpb.ListThreadsRequest(state=state, page_size=1000, page_token=token)
        page = threads.ListThreads(request)
        thread_ids.update(thread.thread_id for thread in page.threads)
        token = page.next_page_token
        if not token:
            return thread_ids


def as_json(thing: Any) -> value_pb2.Value:
    return value_pb2.Value(type="json", data=json.dumps(thing).encode())


def test_the_state_of_a_graph_is_shown(
    checkpoints: CheckpointServiceStub, blocking_saver: TuskPointSaver, thread_id: str
) -> None:
    graph = asking_graph(blocking_saver)
    graph.invoke({"messages": [HumanMessage("hello", id="1")]}, at(thread_id))
    shown = {
        channel.name: json.loads(channel.value.data)
        for channel in viewed(checkpoints, thread_id).state.channels
        if channel.HasField("value")
    }
    messages = "langchain_core.messages"
    assert [
        (message["$type"], message["content"], message["id"]) for message in shown["messages"]
    ] == [
        (f"{messages}.human.HumanMessage", "hello", "1"),
        (f"{messages}.ai.AIMessage", "a plan", "2"),
    ]
    assert shown["plan"] == {"$type": f"{__name__}.Plan", "steps": ["read", "write"]}
    assert shown["budget"] == {"$type": f"{__name__}.Budget", "euros": {"$int": str(2**60)}}
    assert shown["due"]["$value"] == "2026-01-02T00:00:00+00:00"
    assert shown["tags"] == {"$type": "builtins.set", "$value": ["urgent"]}
    assert shown["vector"]["data"] == {"$bytes": "AAAAAAAA8D8="}
    assert "answer" not in shown


def test_delta_channels_are_shown_with_their_seeds_and_writes(
    checkpoints: CheckpointServiceStub, blocking_saver: TuskPointSaver, thread_id: str
) -> None:
    result = delta_graph(blocking_saver).invoke({"round": 0}, at(thread_id))
    shown = {
        channel.name: json.loads(channel.value.data)
        for channel in viewed(checkpoints, thread_id).state.channels
        if channel.HasField("value")
    }
    seed = shown["items"]["$seed"]["value"]
    assert seed + [item for items in shown["items"]["$delta"] for item in items] == result["items"]
    assert shown["rare"] == {"$delta": [result["rare"]]}
    assert shown["round"] == 5


def test_an_interrupted_thread_is_found_and_answered_from_any_language(
    checkpoints: CheckpointServiceStub,
    threads: ThreadServiceStub,
    blocking_saver: TuskPointSaver,
    thread_id: str,
) -> None:
    graph = asking_graph(blocking_saver)
    graph.invoke({"messages": [HumanMessage("hello")]}, at(thread_id))

    assert thread_id in listed(threads, INTERRUPTED)
    waiting = viewed(checkpoints, thread_id)
    (interrupt_write,) = [write for write in waiting.writes if write.channel == "__interrupt__"]
    (question,) = json.loads(interrupt_write.value.data)
    assert question["$type"] == "langgraph.types.Interrupt"
    assert question["value"] == {"question": "proceed?"}

    answer = {"approved": True, "by": "é"}
    resume = value_pb2.PendingWrite(task_id=NO_TASK, channel="__resume__", value=as_json(answer))
    checkpoints.SaveWrites(pb.SaveWritesRequest(ref=waiting.ref, writes=[resume]))
    written = [write for write in viewed(checkpoints, thread_id).writes if write.idx == -4]
    assert [json.loads(write.value.data) for write in written] == [answer]

    assert graph.invoke(None, at(thread_id))["answer"] == answer
    assert thread_id not in listed(threads, INTERRUPTED)
    assert thread_id in listed(threads, IDLE)


def test_tasks_that_wait_side_by_side_are_each_answered(
    checkpoints: CheckpointServiceStub, blocking_saver: TuskPointSaver, thread_id: str
) -> None:
    graph = StateGraph(Log)
    for node in ("left", "right"):
        graph.add_node(node, asking_twice(node))
        graph.add_edge(START, node)
    compiled = graph.compile(checkpointer=blocking_saver)
    compiled.invoke({"log": []}, at(thread_id))

    waiting = viewed(checkpoints, thread_id)
    interrupt_writes = [write for write in waiting.writes if write.channel == "__interrupt__"]
    assert len(interrupt_writes) == 2
    answers = [
        value_pb2.PendingWrite(
            task_id=write.task_id,
            channel="__resume__",
            value=as_json([f"{json.loads(write.value.data)[0]['value']}!", {"n": 2}]),
        )
        for write in interrupt_writes
    ]
    checkpoints.SaveWrites(pb.SaveWritesRequest(ref=waiting.ref, writes=answers))
    assert sorted(compiled.invoke(None, at(thread_id))["log"], key=str) == [
        ["left?!", {"n": 2}],
        ["right?!", {"n": 2}],
    ]


def asking_twice(node: str) -> Any:
    def ask(state: Log) -> dict[str, Any]:
        return {"log": [[interrupt(f"{node}?"), interrupt("and?")]]}

    return ask


def test_the_error_of_a_failed_task_is_shown(
    checkpoints: CheckpointServiceStub,
    threads: ThreadServiceStub,
    blocking_saver: TuskPointSaver,
    thread_id: str,
) -> None:
    graph = logging_graph(blocking_saver)
    with pytest.raises(KeyError):
        graph.invoke({"log": ["begun"]}, at(thread_id))
    assert thread_id in listed(threads, FAILED)
    errors = [
        json.loads(write.value.data)
        for write in viewed(checkpoints, thread_id).writes
        if write.channel == "__error__"
    ]
    assert errors == ["KeyError('topic')"]


def test_json_that_another_language_saved_is_loaded_and_continued(
    checkpoints: CheckpointServiceStub, blocking_saver: TuskPointSaver, thread_id: str
) -> None:
    values = {"log": [{"from": "go", "bytes": 1}, None, 1.5, "é"], "topic": "whales"}
    checkpoints.SaveCheckpoint(
        pb.SaveCheckpointRequest(
            checkpoint=checkpoint_pb2.Checkpoint(
                ref=latest(thread_id),
                state=checkpoint_pb2.CheckpointState(
                    schema_version=4,
                    ts="2026-01-02T00:00:00+00:00",
                    channels=[
                        value_pb2.Channel(
                            name=name, version=value_pb2.Version(integer=1), value=as_json(thing)
                        )
                        for name, thing in values.items()
                    ],
                ),
                metadata_json=b'{"source": "update", "step": 0, "parents": {}}',
            )
        )
    )
    loaded = blocking_saver.get_tuple(at(thread_id))
    assert loaded is not None
    assert loaded.checkpoint["channel_values"] == values
    graph = logging_graph(blocking_saver)
    assert graph.get_state(at(thread_id)).values == values
    result = graph.invoke({"log": ["python"]}, at(thread_id))
    assert result["log"] == [*values["log"], "python", "worked on whales"]
