"""`VIEW_STEP` says what LangGraph's steps did and wait for, on both databases."""

from __future__ import annotations

import operator
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from langchain_core.messages import AIMessage, AnyMessage
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, Send, interrupt

from tests.kit.messages import collect
from tuskpoint import TuskPointSaver
from tuskpoint.v1 import checkpoint_pb2, history_service_pb2, step_pb2
from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint.v1 import thread_service_pb2 as tpb
from tuskpoint.v1.history_service_pb2_grpc import HistoryServiceStub
from tuskpoint_server.api.server.server import Server

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

    from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceAsyncStub
    from tuskpoint.v1.history_service_pb2_grpc import HistoryServiceAsyncStub
    from tuskpoint.v1.thread_service_pb2_grpc import ThreadServiceAsyncStub

pytestmark = pytest.mark.usefixtures("database")

STEP = checkpoint_pb2.VIEW_STEP
CONFIG: RunnableConfig = {"configurable": {"thread_id": "thread"}}


class State(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    notes: Annotated[list[str], operator.add]
    verdict: str


def plan(_: State) -> State:
    usage = {"input_tokens": 1200, "output_tokens": 34, "total_tokens": 1234}
    return {"messages": [AIMessage("Three documents.", usage_metadata=usage)]}


def send(_: State) -> list[Send]:
    return [Send("read", {"notes": [name]}) for name in ("a", "b", "c")]


def note(_: State) -> State:
    return {"notes": ["noted"]}


def approve(_: State) -> State:
    return {"verdict": interrupt({"question": "Publish the briefing?", "options": ["yes", "no"]})}


def publish(_: State) -> State:
    raise ValueError("the printer is out of paper\ntray 2 is empty")


@pytest.fixture
async def graph(server: Server) -> AsyncIterator[CompiledStateGraph[Any]]:
    builder: Any = StateGraph(State)
    for name, node in (("plan", plan), ("read", note), ("left", note), ("right", note)):
        builder.add_node(name, node)
    for name, node in (("join", note), ("approve", approve), ("publish", publish)):
        builder.add_node(name, node)
    builder.add_edge(START, "plan")
    builder.add_conditional_edges("plan", send, ["read"])
    builder.add_edge("read", "left")
    builder.add_edge("read", "right")
    builder.add_edge(["left", "right"], "join")
    builder.add_edge("join", "approve")
    builder.add_edge("approve", "publish")
    async with TuskPointSaver(f"127.0.0.1:{server.port}") as saver:
        yield builder.compile(checkpointer=saver)


async def steps_of(checkpoints: CheckpointServiceAsyncStub) -> list[step_pb2.Step]:
    """Return the steps of the thread, the first step first."""
    request = pb.ListCheckpointsRequest(thread_id="thread", view=STEP)
    listed = await collect(checkpoints.ListCheckpoints(request))
    assert not any(checkpoint.HasField("state") for checkpoint in listed)
    return [checkpoint.step for checkpoint in reversed(listed)]


async def test_steps_name_what_ran_what_changed_and_what_comes_next(
    graph: CompiledStateGraph[Any], checkpoints: CheckpointServiceAsyncStub
) -> None:
    await graph.ainvoke({"notes": []}, CONFIG)
    steps = await steps_of(checkpoints)
    assert [[*step.nodes] for step in steps] == [
        *([], [], ["plan"], ["read"]),
        *(["left", "right"], ["join"]),
    ]
    assert [[*step.next_nodes] for step in steps] == [
        *([], ["plan"], ["read"], ["left", "right"]),
        *(["join"], ["approve"]),
    ]
    assert [[*step.changed_channels] for step in steps] == [
        *([], ["notes"], ["messages"], ["notes"]),
        *(["notes"], ["notes"]),
    ]
    assert [(step.tokens.input_tokens, step.tokens.output_tokens) for step in steps] == [
        *((0, 0), (0, 0), (1200, 34), (0, 0)),
        *((0, 0), (0, 0)),
    ]
    assert [step.HasField("tokens") for step in steps] == [False, False, True] + [False] * 3


async def test_a_question_and_a_failure_are_told_with_their_nodes(
    graph: CompiledStateGraph[Any],
    checkpoints: CheckpointServiceAsyncStub,
    threads: ThreadServiceAsyncStub,
) -> None:
    await graph.ainvoke({"notes": []}, CONFIG)
    [question] = (await steps_of(checkpoints))[-1].questions
    assert (question.node, question.text) == ("approve", "Publish the briefing?")
    assert question.interrupt_id
    assert not question.answered
    [thread] = (await threads.ListThreads(tpb.ListThreadsRequest())).threads
    assert (thread.question, thread.HasField("failure")) == (question, False)
    assert thread.checkpoint_count == 6
    assert thread.summary.startswith("step 4: join ran")

    with pytest.raises(ValueError, match="paper"):
        await graph.ainvoke(Command(resume="yes"), CONFIG)
    steps = await steps_of(checkpoints)
    assert steps[-2].questions[0].answered
    failure = step_pb2.Failure(
        node="publish",
        type="ValueError",
        message="the printer is out of paper\ntray 2 is empty",
    )
    assert [*steps[-1].failures] == [failure]
    thread = (await threads.GetThread(tpb.GetThreadRequest(thread_id="thread"))).thread
    assert (thread.failure, thread.HasField("question")) == (failure, False)


async def test_a_watch_tells_a_question_when_it_is_asked(
    graph: CompiledStateGraph[Any], grpc_channel: grpc.aio.Channel
) -> None:
    await graph.ainvoke({"notes": []}, CONFIG)
    history: HistoryServiceAsyncStub = HistoryServiceStub(grpc_channel)
    request = history_service_pb2.WatchThreadRequest(
        thread_id="thread", view=STEP, progress_interval=Duration(seconds=1)
    )
    watch = history.WatchThread(request)
    asked = [
        answer.event.checkpoint.step.questions[0].text
        async for answer in _until_progress(watch)
        if answer.event.kind == history_service_pb2.EVENT_KIND_WRITES_SAVED
        and answer.event.checkpoint.step.questions
    ]
    assert asked == ["Publish the briefing?"]


async def _until_progress(watch: Any) -> AsyncIterator[history_service_pb2.WatchThreadResponse]:
    async for answer in watch:
        if answer.event.kind == history_service_pb2.EVENT_KIND_PROGRESS:
            watch.cancel()
            return
        yield answer


async def test_steps_are_not_read_from_the_blob_store(
    checkpoints: CheckpointServiceAsyncStub,
) -> None:
    request = pb.ListCheckpointsRequest(
        thread_id="thread", view=STEP, source=checkpoint_pb2.SOURCE_BLOB
    )
    with pytest.raises(grpc.aio.AioRpcError, match="view: must not be VIEW_STEP with SOURCE_BLOB"):
        await collect(checkpoints.ListCheckpoints(request))
