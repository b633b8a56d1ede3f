"""The command line prints lines that answer an agent's questions and continue the run."""

from __future__ import annotations

import ast
import operator
import shlex
import subprocess
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from tests.integration.cli.command_line.kit import Outcome, run
from tuskpoint import Client, TuskPointSaver
from tuskpoint.cli.printing.words import shell_word
from tuskpoint.cli.session import Settings

THREAD = "it's -- a \x1b[31m thread"


class State(TypedDict):
    log: Annotated[list[str], operator.add]


def asking(target: str, *questions: str) -> Any:
    """Return a graph whose nodes ask one question each, all in one step."""
    builder = StateGraph(State)
    for number, question in enumerate(questions):

        def ask(state: State, question: str = question) -> dict[str, list[str]]:
            return {"log": [f"{question}: {interrupt(question)}"]}

        builder.add_node(f"node_{number}", ask)
        builder.add_edge(START, f"node_{number}")
        builder.add_edge(f"node_{number}", END)
    return builder.compile(checkpointer=TuskPointSaver(target))


def lines_after(title: str, printed: str) -> list[str]:
    """Return the indented lines below a title."""
    lines = printed.partition(f"{title}\n")[2].splitlines()
    return [line.strip() for line in lines if line.startswith("  ")]


def typed(line: str, target: str, answer: str) -> Outcome:
    """Run a printed line with an answer."""
    program, *words = shlex.split(line)
    assert program == "tuskpoint"
    return run(target, *(answer if word == "YOUR ANSWER" else word for word in words))


def continued(lines: list[str], graph: Any) -> Any:
    """Run the printed lines, which only import and call `graph.invoke`; return the result."""
    *imports, last = ast.parse("\n".join(lines)).body
    assert all(isinstance(line, ast.ImportFrom) for line in imports)
    assert isinstance(last, ast.Expr)
    assert isinstance(last.value, ast.Call)
    assert ast.unparse(last.value.func) == "graph.invoke"
    names = {"graph": graph}
    exec("\n".join([*lines[:-1], f"result = {lines[-1]}"]), names)  # noqa: S102
    return names["result"]


def test_the_printed_lines_answer_and_continue_a_run(target: str) -> None:
    graph = asking(target, "continue?")
    graph.invoke({"log": []}, {"configurable": {"thread_id": "run"}})
    [line] = lines_after("answer with", run(target, "show", "run").out)
    answered = typed(line, target, "yes, please")
    assert answered.code == 0, answered.errors
    [line] = lines_after("continue the run with", answered.out)
    assert line == 'graph.invoke(None, {"configurable": {"thread_id": "run"}})'
    assert lines_after("continue the run with", run(target, "show", "run").out) == [line]
    assert continued([line], graph) == {"log": ["continue?: yes, please"]}
    assert "with\n" not in run(target, "show", "run").out


def test_each_of_several_questions_has_its_line(target: str) -> None:
    graph = asking(target, "left?", "right?")
    graph.invoke({"log": []}, {"configurable": {"thread_id": "both"}})
    first, second = lines_after("answer with", run(target, "show", "both").out)
    answered = typed(first, target, "1")
    assert lines_after("answer with", answered.out) == [second]
    assert "continue the run" not in answered.out
    lines = lines_after("continue the run with", typed(second, target, "2").out)
    assert sorted(continued(lines, graph)["log"]) in (
        ["left?: 1", "right?: 2"],
        ["left?: 2", "right?: 1"],
    )


def test_a_line_can_be_pasted_whatever_the_name(target: str) -> None:
    graph = asking(target, "continue?")
    graph.invoke({"log": []}, {"configurable": {"thread_id": THREAD}})
    [line] = lines_after("answer with", run(target, "show", THREAD).out)
    assert "\x1b" not in line
    name = r"$'it\'s -- a \x1b[31m thread'"
    assert line.startswith(f"tuskpoint answer {name} 'YOUR ANSWER' 1f")
    lines = lines_after("continue the run with", run(target, "answer", THREAD, "x").out)
    assert continued(lines, graph) == {"log": ["continue?: x"]}


def test_the_line_has_the_connection_of_the_command(target: str) -> None:
    asking(target, "continue?").invoke({"log": []}, {"configurable": {"thread_id": "-dashed"}})
    shown = run("127.0.0.1:1", "--target", target, "show", "--no-tls", "--", "-dashed")
    [line] = lines_after("answer with", shown.out)
    assert line.startswith(
        f"tuskpoint --target {target} --no-tls answer -- -dashed 'YOUR ANSWER' 1f"
    )
    assert typed(line, "127.0.0.1:1", "yes").code == 0


