"""Threads continue in the other language: a Python graph and a LangGraph.js graph share a state.

`portable_agent.ts` and `join_agent.ts` of `clients/typescript/tests/langgraph` describe the
JavaScript graphs, their nodes and their steps; the graphs here have the same shapes.
"""

from __future__ import annotations

import json
import operator
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, Interrupt, Send, interrupt

from tests.interop.langgraph_js import javascript
from tuskpoint import PortableSerializer, TuskPointSaver

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(bool(javascript.missing()), reason=javascript.missing()),
]

AGENTS = javascript.CLIENT / "tests" / "langgraph"
BUNDLE_SECONDS = 120
STEP_SECONDS = 60


def append(notes: list[str], writes: Sequence[list[str]]) -> list[str]:
    return [*notes, *(note for write in writes for note in write)]


class State(TypedDict, total=False):
    topic: str
    log: Annotated[list[str], operator.add]
    messages: Annotated[list[AnyMessage], add_messages]
    notes: Annotated[list[str], DeltaChannel(append, snapshot_frequency=3)]
    data: bytes
    tags: set[str]


def plan(state: State) -> State:
    return {
        "log": ["plan in py"],
        "messages": [AIMessage(f"a plan for {state['topic']}")],
        "notes": ["note of py"],
        "data": b"\x00\xff",
        "tags": {"a", "b"},
    }


def sends(state: State) -> list[Send]:
    return [Send("dig", {"topic": f"{state['topic']} {number}"}) for number in range(3)]


def dig(state: State) -> State:
    return {"log": [f"dig {state['topic']} in py"], "notes": [f"note on {state['topic']}"]}


def ask(state: State) -> State:
    return {"log": [f"asked in py: {interrupt({'question': 'publish?'})}"]}


def write(state: State) -> State:
    return {
        "log": ["write in py"],
        "messages": [AIMessage(f"{len(state['messages'])} messages")],
    }


def graph_of(saver: TuskPointSaver) -> Any:
    return (
        StateGraph(State)
        .add_node("plan", plan)
        .add_node("dig", dig)
        .add_node("ask", ask)
        .add_node("write", write)
        .add_edge(START, "plan")
        .add_conditional_edges("plan", sends, ["dig"])
        .add_edge("dig", "ask")
        .add_edge("ask", "write")
        .add_edge("write", END)
        .compile(checkpointer=saver)
    )


Step = Callable[[Any, Any], Any]

STEPS: dict[str, Step] = {
    "start": lambda graph, config: graph.invoke(
        {"topic": "tusks", "log": ["in py"], "messages": [HumanMessage("hello from py")]},
        config,
        interrupt_before=["dig"],
    ),
    "go": lambda graph, config: graph.invoke(None, config),
    "answer": lambda graph, config: graph.invoke(Command(resume="yes from py"), config),
    "more": lambda graph, config: graph.invoke({"topic": "more"}, config),
    "state": lambda graph, config: None,
}


def interrupts_of(head: CheckpointTuple) -> list[Interrupt]:
    """Return the open interrupts: a state lacks interrupts of tasks that another language
    prepared."""
    writes = [value for _, channel, value in head.pending_writes or [] if channel == INTERRUPT]
    return [interrupt for interrupts in writes for interrupt in interrupts]


class Python:
    """The graph in Python."""

    def __init__(self, target: str, thread_id: str) -> None:
        self.saver = TuskPointSaver(target, serde=PortableSerializer())
        self.graph = graph_of(self.saver)
        self.config: Any = {"configurable": {"thread_id": thread_id}}

    def __call__(self, step: str) -> dict[str, Any]:
        """Run a step and return the state afterwards."""
        STEPS[step](self.graph, self.config)
        state = self.graph.get_state(self.config)
        head = self.saver.get_tuple(self.config)
        assert head is not None
        values = state.values
        kinds = {type(version).__name__ for version in head.checkpoint["channel_versions"].values()}
        return {
            "asked": [interrupt.value for interrupt in interrupts_of(head)],
            "next": sorted(state.next),
            "topic": values["topic"],
            "log": values["log"],
            "messages": [[message.type, message.content] for message in values["messages"]],
            "notes": values["notes"],
            "data": [*values["data"]],
            "tags": sorted(values["tags"]),
            "versions": ["text" if kind == "str" else kind for kind in sorted(kinds)],
            "history": len([*self.saver.list(self.config)]),
        }


class Log(TypedDict, total=False):
    log: Annotated[list[str], operator.add]


