"""The commands tell what ran, what waits for a person, what failed and what comes next."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt

from tests.integration.cli.command_line.kit import run
from tuskpoint import Client, TuskPointSaver

HOSTILE = "Publish \x1b[31m\nred\r\u202e? " + "very long " * 60
ASKED = {"question": "Publish?"}


class State(TypedDict, total=False):
    notes: Annotated[list[Any], operator.add]


def plan(_: State) -> State:
    usage = {"input_tokens": 1200, "output_tokens": 30, "total_tokens": 1230}
    return {"notes": [AIMessage("A plan.", usage_metadata=usage)]}


def asking(question: object) -> Callable[[State], State]:
    return lambda _: {"notes": [interrupt(question)]}


def failing(message: str) -> Callable[[State], State]:
    def fail(_: State) -> State:
        raise ValueError(message)

    return fail


@pytest.fixture(scope="module")
def graphs(target: str) -> str:
    """Run graphs of two nodes, `plan` and `last`, each on a thread; return the server's address."""
    lasts = {
        "asks": asking(ASKED),
        "fails": failing("first line\nno paper\n"),
        "hostile": asking({"question": HOSTILE}),
        "hostile-too": failing(HOSTILE),
        "done": lambda _: {"notes": ["done"]},
    }
    with TuskPointSaver(target) as saver:
        for thread_id, last in lasts.items():
            builder: Any = StateGraph(State)
            builder.add_node("plan", plan)
            builder.add_node("last", last)
            builder.add_edge(START, "plan")
            builder.add_edge("plan", "last")
            with suppress(ValueError):
                graph = builder.compile(checkpointer=saver)
                graph.invoke({"notes": []}, {"configurable": {"thread_id": thread_id}})
    return target


def row(printed: str, first: str) -> str:
    """Return the only line that starts with a word, without surplus spaces."""
    [line] = [line for line in printed.splitlines() if line.startswith(f"{first} ")]
    return " ".join(line.split())


def test_threads_tell_what_each_waits_for_or_failed_with(graphs: str) -> None:
    printed = run(graphs, "threads", columns=160).out
    assert printed.splitlines()[0].split()[-1] == "DETAIL"
    assert row(printed, "asks").endswith("Publish?")
    assert row(printed, "fails").endswith("ValueError: no paper")
    assert row(printed, "done").endswith("step 2: last ran; changed notes")
    lines = {line["thread_id"]: line for line in run(graphs, "threads", "--json").lines}
    question = lines["asks"]["question"]
    assert question.pop("interrupt_id")
    assert question == {"node": "last", "text": "Publish?", "answered": False}
    assert lines["asks"]["failure"] is None
    assert lines["asks"]["checkpoint_count"] == 3
    assert lines["fails"]["failure"] == {
        "node": "last",
        "type": "ValueError",
        "message": "first line\nno paper",
    }
    assert lines["done"]["summary"].startswith("step 2: last ran")
    described = run(graphs, "threads", "asks", "fails").out
    assert re.search(r"(?m)^waits for    Publish\?$", described)
    assert re.search(r"(?m)^failed with  last: ValueError: first line no paper$", described)


def test_list_has_the_names_of_steps_in_columns(graphs: str) -> None:
    printed = run(graphs, "list", "asks", columns=160).out
    heading, last, first, given = printed.splitlines()
    assert heading.split()[-4:] == ["RAN", "CHANGED", "NEXT", "DETAIL"]
    assert re.search(r" plan +notes +last +Publish\?$", last)
    assert re.search(r"journaled +notes +plan$", first.rstrip())
    assert re.search(r"journaled +input received$", given)
    lines = run(graphs, "list", "asks", "--json").lines
    step = lines[0]["step"]
    [question] = step.pop("questions")
    assert (question["text"], question["answered"]) == ("Publish?", False)
    assert step == {
        "nodes": ["plan"],
        "changed_channels": ["notes"],
        "next_nodes": ["last"],
        "failures": [],
        "tokens": {"input_tokens": 1200, "output_tokens": 30},
    }
    failed = run(graphs, "list", "fails", columns=160).out.splitlines()[1]
    assert re.search(r" last +ValueError: no paper$", failed)


def test_a_summary_that_names_do_not_tell_stays(graphs: str) -> None:
    with Client(graphs) as client:
        client.save("written", {"a": 1}, summary="step 1: wrote; next review")
    assert run(graphs, "list", "written").out.rstrip().endswith("step 1: wrote; next review")


def test_show_has_the_step_the_question_the_failure_and_tokens(graphs: str) -> None:
    shown = run(graphs, "show", "asks").out
    for name, value in (
        ("ran", "plan"), ("changed", "notes"), ("next", "last"), ("tokens", "1,200 in, 30 out"),
    ):  # fmt: skip
        assert re.search(rf"(?m)^{name} +{value}$", shown), shown
    assert "summary" not in shown
    assert re.search(
        r'(?m)^waits for an answer to\n  \w+ of last: \{"question": "Publish\?"\}$', shown
    )
    assert (
        "\nfailed with\n  last: ValueError: first line no paper\n"
        in run(graphs, "show", "fails").out
    )
    step = run(graphs, "show", "fails", "--json").object["step"]
    assert [failure["type"] for failure in step["failures"]] == ["ValueError"]
    run(graphs, "flush")
    from_blob = run(graphs, "show", "fails", "--blob", "--json").object
    assert (from_blob["step"], from_blob["thread_id"]) == (None, "fails")


def test_watch_and_replay_have_the_step_on_one_line(graphs: str) -> None:
    watched = run(graphs, "watch", "asks", "--kind", "checkpoint_saved", "-n", "3", columns=160).out
    told = "waits for: Publish?; plan ran; changed notes; next last; tokens: 1,200 in, 30 out"
    assert watched.splitlines()[-1].endswith(told)
    replayed = run(graphs, "replay", "asks", "--view", "step", columns=160).out.splitlines()
    assert len(replayed) == 3
    assert replayed[-1].endswith(told)
    assert "step" not in replayed[-1]
    for view, nodes in (("step", ["plan"]), ("entry", None), ("json", None)):
        lines = run(graphs, "replay", "asks", "--view", view, "--json").lines
        assert (lines[-1]["step"] or {}).get("nodes") == nodes
    watching = ("watch", "fails", "--kind", "writes_saved", "-n", "3", "--json")
    event = run(graphs, *watching).lines[-1]
    assert event["checkpoint"]["step"]["failures"][0]["message"] == "first line\nno paper"
    events = run(graphs, *watching, "--view", "entry").lines
    assert [event["checkpoint"]["step"] for event in events] == [None] * 3


@pytest.mark.parametrize("columns", [40, 80, 160])
@pytest.mark.parametrize("thread_id", ["hostile", "hostile-too"])
def test_hostile_texts_stay_on_one_line_within_the_width(
    graphs: str, thread_id: str, columns: int
) -> None:
    for arguments, count in (
        (["threads"], None),
        (["list", thread_id], 4),
        (["watch", thread_id, "-n", "3"], 3),
        (["replay", thread_id, "--view", "step"], 3),
    ):
        printed = run(graphs, *arguments, columns=columns)
        assert printed.code == 0, printed.errors
        lines = printed.out.splitlines()
        assert count is None or len(lines) == count
        for line in lines:
            assert line.replace("\u200d", "").isprintable(), line
            assert len(line) <= columns, line
    shown = run(graphs, "show", thread_id).out
    assert not {"\x1b", "\r", "\u202e"} & set(shown)
    assert len([line for line in shown.splitlines() if "very long" in line]) == 1
