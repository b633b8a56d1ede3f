"""The flow persistence works with CrewAI's own engine."""

from __future__ import annotations

import copy
import socket
import subprocess
from collections.abc import Callable
from datetime import date
from typing import Any, cast

import pytest
from crewai.flow.async_feedback import HumanFeedbackPending, PendingFeedbackContext
from crewai.flow.flow import Flow, listen, start
from crewai.flow.human_feedback import human_feedback
from crewai.flow.persistence import persist
from pydantic import BaseModel

from tuskpoint import (
    AsyncClient,
    Client,
    Conflict,
    DeadlineExceeded,
    PreconditionFailed,
    ThreadDeleted,
    TuskPointError,
    Unavailable,
)
from tuskpoint.frameworks.crewai import TuskPointFlowPersistence


class Order(BaseModel):
    """The state of `OrderFlow`."""

    id: str = ""
    due: date = date(2026, 1, 2)
    steps: list[str] = []


@persist()
class OrderFlow(Flow[Order]):
    """A flow of two saved steps."""

    @start()
    def take(self) -> str:
        """Take the order."""
        self.state.steps.append("take")
        return "taken"

    @listen(take)
    def ship(self) -> str:
        """Ship the order."""
        self.state.steps.append("ship")
        return "shipped"


class Desk:
    """A feedback provider: a person answers later."""

    def request_feedback(self, context: PendingFeedbackContext, flow: Flow[Any]) -> str:
        """Leave the question open."""
        raise HumanFeedbackPending(context=context)


@persist()
class RefundFlow(Flow[dict[str, Any]]):
    """A step that a person decides on."""

    @start()
    @human_feedback(message="Refund?", provider=Desk(), metadata={"desk": 7})
    def check(self) -> dict[str, str]:
        """Ask a person."""
        self.state["asked"] = True
        return {"order": "A-17"}

    @listen(check)
    def close(self, answer: Any) -> str:
        """Close the order as the person decided."""
        self.state["answer"] = answer.feedback
        return f"closed: {answer.feedback}"


@pytest.fixture
def persistence(target: str) -> TuskPointFlowPersistence:
    """A persistence that has seen no flow."""
    return TuskPointFlowPersistence(target)


def run(kind: type[Flow[Any]], persistence: TuskPointFlowPersistence, flow_id: str) -> Flow[Any]:
    """Run a flow and return it."""
    flow = kind(persistence=persistence, suppress_flow_events=True)
    flow.kickoff(inputs={"id": flow_id})
    return flow


def steps(client: Client, thread_id: str) -> list[Any]:
    """Return the field `steps` of each checkpoint of a thread."""
    return [checkpoint.state["state/steps"] for checkpoint in client.history(thread_id, full=True)]


def test_each_step_of_a_flow_is_a_checkpoint(
    persistence: TuskPointFlowPersistence, client: Client, thread_id: str
) -> None:
    run(OrderFlow, persistence, thread_id)
    first, second = client.history(thread_id, full=True)
    assert first.state == {
        "state/id": thread_id, "state/due": "2026-01-02", "state/steps": ["take"],
    }  # fmt: skip
    assert second.state == {**first.state, "state/steps": ["take", "ship"]}
    assert [checkpoint.summary for checkpoint in (first, second)] == ["after take", "after ship"]
    assert second.metadata == {"framework": "crewai-flow", "method": "ship"}
    assert second.agent_id == "crewai-flow"
    assert second.parent_checkpoint_id == first.checkpoint_id


def test_a_flow_continues_with_its_state_elsewhere(
    persistence: TuskPointFlowPersistence, target: str, thread_id: str
) -> None:
    run(OrderFlow, persistence, thread_id)
    flow = run(OrderFlow, TuskPointFlowPersistence(target), thread_id)
    assert flow.state.steps == ["take", "ship", "take", "ship"]
    assert flow.state.due == date(2026, 1, 2)