def step_of(name: str) -> Any:
    return lambda state: Log(log=[f"{name} in py"])


def join_graph_of(saver: TuskPointSaver, *, is_broken: bool) -> Any:
    def slower(state: Log) -> Log:
        if is_broken:
            raise ValueError("no tusks")
        return Log(log=["slower in py"])

    return (
        StateGraph(Log)
        .add_node("quick", step_of("quick"))
        .add_node("slow", step_of("slow"))
        .add_node("slower", slower)
        .add_node("meet", step_of("meet"))
        .add_node("last", step_of("last"), defer=True)
        .add_edge(START, "quick")
        .add_edge(START, "slow")
        .add_edge(START, "last")
        .add_edge("slow", "slower")
        .add_edge(["quick", "slower"], "meet")
        .add_edge("meet", END)
        .add_edge("last", END)
        .compile(checkpointer=saver)
    )


class PythonJoin:
    """The Python graph with a join."""

    def __init__(self, target: str, thread_id: str) -> None:
        self._saver = TuskPointSaver(target, serde=PortableSerializer())
        self._config: Any = {"configurable": {"thread_id": thread_id}}

    def __call__(self, step: str) -> dict[str, Any]:
        """Run a step and return the state afterwards."""
        graph = join_graph_of(self._saver, is_broken=step == "fail")
        if step == "start":
            graph.invoke({}, self._config, interrupt_before=["slower"])
        elif step == "go":
            graph.invoke(None, self._config)
        elif step == "fail":
            with pytest.raises(ValueError, match="no tusks"):
                graph.invoke(None, self._config)
        state = graph.get_state(self._config)
        head = self._saver.get_tuple(self._config)
        assert head is not None
        values = head.checkpoint["channel_values"]
        writes = head.pending_writes or []
        return {
            "next": sorted(state.next),
            "log": state.values["log"],
            "joins": {
                name: listed(values[name])
                for name in sorted(values)
                if name.startswith("join:") or name == "branch:to:last"
            },
            "failures": [[error.name, error.message] for _, name, error in writes if name == ERROR],
        }


def listed(value: Any) -> Any:
    """Return a value in a form that JSON has, with sets as sorted lists."""
    if isinstance(value, set):
        return sorted(value)
    return [listed(item) for item in value] if isinstance(value, list) else value


