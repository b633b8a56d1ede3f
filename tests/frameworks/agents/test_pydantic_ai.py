"""Pydantic AI's conversation store behaves as the framework's own store in memory, and keeps
runs."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pydantic_ai import (
    Agent,
    BinaryContent,
    Conversation,
    DeferredToolRequests,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    UserError,
)
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationStore,
    InMemoryConversationStore,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from tuskpoint import AsyncClient, Client, DeadlineExceeded, PreconditionFailed, Unavailable
from tuskpoint.frameworks.pydantic_ai import TuskPointConversationStore

EXAMPLE = Path(__file__).parents[3] / "examples/frameworks/pydantic_ai"


@pytest.fixture
async def calls(target: str) -> AsyncIterator[AsyncClient]:
    """A client that several stores share."""
    async with AsyncClient(target) as client:
        yield client


@pytest.fixture
def store(calls: AsyncClient) -> TuskPointConversationStore:
    """A store."""
    return TuskPointConversationStore(calls)


def user_message(text: str) -> ModelMessage:
    """Return a message of a user."""
    return ModelRequest.user_text_prompt(text)


def texts(messages: list[ModelMessage]) -> list[Any]:
    """Return the texts of messages."""
    return [getattr(part, "content", None) for message in messages for part in message.parts]


async def saved(store: ConversationStore, name: str, *said: str, **options: Any) -> Conversation:
    """Save a conversation."""
    conversation = Conversation(
        conversation_id=name, messages=[user_message(text) for text in said]
    )
    await store.save(conversation, **options)
    return conversation


async def history(store: ConversationStore, name: str, **options: Any) -> list[Any] | None:
    """Return the texts of a conversation; return `None` if it does not exist."""
    conversation = await store.load(name, **options)
    return None if conversation is None else texts(conversation.messages)


@pytest.fixture(params=["memory", "tuskpoint"])
def either(request: pytest.FixtureRequest, calls: AsyncClient) -> ConversationStore:
    """Either store: the framework's own and ours pass the same tests."""
    if request.param == "memory":
        return InMemoryConversationStore()
    return TuskPointConversationStore(calls, agent_id=str(uuid4()))


async def test_a_save_appends_and_a_stale_one_is_refused(
    either: ConversationStore, thread_id: str
) -> None:
    assert await either.load(thread_id) is None
    stale = await saved(either, thread_id, "one")
    current = await either.load(thread_id)
    assert current is not None
    assert current.messages == stale.messages
    current.messages.append(user_message("two"))
    [entry] = await either.save(current)
    assert texts([entry.message]) == ["two"]
    stale.messages.append(user_message("other"))
    with pytest.raises(ConversationConflict):
        await either.save(stale)
    with pytest.raises(ConversationConflict):
        await saved(either, thread_id, "new")
    assert await history(either, thread_id) == ["one", "two"]
    assert await history(either, thread_id, limit=1) == ["two"]
    assert await history(either, thread_id, limit=0) == []
    entries = await either.load_entries(thread_id) or []
    assert [record.id for record in entries][1:] == [entry.id]
    assert entries[1].parent_id == entries[0].id
    assert (await either.read_entry(entries[0].id)).message == entries[0].message


async def test_a_conversation_branches_and_goes_back(
    either: ConversationStore, thread_id: str
) -> None:
    first = await saved(either, thread_id, "one", "two", "three")
    entries = await either.load_entries(thread_id) or []
    branched = await either.branch(thread_id, at=1, expected_revision=first.revision)
    branched.messages.append(user_message("other"))
    await either.save(branched)
    assert await history(either, thread_id) == ["one", "other"]
    record = await either.read_record(thread_id)
    assert record is not None
    assert record.branches == [entries[2].id]
    back = await either.branch(
        thread_id, from_entry=entries[1].id, expected_revision=branched.revision
    )
    assert texts(back.messages) == ["one", "two"]
    with pytest.raises(UserError, match="not in the history"):
        await either.branch(thread_id, from_entry="none", expected_revision=back.revision)
    with pytest.raises(ConversationConflict):
        await either.branch(thread_id, at=0, expected_revision=first.revision)
    with pytest.raises(LookupError):
        await either.read_entry("none")


async def test_a_rewritten_history_leaves_a_branch(
    either: ConversationStore, thread_id: str
) -> None:
    conversation = await saved(either, thread_id, "one", "two")
    conversation.messages[1:] = [user_message("summary")]
    conversation.new_message_index = None
    await either.save(conversation)
    assert await history(either, thread_id) == ["one", "summary"]


