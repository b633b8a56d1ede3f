"""The Agent Framework's checkpoint storage: promises that only the storage of this project
makes."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from agent_framework import (
    Content,
    Executor,
    Message,
    Workflow,
    WorkflowBuilder,
    WorkflowCheckpoint,
    WorkflowCheckpointException,
    WorkflowContext,
    WorkflowEvent,
    WorkflowMessage,
    handler,
)
from pydantic import BaseModel, ConfigDict, Field

from tuskpoint import (
    AsyncClient,
    Client,
    DeadlineExceeded,
    PreconditionFailed,
    ThreadDeleted,
    TuskPointError,
    Unavailable,
)
from tuskpoint.frameworks.agent_framework import TuskPointCheckpointStorage

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples/frameworks/agent_framework"


class Colour(StrEnum):
    """An enum whose members are strings, too."""

    RED = "red"


@dataclass(frozen=True)
class Plan:
    """A dataclass."""

    colour: Colour
    steps: tuple[int, ...]


class Form(BaseModel):
    """A model that keeps extra fields, and whose field has an alias."""

    model_config = ConfigDict(extra="allow")
    given_name: str = Field(alias="givenName")
    plan: Plan | None = None


class Own:
    """A class with its own serialized form."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own) and other.value == self.value

    def __hash__(self) -> int:
        return self.value

    def to_dict(self) -> dict[str, Any]:
        """Return the value of the object."""
        return {"v": self.value}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Own:
        """Return an object with this value."""
        return cls(data["v"])


class Unknown:
    """A class that no storage allows."""


TYPES = [Colour, Plan, Form, Own]


@pytest.fixture
async def calls(target: str) -> AsyncIterator[AsyncClient]:
    """A client that several storages share."""
    async with AsyncClient(target) as client:
        yield client


@pytest.fixture
def storage(thread_id: str, calls: AsyncClient) -> TuskPointCheckpointStorage:
    """A storage whose thread does not exist yet."""
    return TuskPointCheckpointStorage(thread_id, calls, types=TYPES)


def checkpoint(number: int = 1, **fields: Any) -> WorkflowCheckpoint:
    """Return a checkpoint created by hand."""
    return WorkflowCheckpoint(
        workflow_name="flow", graph_signature_hash="hash", checkpoint_id=f"c{number}", **fields
    )


VALUES: dict[str, Any] = {
    "plain": [None, True, 2**70, 0.1, -0.0, "\N{SNOWMAN} \x00", {"": []}],
    "not numbers": [float("inf"), float("-inf")],
    "bytes": b"\x00\xff",
    "times": [
        datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
        datetime.fromisoformat("2026-01-02"),
        date(2026, 1, 2),
        time(1, 2, 3),
        timedelta(days=-1, microseconds=5),
    ],
    "ids": [UUID(int=7), Decimal("1.10")],
    "collections": [(1, (2, [3])), {1, 2}, frozenset({"a"})],
    "keys": {1: "a", (2, 3): {"b": b""}},
    "looks like a form": {"$type": "tuple", "value": [1]},
    "own": [Colour.RED, Plan(Colour.RED, (1, 2)), Own(7)],
    "model": Form.model_validate({"givenName": "Ann", "plan": Plan(Colour.RED, ()), "more": [1]}),
}


@pytest.mark.parametrize("name", VALUES)
async def test_values_come_back_with_their_types(
    storage: TuskPointCheckpointStorage, name: str
) -> None:
    await storage.save(checkpoint(state={"value": VALUES[name]}))
    loaded = (await storage.load("c1")).state["value"]
    assert loaded == VALUES[name]
    assert repr(loaded) == repr(VALUES[name]) or name == "own"


