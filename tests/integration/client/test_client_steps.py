"""Both clients return the steps of a graph, and what each thread waits for."""

from __future__ import annotations

import operator
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt

from tests.unit.client.faces import Face
from tuskpoint import Failure, InvalidRequest, StepRecord, TokenUsage, TuskPointSaver
from tuskpoint_server.api.server.server import Server


class State(TypedDict, total=False):
    notes: Annotated[list[Any], operator.add]


def plan(_: State) -> State:
    usage = {"input_tokens": 12, "output_tokens": 3, "total_tokens": 15}
    return {"notes": [AIMessage("A plan.", usage_metadata=usage)]}


def ask(_: State) -> State:
    return {"notes": [interrupt({"question": "Publish?"})]}


def fail(_: State) -> State:
    raise ValueError("no paper")


@pytest.fixture(params=["sync", "async"])
async def face(request: pytest.FixtureRequest, server: Server) -> AsyncIterator[Face]:
    made = Face(request.param, f"127.0.0.1:{server.port}")
    yield made
    await made.aclose()


@pytest.fixture(autouse=True)
async def graphs(server: Server) -> None:
    async with TuskPointSaver(f"127.0.0.1:{server.port}") as saver:
        for thread_id, node in (("asking", ask), ("failing", fail)):
            builder: Any = StateGraph(State)
            builder.add_node("plan", plan)
            builder.add_node("last", node)
            builder.add_edge(START, "plan")
            builder.add_edge("plan", "last")
            with suppress(ValueError):
                graph = builder.compile(checkpointer=saver)
                await graph.ainvoke({"notes": []}, {"configurable": {"thread_id": thread_id}})


async def test_a_step_is_in_every_read_that_asks_for_it(face: Face) -> None:
    latest = await face.call("load", "asking", view="step")
    [question] = latest.step.questions
    assert (question.node, question.text, question.answered) == ("last", "Publish?", False)
    assert latest.step == StepRecord(
        nodes=("plan",),
        changed_channels=("notes",),
        next_nodes=("last",),
        questions=(question,),
        tokens=TokenUsage(12, 3),
    )
    assert (dict(latest.channels), latest.writes) == ({}, ())
    listed = await face.take("list", 99, "asking", view="step")
    assert listed[0] == latest
    assert [record.step.nodes for record in listed] == [("plan",), (), ()]
    assert await face.take("replay", 99, "asking", view="step") == listed[::-1]
    saved = await face.take("watch", 3, "asking", kinds=["checkpoint_saved"], view="step")
    assert [event.checkpoint for event in saved] == listed[::-1]
    written = await face.take("watch", 3, "asking", kinds=["writes_saved"], view="step")
    assert written[-1].checkpoint.step.questions == (question,)
    for view in ("entry", "full", "json"):
        assert (await face.call("load", "asking", view=view)).step is None


async def test_a_step_is_not_read_from_the_blob_store(face: Face) -> None:
    with pytest.raises(InvalidRequest, match="VIEW_STEP with SOURCE_BLOB"):
        await face.call("load", "asking", view="step", source="blob")


async def test_a_thread_says_what_it_waits_for_or_why_it_failed(face: Face) -> None:
    asking, failing = await face.take("threads", 2)
    assert (asking.question.node, asking.question.text) == ("last", "Publish?")
    assert asking.failure is None
    assert asking.checkpoint_count == 3
    assert asking.summary.startswith("step 1: plan ran")
    assert failing.failure == Failure("last", "ValueError", "no paper")
    assert failing.question is None
    described = await face.call("thread", "asking")
    assert (described.question, described.summary) == (asking.question, asking.summary)


async def test_a_server_tells_its_port(face: Face, server: Server) -> None:
    assert (await face.call("info")).grpc_port == server.port
