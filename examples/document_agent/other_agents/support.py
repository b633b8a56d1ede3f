"""A support agent that calls tools: several at once, and one of them fails.

The model is a script, so the demo needs no key; its messages have the form of a real model's, and
its tokens are counted in its messages.
"""

import time
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolCall, ToolMessage
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from tuskpoint import TuskPointSaver

AGENT = "support"
MODEL = "scripted-model"
PARCELS: dict[str, dict[str, Any]] = {
    "PX-81": {"status": "in transit", "place": "Oslo", "due": "2026-12-02", "weight_kg": 1.4},
    "PX-82": {"status": "at customs", "place": "Bergen", "due": None, "weight_kg": 12.0},
}
QUESTIONS = (
    "Where are my parcels PX-81 and PX-82? If one is late, I want to pick it up myself.",
    "Thanks. How does my program hear of changes?",
)
ANSWER = """\
Both parcels are on their way, and **PX-82 is late**:

| Parcel | Status | Place | Due |
|---|---|---|---|
| PX-81 | in transit | Oslo | 2 December |
| PX-82 | at customs | Bergen | not known |

What you can do:

1. Wait for PX-81: the parcel arrives on 2 December.
2. Send the invoice of PX-82 to customs; this usually takes a day.
3. Ask me again about a pickup point: the depot did not answer just now.
"""
EXPLANATION = """\
Poll the parcel with its `etag`. The server answers `304` until something changes:

```python
import httpx

reply = httpx.get(
    "https://parcels.example/v1/parcels/PX-82",
    headers={"If-None-Match": etag},
)
if reply.status_code == 200:
    print(reply.json()["status"])
```
"""


@tool
def parcel_status(parcel: str) -> dict[str, Any]:
    """Look up where a parcel is."""
    time.sleep(0.15)
    return {"parcel": parcel, **PARCELS[parcel]}


@tool
def pickup_points(city: str) -> list[str]:
    """List the pickup points of a city."""
    time.sleep(0.35)
    raise TimeoutError(f"the depot in {city} did not answer within 0.3 s")


def explain(error: TimeoutError) -> str:
    """Return the result of a call that failed."""
    return f"{error}; try again later"


def _reply(messages: Sequence[AnyMessage]) -> tuple[str, list[ToolCall]]:
    """Return the script's reply to a conversation: a text, and calls of tools."""
    if isinstance(messages[-1], ToolMessage):
        return ANSWER, []
    if messages[-1].content == QUESTIONS[0]:
        calls = [
            ToolCall(name="parcel_status", args={"parcel": "PX-81"}, id="call_1"),
            ToolCall(name="parcel_status", args={"parcel": "PX-82"}, id="call_2"),
            ToolCall(name="pickup_points", args={"city": "Bergen"}, id="call_3"),
        ]
        return "I look both parcels up, and the pickup points near the second one.", calls
    return EXPLANATION, []


def assistant(state: MessagesState) -> dict[str, list[AnyMessage]]:
    """Reply as a model would."""
    text, calls = _reply(state["messages"])
    time.sleep(0.2 + len(text) / 2000)
    reply = AIMessage(text, tool_calls=calls, response_metadata={"model_name": MODEL})
    read, written = (
        count_tokens_approximately(state["messages"]),
        count_tokens_approximately([reply]),
    )
    reply.usage_metadata = {
        "input_tokens": read,
        "output_tokens": written,
        "total_tokens": read + written,
    }
    return {"messages": [reply]}


def run(target: str, thread: str) -> None:
    """Leave a conversation of two questions."""
    graph = StateGraph(MessagesState).add_node(assistant)
    graph.add_node("tools", ToolNode([parcel_status, pickup_points], handle_tool_errors=explain))
    graph.add_edge(START, "assistant").add_edge("tools", "assistant")
    graph.add_conditional_edges("assistant", tools_condition)
    with TuskPointSaver(target, agent_id=AGENT) as saver:
        chat = graph.compile(checkpointer=saver)
        for question in QUESTIONS:
            config: RunnableConfig = {
                "configurable": {"thread_id": thread},
                "metadata": {"run_id": str(uuid4())},
            }
            chat.invoke({"messages": [HumanMessage(question)]}, config, durability="sync")