async def test_messages_and_requests_of_the_framework_come_back(
    storage: TuskPointCheckpointStorage,
) -> None:
    call = Content.from_function_call("call-1", "refund", arguments={"order": "A-17"})
    said = Message("assistant", ["Hello.", call], author_name="clerk", message_id="m1")
    request = WorkflowEvent.request_info("r1", "clerk", Plan(Colour.RED, ()), Colour)
    sent = WorkflowMessage([said], "clerk", "last", original_request_info_event=request)
    inner = checkpoint(2, state={"deep": said})
    saved = checkpoint(
        messages={"clerk": [sent]},
        pending_request_info_events={"r1": request},
        state={"_executor_state": {"inner/x": {"sub": inner}}},
    )
    await storage.save(saved)
    loaded = await storage.load("c1")
    [[message]] = loaded.messages.values()
    assert [item.to_dict() for item in message.data] == [said.to_dict()]
    assert (message.source_id, message.target_id, message.type) == ("clerk", "last", sent.type)
    for event in (message.original_request_info_event, loaded.pending_request_info_events["r1"]):
        assert event is not None
        assert event.to_dict() == request.to_dict()
        assert event.response_type is Colour
    deep = loaded.state["_executor_state"]["inner/x"]["sub"]
    assert isinstance(deep, WorkflowCheckpoint)
    assert deep.state["deep"].to_dict() == said.to_dict()


REFUSED: dict[str, Any] = {
    "state/value[1].a": [0, {"a": Unknown()}],
    "state/value": print,
    "state/value.clerk": {"clerk": type},
    "state/value[0]": [Unknown],
}


@pytest.mark.parametrize("path", REFUSED)
async def test_a_value_that_is_not_json_is_refused_with_its_path(
    storage: TuskPointCheckpointStorage, client: Client, path: str
) -> None:
    with pytest.raises(WorkflowCheckpointException, match=r"pass its class in .*types=") as raised:
        await storage.save(checkpoint(state={"value": REFUSED[path]}))
    assert str(raised.value).startswith(f"{path} is a ")
    assert storage.save_error is raised.value
    assert list(client.history(storage.thread_id)) == []
    await storage.save(checkpoint())
    assert storage.save_error is None


async def test_a_value_without_end_is_refused(storage: TuskPointCheckpointStorage) -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(WorkflowCheckpointException, match="more than 100 levels"):
        await storage.save(checkpoint(state={"value": endless}))


async def test_a_type_that_is_not_allowed_is_not_built(
    storage: TuskPointCheckpointStorage, calls: AsyncClient
) -> None:
    await storage.save(checkpoint(state={"value": [Own(1)]}))
    other = TuskPointCheckpointStorage(storage.thread_id, calls)
    with pytest.raises(WorkflowCheckpointException, match=r"state/value\[0\] is a .*Own.*types="):
        await other.load("c1")
    with pytest.raises(WorkflowCheckpointException, match=r"state/value\[0\] is a .*Own.*types="):
        await other.save(checkpoint(2, state={"value": [Own(1)]}))
    with pytest.raises(TypeError, match="Unknown cannot be saved as JSON"):
        TuskPointCheckpointStorage("any", calls, types=[Unknown])


@pytest.mark.parametrize(
    "name",
    [
        "builtins.eval",
        "os.system",
        "agent_framework.MCPStdioTool",
        "agent_framework.Agent",
        "agent_framework.FunctionTool",
        "agent_framework.FileCheckpointStorage",
        "agent_framework._workflows._checkpoint_encoding.decode_checkpoint_value",
        "agent_framework._workflows._checkpoint_encoding.pickle",
        "agent_framework.nothing",
    ],
)
async def test_a_forged_type_is_not_built(
    storage: TuskPointCheckpointStorage, client: Client, name: str
) -> None:
    await storage.save(checkpoint())
    state = client.load(storage.thread_id).state
    metadata = client.load(storage.thread_id).metadata
    forged = {**state, "state/value": {"$type": name, "value": {"name": "x", "command": "x"}}}
    client.save(storage.thread_id, forged, metadata=metadata)
    with pytest.raises(WorkflowCheckpointException, match="which is not allowed"):
        await storage.load("c1")


async def test_a_malformed_value_is_named(
    storage: TuskPointCheckpointStorage, client: Client
) -> None:
    await storage.save(checkpoint(state={"value": Colour.RED}))
    record = client.load(storage.thread_id)
    forged = {**record.state, "state/value": {**record.state["state/value"], "value": "blue"}}
    client.save(storage.thread_id, forged, metadata=record.metadata)
    with pytest.raises(WorkflowCheckpointException, match=r"state/value is not a valid .*Colour"):
        await storage.load("c1")


class Count(Executor):
    """An executor that counts down, one number per superstep."""

    @handler
    async def count(self, left: int, ctx: WorkflowContext[int, str]) -> None:
        """Send the next number."""
        if KILL_AT is not None and left == KILL_AT:
            os.kill(os.getpid(), signal.SIGKILL)
        ctx.set_state("log", [*ctx.get_state("log", []), left])
        if left:
            await ctx.send_message(left - 1)
        else:
            await ctx.yield_output(str(ctx.get_state("log")))


