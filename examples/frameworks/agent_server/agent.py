"""A graph that drafts an answer and waits for a person, with a scripted model."""

import operator
from typing import Annotated, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt


class State(TypedDict):
    """What the nodes share: everything that was said, oldest first."""

    said: Annotated[list[str], operator.add]


def draft(state: State) -> State:
    """Answer the last question. A real agent would ask a model."""
    return {"said": [f"draft: thank you for '{state['said'][-1]}'"]}


def approve(state: State) -> State:
    """Wait until a person approves the draft."""
    return {"said": [f"approved by {interrupt({'approve': state['said'][-1]})}"]}


def _graph() -> StateGraph[State]:
    builder = StateGraph(State)
    builder.add_node("draft", draft)
    builder.add_node("approve", approve)
    builder.add_edge(START, "draft")
    builder.add_edge("draft", "approve")
    builder.add_edge("approve", END)
    return builder


# Without a checkpointer: the Agent Server passes its own to every graph.
graph = _graph().compile()
