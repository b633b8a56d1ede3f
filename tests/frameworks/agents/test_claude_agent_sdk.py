"""The Claude Agent SDK's session store passes the SDK's conformance suite, and continues sessions.

A scripted program replaces the program that the SDK runs.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest
from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    SessionKey,
    SessionStoreEntry,
    TextBlock,
    delete_session_via_store,
    fork_session_via_store,
    get_session_messages_from_store,
    list_sessions_from_store,
    list_subagents_from_store,
    project_key_for_directory,
    query,
    rename_session_via_store,
)
from claude_agent_sdk.testing import run_session_store_conformance

from tuskpoint import (
    AsyncClient,
    Client,
    DeadlineExceeded,
    PreconditionFailed,
    ThreadDeleted,
    Unavailable,
)
from tuskpoint.frameworks.claude_agent_sdk import TuskPointSessionStore, thread_of

EXAMPLE = Path(__file__).parents[3] / "examples/frameworks/claude_agent_sdk"


def entry(number: int, **more: Any) -> SessionStoreEntry:
    """Return an entry of a transcript."""
    return cast(SessionStoreEntry, {"type": "user", "uuid": str(number), **more})


@pytest.fixture
async def calls(target: str) -> AsyncIterator[AsyncClient]:
    """A client that several stores share."""
    async with AsyncClient(target) as client:
        yield client


@pytest.fixture
def store(calls: AsyncClient) -> TuskPointSessionStore:
    """A store."""
    return TuskPointSessionStore(calls)


@pytest.fixture
def key() -> SessionKey:
    """A session that does not exist yet."""
    return {"project_key": f"project-{uuid4()}", "session_id": str(uuid4())}


def thread(key: SessionKey) -> str:
    """Return the thread of a session."""
    return thread_of(key["project_key"], key["session_id"])


async def test_the_conformance_suite_passes_with_every_optional_method(
    calls: AsyncClient,
) -> None:
    async def empty() -> TuskPointSessionStore:
        async for thread in calls.list_threads():
            await calls.delete(thread.thread_id)
        return TuskPointSessionStore(calls)

    await run_session_store_conformance(empty)


async def turn(
    prompt: str, store: TuskPointSessionStore, folder: Path, **options: Any
) -> list[str]:
    """Run a turn of a session in a process without files of earlier processes."""
    config = folder / str(uuid4())
    sdk_options = ClaudeAgentOptions(
        session_store=store,
        cwd=folder,
        cli_path=EXAMPLE / "scripted_claude.py",
        env={"CLAUDE_CONFIG_DIR": str(config)},
        **options,
    )
    return [
        block.text
        async for message in query(prompt=prompt, options=sdk_options)
        if isinstance(message, AssistantMessage)
        for block in message.content
        if isinstance(block, TextBlock)
    ]


async def test_a_session_continues_where_it_left_no_file(
    store: TuskPointSessionStore, target: str, tmp_path: Path, client: Client
) -> None:
    session = str(uuid4())
    said = await turn("one", store, tmp_path, session_id=session)
    assert said == ["You began with 'one'; this is entry 1."]
    async with TuskPointSessionStore(target) as other:
        said = await turn("research two", other, tmp_path, resume=session)
        assert said == ["You began with 'one'; this is entry 3."]
        said = await turn("three", other, tmp_path, continue_conversation=True)
        assert said == ["You began with 'one'; this is entry 5."]

    messages = await get_session_messages_from_store(store, session, directory=str(tmp_path))
    assert [message.type for message in messages] == ["user", "assistant"] * 3
    assert await list_subagents_from_store(store, session, directory=str(tmp_path)) == [
        "researcher"
    ]
    await rename_session_via_store(store, session, "Kettles", directory=str(tmp_path))
    [listed] = await list_sessions_from_store(store, directory=str(tmp_path))
    assert (listed.session_id, listed.custom_title, listed.first_prompt) == (
        session,
        "Kettles",
        "one",
    )
    assert [
        checkpoint.summary
        for checkpoint in client.history(thread_of(project_key_for_directory(tmp_path), session))
    ] == [
        "2 entries added to transcript: user, assistant",
        "2 entries added to transcript: user, assistant",
        "1 entry added to subpath/subagents/agent-researcher: assistant",
        "2 entries added to transcript: user, assistant",
        "1 entry added to transcript: custom-title",
    ]


async def test_the_sdk_forks_and_deletes_sessions(
    store: TuskPointSessionStore, tmp_path: Path, client: Client
) -> None:
    session, project = str(uuid4()), project_key_for_directory(tmp_path)
    await turn("one", store, tmp_path, session_id=session)
    fork = await fork_session_via_store(store, session, directory=str(tmp_path))
    said = await turn("two", store, tmp_path, resume=fork.session_id)
    assert said[0].startswith("You began with 'one'")
    await delete_session_via_store(store, session, directory=str(tmp_path))
    listed = await list_sessions_from_store(store, directory=str(tmp_path))
    assert [session.session_id for session in listed] == [fork.session_id]
    assert list(client.history(thread_of(project, session))) == []


async def test_an_entry_that_is_sent_again_is_not_appended_again(
    store: TuskPointSessionStore, key: SessionKey, client: Client
) -> None:
    title: SessionStoreEntry = {"type": "custom-title"}
    await store.append(key, [entry(1), entry(2), title])
    await store.append(key, [entry(2), entry(3), entry(3), title])
    await store.append(key, [entry(1), entry(3)])
    assert await store.load(key) == [entry(1), entry(2), title, entry(3), title]
    assert len(list(client.history(thread(key)))) == 2


async def test_writers_at_the_same_time_lose_nothing(target: str, key: SessionKey) -> None:
    stores = [TuskPointSessionStore(target) for _ in range(4)]
    sub: SessionKey = {**key, "subpath": "subagents/agent-1"}
    await asyncio.gather(
        *(
            store.append(where, [entry(2 * number), entry(2 * number + 1)])
            for number, store in enumerate(stores * 3)
            for where in (key, sub)
        )
    )
    for where in (key, sub):
        read = [await store.load(where) or [] for store in stores]
        assert all(copy == read[0] for copy in read)
        numbers = [int(line["uuid"]) for line in read[0]]
        assert sorted(numbers) == list(range(24))
        assert [number + 1 for number in numbers[::2]] == numbers[1::2]
    for store in stores:
        await store.aclose()


async def test_a_thread_of_another_program_is_refused_and_stays_as_it_is(
    store: TuskPointSessionStore, key: SessionKey, client: Client
) -> None:
    client.save(thread(key), {"transcript/00000": []}, agent_id=key["project_key"])
    for attempt in (
        store.load(key),
        store.append(key, [entry(1)]),
        store.delete(key),
        store.list_subkeys(key),
    ):
        with pytest.raises(PreconditionFailed, match=r"written by another program.*another ID"):
            await attempt
    assert await store.list_session_summaries(key["project_key"]) == []
    assert len(list(client.history(thread(key)))) == 1


async def test_a_late_entry_does_not_bring_a_deleted_session_back(
    store: TuskPointSessionStore, key: SessionKey, client: Client
) -> None:
    await store.append(key, [entry(1)])
    client.delete(thread(key))
    for _ in range(3):  # The SDK makes three attempts.
        with pytest.raises(ThreadDeleted):
            await store.append(key, [entry(2)])
    assert await store.load(key) is None
    await store.append(key, [entry(3)])
    assert await store.load(key) == [entry(3)]


async def test_a_server_that_is_down_is_named(key: SessionKey) -> None:
    with socket.create_server(("127.0.0.1", 0)) as port:
        nobody = f"127.0.0.1:{port.getsockname()[1]}"
    async with TuskPointSessionStore(nobody, timeout_s=0.2) as store:
        with pytest.raises((Unavailable, DeadlineExceeded), match=nobody):
            await store.append(key, [entry(1)])
        with pytest.raises((Unavailable, DeadlineExceeded), match=nobody):
            await store.list_sessions(key["project_key"])


async def test_rolled_back_forked_and_adopted_threads_are_sessions(
    store: TuskPointSessionStore, key: SessionKey, client: Client
) -> None:
    sub: SessionKey = {**key, "subpath": "subagents/agent-1"}
    await store.append(key, [entry(1, customTitle="first")])
    await store.append(sub, [entry(2)])
    before = client.load(thread(key)).checkpoint_id
    await store.append(key, [entry(3, customTitle="second")])
    forked: SessionKey = {**key, "session_id": str(uuid4())}
    adopted: SessionKey = {**key, "session_id": str(uuid4())}
    client.fork(thread(key), before, new_thread_id=thread(forked))
    descriptor = client.handoff(thread(key), before, to_agent=key["project_key"])
    client.adopt(descriptor, thread(adopted))
    client.rollback(thread(key), before)
    for session_key in (key, forked, adopted):
        await store.append(session_key, [entry(4)])
        assert await store.load(session_key) == [entry(1, customTitle="first"), entry(4)]
        assert await store.list_subkeys(session_key) == ["subagents/agent-1"]
    summaries = await store.list_session_summaries(key["project_key"])
    titles = {summary["session_id"]: summary["data"]["custom_title"] for summary in summaries}
    assert titles == {session_key["session_id"]: "first" for session_key in (key, forked, adopted)}


async def test_many_sessions_are_listed_and_continued(
    store: TuskPointSessionStore, key: SessionKey
) -> None:
    sessions = sorted(f"{key['session_id']}/{number:03} %" for number in range(70))
    for session in sessions:
        await store.append({**key, "session_id": session}, [entry(1, customTitle=session)])
    elsewhere = f"{key['project_key']}/{key['session_id']}"
    await store.append({"project_key": elsewhere, "session_id": "s"}, [entry(1)])
    listed = await store.list_sessions(key["project_key"])
    assert sorted(session["session_id"] for session in listed) == sessions
    summaries = await store.list_session_summaries(key["project_key"])
    assert sorted(summary["data"]["custom_title"] for summary in summaries) == sessions
    await store.append({**key, "session_id": sessions[0]}, [entry(1), entry(2)])
    assert len(await store.load({**key, "session_id": sessions[0]}) or []) == 2


async def test_another_entry_costs_little_in_a_long_transcript(
    store: TuskPointSessionStore, key: SessionKey, client: Client
) -> None:
    many = [entry(number, message="word " * 60) for number in range(2000)]
    await store.append(key, many)
    await store.append(key, [entry(2000)])
    older, newer = client.history(thread(key), full=True)
    sent = sum(
        len(channel.data or b"")
        for name, channel in newer.channels.items()
        if name not in older.channels or channel.digest != older.channels[name].digest
    )
    assert sum(len(channel.data or b"") for channel in newer.channels.values()) > 600_000
    assert sent < 20_000
    assert await store.load(key) == [*many, entry(2000)]


def test_the_example_continues_in_a_second_process(target: str, tmp_path: Path) -> None:
    environment = {"TUSKPOINT_TARGET": target, "PATH": os.environ["PATH"]}
    run = subprocess.run(
        [sys.executable, EXAMPLE],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 0, run.stderr
    assert "the agent says: You began with 'The kettle leaks.'; this is entry 3." in run.stdout
    assert "entry added to subpath/subagents/agent-researcher" in run.stdout