def test_a_flow_that_waits_for_a_person_continues_elsewhere(
    persistence: TuskPointFlowPersistence, target: str, client: Client, thread_id: str
) -> None:
    run(RefundFlow, persistence, thread_id)
    elsewhere = TuskPointFlowPersistence(target)
    flow = RefundFlow.from_pending(thread_id, elsewhere, suppress_flow_events=True)
    assert flow.pending_feedback is not None
    assert flow.pending_feedback.message == "Refund?"
    assert flow.pending_feedback.method_output == {"order": "A-17"}
    assert flow.pending_feedback.metadata == {"desk": 7}
    assert flow.resume("yes") == "closed: yes"
    assert persistence.load_pending_feedback(thread_id) is None
    assert persistence.load_state(thread_id) == {"id": thread_id, "asked": True, "answer": "yes"}
    assert [checkpoint.summary for checkpoint in client.history(thread_id)] == [
        "check waits for feedback",
        "after check",
        "check has its feedback",
        "after close",
    ]
    with pytest.raises(ValueError, match="No pending feedback"):
        RefundFlow.from_pending(thread_id, elsewhere)


def test_a_flow_that_another_process_saved_is_refused_until_it_is_loaded(
    persistence: TuskPointFlowPersistence, target: str, client: Client, thread_id: str
) -> None:
    other = TuskPointFlowPersistence(target)
    persistence.save_state(thread_id, "take", {"id": thread_id, "steps": [1]})
    other.save_state(thread_id, "take", {"id": thread_id, "steps": [2]})
    for _ in range(2):
        with pytest.raises(Conflict, match=f"one process at a time.*'id': '{thread_id}'"):
            persistence.save_state(thread_id, "ship", {"id": thread_id, "steps": [3]})
    assert steps(client, thread_id) == [[1], [2]]
    assert persistence.load_state(thread_id) == {"id": thread_id, "steps": [2]}
    persistence.save_state(thread_id, "ship", {"id": thread_id, "steps": [4]})
    assert steps(client, thread_id) == [[1], [2], [4]]


def test_steps_at_the_same_time_are_all_saved(
    persistence: TuskPointFlowPersistence, client: Client, thread_id: str
) -> None:
    @persist()
    class Parallel(Flow[Order]):
        @start()
        def one(self) -> None:
            self.state.steps.append("one")

        @start()
        def two(self) -> None:
            self.state.steps.append("two")

        @start()
        def three(self) -> None:
            self.state.steps.append("three")

    run(Parallel, persistence, thread_id)
    saved = steps(client, thread_id)
    assert len(saved) == 3
    assert sorted(saved[-1]) == ["one", "three", "two"]


def test_a_thread_of_another_program_is_refused_and_stays_as_it_is(
    persistence: TuskPointFlowPersistence, client: Client, thread_id: str
) -> None:
    client.save(thread_id, {"state/id": "mine"}, metadata={"framework": "crewai-checkpoints"})
    context = PendingFeedbackContext(thread_id, "F", "check", None, "Refund?")
    attempts: list[Callable[[], object]] = [
        lambda: persistence.load_state(thread_id),
        lambda: persistence.save_state(thread_id, "take", {"id": thread_id}),
        lambda: persistence.save_pending_feedback(thread_id, context, {"id": thread_id}),
        lambda: persistence.load_pending_feedback(thread_id),
        lambda: persistence.clear_pending_feedback(thread_id),
    ]
    for attempt in attempts:
        with pytest.raises(PreconditionFailed, match=r"by crewai-checkpoints.*use another ID"):
            attempt()
    with pytest.raises(PreconditionFailed):
        run(OrderFlow, persistence, thread_id)
    assert len(list(client.history(thread_id))) == 1


def test_a_late_step_does_not_bring_a_deleted_flow_back(
    persistence: TuskPointFlowPersistence, client: Client, thread_id: str
) -> None:
    persistence.save_state(thread_id, "take", {"id": thread_id})
    client.delete(thread_id)
    for _ in range(2):
        with pytest.raises(ThreadDeleted):
            persistence.save_state(thread_id, "ship", {"id": thread_id})
    assert persistence.load_state(thread_id) is None
    persistence.save_state(thread_id, "take", {"id": thread_id, "new": True})
    assert persistence.load_state(thread_id) == {"id": thread_id, "new": True}


