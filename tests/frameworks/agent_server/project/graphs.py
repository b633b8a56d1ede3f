"""Graphs that the Agent Server of the tests runs."""

import asyncio
import operator
from typing import Annotated, TypedDict

from langgraph.config import get_store, get_stream_writer
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt

from tuskpoint.frameworks.agent_server import one_driver


class State(TypedDict):
    """The messages of a conversation, oldest first."""

    said: Annotated[list[str], operator.add]


def draft(state: State) -> State:
    """Answer the last message."""
    return {"said": [f"draft of {state['said'][-1]}"]}


def approve(state: State) -> State:
    """Wait for a person."""
    return {"said": [f"approved by {interrupt({'approve': state['said'][-1]})}"]}


async def wait(state: State) -> State:
    """Wait for ever if the last message asks for it, and report the wait."""
    if state["said"][-2] == "wait":
        get_stream_writer()("waiting")
        await asyncio.Event().wait()
    return {"said": ["done"]}


async def work(state: State) -> State:
    """Report a step of work."""
    get_stream_writer()("works")
    await asyncio.sleep(0.01)
    return {"said": []}


def next_node(state: State) -> str:
    """Work until something stops the run if the last message asks for it."""
    return "work" if state["said"][-1] == "work" else END


async def ask(state: State) -> State:
    """Ask in a subgraph that has its own checkpoints."""
    return {"said": (await clerk.ainvoke(state))["said"][len(state["said"]) :]}


async def remember(state: State) -> State:
    """Put the last message into the store."""
    await get_store().aput(("said",), state["said"][-1], {"by": "remember"})
    return {"said": []}


clerk = (
    StateGraph(State)
    .add_node("draft", draft)
    .add_node("approve", approve)
    .add_edge(START, "draft")
    .add_edge("draft", "approve")
    .add_edge("approve", END)
    .compile()
)
office = (
    StateGraph(State).add_node("ask", ask).add_edge(START, "ask").add_edge("ask", END).compile()
)
slow = (
    StateGraph(State)
    .add_node("draft", draft)
    .add_node("wait", wait)
    .add_edge(START, "draft")
    .add_edge("draft", "wait")
    .add_edge("wait", END)
    .compile()
)
memory = (
    StateGraph(State)
    .add_node("remember", remember)
    .add_edge(START, "remember")
    .add_edge("remember", END)
    .compile()
)
driven = one_driver(
    StateGraph(State)
    .add_node("work", work)
    .add_edge(START, "work")
    .add_conditional_edges("work", next_node, ["work", END])
    .compile(),
    ttl_s=2,
)
