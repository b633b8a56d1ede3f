"""Graphs, and forks and hand-offs of their threads, within a server or to another."""

from __future__ import annotations

import operator
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, StateUpdate, interrupt

from tests.interop.graphs import Run, delta_graph, interrupted_graph, parallel_graph, story
from tests.interop.saver_arguments import at, id_of
from tuskpoint.langgraph import TuskPointSaver

Build = Callable[[BaseCheckpointSaver[Any]], Any]


class Asking(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]


class Memory(TypedDict, total=False):
    said: str
    notes: Annotated[list[str], operator.add]
    log: Annotated[list[Any], operator.add]


def asking_graph(saver: BaseCheckpointSaver[Any], ran: list[str] | None = None) -> Any:
    """Two parallel nodes that ask, a node that does not ask, and a node after all of them."""
    ran = ran if ran is not None else []

    def asks(name: str) -> Any:
        def node(state: Asking) -> dict[str, Any]:
            ran.append(name)
            return {"log": [f"{name}: {interrupt(f'{name}?')}"]}

        return node

    def works(state: Asking) -> dict[str, Any]:
        ran.append("works")
        return {"log": ["worked"]}

    graph = StateGraph(Asking)
    graph.add_node("one", asks("one"))
    graph.add_node("two", asks("two"))
    graph.add_node("works", works)
    for name in ("one", "two", "works"):
        graph.add_edge(START, name)
    graph.add_node("end", lambda state: {"log": [f"{len(state['log'])} before"]})
    graph.add_edge(["one", "two", "works"], "end")
    return graph.compile(checkpointer=saver)


def memory_graph(saver: BaseCheckpointSaver[Any]) -> Any:
    """A subgraph that keeps its notes from run to run, and interrupts on request."""

    def note(state: Memory) -> dict[str, Any]:
        return {"notes": [state["said"]]}

    def answer(state: Memory) -> dict[str, Any]:
        if state["said"] == "ask":
            return {"log": [f"heard {interrupt('what?')} of {state['notes']}"]}
        return {"log": [f"knows {state['notes']}"]}

    child = StateGraph(Memory)
    child.add_node("note", note)
    child.add_node("answer", answer)
    child.add_edge(START, "note")
    child.add_edge("note", "answer")
    keeper = child.compile(checkpointer=True)

    graph = StateGraph(Memory)
    graph.add_node("before", lambda state: {"log": []})
    graph.add_node(
        "keeper", lambda state: {"log": keeper.invoke({"said": state["said"], "log": []})["log"]}
    )
    graph.add_node("after", lambda state: {"log": ["after"]})
    graph.add_edge(START, "before")
    graph.add_edge("before", "keeper")
    graph.add_edge("keeper", "after")
    return graph.compile(checkpointer=saver)


@dataclass
class Two:
    """Savers of two servers."""

    here: TuskPointSaver
    there: TuskPointSaver


@dataclass(frozen=True)
class Descent:
    """Creates a thread that starts with a checkpoint of another thread."""

    two: Two
    way: str

    async def __call__(self, build: Build, thread_id: str, checkpoint_id: str | None = None) -> Run:
        made = f"{self.way}-{uuid.uuid4()}"
        if self.way == "forked":
            await self.two.here.afork(thread_id, checkpoint_id, made)
            return run_on(build(self.two.here), made)
        descriptor = await self.two.here.ahandoff_checkpoint(thread_id, checkpoint_id)
        adoption = await self.two.there.aadopt_checkpoint(descriptor, made)
        assert adoption["verified"]
        return run_on(build(self.two.there), made)

    def begun(self, source: Any) -> Any:
        """Return the story of the thread's first checkpoint, given the story of its source."""
        return {**source, "source": "fork"} if self.way == "forked" else source


@dataclass(frozen=True)
class Finished:
    """A thread on which a graph ran to its end."""

    build: Build
    run: Run
    thread_id: str
    turn: Any

    @property
    def saver(self) -> TuskPointSaver:
        saver: TuskPointSaver = self.run.graph.checkpointer
        return saver

    async def turns(self) -> list[list[Any]]:
        """Return the snapshots of each run from its input to its end."""
        turns: list[list[Any]] = []
        for snapshot in reversed(await self.run.history()):
            if snapshot.metadata["source"] == "input":
                turns.append([])
            turns[-1].append(snapshot)
        return turns


def run_on(graph: Any, thread_id: str) -> Run:
    return Run(graph, "async", "sync", thread_id)


