"""The Agent Framework's history provider behaves as the framework's own provider."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from agent_framework import (
    Agent,
    AgentSession,
    BaseChatClient,
    ChatResponse,
    Content,
    FileHistoryProvider,
    HistoryProvider,
    InMemoryHistoryProvider,
    Message,
)

from tuskpoint import (
    Client,
    DeadlineExceeded,
    PreconditionFailed,
    ThreadDeleted,
    TuskPointError,
    Unavailable,
)
from tuskpoint.frameworks.agent_framework import TuskPointHistoryProvider

pytestmark = pytest.mark.filterwarnings("ignore:.FILE_HISTORY. FileHistoryProvider is experimental")


class Scripted(BaseChatClient[Any]):
    """A model that answers with the number of its messages."""

    def _inner_get_response(
        self, *, messages: Sequence[Message], stream: bool, options: Any, **kwargs: Any
    ) -> Any:
        async def answer() -> ChatResponse:
            return ChatResponse(messages=[Message("assistant", [f"{len(messages)} messages"])])

        return answer()


Open = Callable[[], HistoryProvider]
"""Opens a provider, as each process does."""


@pytest.fixture(params=["memory", "file", "tuskpoint"])
async def opened(
    request: pytest.FixtureRequest, target: str, tmp_path: Path
) -> AsyncIterator[Open]:
    """Opens a provider of each kind."""
    if request.param == "memory":
        yield InMemoryHistoryProvider  # The framework's provider keeps the messages in the session.
    elif request.param == "file":
        yield lambda: FileHistoryProvider(tmp_path)
    else:
        ours: list[TuskPointHistoryProvider] = []

        def open_provider() -> HistoryProvider:
            ours.append(TuskPointHistoryProvider(target))
            return ours[-1]

        yield open_provider
        for provider in ours:
            await provider.aclose()


@pytest.fixture
async def provider(target: str) -> AsyncIterator[TuskPointHistoryProvider]:
    """A provider."""
    async with TuskPointHistoryProvider(target) as provider:
        yield provider


def says(text: str, **fields: Any) -> Message:
    """Return a message of a user."""
    return Message("user", [text], **fields)


def texts(messages: Sequence[Message]) -> list[str]:
    """Return the texts of messages."""
    return [message.text for message in messages]


async def test_an_agent_continues_in_another_process(opened: Open) -> None:
    session = AgentSession(session_id=str(uuid4()))
    answers = []
    for question in ("hello", "and again", "and again"):
        agent = Agent(client=Scripted(), name="clerk", context_providers=[opened()])
        answers.append((await agent.run(question, session=session)).text)
    assert answers == ["1 messages", "3 messages", "5 messages"]


async def test_messages_that_are_given_again_are_kept_once(opened: Open) -> None:
    state: dict[str, Any] = {}
    session_id = str(uuid4())
    first = [says("a"), Message("assistant", ["b"])]

    async def kept(*messages: Message) -> list[str]:
        """Return the kept messages after these messages were saved."""
        await opened().save_messages(session_id, messages, state=state)
        return texts(await opened().get_messages(session_id, state=state))

    assert await kept() == []
    assert await kept(*first) == ["a", "b"]
    assert await kept(*first, says("c")) == ["a", "b", "c"]
    assert await kept(says("c")) == ["a", "b", "c", "c"]
    assert await kept(says("d", message_id="m")) == ["a", "b", "c", "c", "d"]
    assert await kept(says("d", message_id="m"), says("e")) == ["a", "b", "c", "c", "d", "e"]
    assert await kept(says("e"), says("a")) == ["a", "b", "c", "c", "d", "e", "e", "a"]


async def test_messages_come_back_as_they_were(opened: Open) -> None:
    state: dict[str, Any] = {}
    contents = [
        Content.from_text("\N{SNOWMAN} \x00"),
        Content.from_function_call("call-1", "refund", arguments={"a": [1, None]}),
        Content.from_function_result("call-1", result="done"),
        Content.from_data(b"\x89PNG\xff", "image/png"),
    ]
    messages = [
        Message("assistant", contents, author_name="clerk", additional_properties={"k": {"v": 1}}),
        Message("tool", [], message_id="m1"),
    ]
    expected = [message.to_dict() for message in messages]
    await opened().save_messages("any-" + str(id(opened)), messages, state=state)
    actual = await opened().get_messages("any-" + str(id(opened)), state=state)
    assert [message.to_dict() for message in actual] == expected


async def test_the_thread_is_a_thread_like_any_other(
    provider: TuskPointHistoryProvider, thread_id: str, client: Client
) -> None:
    agent = Agent(client=Scripted(), name="clerk", context_providers=[provider])
    session = AgentSession(session_id=thread_id)
    await agent.run("one", session=session)
    await agent.run("two", session=session)
    past = list(client.history(thread_id, full=True))
    assert [checkpoint.summary for checkpoint in past] == ["2 messages added: user, assistant"] * 2
    assert [checkpoint.metadata["messages"] for checkpoint in past] == [2, 4]
    fork = client.fork(thread_id, past[0].checkpoint_id).new_thread_id
    adopted = client.adopt(client.handoff(thread_id, to_agent="other"), f"{fork}-adopted")
    for thread, answer in ((fork, "3 messages"), (adopted.new_thread_id, "5 messages")):
        other = AgentSession(session_id=thread)
        assert (await agent.run("three", session=other)).text == answer
    client.rollback(thread_id, past[0].checkpoint_id)
    assert (await agent.run("other", session=session)).text == "3 messages"


async def test_writers_at_the_same_time_lose_nothing(thread_id: str, target: str) -> None:
    providers = [TuskPointHistoryProvider(target) for _ in range(4)]
    await asyncio.gather(
        *(
            providers[number % 4].save_messages(thread_id, [says(f"{number}"), says("next")])
            for number in range(12)
        )
    )
    contents = texts(await providers[0].get_messages(thread_id))
    assert sorted(contents[::2]) == sorted(str(number) for number in range(12))
    assert contents[1::2] == ["next"] * 12
    for provider in providers:
        await provider.aclose()


async def test_a_thread_of_another_program_is_refused_and_stays_as_it_is(
    provider: TuskPointHistoryProvider, thread_id: str, client: Client
) -> None:
    client.save(thread_id, {"messages/00000": []}, metadata={"framework": "agent-framework"})
    for attempt in (
        provider.get_messages(thread_id),
        provider.save_messages(thread_id, [says("one")]),
    ):
        with pytest.raises(PreconditionFailed, match=r"was written by agent-framework, not by"):
            await attempt
    assert len(list(client.history(thread_id))) == 1


async def test_a_late_message_does_not_bring_a_deleted_session_back(
    provider: TuskPointHistoryProvider, thread_id: str, client: Client
) -> None:
    await provider.save_messages(thread_id, [says("one")])
    client.delete(thread_id)
    with pytest.raises(ThreadDeleted):
        await provider.save_messages(thread_id, [says("late")])
    assert await provider.get_messages(thread_id) == []


async def test_a_session_without_id_is_refused(provider: TuskPointHistoryProvider) -> None:
    for attempt in (provider.get_messages(None), provider.save_messages("", [says("one")])):
        with pytest.raises(ValueError, match="this session has no ID"):
            await attempt


async def test_a_server_that_is_down_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as port:
        nobody = f"127.0.0.1:{port.getsockname()[1]}"
    async with TuskPointHistoryProvider(nobody, timeout_s=0.2) as provider:
        with pytest.raises((Unavailable, DeadlineExceeded), match=nobody):
            await provider.get_messages("any")
    with pytest.raises(TuskPointError, match="this client is closed"):
        await provider.get_messages("any")
