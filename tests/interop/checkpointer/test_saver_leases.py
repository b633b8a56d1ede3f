"""Runs of a graph under a lease: one driver at a time, and double texting."""

import asyncio
import operator
import threading
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.errors import GraphRecursionError
from langgraph.graph import START, StateGraph

from tuskpoint.errors import LeaseLost, ThreadBusy
from tuskpoint.langgraph import TuskPointSaver

from ..saver_arguments import at


class Log(TypedDict):
    log: Annotated[list[str], operator.add]


def graph_of(saver: TuskPointSaver, begun: threading.Event, leave: threading.Event) -> Any:
    """Return a graph of two steps, whose first step waits until the test lets it go."""

    def first(state: Log) -> dict[str, Any]:
        begun.set()
        assert leave.wait(60)
        return {"log": ["first"]}

    builder = StateGraph(Log)
    builder.add_node("first", first)
    builder.add_node("second", lambda state: {"log": ["second"]})
    builder.add_edge(START, "first")
    builder.add_edge("first", "second")
    return builder.compile(checkpointer=saver)


def free() -> threading.Event:
    event = threading.Event()
    event.set()
    return event


async def test_a_second_run_is_rejected_or_waits(saver: TuskPointSaver, thread_id: str) -> None:
    begun, leave = threading.Event(), threading.Event()
    graph, config = graph_of(saver, begun, leave), at(thread_id)

    def run() -> Any:
        with saver.lease(thread_id, owner="first"):
            return graph.invoke({"log": []}, config)

    first = asyncio.create_task(asyncio.to_thread(run))
    await asyncio.to_thread(begun.wait, 60)
    with TuskPointSaver(saver._calls.options.target) as other:
        with pytest.raises(ThreadBusy) as busy, other.lease(thread_id):
            pass
        assert busy.value.owner == "first"
        follower = graph_of(other, begun, free())
        with pytest.raises(ThreadBusy):
            await asyncio.to_thread(follower.invoke, {"log": ["pushed in"]}, config)

        async def wait() -> Any:
            async with third.lease(thread_id, wait_s=60):
                return await graph_of(third, begun, free()).ainvoke({"log": []}, config)

        async with TuskPointSaver(saver._calls.options.target) as third:
            second = asyncio.create_task(wait())
            leave.set()
            assert (await first)["log"] == ["first", "second"]
            assert (await second)["log"] == ["first", "second"] * 2
    assert not [t for t in threading.enumerate() if t.name == "tuskpoint-heartbeat"]


async def test_a_run_that_was_taken_over_ends_at_its_next_save(
    saver: TuskPointSaver, thread_id: str
) -> None:
    begun, leave = threading.Event(), threading.Event()
    graph, config = graph_of(saver, begun, leave), at(thread_id)

    async def run() -> Any:
        async with saver.lease(thread_id, owner="first"):
            return await graph.ainvoke({"log": []}, config)

    first = asyncio.create_task(run())
    await asyncio.to_thread(begun.wait, 60)
    async with (
        TuskPointSaver(saver._calls.options.target) as other,
        other.lease(thread_id, on_busy="take_over"),
    ):
        leave.set()
        with pytest.raises(LeaseLost):
            await first
        result = await graph_of(other, begun, free()).ainvoke({"log": ["again"]}, config)
    assert result["log"] == ["again", "first", "second"]


@pytest.mark.parametrize("durability", ["async", "sync"])
async def test_a_long_run_that_was_taken_over_does_not_go_on_to_its_end(
    saver: TuskPointSaver, thread_id: str, durability: Any
) -> None:
    """LangGraph saves in the background, and reports a failed save only at the end of a run."""
    begun = threading.Event()

    def step(state: Log) -> dict[str, Any]:
        begun.set()
        return {"log": ["step"]}

    builder = StateGraph(Log)
    builder.add_node("step", step)
    builder.add_edge(START, "step")
    builder.add_edge("step", "step")
    graph: Any = builder.compile(checkpointer=saver)
    config = at(thread_id)

    def run() -> None:
        with saver.lease(thread_id, owner="first"):
            graph.invoke({"log": []}, {**config, "recursion_limit": 10**9}, durability=durability)

    async def run_async() -> None:
        async with saver.lease(thread_id, owner="first"):
            limit = {**config, "recursion_limit": 10**9}
            await graph.ainvoke({"log": []}, limit, durability=durability)

    for running in (asyncio.to_thread(run), run_async()):
        task = asyncio.ensure_future(running)
        async with TuskPointSaver(saver._calls.options.target) as other:
            await asyncio.to_thread(begun.wait, 60)
            lease = other.lease(thread_id, on_busy="take_over")
            async with lease:
                with pytest.raises(LeaseLost):
                    await task
            await other.adelete_thread(thread_id)
            begun.clear()


@pytest.mark.parametrize("durability", ["async", "sync"])
async def test_a_run_without_a_lease_does_not_go_on_to_its_end_on_a_busy_thread(
    saver: TuskPointSaver, thread_id: str, durability: Any
) -> None:
    steps: list[str] = []

    def step(state: Log) -> dict[str, Any]:
        steps.append("step")
        return {"log": ["step"]}

    builder = StateGraph(Log)
    builder.add_node("step", step)
    builder.add_edge(START, "step")
    builder.add_edge("step", "step")
    graph: Any = builder.compile(checkpointer=saver)
    config = {**at(thread_id), "recursion_limit": 10**9}
    async with TuskPointSaver(saver._calls.options.target) as other, other.lease(thread_id):
        with pytest.raises(ThreadBusy):
            await asyncio.to_thread(graph.invoke, {"log": []}, config, durability=durability)
        with pytest.raises(ThreadBusy):
            await graph.ainvoke({"log": []}, config, durability=durability)
        assert len(steps) < 1000, "the first save was refused, and the runs did not end"
        # The same context runs another thread, and this thread once it is free.
        free_thread = {**at(f"{thread_id}-free"), "recursion_limit": 3}
        with pytest.raises(GraphRecursionError):
            await graph.ainvoke({"log": []}, free_thread, durability=durability)
    with pytest.raises(GraphRecursionError):
        await graph.ainvoke({"log": []}, {**config, "recursion_limit": 3}, durability=durability)
