"""A second message while a run is at work: on one Agent Server, and on another one under leases.

The Agent Servers share a TuskPoint server and nothing else, so only the lease of the thread tells
them about each other's runs.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, closing
from itertools import islice
from typing import Any, cast

import pytest
from langgraph_sdk.client import LangGraphClient
from langgraph_sdk.errors import ConflictError

from tuskpoint import Client

LONG_S = 60


async def test_reject_refuses_the_second_run_on_both_servers(
    server: LangGraphClient, other: LangGraphClient, client: Client, thread_id: str
) -> None:
    first = await start_work(server, thread_id)
    with pytest.raises(ConflictError):
        await server.runs.create(thread_id, "driven", multitask_strategy="reject")
    error = await failure(other, thread_id, "reject")
    assert error["error"] == "ThreadBusy"
    assert f"run {first} of driven" in error["message"]
    await server.runs.cancel(thread_id, first, wait=True)
    assert said(client, thread_id) == ["work"]
    assert_no_forks(client, thread_id)


async def test_enqueue_waits_for_the_run_of_another_server(
    server: LangGraphClient, other: LangGraphClient, client: Client, thread_id: str
) -> None:
    first = await start_work(server, thread_id)
    await other.threads.create(thread_id=thread_id)
    second = await other.runs.create(
        thread_id, "driven", input=saying("hello"), multitask_strategy="enqueue"
    )
    status = ""
    while status != "running":
        status = (await other.runs.get(thread_id, second["run_id"]))["status"]
    steps = len(checkpoints(client, thread_id)) + 5
    with closing(client.watch(thread_id, view="entry")) as events:
        saves = (event for event in events if event.kind == "checkpoint_saved")
        assert len(list(islice(saves, steps))) == steps
    assert said(client, thread_id) == ["work"]
    await server.runs.cancel(thread_id, first, wait=True)
    async with asyncio.timeout(LONG_S):
        await other.runs.join(thread_id, second["run_id"])
    assert said(client, thread_id) == ["work", "hello"]
    assert_no_forks(client, thread_id)


@pytest.mark.parametrize("strategy", ["interrupt", "rollback"])
async def test_a_run_takes_the_thread_over_from_another_server(
    server: LangGraphClient, other: LangGraphClient, client: Client, thread_id: str, strategy: Any
) -> None:
    first = await start_work(server, thread_id)
    await other.threads.create(thread_id=thread_id)
    await other.runs.wait(
        thread_id,
        "driven",
        input=saying("hello"),
        multitask_strategy=strategy,
        config={"configurable": {"tuskpoint_on_busy": "take_over"}},
    )
    async with asyncio.timeout(LONG_S):
        outcome = cast(Any, await server.runs.join(thread_id, first))
    assert (await server.runs.get(thread_id, first))["status"] == "error"
    assert outcome["__error__"]["error"] == "LeaseLost"
    assert thread_id in outcome["__error__"]["message"]
    # The steps that the first run saved stay, also with "rollback".
    assert said(client, thread_id) == ["work", "hello"]
    assert_no_forks(client, thread_id)
    client.delete_runs([first])
    assert not any(first == run for run in runs(client, thread_id))


async def test_on_one_server_the_second_run_replaces_the_first_and_keeps_the_thread(
    server: LangGraphClient, other: LangGraphClient, client: Client, thread_id: str
) -> None:
    first = await start_work(server, thread_id)
    second = await start_work(server, thread_id, multitask_strategy="interrupt")
    assert (await server.runs.get(thread_id, first))["status"] == "interrupted"
    assert (await failure(other, thread_id, "reject"))["error"] == "ThreadBusy"
    assert first in runs(client, thread_id)
    third = await start_work(server, thread_id, multitask_strategy="rollback")
    assert (await failure(other, thread_id, "reject"))["error"] == "ThreadBusy"
    await server.runs.cancel(thread_id, third, wait=True)
    assert second not in runs(client, thread_id)
    assert said(client, thread_id) == ["work", "work"]
    assert_no_forks(client, thread_id)
    assert client.get_thread(thread_id).lease is None


async def test_another_server_cannot_change_the_state_during_a_run(
    server: LangGraphClient, other: LangGraphClient, client: Client, thread_id: str
) -> None:
    first = await start_work(server, thread_id)
    await other.threads.create(thread_id=thread_id, graph_id="driven")
    assert (await other.threads.get_state(thread_id))["values"] == saying("work")
    with pytest.raises(ConflictError) as error:
        await other.threads.update_state(thread_id, saying("pushed in"), as_node="work")
    assert f"run {first} of driven" in str(error.value.body)
    await server.runs.cancel(thread_id, first, wait=True)
    assert said(client, thread_id) == ["work"]


async def test_a_run_without_a_thread_takes_no_lease(
    server: LangGraphClient, client: Client
) -> None:
    before = {thread.thread_id for thread in client.threads()}
    result = cast(dict[str, Any], await server.runs.wait(None, "driven", input=saying("hello")))
    assert result["said"] == ["hello"]
    assert {thread.thread_id for thread in client.threads()} <= before


def saying(text: str) -> dict[str, Any]:
    """Return the input of a run."""
    return {"said": [text]}


async def start_work(server: LangGraphClient, thread_id: str, **options: Any) -> str:
    """Start a run that works until something stops it; return its ID once it works."""
    await server.threads.create(thread_id=thread_id, if_exists="do_nothing")
    stream = server.runs.stream(
        thread_id,
        "driven",
        input=saying("work"),
        stream_mode="custom",
        on_disconnect="continue",
        config={"recursion_limit": 10**9},
        **options,
    )
    run_id = ""
    async with aclosing(cast(AsyncGenerator[Any], stream)):
        async for part in stream:
            run_id = run_id or part.data.get("run_id", "") if part.event == "metadata" else run_id
            if part.event == "custom":
                break
    assert run_id
    return run_id


async def failure(server: LangGraphClient, thread_id: str, on_busy: str) -> dict[str, str]:
    """Run the graph on a thread; return the error."""
    await server.threads.create(thread_id=thread_id, if_exists="do_nothing")
    outcome = await server.runs.wait(
        thread_id,
        "driven",
        input=saying("pushed in"),
        config={"configurable": {"tuskpoint_on_busy": on_busy}},
        raise_error=False,
    )
    return cast(dict[str, dict[str, str]], outcome)["__error__"]


def said(client: Client, thread_id: str) -> list[str]:
    """Return the messages of the thread's latest state."""
    record = client.load(thread_id, view="json")
    return cast(list[str], json.loads(record.channels["said"].data or b"null"))


def checkpoints(client: Client, thread_id: str) -> Sequence[Any]:
    """Return the checkpoints of a thread, oldest first."""
    return list(client.history(thread_id))


def runs(client: Client, thread_id: str) -> set[str]:
    """Return the IDs of the runs that saved a checkpoint of the thread."""
    return {point.metadata.get("run_id", "") for point in checkpoints(client, thread_id)}


def assert_no_forks(client: Client, thread_id: str) -> None:
    """Assert that each checkpoint has the checkpoint before it as its parent."""
    points = checkpoints(client, thread_id)
    assert [point.parent_checkpoint_id for point in points[1:]] == [
        point.checkpoint_id for point in points[:-1]
    ]
