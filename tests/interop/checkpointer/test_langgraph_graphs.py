"""Real graphs give the same results on this saver as on LangGraph's in-memory saver."""

import os
import subprocess
import sys
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, Overwrite

from tests.interop.graphs import (
    Durability,
    Run,
    delta_graph,
    interrupted_graph,
    parallel_graph,
    story,
)
from tuskpoint._sync.calls import SyncCalls
from tuskpoint._transport.settings.options import Options
from tuskpoint.langgraph import TuskPointSaver
from tuskpoint.v1.checkpoint_pb2 import DURABILITY_CERTIFIED, VIEW_ENTRY, Checkpoint
from tuskpoint.v1.checkpoint_service_pb2 import ListCheckpointsRequest

DURABILITIES: list[Durability] = ["sync", "async", "exit"]


@pytest.fixture(params=["sync", "async"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=DURABILITIES)
def durability(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def savers(saver: TuskPointSaver) -> list[BaseCheckpointSaver[Any]]:
    """LangGraph's in-memory saver, then this project's saver."""
    return [InMemorySaver(), saver]


async def test_parallel_nodes(
    savers: list[Any], kind: str, durability: Durability, thread_id: str
) -> None:
    stories = []
    for saver in savers:
        run = Run(parallel_graph(saver), kind, durability, thread_id)
        results = [await run.invoke({"topic": topic, "log": ["in"]}) for topic in ("a", "b")]
        stories.append((results, [story(snapshot) for snapshot in await run.history()]))
    assert stories[1] == stories[0]
    assert len(stories[1][1]) == (2 if durability == "exit" else 10)


async def test_interrupts_in_a_subgraph(
    savers: list[Any], kind: str, durability: Durability, thread_id: str
) -> None:
    stories = []
    for saver in savers:
        run = Run(interrupted_graph(saver), kind, durability, thread_id)
        reported: list[Any] = []
        turns: list[Any] = [{"log": ["in"]}, Command(resume="yes"), Command(resume="no")]
        for turn in turns:
            result = await run.invoke(turn)
            interrupts = [interrupt.value for interrupt in result.pop("__interrupt__", ())]
            state = await run.state(subgraphs=True)
            reported.append((result, interrupts, story(state)))
            reported.append([story(task.state) for task in state.tasks if task.state])
        stories.append((reported, [story(snapshot) for snapshot in await run.history()]))
    assert stories[1] == stories[0]
    assert [interrupts for _, interrupts, _ in stories[1][0][::2]] == [
        [{"question": "one?"}],
        ["two?"],
        [],
    ]


async def test_time_travel_forks_a_thread(savers: list[Any], kind: str, thread_id: str) -> None:
    stories = []
    for saver in savers:
        run = Run(parallel_graph(saver), kind, "sync", thread_id)
        await run.invoke({"topic": "a", "log": []})
        planned = next(snapshot for snapshot in await run.history() if "dig" in snapshot.next)
        replayed = await run.invoke(None, planned.config)
        changed = await run.update(planned.config, {"topic": "changed", "log": ["fork"]}, "plan")
        forked = await run.invoke(None, changed)
        old = await run.state(planned.config)
        stories.append(
            (replayed, forked, story(old), [story(snapshot) for snapshot in await run.history()])
        )
    assert stories[1] == stories[0]
    assert stories[1][2]["values"]["topic"] == "a"
    assert "dig changed 1" in stories[1][1]["log"]


async def test_interrupted_threads_can_be_replayed_and_updated(
    savers: list[Any], kind: str, thread_id: str
) -> None:
    stories = []
    for saver in savers:
        run = Run(interrupted_graph(saver), kind, "async", thread_id)
        await run.invoke({"log": ["in"]})
        await run.update(run.config, {"log": ["from outside"]})
        await run.invoke(Command(resume="yes"))
        waiting = next(snapshot for snapshot in await run.history() if "child" in snapshot.next)
        again = await run.invoke(None, waiting.config)
        again.pop("__interrupt__", None)
        copied = await run.update(waiting.config, None, "__copy__")
        stories.append(
            (
                again,
                story(await run.state(copied)),
                [story(snapshot) for snapshot in await run.history(limit=4)],
                [story(snapshot) for snapshot in await run.history(filter={"source": "update"})],
            )
        )
    assert stories[1] == stories[0]


async def test_delta_channels(
    savers: list[Any], kind: str, durability: Durability, thread_id: str
) -> None:
    stories = []
    for saver in savers:
        run = Run(delta_graph(saver), kind, durability, thread_id)
        results = [await run.invoke({"items": [f"run {number}"]}) for number in range(4)]
        await run.update(run.config, {"items": ["from outside"]}, "echo")
        results.append(await run.invoke({"items": Overwrite(["reset"])}))
        stories.append((results, [story(snapshot) for snapshot in await run.history()]))
    assert stories[1] == stories[0]
    assert stories[1][0][3]["rare"] == [4, 8, 12, 16, 20][: len(stories[1][0][3]["rare"])]


async def test_delta_channels_fork(savers: list[Any], kind: str, thread_id: str) -> None:
    stories = []
    for saver in savers:
        run = Run(delta_graph(saver), kind, "sync", thread_id)
        await run.invoke({"items": ["in"]})
        middle = (await run.history())[3]
        forked = await run.update(middle.config, {"items": ["fork"]}, "turn")
        result = await run.invoke(None, forked)
        history = [story(snapshot) for snapshot in await run.history()]
        stories.append((result, story(await run.state(middle.config)), history))
    assert stories[1] == stories[0]


async def test_delta_channels_survive_pruning_and_copying(
    saver: TuskPointSaver, thread_id: str
) -> None:
    graph = delta_graph(saver)
    config: RunnableConfig = {"configurable": {"thread_id": thread_id}}
    for number in range(3):
        await graph.ainvoke({"items": [f"run {number}"]}, config)
    before = await graph.aget_state(config)
    await saver.acopy_thread(thread_id, f"{thread_id} copy")
    await saver.aprune([thread_id])

    assert len([checkpoint async for checkpoint in saver.alist(config)]) == 1
    copied: RunnableConfig = {"configurable": {"thread_id": f"{thread_id} copy"}}
    for thread in (config, copied):
        assert (await graph.aget_state(thread)).values == before.values
    after = [await graph.ainvoke({"items": ["more"]}, thread) for thread in (config, copied)]
    assert after[0] == after[1]
    assert after[0]["items"][: len(before.values["items"])] == before.values["items"]


async def test_runs_are_rolled_back(saver: TuskPointSaver, thread_id: str) -> None:
    graph = parallel_graph(saver)
    config: RunnableConfig = {"configurable": {"thread_id": thread_id}}
    await graph.ainvoke({"topic": "kept", "log": []}, {**config, "metadata": {"run_id": "one"}})
    before = await graph.aget_state(config)
    run_id = f"run of {thread_id}"
    await graph.ainvoke({"topic": "gone", "log": []}, {**config, "metadata": {"run_id": run_id}})
    await saver.adelete_for_runs([run_id])
    assert await graph.aget_state(config) == before


async def test_every_checkpoint_has_a_summary(
    server_target: str, saver: TuskPointSaver, thread_id: str
) -> None:
    await parallel_graph(saver).ainvoke(
        {"topic": "a", "log": []}, {"configurable": {"thread_id": thread_id}}
    )
    summaries = [entry.summary for entry in entries(server_target, thread_id)]
    assert summaries[::-1] == [
        "step -1: input received",
        "step 0: step finished; changed log, topic; next plan",
        "step 1: plan ran; changed current_plan, log; next ask, zoom; plan: research a",
        "step 2: ask, zoom, sent tasks ran; changed log; plan: research a",
        "step 3: write ran; changed log; plan: research a",
    ]


async def test_threads_with_integer_versions_go_on_with_integers(
    server_target: str, kind: str, thread_id: str
) -> None:
    class Counting(TuskPointSaver):
        def get_next_version(self, current: Any, channel: None) -> Any:
            return 1 if current is None else current + 1

    async with Counting(server_target) as began, TuskPointSaver(server_target) as goes_on:
        turn = {"topic": "a", "log": []}
        await Run(parallel_graph(began), kind, "sync", thread_id).invoke(turn)
        run = Run(parallel_graph(goes_on), kind, "sync", thread_id)
        await run.invoke(turn)
        log = (await run.invoke(turn))["log"]
        assert log.count("plan") == 3
        assert log[-1] == "26 notes"
        loaded = await goes_on.aget_tuple(run.config)
    assert loaded is not None
    assert {type(version) for version in loaded.checkpoint["channel_versions"].values()} == {int}


async def test_fenced_and_certified_runs(
    server_target: str, kind: str, durability: Durability, thread_id: str
) -> None:
    async with TuskPointSaver(server_target, fence=True, durability="certified") as saver:
        run = Run(interrupted_graph(saver), kind, durability, thread_id)
        turns: list[Any] = [{"log": ["in"]}, Command(resume="yes"), Command(resume="no")]
        results = [await run.invoke(turn) for turn in turns]
    assert results[-1]["log"][-1] == "after"
    stored = [entry.durability for entry in entries(server_target, thread_id)]
    assert stored
    assert set(stored) == {DURABILITY_CERTIFIED}


def entries(target: str, thread_id: str) -> list[Checkpoint]:
    """Return the server's entries of a thread's checkpoints, newest first."""
    calls = SyncCalls(Options.of(target))
    request = ListCheckpointsRequest(thread_id=thread_id, view=VIEW_ENTRY)
    checkpoints = [*calls.list_checkpoints(request)]
    calls.close()
    return checkpoints


STRICT = """
import sys
from dataclasses import dataclass
from typing import Annotated
import operator
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt, Command
from pydantic import BaseModel
from tuskpoint.langgraph import TuskPointSaver

@dataclass
class Note:
    text: str

class Stranger(BaseModel):
    text: str

class State(BaseModel):
    notes: Annotated[list[Note], operator.add] = []
    anything: object = None

def work(state):
    interrupt("proceed?")
    return {"notes": [Note("worked")], "anything": Stranger(text="s")}

with TuskPointSaver(sys.argv[1]) as saver:
    graph = StateGraph(State)
    graph.add_node("work", work)
    graph.add_edge(START, "work")
    graph = graph.compile(checkpointer=saver)
    config = {"configurable": {"thread_id": sys.argv[2]}}
    graph.invoke({"notes": [Note("in")]}, config)
    print(graph.invoke(Command(resume=True), config)["notes"])
    state = graph.get_state(config)
    print(state.values["notes"])
    print(state.values["anything"])
"""


def test_strict_deserialization_knows_the_graphs_own_types(
    server_target: str, thread_id: str
) -> None:
    result = subprocess.run(
        [sys.executable, "-c", STRICT, server_target, thread_id],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LANGGRAPH_STRICT_MSGPACK": "1"},
    )
    assert result.returncode == 0, result.stderr
    both = "[Note(text='in'), Note(text='worked')]"
    assert result.stdout.splitlines() == [both, both, "{'text': 's'}"]