async def test_forks_and_their_origin_are_independent(
    either: ConversationStore, thread_id: str
) -> None:
    origin = await saved(either, thread_id, "one", "two")
    fork = await either.fork(thread_id, at=1, new_conversation_id=f"{thread_id}-fork")
    again = await either.fork(fork.conversation_id)
    with pytest.raises(ConversationConflict):
        await either.fork(thread_id, new_conversation_id=fork.conversation_id)
    fork.messages.append(user_message("other"))
    await either.save(fork)
    origin.messages.append(user_message("three"))
    await either.save(origin)
    await either.delete(thread_id)
    assert await history(either, thread_id) is None
    assert await history(either, fork.conversation_id) == ["one", "other"]
    assert await history(either, again.conversation_id) == ["one"]
    record = await either.read_record(fork.conversation_id)
    assert record is not None
    assert record.forked_from == thread_id


async def test_conversations_are_listed_by_scope_and_deleted_in_theirs(
    either: ConversationStore, thread_id: str
) -> None:
    names = [f"{thread_id}-{number}" for number in range(70)]
    for number, name in enumerate(names):
        await saved(either, name, "one", scope="even" if number % 2 == 0 else "odd")
    listed = [conversation.conversation_id for conversation in await either.list_conversations()]
    assert listed == names[::-1]
    listed = [
        conversation.conversation_id
        for conversation in await either.list_conversations(scope="odd", limit=2)
    ]
    assert listed == [names[69], names[67]]
    assert await either.load(names[0], scope="odd") is None
    await either.delete(names[0], scope="odd")
    assert await history(either, names[0], scope="even") == ["one"]
    await either.delete(names[0], scope="even")
    assert await either.load(names[0]) is None
    await saved(either, names[0], "again")
    assert await history(either, names[0]) == ["again"]


async def test_a_deletion_that_was_missed_is_a_conflict(
    either: ConversationStore, thread_id: str
) -> None:
    conversation = await saved(either, thread_id, "one")
    await either.delete(thread_id)
    conversation.messages.append(user_message("late"))
    for _ in range(2):
        with pytest.raises(ConversationConflict):
            await either.save(conversation)
    with pytest.raises(ConversationConflict):
        await either.delete_record(thread_id, expected_revision=str(conversation.revision))
    assert await either.load(thread_id) is None


async def test_a_run_continues_in_another_store(thread_id: str, target: str) -> None:
    agent = Agent(TestModel(custom_output_text="Answer."))
    picture = BinaryContent(b"\x00\xff\xfe", media_type="image/png")
    conversation: Conversation | None = Conversation(conversation_id=thread_id)
    prompts: list[list[str | BinaryContent]] = [["Look at this.", picture], ["And now?"]]
    for prompt in prompts:
        async with TuskPointConversationStore(target) as store:
            conversation = await store.load(thread_id) or conversation
            result = await agent.run(prompt, conversation=conversation)
            await store.save(result)
    async with TuskPointConversationStore(target) as store:
        loaded = await store.load(thread_id)
    assert loaded is not None
    assert loaded.messages == result.conversation.messages
    assert loaded.usage == result.conversation.usage
    assert loaded.usage.requests == 2
    assert len(loaded.messages) == 4