def test_a_field_that_json_cannot_express_is_named(
    persistence: TuskPointFlowPersistence, client: Client, thread_id: str
) -> None:
    with pytest.raises(TypeError, match="'lock' in the state of the flow cannot be written"):
        persistence.save_state(thread_id, "take", {"id": thread_id, "lock": object()})
    assert list(client.history(thread_id)) == []


def test_a_fork_and_an_adopted_thread_continue_under_their_own_ids(
    persistence: TuskPointFlowPersistence, client: Client, thread_id: str
) -> None:
    run(RefundFlow, persistence, thread_id)
    fork = client.fork(thread_id).new_thread_id
    adopted = client.adopt(client.handoff(thread_id, to_agent="x"), f"{fork}-b").new_thread_id
    for name in (fork, adopted):
        flow = RefundFlow.from_pending(name, persistence, suppress_flow_events=True)
        assert flow.resume(f"for {name}") == f"closed: for {name}"
        assert persistence.load_state(name) == {
            "id": name, "asked": True, "answer": f"for {name}",
        }  # fmt: skip
    assert persistence.load_pending_feedback(thread_id) is not None
    assert len(list(client.history(thread_id))) == 1


def test_a_flow_that_is_rolled_back_to_its_question_waits_again(
    persistence: TuskPointFlowPersistence, client: Client, thread_id: str
) -> None:
    run(RefundFlow, persistence, thread_id)
    RefundFlow.from_pending(thread_id, persistence, suppress_flow_events=True).resume("yes")
    question = next(iter(client.history(thread_id)))
    client.rollback(thread_id, question.checkpoint_id)
    flow = RefundFlow.from_pending(thread_id, persistence, suppress_flow_events=True)
    assert flow.resume("no") == "closed: no"


def test_a_server_that_is_down_stops_the_flow_and_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as port:
        nobody = f"127.0.0.1:{port.getsockname()[1]}"
    persistence = TuskPointFlowPersistence(nobody, timeout_s=0.2)
    with pytest.raises((Unavailable, DeadlineExceeded), match=nobody):
        run(OrderFlow, persistence, "any")
    flow = OrderFlow(persistence=persistence, suppress_flow_events=True)
    with pytest.raises(RuntimeError, match=f"persistence failed.*{nobody}"):
        flow.kickoff()
    assert flow.state.steps == ["take"]


def test_a_checkpoint_of_a_flow_names_the_server_and_has_no_token(target: str) -> None:
    persistence = TuskPointFlowPersistence(target, token="secret", agent_id="clerk")
    flow = OrderFlow(persistence=persistence)
    dumped = flow.model_dump(mode="json")["persistence"]
    assert "secret" not in str(dumped)
    again = OrderFlow(persistence=dumped).persistence
    assert isinstance(again, TuskPointFlowPersistence)
    assert (again.target, again.agent_id) == (target, "clerk")


def test_the_persistence_closes_the_client_that_it_made(target: str, thread_id: str) -> None:
    with Client(target) as shared:
        TuskPointFlowPersistence(shared).close()
        assert copy.deepcopy(TuskPointFlowPersistence(shared)).load_state(thread_id) is None
        with pytest.raises(TypeError, match="a client has its own timeout_s"):
            TuskPointFlowPersistence(shared, timeout_s=1)
    with pytest.raises(TypeError, match="or Client, not AsyncClient"):
        TuskPointFlowPersistence(cast(Any, AsyncClient(target)))
    mine = TuskPointFlowPersistence(target)
    mine.close()
    with pytest.raises(TuskPointError, match="this client is closed"):
        mine.load_state(thread_id)


def test_the_example_is_killed_and_continues_in_a_second_process(
    example: subprocess.Popen[str], client: Client
) -> None:
    output, errors = example.communicate(timeout=120)
    assert example.returncode == 0, errors
    killed, _, rest = output.partition("second process, because the first ended with -9")
    assert "look_up: the price is 40" in killed
    assert "offer: the process dies" in killed
    assert "look_up: the price 40 is known" in rest
    assert "the flow waits: Pay this? 40 euros back" in rest
    assert "the flow ends: 40 euros back: yes, pay" in rest
    summaries = [checkpoint.summary for checkpoint in client.history("refund-a-17")]
    assert summaries[:2] == ["after look_up"] * 2
    assert summaries[-1] == "after pay"
