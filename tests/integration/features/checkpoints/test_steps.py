"""`VIEW_STEP` says what LangGraph's steps did and wait for, on both databases."""

from __future__ import annotations

import operator
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from langchain_core.messages import AIMessage, AnyMessage
from langgraph.func import entrypoint, task
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


async def test_every_read_tells_the_same_step(
    graph: CompiledStateGraph[Any],
    checkpoints: CheckpointServiceAsyncStub,
    grpc_channel: grpc.aio.Channel,
) -> None:
    await graph.ainvoke({"notes": []}, CONFIG)
    history: HistoryServiceAsyncStub = HistoryServiceStub(grpc_channel)
    listed = await collect(
        checkpoints.ListCheckpoints(pb.ListCheckpointsRequest(thread_id="thread", view=STEP))
    )
    assert len(listed) == 6
    for checkpoint in listed:
        get = pb.GetCheckpointRequest(ref=checkpoint.ref, view=STEP)
        assert (await checkpoints.GetCheckpoint(get)).checkpoint == checkpoint
        load = pb.LoadCheckpointRequest(ref=checkpoint.ref, view=STEP)
        assert await collect(checkpoints.LoadCheckpoint(load)) == [checkpoint]
    latest = pb.GetCheckpointRequest(
        ref=checkpoint_pb2.CheckpointRef(thread_id="thread"), view=STEP
    )
    assert (await checkpoints.GetCheckpoint(latest)).checkpoint == listed[0]
    for number in range(len(listed)):
        request = pb.ListCheckpointsRequest(
            thread_id="thread", view=STEP, limit=1, before=listed[number - 1].ref.checkpoint_id
        )
        if not number:
            request.ClearField("before")
        assert await collect(checkpoints.ListCheckpoints(request)) == [listed[number]]
    replay = history_service_pb2.ReplayThreadRequest(thread_id="thread", view=STEP)
    replayed = [answer.checkpoint async for answer in history.ReplayThread(replay)]
    assert replayed == listed[::-1]
    watch = history.WatchThread(
        history_service_pb2.WatchThreadRequest(
            thread_id="thread",
            view=STEP,
            kinds=[history_service_pb2.EVENT_KIND_CHECKPOINT_SAVED],
            progress_interval=Duration(seconds=1),
        )
    )
    watched = [answer.event.checkpoint async for answer in _until_progress(watch)]
    assert watched == listed[::-1]


async def test_updates_and_rollbacks_ran_nothing(
    graph: CompiledStateGraph[Any],
    checkpoints: CheckpointServiceAsyncStub,
    threads: ThreadServiceAsyncStub,
) -> None:
    await graph.ainvoke({"notes": []}, CONFIG)
    await graph.aupdate_state(CONFIG, {"notes": ["by hand"]}, as_node="join")
    steps = await steps_of(checkpoints)
    updated = step_pb2.Step(changed_channels=["notes"], next_nodes=["approve"])
    assert (steps[-2].questions[0].answered, steps[-1]) == (False, updated)
    first = [snapshot async for snapshot in graph.aget_state_history(CONFIG)][-2].config
    ref = checkpoint_pb2.CheckpointRef(
        thread_id="thread", checkpoint_id=first["configurable"]["checkpoint_id"]
    )
    await threads.RollbackThread(tpb.RollbackThreadRequest(ref=ref))
    rolled_back = (await steps_of(checkpoints))[-1]
    assert rolled_back == step_pb2.Step(changed_channels=["notes"], next_nodes=["plan"])
    forked = await threads.ForkThread(tpb.ForkThreadRequest(ref=ref, new_thread_id="fork"))
    request = pb.GetCheckpointRequest(ref=forked.ref, view=STEP)
    step = (await checkpoints.GetCheckpoint(request)).checkpoint.step
    assert step == step_pb2.Step(changed_channels=["notes"], next_nodes=["plan"])