def interrupts(result: Any) -> list[Any]:
    return sorted(str(interrupt.value) for interrupt in result.get("__interrupt__", ()))


async def whole(run: Run, config: RunnableConfig | None = None) -> Any:
    """Return the content of a state, with its subgraphs and the IDs of tasks and checkpoints."""
    state = await run.state(config, subgraphs=True)
    below = [(story(task.state), task.id) for task in state.tasks if task.state]
    return story(state), [task.id for task in state.tasks], below, id_of(state.config)


async def stories(run: Run) -> list[Any]:
    return [story(snapshot) for snapshot in await run.history()]


async def everything(run: Run) -> dict[tuple[str, str], str]:
    """Return everything that a saver loads of a thread, in every namespace."""
    saver: TuskPointSaver = run.graph.checkpointer
    contents = {}
    async for checkpoint in saver.alist(at(run.config["configurable"]["thread_id"], None)):
        place = (checkpoint.config["configurable"]["checkpoint_ns"], id_of(checkpoint.config))
        loaded = await saver.aget_tuple(checkpoint.config)
        log = await saver.aget_delta_channel_history(
            config=checkpoint.config, channels=["items", "rare"]
        )
        contents[place] = repr((checkpoint, loaded, log))
    return contents


# --- steps on a thread -----------------------------------------------------------------------

Step = Callable[[Run], Awaitable[Any]]


def give(turn: Any) -> Step:
    async def step(run: Run) -> Any:
        result = await run.invoke(turn)
        return {**result, "__interrupt__": interrupts(result)}

    return step


def update(values: Any, as_node: str | None = None) -> Step:
    async def step(run: Run) -> Any:
        return sorted((await run.update(run.config, values, as_node))["configurable"])

    return step


def updates(*all_of: list[StateUpdate]) -> Step:
    async def step(run: Run) -> Any:
        return sorted((await run.graph.abulk_update_state(run.config, all_of))["configurable"])

    return step


PLAIN = {"topic": "a", "log": ["in"]}
CASES: dict[str, tuple[Build, list[Step], list[Step]]] = {
    "plain": (
        parallel_graph,
        [give(PLAIN)],
        [
            give({"topic": "b"}),
            update({"log": ["mine"]}, "plan"),
            give(None),
            updates(
                [StateUpdate({"topic": "c"}, "plan")], [StateUpdate({"log": ["more"]}, "plan")]
            ),
            give(None),
        ],
    ),
    "subgraph asks": (
        interrupted_graph,
        [give({"log": ["in"]})],
        [give(Command(resume="yes")), give(Command(resume="no")), give({"log": ["again"]})],
    ),
    "subgraph asks again": (
        interrupted_graph,
        [give({"log": ["in"]}), give(Command(resume="yes"))],
        [give(Command(resume="no")), update({"log": ["mine"]}, "before"), give(None)],
    ),
    "memory": (
        memory_graph,
        [give({"said": "a"}), give({"said": "b"})],
        [
            give({"said": "c"}),
            give({"said": "ask"}),
            give(Command(resume="d")),
            give({"said": "e"}),
        ],
    ),
    "memory asks": (
        memory_graph,
        [give({"said": "a"}), give({"said": "ask"})],
        [give(Command(resume="b")), give({"said": "c"})],
    ),
    "delta": (
        delta_graph,
        [give({"round": 0}), give({"round": 0})],
        [
            give({"round": 0}),
            update({"items": ["mine"]}, "turn"),
            updates([StateUpdate({"items": ["bulk"]}, "echo")]),
            give({"round": 0, "rare": ["in"]}),
        ],
    ),
}


FINISHED: dict[str, tuple[Build, list[Any]]] = {
    "plain": (parallel_graph, [PLAIN, {"topic": "b"}]),
    "subgraph": (interrupted_graph, [{"log": ["in"]}, Command(resume=1), Command(resume=2)]),
    "memory": (memory_graph, [{"said": "a"}, {"said": "ask"}, Command(resume=1), {"said": "c"}]),
    "delta": (delta_graph, [{"round": 0}, {"round": 0}]),
}


async def answered(run: Run, result: Any) -> Any:
    """Answer the open questions with 1, 2, ... until none is left."""
    for answer in range(1, 9):
        if "__interrupt__" not in result:
            return result
        result = await run.invoke(Command(resume=answer))
    raise AssertionError("it asks on and on")
