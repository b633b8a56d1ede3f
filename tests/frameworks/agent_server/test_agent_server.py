"""A real Agent Server keeps all its threads in a real TuskPoint server."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest
from langgraph_sdk.client import LangGraphClient

from tuskpoint import (
    Client,
    DeadlineExceeded,
    InvalidRequest,
    NotFound,
    PortableSerializer,
    Unavailable,
)
from tuskpoint.frameworks.agent_server import checkpointer, store

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples/frameworks/agent_server"


async def run(
    server: LangGraphClient, thread_id: str, graph: str = "clerk", **options: Any
) -> list[str]:
    """Run a graph on a thread; return the messages."""
    await server.threads.create(thread_id=thread_id, if_exists="do_nothing")
    result = await server.runs.wait(thread_id, graph, **options)
    return cast(list[str], cast(dict[str, Any], result)["said"])


def saying(*texts: str) -> dict[str, Any]:
    """Return the input of a run."""
    return {"said": [*texts]}


def kept(client: Client, thread_id: str, checkpoint_id: str | None = None) -> list[str]:
    """Return the messages, as a program without LangGraph reads them from the server."""
    record = client.load(thread_id, checkpoint_id, view="json")
    return cast(list[str], json.loads(record.channels["said"].data or b"null"))


async def test_a_run_waits_for_a_person_and_continues(
    server: LangGraphClient, client: Client, thread_id: str
) -> None:
    said = await run(server, thread_id, input=saying("hello"))
    assert said == kept(client, thread_id) == ["hello", "draft of hello"]
    [question] = client.interrupts(thread_id)
    assert question.value == {"approve": "draft of hello"}
    state = await server.threads.get_state(thread_id)
    assert state["next"] == ["approve"]
    assert state["interrupts"][0]["id"] == question.interrupt_id

    said = await run(server, thread_id, command={"resume": "Ada"})
    assert said == kept(client, thread_id) == ["hello", "draft of hello", "approved by Ada"]
    assert client.interrupts(thread_id) == ()
    assert client.get_thread(thread_id).agent_id == "a"


async def test_a_person_may_answer_without_the_agent_server(
    server: LangGraphClient, client: Client, thread_id: str
) -> None:
    await run(server, thread_id, input=saying("hello"))
    client.answer(thread_id, "Bob")
    assert (await run(server, thread_id, input=None))[-1] == "approved by Bob"


async def test_the_history_of_both_servers_is_the_same(
    server: LangGraphClient, client: Client, thread_id: str
) -> None:
    await run(server, thread_id, input=saying("hello"))
    await run(server, thread_id, command={"resume": "Ada"})
    states = await server.threads.get_history(thread_id, limit=100)
    past = list(client.history(thread_id))
    assert [state["checkpoint"]["checkpoint_id"] for state in reversed(states)] == [
        checkpoint.checkpoint_id for checkpoint in past
    ]
    assert [state["metadata"]["step"] for state in reversed(states)] == [-1, 0, 1, 2]
    past_values: list[Any] = [state["values"] for state in states[:-1]]
    assert [values["said"] for values in past_values] == [
        kept(client, thread_id, state["checkpoint"]["checkpoint_id"]) for state in states[:-1]
    ]


async def test_a_run_from_an_earlier_checkpoint_is_a_branch(
    server: LangGraphClient, client: Client, thread_id: str
) -> None:
    await run(server, thread_id, input=saying("hello"))
    earlier = ids(client, thread_id)[1]
    await run(server, thread_id, input=None, checkpoint_id=earlier)
    parents = [str(checkpoint.parent_checkpoint_id) for checkpoint in client.history(thread_id)]
    assert parents.count(earlier) == 2
    await run(server, thread_id, command={"resume": "Ada"})
    await server.threads.update_state(thread_id, saying("corrected"), as_node="approve")
    assert kept(client, thread_id)[-2:] == ["approved by Ada", "corrected"]


async def test_a_graph_below_another_keeps_checkpoints_of_its_own(
    server: LangGraphClient, client: Client, thread_id: str
) -> None:
    await run(server, thread_id, "office", input=saying("hello"))
    every = client.replay(thread_id, view="entry")
    spaces = {checkpoint.checkpoint_ns.partition(":")[0] for checkpoint in every}
    assert spaces == {"", "ask"}
    state = await server.threads.get_state(thread_id, subgraphs=True)
    assert state["tasks"][0]["interrupts"][0]["value"] == {"approve": "draft of hello"}
    said = await run(server, thread_id, "office", command={"resume": "Ada"})
    assert said == kept(client, thread_id) == ["hello", "draft of hello", "approved by Ada"]


async def test_runs_of_many_threads_at_the_same_time_stay_apart(
    server: LangGraphClient, client: Client
) -> None:
    threads = [(await server.threads.create())["thread_id"] for _ in range(8)]
    await asyncio.gather(*(run(server, thread, input=saying(thread)) for thread in threads))
    for thread in threads:
        assert kept(client, thread) == [thread, f"draft of {thread}"]


async def test_a_copy_continues_by_itself(
    server: LangGraphClient, client: Client, thread_id: str
) -> None:
    await run(server, thread_id, input=saying("hello"))
    # The client's types lack the returned copy.
    copy: Any = await cast(Any, server.threads).copy(thread_id)
    assert ids(client, copy["thread_id"]) == ids(client, thread_id)
    await run(server, copy["thread_id"], command={"resume": "Ada"})
    assert kept(client, copy["thread_id"])[-1] == "approved by Ada"
    assert kept(client, thread_id)[-1] == "draft of hello"
    assert len(client.interrupts(thread_id)) == 1


async def test_a_deleted_thread_is_gone_and_may_begin_anew(
    server: LangGraphClient, client: Client, thread_id: str
) -> None:
    await run(server, thread_id, input=saying("hello"))
    await server.threads.delete(thread_id)
    with pytest.raises(NotFound):
        client.load(thread_id)
    assert await run(server, thread_id, input=saying("new")) == ["new", "draft of new"]
    assert len(ids(client, thread_id)) == 3


async def test_pruned_threads_are_gone(server: LangGraphClient, client: Client) -> None:
    threads = [(await server.threads.create())["thread_id"] for _ in range(2)]
    for thread in threads:
        await run(server, thread, input=saying("hello"))
    await server.threads.prune(threads[:1])
    with pytest.raises(NotFound):
        client.load(threads[0])
    assert kept(client, threads[1])[0] == "hello"


async def test_a_run_without_a_thread_leaves_nothing(
    server: LangGraphClient, client: Client
) -> None:
    before = {thread.thread_id for thread in client.threads()}
    result = cast(dict[str, Any], await server.runs.wait(None, "slow", input=saying("hello")))
    assert result["said"][-1] == "done"
    assert {thread.thread_id for thread in client.threads()} <= before


async def test_a_second_run_rolls_the_first_one_back(
    server: LangGraphClient, client: Client, thread_id: str
) -> None:
    await run(server, thread_id, "slow", input=saying("hello"))
    before = ids(client, thread_id)
    stream = server.runs.stream(
        thread_id,
        "slow",
        input=saying("wait"),
        stream_mode="custom",
        durability="sync",
        on_disconnect="continue",
    )
    async with aclosing(cast(AsyncGenerator[Any], stream)):
        async for part in stream:
            if part.event == "custom":
                break
    during = ids(client, thread_id)
    assert len(during) == len(before) + 3
    said = await run(
        server, thread_id, "slow", input=saying("other"), multitask_strategy="rollback"
    )
    assert said == [*("hello", "draft of hello", "done"), *("other", "draft of other", "done")]
    after = ids(client, thread_id)
    assert after[: len(before)] == before
    assert not {*after} & {*during} - {*before}
    assert kept(client, thread_id) == said


async def test_a_fork_a_rollback_and_an_adopted_thread_continue(
    server: LangGraphClient, client: Client, thread_id: str
) -> None:
    await run(server, thread_id, input=saying("hello"))
    waiting = client.load(thread_id, view="entry").checkpoint_id
    fork = client.fork(thread_id, new_thread_id=str(uuid4())).new_thread_id
    descriptor = client.handoff(thread_id, to_agent="other")
    adopted = client.adopt(descriptor, str(uuid4())).new_thread_id
    await run(server, thread_id, command={"resume": "Ada"})
    client.rollback(thread_id, waiting)
    results = await asyncio.gather(
        *(run(server, thread, command={"resume": "Bob"}) for thread in (fork, adopted, thread_id))
    )
    assert results == [["hello", "draft of hello", "approved by Bob"]] * 3


async def test_items_of_the_store_are_kept_here(
    server: LangGraphClient, client: Client, thread_id: str
) -> None:
    await run(server, thread_id, "memory", input=saying(thread_id))
    await server.store.put_item(["said"], "by hand", {"by": "a caller"})
    [record] = client.get_items([(("said",), thread_id)])
    assert record is not None
    assert record.value == {"by": "remember"}
    item = await server.store.get_item(["said"], thread_id)
    assert item["value"] == {"by": "remember"}
    found_items = await server.store.search_items(["said"], filter={"by": "a caller"})
    assert [item["key"] for item in found_items["items"]] == ["by hand"]


async def test_a_thread_that_a_client_saved_to_continues(
    server: LangGraphClient, client: Client, thread_id: str
) -> None:
    await run(server, thread_id, input=saying("first"))
    client.save(thread_id, {"said": ["mine"]})
    assert (await run(server, thread_id, input=saying("hello")))[:2] == ["mine", "hello"]


async def test_a_thread_that_a_client_began_is_refused_and_stays_as_it_is(
    server: LangGraphClient, client: Client, thread_id: str
) -> None:
    client.save(thread_id, {"said": ["mine"]})
    await server.threads.create(thread_id=thread_id)
    result: Any = await server.runs.wait(
        thread_id, "clerk", input=saying("hello"), raise_error=False
    )
    assert f"'{thread_id}' was begun by a program without" in result["__error__"]["message"]
    assert [checkpoint.state for checkpoint in client.history(thread_id, full=True)] == [
        {"said": ["mine"]}
    ]


async def test_a_thread_of_another_framework_is_refused_and_stays_as_it_is(
    server: LangGraphClient, client: Client, thread_id: str
) -> None:
    client.save(thread_id, {"said": ["mine"]}, metadata={"framework": "other"})
    await server.threads.create(thread_id=thread_id)
    result: Any = await server.runs.wait(
        thread_id, "clerk", input=saying("hello"), raise_error=False
    )
    assert result["__error__"]["error"] == "ValueError"
    assert f"thread '{thread_id}' belongs to the framework" in result["__error__"]["message"]
    assert [checkpoint.state for checkpoint in client.history(thread_id, full=True)] == [
        {"said": ["mine"]}
    ]


async def test_a_server_that_is_down_is_named_before_the_first_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as port:
        nobody = f"127.0.0.1:{port.getsockname()[1]}"
    monkeypatch.setenv("TUSKPOINT_TARGET", nobody)
    monkeypatch.setenv("TUSKPOINT_TIMEOUT_S", "0.2")
    with pytest.raises((Unavailable, DeadlineExceeded), match=nobody):
        async with checkpointer():
            pass


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("TUSKPOINT_DURABILITY", "some"),
        ("TUSKPOINT_SERIALIZER", "pickle"),
        ("TUSKPOINT_TIMEOUT_S", "soon"),
        ("TUSKPOINT_TIMEOUT_S", "-1"),
    ],
)
async def test_a_setting_that_cannot_be_used_is_named(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(InvalidRequest, match=value):
        async with checkpointer():
            pass


async def test_settings_come_from_the_environment(
    target: str, thread_id: str, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUSKPOINT_TARGET", target)
    monkeypatch.setenv("TUSKPOINT_SERIALIZER", "portable")
    monkeypatch.setenv("TUSKPOINT_DURABILITY", "certified")
    config = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
    checkpoint = {
        "v": 4,
        "ts": "",
        "id": "1f000000-0000-6000-8000-000000000000",
        "channel_values": {"said": ["hello"]},
        "channel_versions": {"said": "1"},
        "versions_seen": {},
    }
    async with checkpointer() as saver:
        assert isinstance(saver.serde, PortableSerializer)
        await saver.aput(cast(Any, config), cast(Any, checkpoint), {"step": 0}, {"said": "1"})
    record = client.load(thread_id)
    assert (record.durability, record.state["said"]) == ("certified", ["hello"])


@pytest.mark.parametrize("factory", [checkpointer, store])
async def test_an_agent_server_that_ignores_the_checkpointer_is_refused(
    factory: Any, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUSKPOINT_TARGET", target)
    async with factory():
        pass
    monkeypatch.setattr("importlib.metadata.version", {"langgraph-api": "0.7.27"}.__getitem__)
    with pytest.raises(RuntimeError, match=r"langgraph-api 0\.7\.27 is too old"):
        async with factory():
            pass


def test_the_page_installs_an_agent_server_that_was_tested() -> None:
    lock = (ROOT / "requirements/agent-server.in").read_text()
    [tested] = [line for line in lock.splitlines() if line.startswith("langgraph-api")]
    assert f"'{tested}'" in (ROOT / "docs/agents/agent-server.md").read_text()


def test_a_missing_package_is_named() -> None:
    program = (
        "import sys; sys.modules['langgraph'] = None; import tuskpoint.frameworks.agent_server"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert "pip install 'tuskpoint[langgraph]'" in run.stderr


def test_the_example_continues_on_another_agent_server(target: str) -> None:
    environment = {
        "TUSKPOINT_TARGET": target,
        "PATH": os.environ["PATH"],
        "PYTHONWARNINGS": "error",
    }
    run = subprocess.run(
        [sys.executable, EXAMPLE], env=environment, capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stderr
    assert "first Agent Server: waits for" in run.stdout
    assert "approved by Ada" in run.stdout
    assert "step 2: approve ran" in run.stdout


def ids(client: Client, thread_id: str) -> Sequence[str]:
    """Return the IDs of a thread's checkpoints, oldest first."""
    return [checkpoint.checkpoint_id for checkpoint in client.history(thread_id)]
