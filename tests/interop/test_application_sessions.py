"""Application sessions support the habits of applications with LangGraph agents."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from tuskpoint import ApplicationSession, Client, TuskPointSaver
from tuskpoint.applications import input_label

QUESTION = "write a poem about the sea"


class State(TypedDict):
    log: Annotated[list[str], operator.add]


def ask(state: State) -> dict[str, Any]:
    return {"log": [f"answer: {interrupt('shall it rhyme?')}"]}


def poet(target: str) -> Any:
    """Return an agent that drafts, asks and writes; each process of an application creates its
    own."""
    graph = StateGraph(State)
    graph.add_node("draft", lambda state: {"log": ["drafted"]})
    graph.add_node("ask", ask)
    graph.add_node("write", lambda state: {"log": [f"wrote after {len(state['log'])}"]})
    graph.add_edge(START, "draft")
    graph.add_edge("draft", "ask")
    graph.add_edge("ask", "write")
    graph.add_edge("write", END)
    return graph.compile(checkpointer=TuskPointSaver(target))


def config_of(thread_id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id}}


def test_an_application_restarts_and_launches_an_agent_from_an_input(
    server_target: str, thread_id: str
) -> None:
    config = config_of(thread_id)
    with (
        Client(server_target) as client,
        ApplicationSession(client, session_id=thread_id, threads=[thread_id]) as session,
    ):
        poet(server_target).invoke({"log": [QUESTION]}, config)
        checkpoint_id = session.input_handled(thread_id, QUESTION)

    with (
        Client(server_target) as client,
        ApplicationSession(client, session_id=thread_id) as session,
    ):
        restored = session.restore_latest()
        assert restored is not None
        assert restored.threads[thread_id].checkpoint_id == checkpoint_id
        assert client.thread(thread_id).state == "interrupted"
        [record] = client.list(thread_id, label=input_label(QUESTION))
        fork = client.fork(thread_id, record.checkpoint_id)

        agent = poet(server_target)
        expected = [QUESTION, "drafted", "answer: yes", "wrote after 3"]
        assert agent.invoke(Command(resume="yes"), config)["log"] == expected
        assert (
            session.input_handled(thread_id, "yes")
            == client.load(thread_id, view="entry").checkpoint_id
        )

        # The other agent starts from the state of the first agent at its question.
        other = agent.invoke(Command(resume="no"), config_of(fork.new_thread_id))
        assert other["log"] == [QUESTION, "drafted", "answer: no", "wrote after 3"]
        assert agent.get_state(config).values["log"] == expected


def test_a_thread_that_went_on_is_taken_back(server_target: str, thread_id: str) -> None:
    config = config_of(thread_id)
    agent = poet(server_target)
    with Client(server_target) as client:
        with ApplicationSession(client, session_id=thread_id, threads=[thread_id]):
            agent.invoke({"log": [QUESTION]}, config)
        agent.invoke(Command(resume="yes"), config)

        ApplicationSession(client, session_id=thread_id).restore_latest()
        assert agent.get_state(config).values["log"] == [QUESTION, "drafted"]
        # The agent asks again, because an answer belongs to the run that was rolled back.
        assert "__interrupt__" in agent.invoke(None, config)
        assert agent.invoke(Command(resume="no"), config)["log"][-2:] == [
            "answer: no",
            "wrote after 3",
        ]
