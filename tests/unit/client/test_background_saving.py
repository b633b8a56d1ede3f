"""Background saving: what is accepted, in which order it goes, and what is told of failures."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import subprocess
import sys
import textwrap
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuskpoint import background, errors
from tuskpoint._agent_steps import agent_step
from tuskpoint._options import Options
from tuskpoint._retry import RetryPolicy
from tuskpoint._step_queue import StepQueue
from tuskpoint.background import AgentStep, BackgroundSaver, QueueFull, StepsNotSaved
from tuskpoint.v1.checkpoint_pb2 import Checkpoint, CheckpointRef, View
from tuskpoint.v1.checkpoint_service_pb2 import SaveCheckpointRequest, SaveCheckpointResponse

WAIT_S = 30.0
DOWN = errors.Unavailable("down", status="UNAVAILABLE")
REFUSED = errors.InvalidRequest("refused", status="INVALID_ARGUMENT", reason="INVALID_FIELD")

Hook = Callable[[SaveCheckpointRequest], None]


class Service:
    """Stands in for the calls of every saver: keeps checkpoints, and fails as it is told.

    Attributes:
        before: Called before a save is applied; what it raises is the answer.
        after: Called after a save was applied; what it raises is the answer.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.stored: dict[str, dict[str, Checkpoint]] = defaultdict(dict)
        self.requests: list[SaveCheckpointRequest] = []
        self.before: Hook = lambda request: None
        self.after: Hook = lambda request: None

    def calls(self, options: Options) -> Calls:
        return Calls(self)

    def latest(self, thread_id: str) -> Checkpoint | None:
        with self.lock:
            stored = self.stored[thread_id]
            return stored[max(stored)] if stored else None

    def history(self, thread_id: str) -> list[Checkpoint]:
        return [one for _, one in sorted(self.stored[thread_id].items())]

    def steps(self, thread_id: str) -> list[int]:
        return [json.loads(one.metadata_json)["step"] for one in self.history(thread_id)]


class Calls:
    def __init__(self, service: Service) -> None:
        self.service = service
        self.is_closed = False

    def get_checkpoint(self, ref: CheckpointRef, *, view: View = 0) -> Checkpoint | None:  # type: ignore[assignment]
        if not ref.checkpoint_id:
            return self.service.latest(ref.thread_id)
        return self.service.stored[ref.thread_id].get(ref.checkpoint_id)

    def save_checkpoint(self, request: SaveCheckpointRequest) -> SaveCheckpointResponse:
        service, ref = self.service, request.checkpoint.ref
        with service.lock:
            service.requests.append(request)
        service.before(request)
        if self.is_closed:
            raise ValueError("Cannot invoke RPC on closed channel!")
        with service.lock:
            service.stored[ref.thread_id][ref.checkpoint_id] = request.checkpoint
        service.after(request)
        return SaveCheckpointResponse(ref=ref)

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    made = Service()
    monkeypatch.setattr(background, "SyncCalls", made.calls)
    monkeypatch.setattr(background, "_PAUSES", RetryPolicy(max_delay_s=0.001))
    return made


@pytest.fixture
def told() -> list[tuple[AgentStep, Exception]]:
    return []


@pytest.fixture
def saver(service: Service, told: list[tuple[AgentStep, Exception]]) -> Iterator[BackgroundSaver]:
    made = BackgroundSaver("h:1", on_error=lambda *given: told.append(given))
    made.start()
    yield made
    service.before = service.after = lambda request: None
    made.stop()


def event(step: int, thread_id: str = "t", **state: Any) -> dict[str, Any]:
    payload = {"thread_id": thread_id, "step": step, "state": state or {"n": step}}
    return {"topic": "agent/step_complete", "payload": {**payload, "timestamp": 1.5}}


def parents(history: list[Checkpoint]) -> list[str]:
    return [one.parent_checkpoint_id for one in history]


def line_of(history: list[Checkpoint]) -> list[str]:
    """The parents that checkpoints in one line have."""
    return ["", *[one.ref.checkpoint_id for one in history[:-1]]]