KILL_AT: int | None = None


def counting() -> Workflow:
    """Return a workflow of two executors that send each other numbers."""
    first, second = Count(id="one"), Count(id="two")
    builder = WorkflowBuilder(name="counting", start_executor=first, output_from=[first, second])
    return builder.add_edge(first, second).add_edge(second, first).build()


# A workflow's signature contains the classes of its executors, so the other process imports this
# module.
COUNT_UNTIL_KILLED = f"""
import asyncio, sys
import {__name__} as module

async def count(thread_id, target):
    async with module.TuskPointCheckpointStorage(thread_id, target) as storage:
        await module.counting().run(6, checkpoint_storage=storage)

module.KILL_AT = 3
asyncio.run(count(*sys.argv[1:]))
"""


async def test_a_workflow_that_was_killed_continues_where_it_was(
    storage: TuskPointCheckpointStorage, target: str, client: Client
) -> None:
    arguments = [storage.thread_id, target]
    killed = await asyncio.create_subprocess_exec(
        sys.executable, "-c", COUNT_UNTIL_KILLED, *arguments, cwd=ROOT
    )
    assert await killed.wait() == -signal.SIGKILL
    latest = await storage.get_latest(workflow_name="counting")
    assert latest is not None
    assert latest.state["log"] == [6, 5, 4]
    result = await counting().run(checkpoint_id=latest.checkpoint_id, checkpoint_storage=storage)
    assert result.get_outputs() == ["[6, 5, 4, 3, 2, 1, 0]"]
    logs = [
        checkpoint.state.get("state/log")
        for checkpoint in client.history(storage.thread_id, full=True)
    ]
    assert logs == [None, *([6, 5, 4, 3, 2, 1, 0][:count] for count in range(1, 8))]


async def test_the_thread_is_a_thread_like_any_other(
    storage: TuskPointCheckpointStorage, client: Client, calls: AsyncClient
) -> None:
    await counting().run(2, checkpoint_storage=storage)
    past = list(client.history(storage.thread_id, full=True))
    assert [checkpoint.summary for checkpoint in past] == [
        "counting, superstep 0: messages from internal:one",
        "counting, superstep 1: messages from one",
        "counting, superstep 2: messages from two",
        "counting, superstep 3: nothing left to do",
    ]
    assert past[1].metadata["framework"] == "agent-framework"
    assert past[2].state["messages"]["two"][0]["value"]["data"] == 0
    fork = client.fork(storage.thread_id, past[2].checkpoint_id).new_thread_id
    descriptor = client.handoff(storage.thread_id, to_agent="other")
    adopted = client.adopt(descriptor, f"{fork}-adopted").new_thread_id
    for thread, outputs in ((fork, ["[2, 1, 0]"]), (adopted, [])):
        other = TuskPointCheckpointStorage(thread, calls)
        latest = await other.get_latest(workflow_name="counting")
        assert latest is not None
        result = await counting().run(checkpoint_id=latest.checkpoint_id, checkpoint_storage=other)
        assert result.get_outputs() == outputs
        assert other.save_error is None
    client.rollback(storage.thread_id, past[1].checkpoint_id)
    latest = await storage.get_latest(workflow_name="counting")
    assert latest is not None
    assert latest.checkpoint_id == past[1].metadata["checkpoint_id"]
    result = await counting().run(checkpoint_id=latest.checkpoint_id, checkpoint_storage=storage)
    assert result.get_outputs() == ["[2, 1, 0]"]


async def test_a_deleted_checkpoint_stays_in_the_history(
    storage: TuskPointCheckpointStorage, client: Client
) -> None:
    await storage.save(checkpoint(1))
    await storage.save(checkpoint(2))
    assert await storage.delete("c1")
    assert [checkpoint.label for checkpoint in client.history(storage.thread_id)] == ["deleted", ""]


