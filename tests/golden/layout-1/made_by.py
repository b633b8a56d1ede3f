"""Fills a server of layout 1 at the address in the argument; run it with `--flush-interval
3600`."""

from __future__ import annotations

import operator
import sys
from typing import Annotated, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt

from tuskpoint import Client, TuskPointSaver


class State(TypedDict):
    """State of the graph."""

    notes: Annotated[list[str], operator.add]
    text: str


def plan(_: State) -> State:
    """Return a large text."""
    return {"notes": ["planned"], "text": "x" * 3000}


def edit(_: State) -> State:
    """Return the text with a small change, so that it is stored as a patch."""
    return {"notes": ["a"], "text": "x" * 2990 + "edited"}


def ask(_: State) -> dict[str, list[str]]:
    """Interrupt the graph with a question to a person."""
    return {"notes": [interrupt("Publish?")]}


def main(target: str) -> None:
    """Fill the server."""
    client = Client(target)
    builder = StateGraph(State)
    builder.add_node("plan", plan)
    builder.add_node("fork_a", edit)
    builder.add_node("ask", ask)
    builder.add_edge(START, "plan")
    builder.add_edge("plan", "fork_a")
    builder.add_edge("fork_a", "ask")
    builder.add_edge("ask", END)
    graph = builder.compile(checkpointer=TuskPointSaver(target))
    for name in ("graph-certified", "graph-journaled"):
        if name == "graph-journaled":
            client.flush()
        graph.invoke({"notes": ["begin"], "text": ""}, {"configurable": {"thread_id": name}})
    big = "letter " * 2000
    first = client.save(
        "plain", {"plan": ["read", "write"], "big": big}, summary="Planned.", agent_id="planner"
    )
    client.save("plain", {"plan": ["write"], "big": big + "end"}, label="read it all")
    client.save("plain", {"plan": ["write", "check"], "big": big[:-70] + "other end"})
    client.set_label("plain", "good", checkpoint_id=first)
    client.fork("plain", first, new_thread_id="forked")
    client.save("forked", {"plan": ["else"], "big": big + "letter "})
    client.save("deleted", {"a": 1})
    client.delete("deleted")
    client.save("again", {"a": 1})
    client.delete("again")
    client.save("again", {"a": 2})
    for number in (1, 2, 3):
        client.save("pruned", {"n": number})
    client.prune("pruned")
    client.adopt(client.handoff("plain", to_agent="writer"), new_thread_id="adopted")
    client.flush()
    client.rollback("plain", first)
    client.answer("graph-certified", "yes")
    client.save("late", {"only": "journaled"})
    client.save("plain", {"plan": ["late"], "big": "short"})


if __name__ == "__main__":
    main(sys.argv[1])