async def test_a_run_that_waits_for_a_person_continues_elsewhere(
    thread_id: str, target: str
) -> None:
    refunded: list[str] = []

    def script(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if len(messages) == 1:
            return ModelResponse([ToolCallPart("refund", {"order": "A-17"})])
        return ModelResponse([TextPart("Done.")])

    agent = Agent(FunctionModel(script), output_type=[str, DeferredToolRequests])

    @agent.tool_plain(requires_approval=True)
    def refund(order: str) -> str:
        """Refund an order."""
        refunded.append(order)
        return "refunded"

    async with TuskPointConversationStore(target) as store:
        conversation = Conversation(conversation_id=thread_id)
        await store.save(await agent.run("Refund it.", conversation=conversation))
    assert refunded == []
    async with TuskPointConversationStore(target) as store:
        loaded = await store.load(thread_id)
        assert loaded is not None
        assert loaded.deferred_tool_requests is not None
        answers = loaded.deferred_tool_requests.build_results(approve_all=True)
        result = await agent.run(conversation=loaded, deferred_tool_results=answers)
        await store.save(result)
        kept = await store.load(thread_id)
    assert (result.output, refunded) == ("Done.", ["A-17"])
    assert kept is not None
    assert kept.deferred_tool_requests is None


async def test_bytes_in_what_a_run_waits_for_become_base64_as_in_messages(
    store: TuskPointConversationStore, thread_id: str
) -> None:
    call = ToolCallPart("scan", {"page": 1}, "call-1")
    waits = DeferredToolRequests(calls=[call], metadata={"call-1": {"image": b"\xff\xfe"}})
    await store.save(Conversation(conversation_id=thread_id, deferred_tool_requests=waits))
    loaded = await store.load(thread_id)
    assert loaded is not None
    assert loaded.deferred_tool_requests is not None
    assert loaded.deferred_tool_requests.calls == [call]
    assert loaded.deferred_tool_requests.metadata == {"call-1": {"image": "__4="}}


async def test_of_writers_at_the_same_time_one_saves(thread_id: str, target: str) -> None:
    stores = [TuskPointConversationStore(target) for _ in range(4)]
    await saved(stores[0], thread_id, "one")
    loaded = [await store.load(thread_id) for store in stores]

    async def add(number: int) -> bool:
        conversation = loaded[number]
        assert conversation is not None
        conversation.messages.append(user_message(f"from {number}"))
        try:
            await stores[number].save(conversation)
        except ConversationConflict:
            return False
        return True

    done = await asyncio.gather(*map(add, range(4)))
    assert sum(done) == 1
    for store in stores:
        assert await history(store, thread_id) == ["one", f"from {done.index(True)}"]
        await store.aclose()


async def test_an_entry_that_is_not_in_memory_is_found_by_the_server(
    store: TuskPointConversationStore, thread_id: str, target: str, client: Client
) -> None:
    conversation = await saved(store, thread_id, "one", "two")
    *_, last = await store.load_entries(thread_id) or []
    async with TuskPointConversationStore(target) as other:
        assert texts([entry.message for entry in await other.read_history(last.id)]) == [
            "one",
            "two",
        ]
    [labelled] = client.list(thread_id, label=last.id)
    assert labelled.summary == "2 messages added: request, request"
    assert labelled.metadata["record"]["revision"] == conversation.revision


async def test_a_thread_of_another_program_is_refused_and_stays_as_it_is(
    store: TuskPointConversationStore, thread_id: str, client: Client
) -> None:
    client.save(thread_id, {"entries/00000": []}, agent_id="pydantic-ai", label=f"of {thread_id}")
    with pytest.raises(LookupError):
        await store.read_entry(f"of {thread_id}")
    for attempt in (
        store.load(thread_id),
        saved(store, thread_id, "one"),
        store.delete(thread_id),
    ):
        with pytest.raises(PreconditionFailed, match=r"written by another program.*another ID"):
            await attempt
    assert thread_id not in [
        conversation.conversation_id for conversation in await store.list_conversations()
    ]
    assert len(list(client.history(thread_id))) == 1


async def test_a_server_that_is_down_is_named(thread_id: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as port:
        nobody = f"127.0.0.1:{port.getsockname()[1]}"
    async with TuskPointConversationStore(nobody, timeout_s=0.2) as store:
        with pytest.raises((Unavailable, DeadlineExceeded), match=nobody):
            await store.load(thread_id)


async def test_rolled_back_forked_and_adopted_threads_are_conversations(
    store: TuskPointConversationStore, thread_id: str, client: Client
) -> None:
    conversation = await saved(store, thread_id, "one")
    before = client.load(thread_id).checkpoint_id
    conversation.messages.append(user_message("two"))
    await store.save(conversation)
    client.fork(thread_id, before, new_thread_id=f"{thread_id}-fork")
    descriptor = client.handoff(thread_id, before, to_agent="pydantic-ai")
    client.adopt(descriptor, f"{thread_id}-adopted")
    client.rollback(thread_id, before)
    with pytest.raises(ConversationConflict):
        await store.save(conversation)
    for name in (thread_id, f"{thread_id}-fork", f"{thread_id}-adopted"):
        loaded = await store.load(name)
        assert loaded is not None
        assert loaded.conversation_id == name
        loaded.messages.append(user_message("other"))
        await store.save(loaded)
        assert await history(store, name) == ["one", "other"]
    listed = {conversation.conversation_id for conversation in await store.list_conversations()}
    assert {thread_id, f"{thread_id}-fork", f"{thread_id}-adopted"} <= listed


async def test_another_message_costs_little_in_a_long_conversation(
    store: TuskPointConversationStore, thread_id: str, client: Client
) -> None:
    many = [f"message {number} " + "word " * 40 for number in range(2000)]
    conversation = await saved(store, thread_id, *many)
    conversation.messages.append(user_message("last"))
    await store.save(conversation)
    older, newer = client.history(thread_id, full=True)
    sent = sum(
        len(channel.data or b"")
        for name, channel in newer.channels.items()
        if name not in older.channels or channel.digest != older.channels[name].digest
    )
    assert sum(len(channel.data or b"") for channel in newer.channels.values()) > 600_000
    assert sent < 20_000
    assert await history(store, thread_id) == [*many, "last"]


def test_the_example_continues_in_a_second_process(target: str) -> None:
    environment = {"TUSKPOINT_TARGET": target, "PATH": os.environ["PATH"]}
    run = subprocess.run(
        [sys.executable, EXAMPLE], env=environment, capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 0, run.stderr
    assert "first process: the agent waits for refund" in run.stdout
    assert "second process: the agent says Done, after 5 messages." in run.stdout
