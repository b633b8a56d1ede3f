"""The one line to swap: give a LangGraph program a checkpointer that outlives the process.

    tuskpoint-server &
    python examples/swap_one_line.py
    python examples/swap_one_line.py

Each run is a new process, and each one knows the runs before it.
"""

import operator
import os
from typing import Annotated, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph

from tuskpoint import TuskPointSaver


class Diary(TypedDict):
    """What the thread remembers."""

    entries: Annotated[list[str], operator.add]


def write(state: Diary) -> Diary:
    """Add one entry; a real agent would call a model here."""
    return {"entries": [f"entry {len(state['entries']) + 1}, by process {os.getpid()}"]}


def main() -> None:
    """Run the graph once and show everything its thread holds."""
    graph = StateGraph(Diary)
    graph.add_node("write", write)
    graph.add_edge(START, "write")
    graph.add_edge("write", END)

    # The line that was: checkpointer = InMemorySaver()
    checkpointer = TuskPointSaver(os.environ.get("TUSKPOINT_TARGET", "127.0.0.1:7390"))

    config: RunnableConfig = {"configurable": {"thread_id": "diary"}}
    result = graph.compile(checkpointer=checkpointer).invoke({"entries": []}, config)
    print("\n".join(result["entries"]))


if __name__ == "__main__":
    main()
