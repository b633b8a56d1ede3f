"""The checkpoint provider behaves as CrewAI's own provider of files."""

from __future__ import annotations

import copy
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from crewai import LLM, Agent, Crew, CrewOutput, Task
from crewai.events import crewai_event_bus
from crewai.flow.flow import Flow, listen, start
from crewai.state import CheckpointConfig, JsonProvider
from crewai.state.event_record import EventRecord
from crewai.state.runtime import RuntimeState
from pydantic import BaseModel

from tuskpoint import (
    Client,
    DeadlineExceeded,
    NotFound,
    PreconditionFailed,
    TuskPointError,
    Unavailable,
)
from tuskpoint.frameworks.crewai import TuskPointProvider

RAN: list[str] = []


class Order(BaseModel):
    """The state of `Three`."""

    id: str = ""
    steps: list[str] = []


class Power:
    """Whether the second step of `Three` fails."""

    failed = False


class Three(Flow[Order]):
    """Three steps; `RAN` has the finished ones."""

    @start()
    def one(self) -> None:
        """Start the flow."""
        RAN.append("one")
        self.state.steps.append("one")

    @listen(one)
    def two(self) -> None:
        """Fail, or continue the flow."""
        if Power.failed:
            raise OSError("the power failed")
        RAN.append("two")
        self.state.steps.append("two")

    @listen(two)
    def three(self) -> str:
        """End the flow."""
        RAN.append("three")
        return " ".join([*self.state.steps, "three"])


class Script(BaseHTTPRequestHandler):
    """A local model that answers each question with the question's last letter, unless it fails."""

    asked: ClassVar[list[str]] = []
    fails_at = ""

    def do_POST(self) -> None:
        """Answer a chat completion."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        question = re.search(r"question (.)", str(body["messages"][-1]["content"]))
        letter = question[1] if question else "?"
        self.asked.append(letter)
        answer = {
            "id": "c", "object": "chat.completion", "created": 0, "model": "scripted",
            "choices": [{"index": 0, "finish_reason": "stop",
                         "message": {"role": "assistant", "content": f"answer {letter}"}}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }  # fmt: skip
        content = json.dumps(answer).encode()
        self.send_response(400 if letter == self.fails_at else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing."""


@pytest.fixture
def model() -> Iterator[str]:
    """Address of a scripted model."""
    Script.asked, Script.fails_at = [], ""
    with ThreadingHTTPServer(("127.0.0.1", 0), Script) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()


@pytest.fixture
def provider(target: str) -> TuskPointProvider:
    """A provider that has seen no checkpoint."""
    return TuskPointProvider(target)


@pytest.fixture(autouse=True)
def nothing_ran() -> Iterator[None]:
    """Start without entities of another test, which CrewAI keeps for the whole process."""
    RAN.clear()
    crewai_event_bus.set_runtime_state(RuntimeState(root=[]))
    yield
    crewai_event_bus.flush()


