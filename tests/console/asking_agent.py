"""A graph that thinks, asks and acts on its own thread, and the form that answers its question."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict
from uuid import uuid4

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolCall
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import interrupt
from playwright.sync_api import expect

from tests.console.browser import Look
from tuskpoint import TuskPointSaver


class State(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    plan: list[str]
    budget: float
    seen: set[str]
    answers: Annotated[list[Any], lambda before, new: before + new]


class Agent:
    """A graph that thinks, asks and acts on its own thread."""

    def __init__(self, saver: TuskPointSaver, question: Any, thread_id: str = "") -> None:
        self.thread_id = thread_id or f"agent-{uuid4()}"
        self.config: RunnableConfig = {"configurable": {"thread_id": self.thread_id}}

        def think(state: State) -> State:
            call = ToolCall(name="look", args={"n": 1.5}, id="c")
            message = AIMessage("I look", tool_calls=[call])
            return {"messages": [message], "plan": ["look"], "budget": 10.0, "seen": {"a"}}

        def ask(state: State) -> State:
            return {"answers": [interrupt(question)]}

        def act(state: State) -> State:
            return {"messages": [AIMessage(f"done: {', '.join(state['plan'])}")]}

        graph = StateGraph(State)
        graph.add_node("think", think)
        graph.add_node("ask", ask)
        graph.add_node("act", act)
        graph.add_edge(START, "think")
        graph.add_edge("think", "ask")
        graph.add_edge("ask", "act")
        self.graph = graph.compile(checkpointer=saver)
        self.graph.invoke({"messages": [HumanMessage("hello")]}, self.config)

    def values(self) -> Any:
        return self.graph.get_state(self.config).values

    def go_on(self) -> Any:
        return self.graph.invoke(None, self.config)


def answer(look: Look, button: str = "Answer") -> None:
    """Answer a question with one of its buttons, once the console shows the question."""
    look.page.get_by_role("button", name=button, exact=True).click()
    expect(look.page.get_by_role("article", name="An answered question")).to_be_visible()
