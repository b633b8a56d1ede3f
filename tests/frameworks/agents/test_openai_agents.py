"""The OpenAI Agents SDK's session works with the SDK's own runner and its scripted model."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
from agents import (
    Agent,
    Runner,
    RunState,
    Session,
    SessionSettings,
    TResponseInputItem,
    function_tool,
    set_tracing_disabled,
)
from agents.testing import ScriptedModel, assistant_message, function_call

from tuskpoint import (
    AsyncClient,
    Client,
    DeadlineExceeded,
    PreconditionFailed,
    ThreadDeleted,
    TuskPointError,
    Unavailable,
)
from tuskpoint.frameworks.openai_agents import TuskPointSession

EXAMPLE = Path(__file__).parents[3] / "examples/frameworks/openai_agents.py"

set_tracing_disabled(True)


def says(text: str) -> TResponseInputItem:
    """Return an item of a conversation."""
    return {"role": "user", "content": text}


def texts(items: list[TResponseInputItem]) -> list[Any]:
    """Return the contents of items."""
    return [cast(dict[str, Any], item)["content"] for item in items]


@pytest.fixture
async def calls(target: str) -> AsyncIterator[AsyncClient]:
    """A client that several sessions share."""
    async with AsyncClient(target) as client:
        yield client


@pytest.fixture
def session(thread_id: str, calls: AsyncClient) -> TuskPointSession:
    """A session whose thread does not exist yet."""
    return TuskPointSession(thread_id, calls)


async def test_it_is_a_session_of_the_sdk(session: TuskPointSession) -> None:
    assert isinstance(session, Session)
    assert await session.get_items() == []
    assert await session.pop_item() is None
    await session.clear_session()
    await session.add_items([])
    assert await session.load_run_state() is None


async def test_what_was_added_is_read_in_order_by_another_session(
    session: TuskPointSession, target: str
) -> None:
    await session.add_items([says("one"), says("two")])
    await session.add_items([says("three")])
    async with TuskPointSession(session.session_id, target) as other:
        assert texts(await other.get_items()) == ["one", "two", "three"]
        assert texts(await other.get_items(limit=2)) == ["two", "three"]
        assert await other.get_items(limit=0) == []
        assert texts(await other.get_items(limit=9)) == ["one", "two", "three"]


async def test_the_settings_limit_what_is_read(thread_id: str, calls: AsyncClient) -> None:
    settings = SessionSettings(limit=1)
    session = TuskPointSession(thread_id, calls, session_settings=settings)
    await session.add_items([says("one"), says("two")])
    assert texts(await session.get_items()) == ["two"]
    assert texts(await session.get_items(limit=2)) == ["one", "two"]


async def test_what_was_popped_or_cleared_is_still_in_the_history(
    session: TuskPointSession, client: Client
) -> None:
    await session.add_items([says("one"), says("two")])
    assert await session.pop_item() == says("two")
    await session.clear_session()
    assert await session.get_items() == []
    await session.add_items([says("three")])
    past = list(client.history(session.session_id, full=True))
    kept = [[texts(items) for items in checkpoint.state.values()] for checkpoint in past]
    assert kept == [[["one", "two"]], [["one"]], [[]], [["three"]]]
    assert [checkpoint.metadata["items"] for checkpoint in past] == [2, 1, 0, 1]
    assert [checkpoint.summary for checkpoint in past] == [
        "2 items added: user, user",
        "1 item removed: user",
        "cleared, 1 item removed",
        "1 item added: user",
    ]


async def test_a_caller_that_changes_an_item_does_not_change_the_conversation(
    session: TuskPointSession,
) -> None:
    item = says("one")
    await session.add_items([item])
    for mine in (item, *await session.get_items()):
        cast(dict[str, Any], mine)["content"] = "changed"
    await session.add_items([says("two")])
    assert texts(await session.get_items()) == ["one", "two"]


async def test_a_run_continues_in_another_session(thread_id: str, target: str) -> None:
    for turn, question in enumerate(["What is the capital?", "Which country is that in?"]):
        model = ScriptedModel([[assistant_message(f"Answer {turn}.")]])
        async with TuskPointSession(thread_id, target) as session:
            result = await Runner.run(Agent(name="a", model=model), question, session=session)
        assert result.final_output == f"Answer {turn}."
    [call] = model.calls
    assert [item.get("role") for item in call.input] == ["user", "assistant", "user"]
    assert call.input[0]["content"] == "What is the capital?"


async def test_a_run_that_waits_for_a_person_continues_elsewhere(
    thread_id: str, target: str, client: Client
) -> None:
    refunded: list[str] = []

    @function_tool(needs_approval=True)
    def refund(order: str) -> str:
        """Refund an order."""
        refunded.append(order)
        return "refunded"

    call = [function_call("refund", {"order": "A-17"}, call_id="call-1")]
    agent = Agent(name="clerk", model=ScriptedModel([call]), tools=[refund])
    async with TuskPointSession(thread_id, target) as session:
        result = await Runner.run(agent, "Refund it.", session=session)
        await session.save_run_state(result.to_state())
    assert refunded == []

    agent = Agent(name="clerk", model=ScriptedModel([[assistant_message("Done.")]]), tools=[refund])
    async with TuskPointSession(thread_id, target) as session:
        kept = await session.load_run_state()
        assert kept is not None
        state = await RunState.from_json(agent, kept)
        state.approve(state.get_interruptions()[0])
        result = await Runner.run(agent, state, session=session)
        await session.save_run_state(None)
        assert await session.load_run_state() is None
        kinds = [item.get("type", item.get("role")) for item in await session.get_items()]
    assert (result.final_output, refunded) == ("Done.", ["A-17"])
    assert kinds == ["user", "function_call", "function_call_output", "message"]
    assert any(
        "run_state" in checkpoint.state for checkpoint in client.history(thread_id, full=True)
    )


async def test_writers_at_the_same_time_lose_nothing(thread_id: str, target: str) -> None:
    sessions = [TuskPointSession(thread_id, target) for _ in range(4)]
    await asyncio.gather(
        *(session.add_items([says(f"{number}a"), says(f"{number}b")])
          for number, session in enumerate(sessions * 4))
    )  # fmt: skip
    read = [texts(await session.get_items()) for session in sessions]
    assert all(items == read[0] for items in read)
    first, second = read[0][::2], read[0][1::2]
    assert sorted(first) == sorted(f"{number}a" for number in range(16))
    assert second == [text.replace("a", "b") for text in first]
    popped = await asyncio.gather(*(session.pop_item() for session in sessions))
    assert sorted(texts([item for item in popped if item])) == sorted(read[0][-4:])
    for session in sessions:
        await session.aclose()


async def test_a_thread_of_another_program_is_refused_and_stays_as_it_is(
    session: TuskPointSession, client: Client
) -> None:
    client.save(session.session_id, {"items/00000": ["mine"]}, metadata={"framework": "other"})
    for attempt in (
        session.get_items(),
        session.add_items([says("one")]),
        session.pop_item(),
        session.clear_session(),
    ):
        with pytest.raises(PreconditionFailed, match=r"was written by other.*use another ID"):
            await attempt
    assert [checkpoint.state for checkpoint in client.history(session.session_id, full=True)] == [
        {"items/00000": ["mine"]}
    ]


async def test_a_late_item_does_not_bring_a_deleted_session_back(
    session: TuskPointSession, client: Client
) -> None:
    await session.add_items([says("one")])
    client.delete(session.session_id)
    with pytest.raises(ThreadDeleted):
        await session.add_items([says("late")])
    assert await session.get_items() == []
    await session.add_items([says("new")])
    assert texts(await session.get_items()) == ["new"]


async def test_a_server_that_is_down_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as port:
        nobody = f"127.0.0.1:{port.getsockname()[1]}"
    async with TuskPointSession("any", nobody, timeout_s=0.2) as session:
        with pytest.raises((Unavailable, DeadlineExceeded), match=nobody):
            await session.add_items([says("one")])
        with pytest.raises((Unavailable, DeadlineExceeded), match=nobody):
            await session.get_items()


async def test_an_item_that_json_cannot_express_is_refused(
    session: TuskPointSession, client: Client
) -> None:
    with pytest.raises(TypeError, match="not JSON serializable"):
        await session.add_items(cast(Any, [{"role": "user", "content": object()}]))
    assert list(client.history(session.session_id)) == []


async def test_a_rolled_back_thread_is_a_rolled_back_conversation(
    session: TuskPointSession, client: Client
) -> None:
    await session.add_items([says("one")])
    before = client.load(session.session_id).checkpoint_id
    await session.add_items([says("two")])
    client.rollback(session.session_id, before)
    assert texts(await session.get_items()) == ["one"]
    await session.add_items([says("other")])
    assert texts(await session.get_items()) == ["one", "other"]


async def test_a_fork_and_an_adopted_thread_continue(
    session: TuskPointSession, client: Client, calls: AsyncClient
) -> None:
    await session.add_items([says("one")])
    fork = client.fork(session.session_id).new_thread_id
    descriptor = client.handoff(session.session_id, to_agent="other")
    adopted = client.adopt(descriptor, f"{fork}-adopted").new_thread_id
    for thread in (fork, adopted):
        other = TuskPointSession(thread, calls)
        await other.add_items([says("two")])
        assert texts(await other.get_items()) == ["one", "two"]
    assert texts(await session.get_items()) == ["one"]


async def test_another_item_costs_little_in_a_long_conversation(
    session: TuskPointSession, client: Client
) -> None:
    many = [says(f"message {number} " + "word " * 40) for number in range(2000)]
    await session.add_items(many)
    await session.add_items([says("last")])
    older, newer = client.history(session.session_id, full=True)
    changed = [
        channel
        for name, channel in newer.channels.items()
        if name not in older.channels or channel.digest != older.channels[name].digest
    ]
    sent = sum(len(channel.data or b"") for channel in changed)
    assert sum(len(channel.data or b"") for channel in newer.channels.values()) > 400_000
    assert sent < 20_000
    assert texts(await session.get_items()) == [*texts(many), "last"]


async def test_the_session_closes_the_client_that_it_made(thread_id: str, target: str) -> None:
    async with AsyncClient(target) as shared:
        async with TuskPointSession(thread_id, shared) as session:
            await session.add_items([says("one")])
        assert (await shared.get_thread(thread_id)).checkpoint_count == 1
        with pytest.raises(TypeError, match="a client has its own timeout_s"):
            TuskPointSession(thread_id, shared, timeout_s=1)
    with Client(target) as blocking, pytest.raises(TypeError, match="AsyncClient, not Client"):
        TuskPointSession(thread_id, blocking)  # type: ignore[arg-type]
    async with TuskPointSession(thread_id, target) as session:
        await session.get_items()
    with pytest.raises(TuskPointError, match="this client is closed"):
        await session.get_items()


def test_the_example_continues_in_a_second_process(target: str) -> None:
    environment = {"TUSKPOINT_TARGET": target, "PATH": "", "PYTHONWARNINGS": "error"}
    run = subprocess.run(
        [sys.executable, EXAMPLE], env=environment, capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 0, run.stderr
    assert "first process: the agent waits for refund" in run.stdout
    assert "second process: the agent says Done." in run.stdout
    assert "the model was given 5 items of the conversation" in run.stdout