@pytest.mark.parametrize("questions", [["continue?"], ["left?", "right?"]])
def test_an_earlier_checkpoint_is_continued_by_its_id(target: str, questions: list[str]) -> None:
    graph = asking(target, *questions)
    thread_id = f"earlier-{len(questions)}"
    graph.invoke({"log": []}, {"configurable": {"thread_id": thread_id}})
    with Client(target) as client:
        asked = client.thread(thread_id).head_checkpoint_id
        graph.invoke({"log": ["second run"]}, {"configurable": {"thread_id": thread_id}})
        assert client.thread(thread_id).head_checkpoint_id != asked
        for line in lines_after("answer with", run(target, "show", thread_id, asked).out):
            answered = typed(line, target, "yes")
        lines = lines_after("continue the run with", answered.out)
        shown = run(target, "show", thread_id, asked).out
        assert lines_after("continue the run with", shown) == lines
        assert f'"checkpoint_id": "{asked}"' in lines[-1]
        assert continued(lines, graph) == {"log": [f"{question}: yes" for question in questions]}
        assert client.thread(thread_id).state == "idle"
        head = client.thread(thread_id).head_checkpoint_id
        assert client.load(thread_id, head, view="entry").parent_checkpoint_id == asked


def test_an_answer_in_an_earlier_subgraph_is_continued(target: str) -> None:
    inner = StateGraph(State)
    inner.add_node("ask", lambda _: {"log": [interrupt("inside?"), interrupt("and then?")]})
    inner.add_edge(START, "ask")
    outer = StateGraph(State)
    outer.add_node("inner", inner.compile())
    outer.add_edge(START, "inner")
    graph: Any = outer.compile(checkpointer=TuskPointSaver(target))
    config = {"configurable": {"thread_id": "subgraph"}}
    graph.invoke({"log": []}, config)
    graph.invoke(Command(resume="1"), config)  # the second question of the task is open
    with Client(target) as client:
        asked = client.thread("subgraph").head_checkpoint_id
        graph.invoke({"log": ["second run"]}, config)
    answered = run(target, "answer", "subgraph", '"2"', asked)
    lines = lines_after("continue the run with", answered.out)
    assert continued(lines, graph) == {"log": ["1", "2"]}


def test_channels_of_the_framework_are_shown_with_all(target: str) -> None:
    graph = asking(target, "continue?")
    graph.invoke({"log": ["begun"]}, {"configurable": {"thread_id": "channels"}})
    plain = run(target, "show", "channels")
    assert '  log: ["begun"]\n' in plain.out
    assert "branch:to" not in plain.out
    assert "1 channel of the framework is hidden: --all shows all" in plain.errors
    every = run(target, "show", "channels", "--all")
    assert "  branch:to:node_0: null\n" in every.out
    assert "hidden" not in every.errors
    assert "branch:to:node_0" in run(target, "show", "channels", "--json").object["state"]
    with Client(target) as client:
        first = next(record.checkpoint_id for record in client.history("channels"))
    assert "__start__" not in run(target, "diff", "channels", first).out
    assert "- __start__" in run(target, "diff", "channels", first, "--all").out
    assert "__start__" not in run(target, "replay", "channels").out
    assert "__start__" in run(target, "replay", "channels", "--all").out


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("plain", "plain"),
        ("two words", "'two words'"),
        ("", "''"),
        ("größe ☃", "'größe ☃'"),
        ("a\nb\\'\x9b\u202e", r"$'a\x0ab\\\'\U0000009b\U0000202e'"),
    ],
)
def test_a_word_of_a_shell(text: str, word: str) -> None:
    assert shell_word(text) == word
    command = ["bash", "-c", f"printf %s {word}"]
    printed = subprocess.run(command, check=True, capture_output=True, env={"LC_ALL": "C.UTF-8"})
    assert printed.stdout.decode() == text


def test_only_given_options_are_repeated() -> None:
    assert Settings().connection() == []
    given = Settings(target="a:1", token_file="t", tls=True, timeout=3.0, is_json=True)
    assert given.connection() == ["--target", "a:1", "--token-file", "t", "--tls"]