@pytest.fixture(autouse=True)
def no_event_during_a_dump(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hold the lock of CrewAI's record of events while a checkpoint of the record is created.

    CrewAI 1.15 adds events under the lock, and creates a checkpoint without the lock: an event that
    another thread adds meanwhile ends the flow with "dictionary changed size during iteration".
    """
    dump = EventRecord.model_dump

    def locked_dump(record: EventRecord, **options: Any) -> dict[str, Any]:
        with record._lock.r_locked():
            return dump(record, **options)

    monkeypatch.setattr(EventRecord, "model_dump", locked_dump)


def saving(
    provider: TuskPointProvider, thread_id: str, on: Any = "method_execution_finished"
) -> CheckpointConfig:
    """Return the configuration that most tests use."""
    return CheckpointConfig(location=thread_id, provider=provider, on_events=[on])


def fail(flow: Three) -> None:
    """Run a flow until the power fails."""
    Power.failed = True
    with pytest.raises(OSError, match="the power failed"):
        flow.kickoff()
    crewai_event_bus.flush()
    Power.failed = False


def data(number: int, events: int = 3) -> str:
    """Return a checkpoint in the form of CrewAI's checkpoints."""
    nodes = {f"event-{event}": {"event": {"text": "word " * 60}} for event in range(events)}
    snapshot = {"entities": [{"number": number}], "event_record": {"nodes": nodes, "x": 1}}
    return json.dumps({"crewai_version": "1.15", "parent_id": None, **snapshot})


@pytest.mark.parametrize("own", [True, False], ids=["tuskpoint", "files"])
async def test_it_does_what_crewais_provider_does(
    own: bool, provider: TuskPointProvider, thread_id: str, tmp_path: Path
) -> None:
    store: JsonProvider = provider if own else JsonProvider()
    location = thread_id if own else str(tmp_path / "checkpoints")
    first = store.checkpoint(data(1), location)
    parent = store.extract_id(first)
    second = await store.acheckpoint(data(2), location, parent_id=parent)
    other = store.checkpoint(data(3), location, parent_id=parent, branch="fork/other")
    assert len({store.extract_id(place) for place in (first, second, other)}) == 3
    assert json.loads(store.from_checkpoint(first)) == json.loads(data(1))
    assert json.loads(await store.afrom_checkpoint(second)) == json.loads(data(2))
    assert json.loads(store.from_checkpoint(other)) == json.loads(data(3))
    assert store.prune(location, 2) == 0
    assert store.prune(location, 1) == 1
    assert store.prune(location, 0, branch="fork/other") == 1
    assert json.loads(store.from_checkpoint(second)) == json.loads(data(2))
    for gone in (first, other):
        with pytest.raises((NotFound, FileNotFoundError)):
            store.from_checkpoint(gone)


def test_a_flow_that_failed_resumes_after_the_steps_that_ended(
    provider: TuskPointProvider, target: str, client: Client, thread_id: str
) -> None:
    config = saving(provider, thread_id)
    fail(Three(checkpoint=config))
    elsewhere = TuskPointProvider(target)
    with elsewhere.restoring(saving(elsewhere, thread_id)) as restored:
        assert Three().kickoff(from_checkpoint=restored) == "one two three"
    crewai_event_bus.flush()
    assert RAN == ["one", "two", "three"]
    assert not Path(str(restored.restore_from)).exists()
    past = list(client.history(thread_id))
    assert [checkpoint.summary for checkpoint in past] == [
        "method_execution_finished on branch main"
    ] * 3
    assert past[1].parent_checkpoint_id == past[0].checkpoint_id
    assert past[1].metadata["framework"] == "crewai-checkpoints"
    assert past[1].metadata["branch"] == "main"


def test_a_fork_of_a_flow_is_a_branch_of_the_thread(
    provider: TuskPointProvider, client: Client, thread_id: str
) -> None:
    config = saving(provider, thread_id)
    fail(Three(checkpoint=config))
    with provider.restoring(config) as restored:
        flow = Three.fork(restored, branch="retry")
    flow.checkpoint = config
    assert flow.kickoff() == "one two three"
    crewai_event_bus.flush()
    first, *rest = client.history(thread_id)
    assert [checkpoint.metadata["branch"] for checkpoint in (first, *rest)] == [
        "main",
        "retry",
        "retry",
    ]
    assert rest[0].parent_checkpoint_id == first.checkpoint_id
    with provider.restoring(config, branch="retry") as restored:
        assert provider.extract_id(str(restored.restore_from)) is not None
        assert rest[-1].checkpoint_id in str(restored.restore_from)
    with (
        pytest.raises(LookupError, match=f"'{thread_id}' has no checkpoint of CrewAI on branch 'x"),
        provider.restoring(config, branch="x"),
    ):
        pass


def test_a_crew_that_failed_resumes_after_the_tasks_that_ended(
    provider: TuskPointProvider, target: str, thread_id: str, model: str
) -> None:
    llm = LLM(model="openai/gpt-4o-mini", base_url=model, api_key="none")
    agent = Agent(role="clerk", goal="answer", backstory="a clerk", llm=llm)
    tasks = [
        Task(description=f"question {letter}", expected_output="an answer", agent=agent)
        for letter in ("A", "B")
    ]
    config = saving(provider, thread_id, "task_completed")
    crew = Crew(agents=[agent], tasks=tasks, checkpoint=config)

    Script.fails_at = "B"
    with pytest.raises(Exception, match="400"):
        crew.kickoff()
    crewai_event_bus.flush()
    Script.fails_at = ""
    failed = len(Script.asked)
    elsewhere = TuskPointProvider(target)
    with elsewhere.restoring(saving(elsewhere, thread_id, "task_completed")) as restored:
        result = crew.kickoff(from_checkpoint=restored)
    assert isinstance(result, CrewOutput)
    assert Script.asked[0] == "A"
    assert {*Script.asked[1:failed]} == {"B"}
    assert Script.asked[failed:] == ["B"]
    assert [output.raw for output in result.tasks_output] == ["answer A", "answer B"]


def test_a_forked_and_an_adopted_thread_are_places_to_restore_from(
    provider: TuskPointProvider, client: Client, thread_id: str
) -> None:
    fail(Three(checkpoint=saving(provider, thread_id)))
    fork = client.fork(thread_id).new_thread_id
    adopted = client.adopt(client.handoff(thread_id, to_agent="x"), f"{fork}-b").new_thread_id
    for thread in (fork, adopted):
        with provider.restoring(saving(provider, thread)) as restored:
            assert Three().kickoff(from_checkpoint=restored) == "one two three"
        crewai_event_bus.flush()
        assert len(list(client.history(thread))) == 3
    assert len(list(client.history(thread_id))) == 1


def test_a_checkpoint_that_a_fork_shares_is_not_pruned(
    provider: TuskPointProvider, client: Client, thread_id: str
) -> None:
    first = provider.checkpoint(data(1), thread_id)
    provider.checkpoint(data(2), thread_id)
    fork = client.fork(thread_id, provider.extract_id(first)).new_thread_id
    assert provider.prune(thread_id, 1) == 0
    client.delete(fork)
    assert provider.prune(thread_id, 1) == 1


def test_a_parent_that_the_thread_does_not_have_is_ignored(
    provider: TuskPointProvider, client: Client, thread_id: str
) -> None:
    provider.checkpoint(data(1), thread_id, parent_id="20260101T000000_abcdef01")
    [checkpoint] = client.history(thread_id)
    assert checkpoint.parent_checkpoint_id == ""


def test_another_checkpoint_costs_little_if_there_were_many_events(
    provider: TuskPointProvider, client: Client, thread_id: str
) -> None:
    first = provider.checkpoint(data(1, events=1000), thread_id)
    parent = provider.extract_id(first)
    provider.checkpoint(data(1, events=1001), thread_id, parent_id=parent)
    older, newer = client.history(thread_id, full=True)
    sent = [
        len(channel.data or b"")
        for name, channel in newer.channels.items()
        if name not in older.channels or channel.digest != older.channels[name].digest
    ]
    assert sum(len(channel.data or b"") for channel in newer.channels.values()) > 300_000
    assert sum(sent) < 20_000


def test_a_thread_of_another_program_is_refused_and_stays_as_it_is(
    provider: TuskPointProvider, client: Client, thread_id: str
) -> None:
    saved = client.save(thread_id, {"x": 1}, metadata={"framework": "crewai-flow"})
    attempts: list[Callable[[], object]] = [
        lambda: provider.checkpoint(data(1), thread_id),
        lambda: provider.checkpoint(data(1), thread_id, parent_id=saved),
        lambda: provider.from_checkpoint(f"{thread_id}#{saved}"),
    ]
    for attempt in attempts:
        with pytest.raises(PreconditionFailed, match=r"by crewai-flow.*use another ID"):
            attempt()
    assert provider.prune(thread_id, 0) == 0
    assert len(list(client.history(thread_id))) == 1


def test_a_server_that_is_down_is_named_and_does_not_stop_a_flow() -> None:
    with socket.create_server(("127.0.0.1", 0)) as port:
        nobody = f"127.0.0.1:{port.getsockname()[1]}"
    provider = TuskPointProvider(nobody, timeout_s=0.2)
    with pytest.raises((Unavailable, DeadlineExceeded), match=nobody):
        provider.checkpoint(data(1), "any")
    assert Three(checkpoint=saving(provider, "any")).kickoff() == "one two three"


def test_the_provider_closes_the_client_that_it_made(target: str, thread_id: str) -> None:
    with Client(target) as shared:
        TuskPointProvider(shared).close()
        copy.deepcopy(TuskPointProvider(shared)).checkpoint(data(1), thread_id)
    mine = TuskPointProvider(target, token="secret")
    assert "secret" not in CheckpointConfig(provider=mine).model_dump_json()
    mine.close()
    with pytest.raises(TuskPointError, match="this client is closed"):
        mine.checkpoint(data(1), thread_id)
