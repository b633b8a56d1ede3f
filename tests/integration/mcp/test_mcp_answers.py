"""The tools find agents that wait for a person, and answer them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, TypedDict
from uuid import uuid4

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt

from tests.integration.mcp.mcp_kit import Caller
from tuskpoint import TuskPointSaver


class Draft(TypedDict, total=False):
    said: Any
    also: Any


@pytest.fixture(scope="module")
def saver(target: str) -> Iterator[TuskPointSaver]:
    with TuskPointSaver(target) as made:
        yield made


def a_graph(saver: TuskPointSaver, question: Any, *more_questions: Any) -> Any:
    """Return a graph whose nodes ask in the first step."""
    builder = StateGraph(Draft)
    questions = dict(zip(("said", "also"), (question, *more_questions), strict=False))
    for key, payload in questions.items():
        # The defaults bind the current values of the loop.
        builder.add_node(
            f"ask_{key}", lambda _, key=key, payload=payload: {key: interrupt(payload)}
        )
        builder.add_edge(START, f"ask_{key}")
        builder.add_edge(f"ask_{key}", END)
    return builder.compile(checkpointer=saver)


def a_config() -> RunnableConfig:
    return {"configurable": {"thread_id": f"thread-{uuid4()}"}}


async def test_a_question_is_found_and_answered(call: Caller, saver: TuskPointSaver) -> None:
    graph, config = a_graph(saver, {"question": "publish?"}), a_config()
    thread = config["configurable"]["thread_id"]
    graph.invoke({}, config)
    everywhere = await call("thread_waiting")
    assert thread in [entry["thread_id"] for entry in everywhere["waiting"]]
    [waiting] = (await call("thread_waiting", thread_id=thread))["waiting"]
    [question] = waiting["questions"]
    assert question["question"] == {"question": "publish?"}
    answered = await call(
        "thread_answer",
        thread_id=thread,
        answer_json='{"approved": true}',
        interrupt_id=question["interrupt_id"],
        checkpoint_id=waiting["checkpoint_id"],
    )
    assert answered["checkpoint_id"] == waiting["checkpoint_id"]
    everywhere = await call("thread_waiting")
    assert thread not in [entry["thread_id"] for entry in everywhere["waiting"]]
    assert graph.invoke(None, config)["said"] == {"approved": True}
    listed = await call("thread_list")
    [state] = [entry["state"] for entry in listed["threads"] if entry["thread_id"] == thread]
    assert state == "idle"


async def test_results_tell_questions_failures_and_next_nodes(
    call: Caller, saver: TuskPointSaver
) -> None:
    def fail(_: Draft) -> Draft:
        raise ValueError("no paper")

    builder: Any = StateGraph(Draft)
    builder.add_node("fail", fail)
    builder.add_edge(START, "fail")
    asks, fails = a_config(), a_config()
    a_graph(saver, {"question": "publish?"}).invoke({}, asks)
    with pytest.raises(ValueError, match="no paper"):
        builder.compile(checkpointer=saver).invoke({}, fails)
    told = {}
    for config in (asks, fails):
        thread = config["configurable"]["thread_id"]
        listed = await call("thread_list", limit=500)
        [record] = [entry for entry in listed["threads"] if entry["thread_id"] == thread]
        [newest, *_] = (await call("checkpoint_list", thread_id=thread))["checkpoints"]
        loaded = await call("checkpoint_load", thread_id=thread)
        assert record["summary"] == newest["summary"] != ""
        assert {(part["question"], part["failure"]) for part in (record, newest, loaded)} == {
            (record["question"], record["failure"])
        }
        assert newest["next_nodes"] == loaded["next_nodes"]
        told[thread] = record["question"], record["failure"], newest["next_nodes"]
    assert list(told.values()) == [
        ("publish?", None, ["ask_said"]),
        (None, "fail: ValueError: no paper", ["fail"]),
    ]


async def test_one_of_several_questions_has_to_be_named(
    call: Caller, saver: TuskPointSaver
) -> None:
    graph, config = a_graph(saver, "first?", "second?"), a_config()
    thread = config["configurable"]["thread_id"]
    graph.invoke({}, config)
    [waiting] = (await call("thread_waiting", thread_id=thread))["waiting"]
    ids = {question["question"]: question["interrupt_id"] for question in waiting["questions"]}
    said = await call.refused("thread_answer", thread_id=thread, answer_json='"yes"')
    assert all(interrupt_id in said for interrupt_id in ids.values())
    for question, named in ids.items():
        answer = json.dumps(f"to {question}")
        await call("thread_answer", thread_id=thread, answer_json=answer, interrupt_id=named)
    assert graph.invoke(None, config) == {"said": "to first?", "also": "to second?"}


async def test_only_a_waiting_thread_and_the_named_checkpoint_are_answered(
    call: Caller, saver: TuskPointSaver
) -> None:
    graph, config = a_graph(saver, "continue?"), a_config()
    thread = config["configurable"]["thread_id"]
    graph.invoke({}, config)
    [waiting] = (await call("thread_waiting", thread_id=thread))["waiting"]
    assert "null" in await call.refused("thread_answer", thread_id=thread, answer_json="null")
    await call("thread_answer", thread_id=thread, answer_json='"yes"')
    graph.invoke(None, config)
    said = await call.refused("thread_answer", thread_id=thread, answer_json='"no"')
    assert "thread_waiting lists the threads that do" in said
    graph.invoke({}, config)  # the graph asks again
    said = await call.refused(
        "thread_answer",
        thread_id=thread,
        answer_json='"no"',
        checkpoint_id=waiting["checkpoint_id"],
    )
    assert "waits for no answer" in said
    assert (await call("thread_waiting", thread_id=thread))["count"] == 1


async def test_long_questions_are_cut_and_threads_come_in_pages(
    call: Caller, saver: TuskPointSaver
) -> None:
    graph = a_graph(saver, "x" * 3_000)
    configs = [a_config() for _ in range(3)]
    for config in configs:
        graph.invoke({}, config)
    threads = sorted(config["configurable"]["thread_id"] for config in configs)
    questions_by_thread: dict[str, Any] = {}
    after: str | None = ""
    while after is not None:
        page = await call("thread_waiting", after=after, limit=2, max_chars=2_000)
        questions_by_thread |= {entry["thread_id"]: entry["questions"] for entry in page["waiting"]}
        after = page["next_after"]
    assert set(threads) <= set(questions_by_thread)
    for thread in threads:
        [question] = questions_by_thread[thread]
        assert question["truncated"]
        assert len(question["question"]) == 2_000
    [whole] = (await call("thread_waiting", thread_id=threads[0]))["waiting"]
    assert whole["questions"][0]["question"] == "x" * 3_000
