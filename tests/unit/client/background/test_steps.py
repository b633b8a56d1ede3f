"""The background saver accepts events, saves them in order, and bounds the waiting steps."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.client.background.kit import (
    WAIT_S,
    Gate,
    Service,
    event,
    line_of,
    parents,
)
from tuskpoint import errors
from tuskpoint._background.agent_steps import agent_step
from tuskpoint._background.step_queue import StepQueue
from tuskpoint.background import AgentStep, BackgroundSaver, QueueFull
from tuskpoint.v1.checkpoint_pb2 import Checkpoint, CheckpointRef
from tuskpoint.v1.checkpoint_service_pb2 import SaveCheckpointRequest

# --- events ----------------------------------------------------------------------------


@dataclass
class Payload:
    thread_id: str = "t"
    step: int = 3
    state: dict[str, Any] = field(default_factory=lambda: {"a": [1]})
    timestamp: object = None


@dataclass
class Event:
    topic: str
    payload: object


FIELDS: dict[str, Any] = {"thread_id": "t", "step": 3, "state": {"a": [1]}}


@pytest.mark.parametrize(
    "given",
    [
        {"topic": "agent/step_complete", "payload": FIELDS},
        {"topic": "agent/step_complete", "payload": Payload()},
        Event("agent/step_complete", FIELDS),
        Event("agent/step_complete", Payload()),
        FIELDS,
        Payload(),
        {**FIELDS, "node": "planner"},
        json.dumps(FIELDS),
        json.dumps(FIELDS).encode(),
        {"topic": "agent/step_complete", "payload": json.dumps(FIELDS)},
        Event("agent/step_complete", bytearray(json.dumps(FIELDS).encode())),
        json.dumps({"topic": "agent/step_complete", "payload": FIELDS}).encode(),
    ],
)
def test_events_and_payloads_are_mappings_objects_or_json(given: object) -> None:
    step = agent_step(given)
    assert step is not None
    assert (step.thread_id, step.step, step.state, step.summary) == ("t", 3, {"a": [1]}, "")
    assert datetime.fromisoformat(str(step.timestamp)).tzinfo is UTC


@pytest.mark.parametrize("vector", [None, [1, 0.1]])
def test_a_step_is_itself_a_payload(vector: object) -> None:
    step = agent_step({**FIELDS, "state": {"text": "ÿ"}, "vector": vector})
    assert step is not None
    assert agent_step(step) == step


def test_another_topic_is_not_looked_at() -> None:
    assert agent_step({"topic": "agent/started", "payload": None}) is None
    assert agent_step(Event("", FIELDS)) is None
    assert agent_step('{"topic": "agent/started", "payload": "{"}') is None


@pytest.mark.parametrize(
    ("given", "saved"),
    [
        ("2026-01-02", "2026-01-02"),
        (12, 12),
        (12.5, 12.5),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00"),
        (
            datetime(2026, 1, 2),  # noqa: DTZ001 - a naive one is the case
            datetime(2026, 1, 2).astimezone().isoformat(),
        ),
    ],
)
def test_the_timestamp_is_kept_as_it_was_spelled(given: object, saved: object) -> None:
    step = agent_step({**FIELDS, "timestamp": given})
    assert step is not None
    assert json.loads(step.metadata_json) == {"source": "loop", "step": 3, "timestamp": saved}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (None, "thread_id: the event does not have it"),
        ({}, "thread_id: the event does not have it"),
        ({"topic": "agent/step_complete"}, "payload: the event does not have it"),
        ("", "event: it is text that is not JSON"),
        (b"\xff", "event: it is text that is not JSON"),
        ("[" * 100_000, "event: it is text that is not JSON"),
        ("[1]", "event: its JSON must be an object, not list"),
        ({"topic": "agent/step_complete", "payload": "step"}, "payload: it is text that is not"),
        ({**FIELDS, "thread_id": ""}, "thread_id: it must be a string"),
        ({**FIELDS, "thread_id": 5}, "thread_id: it must be a string"),
        ({**FIELDS, "step": "3"}, "step: it must be a whole number"),
        ({**FIELDS, "step": None}, "step: it must be a whole number"),
        ({**FIELDS, "state": [1]}, "state: it must be a mapping"),
        ({**FIELDS, "state": {"": 1}}, "state: its keys"),
        ({**FIELDS, "state": {"a": object()}}, r"state\['a'\]: it cannot be written as JSON"),
        ({**FIELDS, "timestamp": float("nan")}, "timestamp: it cannot be written as JSON"),
        ({**FIELDS, "timestamp": object()}, "timestamp: it must be a string"),
        ({**FIELDS, "summary": 5}, "summary: it must be a string"),
        ({**FIELDS, "summary": "\ud800"}, "summary: it cannot be written in UTF-8"),
        ({**FIELDS, "thread_id": "\ud800"}, "thread_id: it cannot be written in UTF-8"),
        ({**FIELDS, "state": {"\ud800": 1}}, "state: its keys"),
        ({**FIELDS, "vector": []}, "vector: it must have at least one component"),
        ({**FIELDS, "vector": "12"}, "vector: it must be a sequence of numbers"),
    ],
)
def test_a_step_that_cannot_be_saved_is_refused_at_once(given: object, problem: str) -> None:
    saver = BackgroundSaver("h:1")
    with pytest.raises(errors.InvalidRequest, match=problem):
        saver.handle_agent_step(given)
    assert saver.get_queue_size() == 0


# --- saving ----------------------------------------------------------------------------


def test_steps_become_one_line_of_checkpoints(saver: BackgroundSaver, service: Service) -> None:
    assert all(saver.handle_agent_step(event(number, same="x", n=number)) for number in range(20))
    saver.flush()
    history = service.history("t")
    assert parents(history) == line_of(history)
    assert service.steps("t") == list(range(20))
    assert saver.get_queue_size() == 0
    # Unchanged channels are not sent again.
    assert [channel.HasField("value") for channel in history[5].state.channels] == [False, True]


def test_steps_bring_their_vectors_and_the_saver_its_setting(service: Service) -> None:
    with BackgroundSaver("h:1", searchable=True) as saver:
        for step, vector in enumerate(([1, 0.5], None)):
            saver.handle_agent_step({**FIELDS, "step": step, "vector": vector})
    assert [[*request.vector] for request in service.requests] == [[1, 0.5], []]
    assert [request.searchable for request in service.requests] == [True, True]
    with pytest.raises(errors.InvalidRequest, match="searchable: it must be True, False or None"):
        BackgroundSaver("h:1", searchable="no")  # type: ignore[arg-type]


def test_an_event_of_another_topic_is_not_accepted(
    saver: BackgroundSaver, service: Service
) -> None:
    assert not saver.handle_agent_step({"topic": "agent/failed", "payload": FIELDS})
    saver.flush()
    assert service.requests == []


def test_the_switch_works_while_the_saver_runs(saver: BackgroundSaver, service: Service) -> None:
    gate = service.before = Gate()
    assert saver.auto_checkpoint
    assert saver.handle_agent_step(event(1))
    assert gate.reached.wait(WAIT_S)
    saver.auto_checkpoint = False
    assert not saver.handle_agent_step(event(2))
    gate.opened.set()
    saver.auto_checkpoint = True
    assert saver.handle_agent_step(event(3))
    saver.flush()
    history = service.history("t")
    assert service.steps("t") == [1, 3]
    assert parents(history) == line_of(history)
    with pytest.raises(errors.InvalidRequest, match="auto_checkpoint: it must be True or False"):
        saver.auto_checkpoint = "off"  # type: ignore[assignment]


def test_a_step_follows_the_one_before_whatever_others_save(
    saver: BackgroundSaver, service: Service
) -> None:
    saver.handle_agent_step(event(1))
    saver.flush()
    (mine,) = service.history("t")
    other = "1fffffff-0000-6000-8000-000000000000"
    service.stored["t"][other] = Checkpoint(ref=CheckpointRef(thread_id="t", checkpoint_id=other))
    saver.handle_agent_step(event(2))
    saver.flush()
    assert parents(service.history("t"))[1] == mine.ref.checkpoint_id
    saver.forget("t")
    saver.handle_agent_step(event(3))
    saver.flush()
    assert service.history("t")[-1].parent_checkpoint_id == other


def test_a_thread_forgotten_while_a_step_is_on_its_way_stays_forgotten(
    saver: BackgroundSaver, service: Service
) -> None:
    """A rollback that the application reports wins over a step that is being saved."""
    other = "1fffffff-0000-6000-8000-000000000000"

    def roll_back(request: SaveCheckpointRequest) -> None:
        if not service.stored["t"].get(other):
            ref = CheckpointRef(thread_id="t", checkpoint_id=other)
            service.stored["t"][other] = Checkpoint(ref=ref, metadata_json=b'{"step":-1}')
            saver.forget("t")

    service.after = roll_back
    for step in range(2):
        saver.handle_agent_step(event(step))
    saver.flush()
    assert [request.checkpoint.parent_checkpoint_id for request in service.requests] == ["", other]


def test_threads_go_side_by_side_and_each_in_order(
    saver: BackgroundSaver, service: Service
) -> None:
    both = threading.Barrier(2)

    def meet(request: SaveCheckpointRequest) -> None:
        if json.loads(request.checkpoint.metadata_json)["step"] == 0:
            both.wait(WAIT_S)

    service.before = meet
    for number in range(10):
        saver.handle_agent_step(event(number, "a"))
        saver.handle_agent_step(event(number, "b"))
    saver.flush()
    assert service.steps("a") == service.steps("b") == list(range(10))


def test_a_step_is_accepted_while_a_save_is_on_its_way(
    saver: BackgroundSaver, service: Service
) -> None:
    gate = service.before = Gate()
    saver.handle_agent_step(event(1))
    assert gate.reached.wait(WAIT_S)
    saver.handle_agent_step(event(2))
    assert saver.get_queue_size() == 2
    gate.opened.set()
    saver.flush()
    assert service.steps("t") == [1, 2]


def test_many_threads_hand_over_steps_at_once(saver: BackgroundSaver, service: Service) -> None:
    def agent(name: str) -> None:
        for number in range(50):
            saver.handle_agent_step(event(number, name))

    agents = [threading.Thread(target=agent, args=(f"agent-{n}",)) for n in range(8)]
    for agent_thread in agents:
        agent_thread.start()
    for agent_thread in agents:
        agent_thread.join()
    saver.flush()
    for n in range(8):
        assert service.steps(f"agent-{n}") == list(range(50))


# --- bounds ----------------------------------------------------------------------------


def test_the_number_of_steps_is_bounded(service: Service) -> None:
    saver = BackgroundSaver("h:1", max_steps=3)
    for number in range(3):
        saver.handle_agent_step(event(number))
    with pytest.raises(QueueFull, match="step 3 of thread 't'"):
        saver.handle_agent_step(event(3))
    assert saver.get_queue_size() == 3
    saver.start()
    saver.flush()
    assert saver.handle_agent_step(event(4))
    saver.stop()
    assert service.steps("t") == [0, 1, 2, 4]


def test_the_bytes_of_steps_are_bounded(service: Service) -> None:
    saver = BackgroundSaver("h:1", max_bytes=100_000)
    saver.handle_agent_step(event(0, text="x" * 60_000))
    with pytest.raises(QueueFull):
        saver.handle_agent_step(event(1, text="x" * 60_000))
    saver.handle_agent_step(event(2, text="x" * 30_000))
    for large in (event(3, text="x" * 100_000), {**FIELDS, "timestamp": "x" * 100_000}):
        with pytest.raises(errors.InvalidRequest, match="raise max_bytes"):
            saver.handle_agent_step(large)
    with saver:
        saver.flush()
        assert saver.handle_agent_step(event(4, text="x" * 60_000))
    assert service.steps("t") == [0, 2, 4]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 300)), max_size=30))
def test_the_queue_counts_its_steps_and_bytes(offered: list[tuple[str, int]]) -> None:
    queue = StepQueue(max_steps=10, max_bytes=12_000)
    accepted: list[AgentStep] = []
    for number, (name, size) in enumerate(offered):
        step = AgentStep(name, number, "", "", {"x": b"1" * size})
        try:
            queue.accept(step)
            accepted.append(step)
        except QueueFull:
            held = sum(step.size for step in accepted)
            assert len(accepted) == 10 or held + step.size > 12_000
    assert queue.unfinished() == accepted
    assert (queue.steps, queue.bytes) == (len(accepted), sum(step.size for step in accepted))
    shift = queue.begin_shift()
    steps_by_thread: dict[str, list[int]] = defaultdict(list)
    while queue.steps:
        held_now = queue.take(shift)
        assert held_now is not None
        steps_by_thread[held_now.step.thread_id].append(held_now.step.step)
        queue.finish(held_now)
    assert queue.bytes == 0
    assert all(numbers == sorted(numbers) for numbers in steps_by_thread.values())


@pytest.mark.parametrize("bound", ["max_steps", "max_bytes", "workers"])
def test_a_bound_is_above_zero(bound: str) -> None:
    with pytest.raises(errors.InvalidRequest, match=bound):
        BackgroundSaver("h:1", **{bound: 0})  # type: ignore[arg-type]