async def test_a_thread_of_another_program_is_refused_and_stays_as_it_is(
    storage: TuskPointCheckpointStorage, client: Client
) -> None:
    client.save(storage.thread_id, {"messages": {}}, metadata={"framework": "other"})
    for attempt in (
        storage.save(checkpoint()),
        storage.get_latest(workflow_name="flow"),
        storage.list_checkpoints(workflow_name="flow"),
        storage.list_checkpoint_ids(workflow_name="flow"),
    ):
        with pytest.raises(PreconditionFailed, match=r"was written by other.*use another ID"):
            await attempt
    with pytest.raises(WorkflowCheckpointException):
        await storage.load("c1")
    assert await storage.delete("c1") is False
    result = await counting().run(1, checkpoint_storage=storage)
    assert result.get_outputs() == ["[1, 0]"]
    assert isinstance(storage.save_error, PreconditionFailed)
    assert len(list(client.history(storage.thread_id))) == 1


async def test_a_late_checkpoint_does_not_bring_a_deleted_run_back(
    storage: TuskPointCheckpointStorage, client: Client
) -> None:
    await storage.save(checkpoint(1))
    client.delete(storage.thread_id)
    for _ in range(2):
        with pytest.raises(ThreadDeleted):
            await storage.save(checkpoint(2, previous_checkpoint_id="c1"))
    assert await storage.get_latest(workflow_name="flow") is None
    await storage.save(checkpoint(3))
    assert await storage.list_checkpoint_ids(workflow_name="flow") == ["c3"]


async def test_storages_save_into_a_thread_at_the_same_time(thread_id: str, target: str) -> None:
    storages = [TuskPointCheckpointStorage(thread_id, target) for _ in range(4)]
    await asyncio.gather(*(storages[number % 4].save(checkpoint(number)) for number in range(12)))
    checkpoint_ids = await storages[0].list_checkpoint_ids(workflow_name="flow")
    assert sorted(checkpoint_ids) == sorted(f"c{number}" for number in range(12))
    for storage in storages:
        await storage.aclose()


async def test_a_server_that_is_down_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as port:
        nobody = f"127.0.0.1:{port.getsockname()[1]}"
    async with TuskPointCheckpointStorage("any", nobody, timeout_s=0.2) as storage:
        for attempt in (storage.save(checkpoint()), storage.get_latest(workflow_name="flow")):
            with pytest.raises((Unavailable, DeadlineExceeded), match=nobody):
                await attempt
        assert isinstance(storage.save_error, Unavailable | DeadlineExceeded)


async def test_another_checkpoint_costs_what_changed(
    storage: TuskPointCheckpointStorage, client: Client
) -> None:
    state: dict[str, Any] = {f"k{number}": "word " * 4000 for number in range(10)}
    state["_executor_state"] = {f"e{number}": ["word " * 4000] for number in range(10)}
    await storage.save(checkpoint(1, state=state))
    state["k1"] = "other"
    state["_executor_state"]["e1"] = ["other"]
    await storage.save(checkpoint(2, state=state, previous_checkpoint_id="c1"))
    older, newer = client.history(storage.thread_id, full=True)
    changed = [
        name
        for name, channel in newer.channels.items()
        if channel.digest != older.channels[name].digest
    ]
    assert {"executors/e1", "state/k1"} <= set(changed)
    assert set(changed) <= {
        "executors/e1", "state/k1", "checkpoint_id", "previous_checkpoint_id", "timestamp"
    }  # fmt: skip
    assert (await storage.load("c2")).state == state


async def test_the_storage_closes_the_client_that_it_made(thread_id: str, target: str) -> None:
    async with AsyncClient(target) as shared:
        async with TuskPointCheckpointStorage(thread_id, shared) as storage:
            await storage.save(checkpoint())
        assert (await shared.get_thread(thread_id)).checkpoint_count == 1
        with pytest.raises(TypeError, match="a client has its own timeout_s"):
            TuskPointCheckpointStorage(thread_id, shared, timeout_s=1)
    async with TuskPointCheckpointStorage(thread_id, target) as storage:
        await storage.load("c1")
    with pytest.raises(TuskPointError, match="this client is closed"):
        await storage.load("c1")


def test_the_example_continues_in_a_second_process(target: str) -> None:
    environment = {"TUSKPOINT_TARGET": target, "PATH": ""}
    run = subprocess.run(
        [sys.executable, EXAMPLE], env=environment, capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 0, run.stderr
    first, second = run.stdout.split("second process")
    assert "quoting A-17" in first
    assert "waits for a person: Refund(order='A-17', euros=40)" in first
    assert second.startswith(", as the first one ended with -9")
    assert "quoting" not in second
    assert "the workflow says: paid 40 euros for A-17" in second
