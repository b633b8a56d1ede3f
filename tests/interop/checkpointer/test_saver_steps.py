"""The steps that the server derives are those that LangGraph took and shows, for random graphs."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any, TypedDict

import grpc
import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphRecursionError, InvalidUpdateError
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt

from tuskpoint.langgraph import TuskPointSaver
from tuskpoint.v1 import checkpoint_pb2
from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub

pytestmark = pytest.mark.interop

GRAPHS = 6
"""Graphs of a seed; a run has about eight checkpoints."""

LONGEST = 12
"""Nodes that run before a graph ends."""

PULL = "~__pregel_pull, "


class State(TypedDict, total=False):
    log: Annotated[list[str], operator.add]
    note: Annotated[str, lambda _, latest: latest]


class RandomGraph:
    """A graph with random nodes and edges; each node writes its name to `log`."""

    def __init__(self, chance: random.Random, saver: TuskPointSaver) -> None:
        self._chance = chance
        self.names = ["alpha", "beta", "gamma", "delta", "epsilon"][: chance.randint(2, 5)]
        builder: Any = StateGraph(State)
        for name in self.names:
            builder.add_node(name, self._node(name), defer=chance.random() < 0.15)
        for name in {self.names[0], chance.choice(self.names)}:
            builder.add_edge(START, name)
        for name in self.names:
            later = [other for other in self.names if other > name]
            if chance.random() < 0.5:
                builder.add_edge(name, chance.choice([*later, END]))
            if chance.random() < 0.5:
                builder.add_conditional_edges(name, self._path, [*self.names, END])
        if len(self.names) > 2 and chance.random() < 0.6:
            builder.add_edge(chance.sample(self.names, 2), chance.choice(self.names))
        self.compiled = builder.compile(
            checkpointer=saver,
            interrupt_before=self._some(0.1),
            interrupt_after=self._some(0.1),
        )

    def _some(self, share: float) -> list[str]:
        return [name for name in self.names if self._chance.random() < share]

    def _node(self, name: str) -> Callable[[State], Any]:
        asks, fails, goes = (self._chance.random() < share for share in (0.25, 0.1, 0.25))

        def run(state: State) -> Any:
            if asks and self._chance.random() < 0.5:
                interrupt({"question": f"{name}?"})
            if fails and self._chance.random() < 0.5:
                raise ValueError(f"{name} failed")
            update = {"log": [name]} | ({"note": name} if self._chance.random() < 0.3 else {})
            return Command(update=update, goto=self._path(state)) if goes else update

        return run

    def _path(self, state: State) -> Any:
        if len(state.get("log", ())) > LONGEST:
            return END
        chosen = [self._chance.choice(self.names) for _ in range(self._chance.randint(1, 3))]
        return [Send(name, {}) if self._chance.random() < 0.4 else name for name in chosen]

    def play(self, config: RunnableConfig, durability: str) -> None:
        """Run the graph with answers, updates, time travel and jumps."""
        self._invoke({"log": ["input"]}, config, durability)
        for _ in range(self._chance.randint(1, 4)):
            place, given = self._turn(config)
            self._invoke(given, place, durability)

    def _turn(self, config: RunnableConfig) -> tuple[RunnableConfig, Any]:
        kind = self._chance.choice(
            ["answer", "answer", "continue", "input", "update", "jump", "fork"]
        )
        place = config
        if kind in ("update", "fork"):
            if kind == "fork":
                place = self._chance.choice([*self.compiled.get_state_history(config)]).config
            as_node = self._chance.choice([*self.names, None, "__copy__"])
            with suppress(InvalidUpdateError):
                values = None if as_node == "__copy__" else {"note": kind}
                place = self.compiled.update_state(place, values, as_node=as_node)
        note = {"note": kind} if self._chance.random() < 0.5 else None
        given: Any = {
            "answer": Command(resume="yes", update=note),
            "jump": Command(goto=self._chance.choice(self.names), update=note),
            "input": {"log": ["input"]},
        }.get(kind)
        return place, given

    def _invoke(self, given: Any, config: RunnableConfig, durability: str) -> None:
        with suppress(ValueError, RuntimeError, GraphRecursionError, InvalidUpdateError):
            self.compiled.invoke(given, {**config, "recursion_limit": 12}, durability=durability)


def by_id(
    target: str, thread_id: str, view: checkpoint_pb2.View
) -> dict[str, checkpoint_pb2.Checkpoint]:
    """Return the checkpoints of a thread."""
    request = pb.ListCheckpointsRequest(thread_id=thread_id, view=view)
    with grpc.insecure_channel(target) as channel:
        frames = [*CheckpointServiceStub(channel).ListCheckpoints(request)]
    return {frame.checkpoint.ref.checkpoint_id: frame.checkpoint for frame in frames}


def started_by(checkpoint: checkpoint_pb2.Checkpoint) -> set[str]:
    """Return the nodes whose tasks wrote at a checkpoint; a `Command` may have started them."""
    paths = {write.task_path for write in checkpoint.writes if write.task_path.startswith(PULL)}
    return {path.removeprefix(PULL) for path in paths} - {"__start__"}


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("durability", ["async", "exit"])
def test_a_step_is_the_step_of_langgraph(
    server_target: str, thread_id: str, seed: int, durability: str
) -> None:
    for number in range(GRAPHS):
        thread = f"{thread_id}-{number}"
        config: RunnableConfig = {"configurable": {"thread_id": thread}}
        with TuskPointSaver(server_target) as saver:
            graph = RandomGraph(random.Random(f"{seed} {durability} {number}"), saver)
            graph.play(config, durability)
            history = {
                snapshot.config["configurable"]["checkpoint_id"]: snapshot
                for snapshot in graph.compiled.get_state_history(config)
            }
            head = graph.compiled.get_state(config)
            values = {
                saved.config["configurable"]["checkpoint_id"]: saved.checkpoint["channel_values"]
                for saved in saver.list(config)
            }
        full = by_id(server_target, thread, checkpoint_pb2.VIEW_FULL)
        steps = by_id(server_target, thread, checkpoint_pb2.VIEW_STEP)
        assert steps.keys() == history.keys()
        for checkpoint_id, snapshot in history.items():
            checkpoint = steps[checkpoint_id]
            step, shown = checkpoint.step, f"seed {seed}, graph {number}: {snapshot}"
            upcoming = {*snapshot.next} - {"__start__"}
            assert {*step.next_nodes} == upcoming | started_by(full[checkpoint_id]), shown

            after = values[checkpoint_id]
            before = values.get(checkpoint.parent_checkpoint_id, {})
            ran = {*after.get("log", [])[len(before.get("log", [])) :]} - {"input"}
            if snapshot.metadata["source"] != "loop":
                assert not step.nodes, shown
            elif durability == "async":
                assert {*step.nodes} == ran, shown
            changed = {
                name
                for name in ("log", "note")
                if (after.get(name) or []) != (before.get(name) or [])
            }
            assert changed <= {*step.changed_channels} <= {"log", "note"}, shown

            known = upcoming | {""}
            asked = {
                (task.name, question.id, f"{task.name}?")
                for task in snapshot.tasks
                for question in task.interrupts
            }
            told = {(told.node, told.interrupt_id, told.text) for told in step.questions}
            assert {question for question in told if question[0] in known} == asked, shown
            # A task that fails may cancel tasks beside it, which LangGraph then saves as errors.
            failed = {
                (task.name, "CancelledError", "")
                if task.error == "CancelledError()"
                else (task.name, "ValueError", f"{task.name} failed")
                for task in snapshot.tasks
                if task.error
            }
            failures = {(told.node, told.type, told.message) for told in step.failures}
            assert {failure for failure in failures if failure[0] in known} == failed, shown
            assert {kind for _, kind, _ in failures} <= {"CancelledError", "ValueError"}, shown

        head_id = head.config["configurable"]["checkpoint_id"]
        known = {task.name for task in head.tasks}
        waiting = {
            told.interrupt_id
            for told in steps[head_id].step.questions
            if told.node in known and not told.answered
        }
        asked_now = {question.id for question in head.interrupts}
        has_answer = any(write.channel == "__resume__" for write in full[head_id].writes)
        assert waiting <= asked_now, f"seed {seed}, graph {number}: {head}"
        assert has_answer or waiting == asked_now, f"seed {seed}, graph {number}: {head}"