class Gate:
    """Holds saves up until it is opened."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def __call__(self, request: SaveCheckpointRequest) -> None:
        self.reached.set()
        assert self.opened.wait(WAIT_S)


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
    ],
)
def test_events_and_payloads_are_mappings_or_objects(given: object) -> None:
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
def test_the_timestamp_is_kept_as_it_was_said(given: object, saved: object) -> None:
    step = agent_step({**FIELDS, "timestamp": given})
    assert step is not None
    assert json.loads(step.metadata_json) == {"source": "loop", "step": 3, "timestamp": saved}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (None, "thread_id: the event has none"),
        ({}, "thread_id: the event has none"),
        ({"topic": "agent/step_complete"}, "payload: the event has none"),
        ({**FIELDS, "thread_id": ""}, "thread_id: it is a text"),
        ({**FIELDS, "thread_id": 5}, "thread_id: it is a text"),
        ({**FIELDS, "step": "3"}, "step: it is a whole number"),
        ({**FIELDS, "step": None}, "step: it is a whole number"),
        ({**FIELDS, "state": [1]}, "state: it maps channels"),
        ({**FIELDS, "state": {"": 1}}, "state: its keys"),
        ({**FIELDS, "state": {"a": object()}}, r"state\['a'\]: it cannot be written as JSON"),
        ({**FIELDS, "timestamp": float("nan")}, "timestamp: it cannot be written as JSON"),
        ({**FIELDS, "timestamp": object()}, "timestamp: it is a text"),
        ({**FIELDS, "summary": 5}, "summary: it is a text"),
        ({**FIELDS, "summary": "\ud800"}, "summary: it cannot be written in UTF-8"),
        ({**FIELDS, "thread_id": "\ud800"}, "thread_id: it cannot be written in UTF-8"),
        ({**FIELDS, "state": {"\ud800": 1}}, "state: its keys"),
        ({**FIELDS, "vector": []}, "vector: it has one component"),
        ({**FIELDS, "vector": "12"}, "vector: it is a sequence of numbers"),
    ],
)
def test_what_cannot_be_saved_is_refused_at_once(given: object, problem: str) -> None:
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
    # What did not change is not sent again.
    assert [one.HasField("value") for one in history[5].state.channels] == [False, True]


def test_steps_bring_their_vectors_and_the_saver_its_setting(service: Service) -> None:
    with BackgroundSaver("h:1", searchable=True) as saver:
        for step, vector in enumerate(([1, 0.5], None)):
            saver.handle_agent_step({**FIELDS, "step": step, "vector": vector})
    assert [[*one.vector] for one in service.requests] == [[1, 0.5], []]
    assert [one.searchable for one in service.requests] == [True, True]
    with pytest.raises(errors.InvalidRequest, match="searchable: it is True, False or None"):
        BackgroundSaver("h:1", searchable="no")  # type: ignore[arg-type]


def test_an_event_of_another_topic_is_told_apart(saver: BackgroundSaver, service: Service) -> None:
    assert not saver.handle_agent_step({"topic": "agent/failed", "payload": FIELDS})
    saver.flush()
    assert service.requests == []


def test_the_first_step_follows_what_the_thread_has(
    saver: BackgroundSaver, service: Service
) -> None:
    kept = "1f0e0000-0000-6000-8000-000000000000"
    service.stored["t"][kept] = Checkpoint(ref=CheckpointRef(thread_id="t", checkpoint_id=kept))
    saver.handle_agent_step(event(1))
    saver.flush()
    assert service.history("t")[-1].parent_checkpoint_id == kept


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


def test_what_is_forgotten_while_a_step_is_on_its_way_stays_so(
    saver: BackgroundSaver, service: Service
) -> None:
    """Whoever rolls a thread back and says so is followed, whatever was under way."""
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
    assert [one.checkpoint.parent_checkpoint_id for one in service.requests] == ["", other]


def test_a_state_that_changes_later_is_saved_as_it_was(
    saver: BackgroundSaver, service: Service
) -> None:
    gate = service.before = Gate()
    state: dict[str, Any] = {"items": [1], "more": {}}
    saver.handle_agent_step({**FIELDS, "state": state})
    assert gate.reached.wait(WAIT_S)
    state["items"].append(2)
    state["more"] = None
    gate.opened.set()
    saver.flush()
    (saved,) = service.history("t")
    assert [one.value.data for one in saved.state.channels] == [b"[1]", b"{}"]


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
    for one in agents:
        one.start()
    for one in agents:
        one.join()
    saver.flush()
    for n in range(8):
        assert service.steps(f"agent-{n}") == list(range(50))


# --- failures --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "failure",
    [
        DOWN,
        errors.DeadlineExceeded("late", status="DEADLINE_EXCEEDED"),
        errors.ResourceExhausted(
            "full", status="RESOURCE_EXHAUSTED", reason="BACKLOG_FULL", retry_after_s=0.001
        ),
    ],
)
def test_a_server_that_is_down_is_waited_for(
    saver: BackgroundSaver,
    service: Service,
    told: list[tuple[AgentStep, Exception]],
    failure: errors.TuskPointError,
) -> None:
    attempts = 0

    def fail_often(request: SaveCheckpointRequest) -> None:
        nonlocal attempts
        attempts += 1
        if attempts <= 100:
            raise failure

    service.before = fail_often
    for number in range(5):
        saver.handle_agent_step(event(number))
    saver.flush()
    assert service.steps("t") == list(range(5))
    assert told == []


def test_a_lost_answer_saves_nothing_twice(saver: BackgroundSaver, service: Service) -> None:
    lost = {1, 3}

    def lose(request: SaveCheckpointRequest) -> None:
        step = json.loads(request.checkpoint.metadata_json)["step"]
        if step in lost:
            lost.remove(step)
            raise DOWN

    service.after = lose
    for number in range(5):
        saver.handle_agent_step(event(number))
    saver.flush()
    history = service.history("t")
    sent = {request.SerializeToString(deterministic=True) for request in service.requests}
    assert (len(service.requests), len(sent)) == (7, 5)
    assert service.steps("t") == list(range(5))
    assert parents(history) == line_of(history)


def test_a_refusal_is_told_and_the_thread_goes_on(
    saver: BackgroundSaver, service: Service, told: list[tuple[AgentStep, Exception]]
) -> None:
    def refuse(request: SaveCheckpointRequest) -> None:
        if json.loads(request.checkpoint.metadata_json)["step"] == 1:
            raise REFUSED

    service.before = refuse
    for number in range(3):
        saver.handle_agent_step(event(number))
    saver.flush()
    assert [(step.thread_id, step.step, step.state, error) for step, error in told] == [
        ("t", 1, {"n": 1}, REFUSED)
    ]
    history = service.history("t")
    assert service.steps("t") == [0, 2]
    assert parents(history) == line_of(history)


def test_late_steps_do_not_bring_a_deleted_thread_back(
    saver: BackgroundSaver, service: Service, told: list[tuple[AgentStep, Exception]]
) -> None:
    def refuse_orphans(request: SaveCheckpointRequest) -> None:
        parent = request.checkpoint.parent_checkpoint_id
        if parent and parent not in service.stored["t"]:
            raise errors.ThreadDeleted("deleted", reason="THREAD_DELETED")

    service.before = refuse_orphans
    saver.handle_agent_step(event(1))
    saver.flush()
    service.stored["t"].clear()
    saver.handle_agent_step(event(2))
    saver.handle_agent_step(event(3))
    saver.flush()
    assert [step.step for step, _ in told] == [2, 3]
    saver.forget("t")
    saver.handle_agent_step(event(0))
    saver.flush()
    assert parents(service.history("t")) == [""]


def test_a_defect_is_told_too(
    saver: BackgroundSaver, service: Service, told: list[tuple[AgentStep, Exception]]
) -> None:
    def break_down(request: SaveCheckpointRequest) -> None:
        raise ZeroDivisionError

    service.before = break_down
    saver.handle_agent_step(event(1))
    saver.flush()
    assert [type(error) for _, error in told] == [ZeroDivisionError]


def test_without_a_callback_the_log_names_the_step(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(request: SaveCheckpointRequest) -> None:
        raise REFUSED

    service.before = refuse
    with BackgroundSaver("h:1") as saver:
        saver.handle_agent_step(event(4, "mine"))
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.getMessage() == "step 4 of thread 'mine' (1.5) was not saved: refused"


@pytest.mark.parametrize(
    "failure", [ZeroDivisionError("oops"), SystemExit(3), asyncio.CancelledError()]
)
def test_a_callback_that_fails_stops_nothing(
    service: Service, caplog: pytest.LogCaptureFixture, failure: BaseException
) -> None:
    def refuse(request: SaveCheckpointRequest) -> None:
        if request.checkpoint.ref.thread_id == "bad":
            raise REFUSED

    def fail(step: AgentStep, error: Exception) -> None:
        raise failure

    service.before = refuse
    with BackgroundSaver("h:1", on_error=fail, workers=1) as saver:
        saver.handle_agent_step(event(4, "bad"))
        saver.handle_agent_step(event(5, "good"))
    assert service.steps("good") == [5]
    assert "on_error failed, told that step 4 of thread 'bad'" in caplog.text


def test_a_callback_may_hand_the_step_over_again_and_may_not_wait(service: Service) -> None:
    refusals: list[Exception] = [REFUSED]
    caught: list[Exception] = []

    def refuse(request: SaveCheckpointRequest) -> None:
        if refusals:
            raise refusals.pop()

    def again(step: AgentStep, error: Exception) -> None:
        made.handle_agent_step(step)
        try:
            made.stop()
        except errors.PreconditionFailed as failure:
            caught.append(failure)

    service.before = refuse
    made = BackgroundSaver("h:1", on_error=again)
    made.handle_agent_step(event(9))
    with made:
        made.flush()
        made.flush()
    assert service.steps("t") == [9]
    assert len(caught) == 1


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
def test_the_queue_counts_what_it_holds(offered: list[tuple[str, int]]) -> None:
    queue = StepQueue(max_steps=10, max_bytes=12_000)
    accepted: list[AgentStep] = []
    for number, (name, size) in enumerate(offered):
        step = AgentStep(name, number, "", "", {"x": b"1" * size})
        try:
            queue.accept(step)
            accepted.append(step)
        except QueueFull:
            held = sum(one.size for one in accepted)
            assert len(accepted) == 10 or held + step.size > 12_000
    assert queue.unfinished() == accepted
    assert (queue.steps, queue.bytes) == (len(accepted), sum(one.size for one in accepted))
    shift = queue.begin_shift()
    taken: dict[str, list[int]] = defaultdict(list)
    while queue.steps:
        held_now = queue.take(shift)
        assert held_now is not None
        taken[held_now.step.thread_id].append(held_now.step.step)
        queue.finish(held_now)
    assert queue.bytes == 0
    assert all(numbers == sorted(numbers) for numbers in taken.values())


@pytest.mark.parametrize("bound", ["max_steps", "max_bytes", "workers"])
def test_a_bound_is_above_zero(bound: str) -> None:
    with pytest.raises(errors.InvalidRequest, match=bound):
        BackgroundSaver("h:1", **{bound: 0})  # type: ignore[arg-type]


# --- life ------------------------------------------------------------------------------


def test_steps_wait_for_the_start_and_are_flushed_by_the_stop(service: Service) -> None:
    saver = BackgroundSaver("h:1")
    ran = [saver.is_running]
    for number in range(30):
        saver.handle_agent_step(event(number, f"t{number % 3}"))
    assert (saver.get_queue_size(), service.requests) == (30, [])
    saver.start()
    saver.start()
    ran.append(saver.is_running)
    saver.stop()
    ran.append(saver.is_running)
    assert ran == [False, True, False]
    assert (saver.get_queue_size(), len(service.requests)) == (0, 30)
    saver.stop()
    with pytest.raises(errors.PreconditionFailed, match="stopped"):
        saver.handle_agent_step(event(30))
    saver.start()
    saver.handle_agent_step(event(31))
    saver.stop()
    assert len(service.requests) == 31


def test_the_workers_end_with_the_service(service: Service) -> None:
    saver = BackgroundSaver("h:1")
    saver.start()
    workers = list(saver._threads)
    assert len(workers) == 4
    assert all(one.daemon for one in workers)
    saver.stop()
    for one in workers:
        one.join(WAIT_S)
        assert not one.is_alive()


def test_a_stop_says_what_it_could_not_save_and_a_start_goes_on(
    service: Service, told: list[tuple[AgentStep, Exception]]
) -> None:
    def down(request: SaveCheckpointRequest) -> None:
        raise DOWN

    service.before = down
    saver = BackgroundSaver("h:1", on_error=lambda *given: told.append(given))
    saver.start()
    for number in range(7):
        saver.handle_agent_step(event(number, "ab"[number % 2]))
    with pytest.raises(
        StepsNotSaved, match=r"7 steps: step 0 of thread 'a'.* and 2 more"
    ) as caught:
        saver.stop(timeout_s=0.05)
    assert [one.step for one in caught.value.steps] == list(range(7))
    assert not saver.is_running
    with pytest.raises(StepsNotSaved):
        saver.stop()
    service.before = lambda request: None
    saver.start()
    saver.stop()
    assert service.steps("a") == [0, 2, 4, 6]
    assert service.steps("b") == [1, 3, 5]
    assert told == []


def test_a_stop_does_not_wait_longer_than_asked_for_another(service: Service) -> None:
    free, held = threading.Event(), threading.Event()

    def hold(request: SaveCheckpointRequest) -> None:
        held.set()
        free.wait()

    service.before = hold
    saver = BackgroundSaver("h:1")
    saver.start()
    saver.handle_agent_step(event(0))
    assert held.wait(10)
    patient = threading.Thread(target=saver.stop, args=(None,))
    patient.start()
    while saver._life.acquire(blocking=False):  # until the patient one has it
        saver._life.release()
    with pytest.raises(StepsNotSaved):
        saver.stop(timeout_s=0.01)
    free.set()
    patient.join(10)
    assert service.steps("t") == [0]


def test_a_save_on_its_way_when_the_time_is_up_is_not_lost(
    service: Service, told: list[tuple[AgentStep, Exception]]
) -> None:
    gate = service.before = Gate()
    saver = BackgroundSaver("h:1", on_error=lambda *given: told.append(given))
    saver.start()
    saver.handle_agent_step(event(1))
    saver.handle_agent_step(event(2))
    workers = list(saver._threads)
    assert gate.reached.wait(WAIT_S)
    with pytest.raises(StepsNotSaved):
        saver.stop(timeout_s=0)
    # The calls are closed under the save, which then fails for a reason of no meaning.
    gate.opened.set()
    for one in workers:
        one.join(WAIT_S)
    saver.start()
    saver.stop()
    assert service.steps("t") == [1, 2]
    assert told == []
    ids = [one.checkpoint.ref.checkpoint_id for one in service.requests]
    assert ids[0] == ids[1]


class Hasty(BackgroundSaver):
    """Gives up at once when it is left."""

    def stop(self, timeout_s: float | None = 0) -> None:
        super().stop(timeout_s)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_fails_each_step_is_saved_once_or_told(
    service: Service, told: list[tuple[AgentStep, Exception]], seed: int
) -> None:
    chance = random.Random(seed)
    accepted: dict[str, list[int]] = defaultdict(list)

    def fail(request: SaveCheckpointRequest) -> None:
        if chance.random() < 0.3:
            raise DOWN

    def refuse_or_fail(request: SaveCheckpointRequest) -> None:
        if json.loads(request.checkpoint.metadata_json)["step"] % 7 == 3:
            raise REFUSED
        fail(request)

    service.before, service.after = refuse_or_fail, fail
    saver = BackgroundSaver("h:1", on_error=lambda *given: told.append(given))
    for number in range(60):
        agent = chance.choice("abcde")
        saver.handle_agent_step(event(number, agent))
        accepted[agent].append(number)
        if chance.random() < 0.15:
            saver.start()
            with suppress(StepsNotSaved):
                saver.stop(chance.choice([0, 0.002]))
            saver.start()
    saver.start()
    saver.stop(WAIT_S)

    assert sorted(step.step for step, _ in told) == [n for n in range(60) if n % 7 == 3]
    for agent, numbers in accepted.items():
        assert service.steps(agent) == [n for n in numbers if n % 7 != 3]
        history = service.history(agent)
        assert parents(history) == line_of(history)


def test_leaving_the_context_with_steps_unsaved_raises(service: Service) -> None:
    gate = service.before = Gate()
    saver = Hasty("h:1")
    with pytest.raises(StepsNotSaved), saver:
        saver.handle_agent_step(event(1))
    gate.opened.set()
    saver.start()
    saver.stop(None)


def test_an_exception_in_the_context_is_not_hidden(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    gate = service.before = Gate()
    saver = Hasty("h:1")
    saver.handle_agent_step(event(1))
    with pytest.raises(ZeroDivisionError) as caught, saver:
        raise ZeroDivisionError
    gate.opened.set()
    assert caught.value.__notes__ == ["not saved: 1 step: step 1 of thread 't' (1.5)"]
    assert "not saved: 1 step: step 1 of thread 't'" in caplog.text
    saver.start()
    saver.stop(None)


def test_an_outage_is_logged_once(
    saver: BackgroundSaver, service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    failures = [DOWN] * 20

    def fail(request: SaveCheckpointRequest) -> None:
        if failures:
            raise failures.pop()

    service.before = fail
    saver.handle_agent_step(event(1))
    saver.flush()
    assert [one.getMessage() for one in caplog.records] == [
        "saving is held up, with 1 step to go: down",
        "steps are saved again",
    ]


async def test_an_event_loop_is_not_held_up(service: Service) -> None:
    gate = service.before = Gate()
    async with BackgroundSaver("h:1") as saver:
        for number in range(3):
            saver.handle_agent_step(event(number))
        # Opened by the loop itself, which it could not if the stop held it up.
        stopping = asyncio.create_task(saver.astop())
        asyncio.get_running_loop().call_soon(gate.opened.set)
        await stopping
    assert service.steps("t") == [0, 1, 2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_is_told(service: Service) -> None:
    saver = BackgroundSaver("h:1")
    saver._process = os.getpid() + 1
    for call in (lambda: saver.handle_agent_step(event(1)), saver.start, saver.stop, saver.flush):
        with pytest.raises(errors.PreconditionFailed, match="forked"):
            call()


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        timeout=60,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_process_that_ends_without_a_stop_logs_what_it_lost() -> None:
    done = run("""
        from tuskpoint import BackgroundSaver

        saver = BackgroundSaver("127.0.0.1:1")
        saver.start()
        for number in range(3):
            saver.handle_agent_step({"thread_id": "t", "step": number, "state": {}})
    """)
    assert done.returncode == 0, done.stderr
    assert "never saved, because nobody waited for it: 3 steps: step 0 of thread 't'" in done.stderr


def test_a_service_that_is_forgotten_with_steps_logs_what_it_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    saver = BackgroundSaver("h:1")
    saver.handle_agent_step(event(1))
    del saver
    assert "never saved, because nobody waited for it: 1 step:" in caplog.text


def test_a_process_that_lost_nothing_says_nothing() -> None:
    done = run("""
        from tuskpoint import BackgroundSaver

        saver = BackgroundSaver("127.0.0.1:1")
        saver.start()
        saver.stop()
        print(saver.is_running, saver.get_queue_size(), saver.target)
    """)
    assert (done.stdout, done.stderr) == ("False 0 127.0.0.1:1\n", "")