class JavaScript:
    """The graph of LangGraph.js: a process for every step."""

    def __init__(self, script: Path, target: str, thread_id: str) -> None:
        self._command = ["node", str(script), target, thread_id]

    def __call__(self, step: str) -> dict[str, Any]:
        """Run a step and return the state afterwards."""
        done = subprocess.run(
            [*self._command, step],
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=STEP_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        reported: dict[str, Any] = json.loads(done.stdout)
        return reported


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The agents, each bundled in one file, so that their processes start fast."""
    made = tmp_path_factory.mktemp("agents")
    bundler = javascript.CLIENT / "node_modules" / ".bin" / "rolldown"
    options = ["--format", "esm", "--platform", "node", "--log-level", "silent"]
    for agent in ("portable_agent", "join_agent"):
        subprocess.run(
            [str(bundler), str(AGENTS / f"{agent}.ts"), *options, "--file", f"{made / agent}.mjs"],
            check=True,
            timeout=BUNDLE_SECONDS,
        )
    return made


@pytest.fixture
def agents(server_target: str, thread_id: str, scripts: Path) -> tuple[Python, JavaScript]:
    script = scripts / "portable_agent.mjs"
    return Python(server_target, thread_id), JavaScript(script, server_target, thread_id)


@pytest.fixture
def joins(server_target: str, thread_id: str, scripts: Path) -> tuple[PythonJoin, JavaScript]:
    script = scripts / "join_agent.mjs"
    return PythonJoin(server_target, thread_id), JavaScript(script, server_target, thread_id)


def test_a_thread_of_python_goes_on_in_javascript_and_back(
    agents: tuple[Python, JavaScript],
) -> None:
    python, js = agents
    begun = python("start")
    assert begun["next"] == ["dig", "dig", "dig"]
    assert js("state") == begun

    waiting_state = js("go")  # JavaScript runs three sends of Python, up to the question.
    assert waiting_state["asked"] == [{"question": "publish?"}]
    assert waiting_state["log"] == [
        "in py",
        "plan in py",
        *(f"dig tusks {n} in js" for n in range(3)),
    ]
    assert waiting_state["notes"] == ["note of py", *(f"note on tusks {n}" for n in range(3))]
    assert python("state") == waiting_state

    ended = python("answer")  # Python answers the question of JavaScript.
    assert ended["next"] == []
    assert ended["log"][5:] == ["asked in py: yes from py", "write in py"]
    assert ended["messages"] == [
        ["human", "hello from py"],
        ["ai", "a plan for tusks"],
        ["ai", "2 messages"],
    ]
    assert js("state") == ended

    again = js("more")
    assert again["asked"] == [{"question": "publish?"}]
    assert python("state") == again
    final = python("answer")
    assert final["log"][7:] == [
        "plan in js",
        *(f"dig more {n} in js" for n in range(3)),
        "asked in py: yes from py",
        "write in py",
    ]
    assert len(final["notes"]) == 8
    assert final["versions"] == ["text"]
    assert js("state") == final


def test_a_thread_of_javascript_goes_on_in_python_and_back(
    agents: tuple[Python, JavaScript],
) -> None:
    python, js = agents
    begun = js("start")
    assert begun["next"] == ["dig", "dig", "dig"]
    assert python("state") == begun

    waiting_state = python("go")  # Python runs three sends of JavaScript, up to the question.
    assert waiting_state["asked"] == [{"question": "publish?"}]
    assert waiting_state["log"] == [
        "in js",
        "plan in js",
        *(f"dig tusks {n} in py" for n in range(3)),
    ]
    assert js("state") == waiting_state

    ended = js("answer")  # JavaScript answers the question of Python.
    assert ended["log"][5:] == ["asked in js: yes from js", "write in js"]
    assert ended["data"] == [0, 255]
    assert ended["tags"] == ["a", "b"]
    assert ended["versions"] == ["text"]
    assert python("state") == ended

    again = python("more")
    assert again["asked"] == [{"question": "publish?"}]
    final = js("answer")
    assert final["log"][7:12] == [
        "plan in py",
        *(f"dig more {n} in py" for n in range(3)),
        "asked in js: yes from js",
    ]
    assert python("state") == final


@pytest.mark.parametrize("first", ["python", "javascript"])
def test_branches_meet_and_failures_are_reported_in_the_other_language(
    joins: tuple[PythonJoin, JavaScript], first: str
) -> None:
    starter, other = joins if first == "python" else joins[::-1]
    here, there = ("py", "js") if first == "python" else ("js", "py")

    begun = starter("start")
    assert begun["next"] == ["slower"]
    assert begun["log"] == [f"quick in {here}", f"slow in {here}"]
    assert begun["joins"] == {"branch:to:last": [None, False], "join:quick+slower:meet": ["quick"]}
    assert other("state") == begun

    failed = starter("fail")
    name = "ValueError" if first == "python" else "TypeError"
    assert failed["failures"] == [[name, "no tusks"]]
    assert other("state") == failed

    ended = other("go")
    assert ended["next"] == []
    assert ended["failures"] == []
    assert ended["log"][2:] == [f"{node} in {there}" for node in ("slower", "meet", "last")]
    assert starter("state") == ended


def test_a_thread_can_be_switched_at_any_checkpoint(server_target: str, thread_id: str) -> None:
    config: Any = {"configurable": {"thread_id": thread_id}}
    with TuskPointSaver(server_target) as default:
        graph = graph_of(default)
        STEPS["start"](graph, config)
        graph.invoke(None, config)  # Run up to the question.

    portable = Python(server_target, thread_id)
    before = portable("state")
    assert before["asked"] == [{"question": "publish?"}]
    assert portable("answer")["log"][-2:] == ["asked in py: yes from py", "write in py"]


def test_a_checkpoint_that_is_saved_again_is_read_in_javascript(
    joins: tuple[PythonJoin, JavaScript], server_target: str, thread_id: str
) -> None:
    python, js = joins
    config: Any = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
    with TuskPointSaver(server_target) as default:
        join_graph_of(default, is_broken=False).invoke({}, config)
    with pytest.raises(AssertionError, match="of type 'msgpack' that cannot be read"):
        js("state")

    with TuskPointSaver(server_target, serde=PortableSerializer()) as saver:
        checkpoint_tuple = saver.get_tuple(config)
        assert checkpoint_tuple is not None
        versions = checkpoint_tuple.checkpoint["channel_versions"]
        saver.put(
            checkpoint_tuple.parent_config or config,
            checkpoint_tuple.checkpoint,
            checkpoint_tuple.metadata,
            versions,
        )

    assert js("state") == python("state")
    assert js("state")["log"][-1] == "last in py"