async def test_jumps_handlers_and_subgraphs_are_told(
    server: Server, checkpoints: CheckpointServiceAsyncStub
) -> None:
    inner: Any = StateGraph(State)
    inner.add_node("inner", approve)
    inner.add_edge(START, "inner")
    builder: Any = StateGraph(State)
    builder.add_node("route", lambda _: Command(goto=["child", Send("read", {})]))
    builder.add_node("read", publish, error_handler=note)
    builder.add_node("child", inner.compile())
    builder.add_edge(START, "route")
    async with TuskPointSaver(f"127.0.0.1:{server.port}") as saver:
        await builder.compile(checkpointer=saver).ainvoke({"notes": ["in"]}, CONFIG)
    request = pb.ListCheckpointsRequest(thread_id="thread", view=STEP)
    listed = await collect(checkpoints.ListCheckpoints(request))
    steps: dict[str, list[step_pb2.Step]] = {}
    for checkpoint in reversed(listed):
        steps.setdefault(checkpoint.ref.checkpoint_ns.partition(":")[0], []).append(checkpoint.step)
    assert [[*step.nodes] for step in steps[""]] == [[], [], ["route"]]
    head = steps[""][-1]
    assert [*head.next_nodes] == ["child", "read"]
    assert [question.node for question in head.questions] == ["child"]
    assert [(failure.node, failure.type) for failure in head.failures] == [("read", "ValueError")]
    [question] = steps["child"][-1].questions
    assert (question.node, question.text) == ("inner", "Publish the briefing?")


async def test_a_function_is_told_once_its_tasks_write(
    server: Server, checkpoints: CheckpointServiceAsyncStub
) -> None:
    @task
    def ask_model(_: object) -> AIMessage:
        usage = {"input_tokens": 10, "output_tokens": 2, "total_tokens": 12}
        return AIMessage("Three documents.", usage_metadata=usage)

    async with TuskPointSaver(f"127.0.0.1:{server.port}") as saver:

        @entrypoint(checkpointer=saver)
        async def flow(topic: str) -> list[Any]:
            message = await ask_model(topic)
            return [message, interrupt("Publish?")]

        await flow.ainvoke("topic", CONFIG)
        [step] = await steps_of(checkpoints)
        assert [*step.next_nodes] == ["flow"]
        [question] = step.questions
        assert (question.node, question.text, question.answered) == ("flow", "Publish?", False)
        await flow.ainvoke(Command(resume="yes"), CONFIG)
        step = (await steps_of(checkpoints))[-1]
        assert ([*step.nodes], [*step.next_nodes]) == (["flow"], [])
        assert (step.tokens.input_tokens, step.tokens.output_tokens) == (10, 2)


async def test_many_questions_are_cut_and_open_ones_come_first(
    server: Server, checkpoints: CheckpointServiceAsyncStub, threads: ThreadServiceAsyncStub
) -> None:
    builder: Any = StateGraph(State)
    builder.add_node("ask", lambda state: {"notes": [interrupt(state["verdict"])]})
    builder.add_conditional_edges(
        START, lambda _: [Send("ask", {"verdict": f"{number:02}?"}) for number in range(30)]
    )
    async with TuskPointSaver(f"127.0.0.1:{server.port}") as saver:
        compiled = builder.compile(checkpointer=saver)
        result = await compiled.ainvoke({"notes": []}, CONFIG)
        first = (await steps_of(checkpoints))[-1].questions
        assert [(asked.node, asked.text) for asked in first] == [
            ("ask", f"{number:02}?") for number in range(20)
        ]
        answers = {asked.id: "yes" for asked in result["__interrupt__"] if asked.value < "15?"}
        await compiled.ainvoke(Command(resume=answers), CONFIG)
    questions = (await steps_of(checkpoints))[-1].questions
    assert [asked.text for asked in questions if not asked.answered] == [
        f"{number:02}?" for number in range(15, 30)
    ]
    assert [asked.text for asked in questions] == [
        *(f"{number:02}?" for number in (*range(5), *range(15, 30)))
    ]
    [thread] = (await threads.ListThreads(tpb.ListThreadsRequest())).threads
    assert thread.question.text == "15?"


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
