"""Checkpoint storages behave alike: the same tests for two of the Agent Framework's own and for
ours."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Never
from uuid import uuid4

import pytest
from agent_framework import (
    Agent,
    AgentExecutor,
    AgentExecutorResponse,
    BaseChatClient,
    ChatResponse,
    CheckpointStorage,
    Executor,
    FileCheckpointStorage,
    InMemoryCheckpointStorage,
    Message,
    Workflow,
    WorkflowBuilder,
    WorkflowCheckpoint,
    WorkflowCheckpointException,
    WorkflowContext,
    WorkflowExecutor,
    WorkflowRunState,
    handler,
    response_handler,
)

from tuskpoint.frameworks.agent_framework import TuskPointCheckpointStorage


@dataclass
class Order:
    """A message between executors, and a request."""

    number: str
    parts: list[str]


Open = Callable[[], CheckpointStorage]
"""Opens a storage, as each process does."""


@pytest.fixture(params=["memory", "file", "tuskpoint"])
async def opened(
    request: pytest.FixtureRequest, target: str, tmp_path: Path
) -> AsyncIterator[Open]:
    """Opens a storage of each kind."""
    if request.param == "memory":
        memory = InMemoryCheckpointStorage()
        yield lambda: memory
    elif request.param == "file":
        allowed = [f"{Order.__module__}:{Order.__qualname__}"]
        yield lambda: FileCheckpointStorage(tmp_path, allowed_checkpoint_types=allowed)
    else:
        thread_id, ours = str(uuid4()), list[TuskPointCheckpointStorage]()

        def open_storage() -> CheckpointStorage:
            ours.append(TuskPointCheckpointStorage(thread_id, target, types=[Order]))
            return ours[-1]

        yield open_storage
        for storage in ours:
            await storage.aclose()
            assert storage.save_error is None


def checkpoint(number: int, name: str = "flow", **fields: Any) -> WorkflowCheckpoint:
    """Return a checkpoint created by hand."""
    return WorkflowCheckpoint(
        workflow_name=name,
        graph_signature_hash="hash",
        checkpoint_id=f"c{number}",
        timestamp=f"2026-01-0{number}T00:00:00+00:00",
        iteration_count=number,
        **fields,
    )


async def test_what_was_saved_is_loaded(opened: Open) -> None:
    saved = checkpoint(1, state={"a": [1, {"b": None}], "_executor_state": {}}, metadata={"k": 1})
    assert await opened().save(saved) == "c1"
    saved.state["a"].append(2)
    loaded = await opened().load("c1")
    assert loaded == checkpoint(
        1, state={"a": [1, {"b": None}], "_executor_state": {}}, metadata={"k": 1}
    )


async def test_what_is_not_there_is_not_loaded(opened: Open) -> None:
    with pytest.raises(WorkflowCheckpointException, match="none"):
        await opened().load("none")
    assert await opened().delete("none") is False
    assert await opened().get_latest(workflow_name="flow") is None
    assert await opened().list_checkpoints(workflow_name="flow") == []
    assert await opened().list_checkpoint_ids(workflow_name="flow") == []


async def test_checkpoints_of_a_workflow_are_listed(opened: Open) -> None:
    storage = opened()
    for number, name in ((1, "flow"), (2, "other"), (3, "flow")):
        await storage.save(checkpoint(number, name, state={"n": number}))
    assert sorted(await storage.list_checkpoint_ids(workflow_name="flow")) == ["c1", "c3"]
    checkpoints = await opened().list_checkpoints(workflow_name="flow")
    assert sorted(checkpoint.state["n"] for checkpoint in checkpoints) == [1, 3]
    latest = await opened().get_latest(workflow_name="flow")
    assert latest == checkpoint(3, state={"n": 3})
    assert await opened().get_latest(workflow_name="other") == checkpoint(
        2, "other", state={"n": 2}
    )


async def test_a_deleted_checkpoint_is_gone(opened: Open) -> None:
    storage = opened()
    for number in (1, 2):
        await storage.save(checkpoint(number))
    assert await storage.delete("c2") is True
    assert await storage.delete("c2") is False
    with pytest.raises(WorkflowCheckpointException):
        await opened().load("c2")
    assert await opened().list_checkpoint_ids(workflow_name="flow") == ["c1"]
    assert await opened().get_latest(workflow_name="flow") == checkpoint(1)
    await storage.save(checkpoint(2, state={"new": 1}))
    assert await opened().load("c2") == checkpoint(2, state={"new": 1})


async def test_a_checkpoint_that_is_saved_again_replaces_the_first(opened: Open) -> None:
    await opened().save(checkpoint(1, state={"n": 1}))
    await opened().save(checkpoint(1, state={"n": 2}))
    assert await opened().load("c1") == checkpoint(1, state={"n": 2})
    [latest] = await opened().list_checkpoints(workflow_name="flow")
    assert latest.state == {"n": 2}
    assert await opened().delete("c1") is True
    assert await opened().list_checkpoint_ids(workflow_name="flow") == []


class Start(Executor):
    """Sends an order, and keeps a state of its own and a state of the workflow."""

    count = 0

    @handler
    async def start(self, number: str, ctx: WorkflowContext[Order]) -> None:
        """Send the order."""
        self.count += 1
        ctx.set_state("seen", [number])
        await ctx.send_message(Order(number, ["lid", "base"]))

    async def on_checkpoint_save(self) -> dict[str, Any]:
        """Return the state of this executor."""
        return {"count": self.count}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        """Restore the state of this executor."""
        self.count = state["count"]


class Ask(Executor):
    """Asks a person about an order."""

    @handler
    async def ask(self, order: Order, ctx: WorkflowContext[str]) -> None:
        """Wait for a person."""
        await ctx.request_info(order, str)

    @response_handler
    async def answered(self, order: Order, answer: str, ctx: WorkflowContext[Never, str]) -> None:
        """Finish with the answer."""
        await ctx.yield_output(f"{order.number} {order.parts} {answer} {ctx.get_state('seen')}")


def asking() -> tuple[Workflow, Start]:
    """Return a workflow that asks a person, as each process builds it, and its first executor."""
    start, ask = Start(id="start"), Ask(id="ask")
    builder = WorkflowBuilder(name="asking", start_executor=start, output_from=[ask])
    return builder.add_edge(start, ask).build(), start


async def test_a_workflow_that_waits_for_a_person_continues_elsewhere(opened: Open) -> None:
    first, _ = asking()
    result = await first.run("A-17", checkpoint_storage=opened())
    assert result.get_final_state() == WorkflowRunState.IDLE_WITH_PENDING_REQUESTS
    latest = await opened().get_latest(workflow_name="asking")
    assert latest is not None
    [request] = latest.pending_request_info_events.values()
    assert request.data == Order("A-17", ["lid", "base"])
    assert (request.request_type, request.response_type) == (Order, str)

    second, start = asking()
    result = await second.run(
        responses={request.request_id: "yes"},
        checkpoint_id=latest.checkpoint_id,
        checkpoint_storage=opened(),
    )
    assert result.get_outputs() == ["A-17 ['lid', 'base'] yes ['A-17']"]
    assert start.count == 1
    saved = await opened().list_checkpoints(workflow_name="asking")
    assert len(saved) == 5
    chain = {checkpoint.previous_checkpoint_id: checkpoint for checkpoint in saved}
    assert latest.checkpoint_id in chain


async def test_a_workflow_continues_from_an_earlier_checkpoint(opened: Open) -> None:
    first, _ = asking()
    await first.run("A-17", checkpoint_storage=opened())
    saved = await opened().list_checkpoints(workflow_name="asking")
    saved.sort(key=lambda checkpoint: checkpoint.timestamp)
    # In this checkpoint, a message is in flight.
    [[message]] = saved[1].messages.values()
    assert message.data == Order("A-17", ["lid", "base"])
    second, start = asking()
    result = await second.run(checkpoint_id=saved[1].checkpoint_id, checkpoint_storage=opened())
    assert len(result.get_request_info_events()) == 1
    assert start.count == 1


class Last(Executor):
    """Repeats the output of the executor before it."""

    @handler
    async def say(self, text: str, ctx: WorkflowContext[Never, str]) -> None:
        """Yield the output."""
        await ctx.yield_output(f"at last {text}")


async def test_a_workflow_in_a_workflow_continues(opened: Open) -> None:
    def nested() -> Workflow:
        """Return a workflow with another workflow as its executor."""
        inner = WorkflowExecutor(asking()[0], id="inner", propagate_request=True)
        last = Last(id="last")
        builder = WorkflowBuilder(name="outer", start_executor=inner, output_from=[last])
        return builder.add_edge(inner, last).build()

    await nested().run("A-17", checkpoint_storage=opened())
    latest = await opened().get_latest(workflow_name="outer")
    assert latest is not None
    result = await nested().run(
        responses=dict.fromkeys(latest.pending_request_info_events, "yes"),
        checkpoint_id=latest.checkpoint_id,
        checkpoint_storage=opened(),
    )
    assert result.get_outputs() == ["at last A-17 ['lid', 'base'] yes ['A-17']"]


class Scripted(BaseChatClient[Any]):
    """A model that repeats its input."""

    def _inner_get_response(
        self, *, messages: Sequence[Message], stream: bool, options: Any, **kwargs: Any
    ) -> Any:
        async def answer() -> ChatResponse:
            said = [message.text for message in messages]
            return ChatResponse(messages=[Message("assistant", [f"after {said}"])])

        return answer()


class Finish(Executor):
    """Asks a person whether the agents are done."""

    @handler
    async def ask(self, last: AgentExecutorResponse, ctx: WorkflowContext[str]) -> None:
        """Wait for a person."""
        ctx.set_state("conversation", list(last.full_conversation or []))
        await ctx.request_info(last.agent_response.text, str)

    @response_handler
    async def answered(self, text: str, answer: str, ctx: WorkflowContext[Never, str]) -> None:
        """Finish with the conversation."""
        said = [message.text for message in ctx.get_state("conversation")]
        await ctx.yield_output(f"{answer}: {said}")


async def test_agents_in_a_workflow_continue(opened: Open) -> None:
    def agents() -> Workflow:
        """Return a workflow of two agents and a person."""
        first = AgentExecutor(Agent(client=Scripted(), name="one"), id="one")
        second = AgentExecutor(Agent(client=Scripted(), name="two"), id="two")
        last = Finish(id="last")
        builder = WorkflowBuilder(name="agents", start_executor=first, output_from=[last])
        return builder.add_edge(first, second).add_edge(second, last).build()

    await agents().run("hello", checkpoint_storage=opened())
    saved = await opened().list_checkpoints(workflow_name="agents")
    saved.sort(key=lambda checkpoint: checkpoint.timestamp)
    outputs = []
    # Continue from each checkpoint, including checkpoints with messages in flight.
    for checkpoint in saved:
        result = await agents().run(
            checkpoint_id=checkpoint.checkpoint_id, checkpoint_storage=opened()
        )
        [request] = result.get_request_info_events()
        done = await agents().run(
            responses={request.request_id: "fine"},
            checkpoint_id=await latest_of(opened(), "agents"),
            checkpoint_storage=opened(),
        )
        outputs += done.get_outputs()
    assert len(saved) == 4
    said = ["hello", "after ['hello']", "after ['hello', \"after ['hello']\"]"]
    assert outputs == [f"fine: {said}"] * 4


async def latest_of(storage: CheckpointStorage, name: str) -> str:
    """Return the ID of the latest checkpoint of a workflow."""
    latest = await storage.get_latest(workflow_name=name)
    assert latest is not None
    return latest.checkpoint_id


class Join(Executor):
    """Waits for several executors."""

    @handler
    async def join(self, orders: list[Order], ctx: WorkflowContext[Never, str]) -> None:
        """Finish with the numbers of all orders."""
        await ctx.yield_output(" ".join(sorted(order.number for order in orders)))


class Part(Executor):
    """An executor with a part of the work."""

    @handler
    async def work(self, order: Order, ctx: WorkflowContext[Order]) -> None:
        """Pass the order on."""
        await ctx.send_message(Order(f"{order.number}-{self.id}", []))


async def test_a_half_filled_join_continues(opened: Open) -> None:
    def joining() -> Workflow:
        """Return a workflow with a short and a long path to the join."""
        start, join = Start(id="start"), Join(id="join")
        short, long, longer = Part(id="short"), Part(id="long"), Part(id="longer")
        builder = WorkflowBuilder(name="joining", start_executor=start, output_from=[join])
        builder.add_fan_out_edges(start, [short, long]).add_edge(long, longer)
        return builder.add_fan_in_edges([short, longer], join).build()

    result = await joining().run("A", checkpoint_storage=opened())
    assert result.get_outputs() == ["A-long-longer A-short"]
    saved = await opened().list_checkpoints(workflow_name="joining")
    saved.sort(key=lambda checkpoint: checkpoint.timestamp)
    for checkpoint in saved[:-1]:
        result = await joining().run(
            checkpoint_id=checkpoint.checkpoint_id, checkpoint_storage=opened()
        )
        assert result.get_outputs() == ["A-long-longer A-short"]
