"""Graphs with every feature that a saver must support, and runs of them."""

import asyncio
import operator
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send, interrupt

Durability = Literal["sync", "async", "exit"]


def append(state: list[Any], writes: Sequence[list[Any]]) -> list[Any]:
    return [*state, *(item for write in writes for item in write)]


class State(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]
    topic: str
    current_plan: str


class Child(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]
    answer: str


class Delta(TypedDict, total=False):
    items: Annotated[list[Any], DeltaChannel(append, snapshot_frequency=3)]
    rare: Annotated[list[Any], DeltaChannel(append, snapshot_frequency=100)]
    round: int


def parallel_graph(saver: BaseCheckpointSaver[Any]) -> Any:
    """Plan, research in parallel (fixed edges and sends), write."""

    def plan(state: State) -> dict[str, Any]:
        return {"log": ["plan"], "current_plan": f"research {state['topic']}"}

    def branch(state: State) -> list[Send]:
        return [Send("dig", {"topic": f"{state['topic']} {number}"}) for number in range(3)]

    graph = StateGraph(State)
    graph.add_node("plan", plan)
    graph.add_node("dig", lambda state: {"log": [f"dig {state['topic']}"]})
    graph.add_node("zoom", lambda state: {"log": ["zoom"]})
    graph.add_node("ask", lambda state: {"log": ["ask", None, b"bytes"]})
    graph.add_node("write", lambda state: {"log": [f"{len(state['log'])} notes"]}, defer=True)
    graph.add_edge(START, "plan")
    graph.add_conditional_edges("plan", branch, ["dig"])
    graph.add_edge("plan", "zoom")
    graph.add_edge("plan", "ask")
    graph.add_edge(["zoom", "ask"], "write")
    graph.add_edge("write", END)
    return graph.compile(checkpointer=saver)


def interrupted_graph(saver: BaseCheckpointSaver[Any]) -> Any:
    """A subgraph that asks twice, between two nodes of the parent; a sibling that does not."""

    def first(state: Child) -> dict[str, Any]:
        return {"log": ["child first"], "answer": interrupt({"question": "one?"})}

    def second(state: Child) -> dict[str, Any]:
        return {"log": [f"child {state['answer']} and {interrupt('two?')}"]}

    child = StateGraph(Child)
    child.add_node("first", first)
    child.add_node("second", second)
    child.add_edge(START, "first")
    child.add_edge("first", "second")

    graph = StateGraph(State)
    graph.add_node("before", lambda state: {"log": ["before"]})
    graph.add_node("child", child.compile())
    graph.add_node("sibling", lambda state: {"log": ["sibling"]})
    graph.add_node("after", lambda state: {"log": ["after"]})
    graph.add_edge(START, "before")
    graph.add_edge("before", "child")
    graph.add_edge("before", "sibling")
    graph.add_edge(["child", "sibling"], "after")
    return graph.compile(checkpointer=saver)


def delta_graph(saver: BaseCheckpointSaver[Any]) -> Any:
    """Two parallel writers of delta channels, in several rounds."""

    def turn(state: Delta) -> dict[str, Any]:
        number = state.get("round", 0) + 1
        update: dict[str, Any] = {"round": number, "items": [f"turn {number}"]}
        return update | ({"rare": [number]} if number % 4 == 0 else {})

    def echo(state: Delta) -> dict[str, Any]:
        return {"items": [f"echo of {len(state['items'])}"]}

    def again(state: Delta) -> list[str] | str:
        return ["turn", "echo"] if state["round"] % 5 else END

    graph = StateGraph(Delta)
    graph.add_node("turn", turn)
    graph.add_node("echo", echo)
    graph.add_edge(START, "turn")
    graph.add_conditional_edges("turn", again, ["turn", "echo", END])
    return graph.compile(checkpointer=saver)


class Run:
    """A graph on one thread, driven by sync or async methods."""

    def __init__(self, graph: Any, kind: str, durability: Durability, thread_id: str) -> None:
        self.graph = graph
        self.kind = kind
        self.durability = durability
        self.config: RunnableConfig = {"configurable": {"thread_id": thread_id}}

    async def invoke(self, turn: Any, config: RunnableConfig | None = None) -> Any:
        config = config or self.config
        if self.kind == "async":
            return await self.graph.ainvoke(turn, config, durability=self.durability)
        return await asyncio.to_thread(self.graph.invoke, turn, config, durability=self.durability)

    async def update(self, config: RunnableConfig, values: Any, as_node: str | None = None) -> Any:
        if self.kind == "async":
            return await self.graph.aupdate_state(config, values, as_node=as_node)
        return await asyncio.to_thread(self.graph.update_state, config, values, as_node=as_node)

    async def state(self, config: RunnableConfig | None = None, **options: Any) -> Any:
        config = config or self.config
        if self.kind == "async":
            return await self.graph.aget_state(config, **options)
        return await asyncio.to_thread(self.graph.get_state, config, **options)

    async def history(self, **options: Any) -> list[Any]:
        if self.kind == "async":
            return [
                snapshot async for snapshot in self.graph.aget_state_history(self.config, **options)
            ]
        return await asyncio.to_thread(
            lambda: [*self.graph.get_state_history(self.config, **options)]
        )


def story(snapshot: Any) -> Any:
    """Return the content of a snapshot, without IDs and times."""
    return {
        "values": snapshot.values,
        "next": sorted(snapshot.next),
        "source": (snapshot.metadata or {}).get("source"),
        "step": (snapshot.metadata or {}).get("step"),
        "is root": snapshot.parent_config is None,
        "tasks": sorted(
            (
                task.name,
                str(task.error),
                str([interrupt.value for interrupt in task.interrupts]),
                str(task.result),
            )
            for task in snapshot.tasks
        ),
    }
