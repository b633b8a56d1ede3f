"""`Client` and `AsyncClient` work with a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.unit.client.faces import Face
from tuskpoint import (
    AlreadyExists,
    AsyncClient,
    Client,
    InvalidRequest,
    NotFound,
    PreconditionFailed,
)
from tuskpoint_server.api.server.server import Server
from tuskpoint_server.commands import serve
from tuskpoint_server.config.settings import Config

Work = Callable[[Client], Any]


@pytest.fixture
def target(server: Server) -> str:
    return f"127.0.0.1:{server.port}"


@pytest.fixture
async def client(target: str) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(target) as made:
        yield made


async def blocking(target: str, work: Work) -> Any:
    """Run code of the blocking client in a thread, while this loop serves it."""

    def run() -> Any:
        with Client(target) as made:
            return work(made)

    return await asyncio.to_thread(run)


async def test_a_state_comes_back_as_it_was_saved(client: AsyncClient) -> None:
    state = {"plan": ["search", {"depth": 3}], "count": 2**70, "none": None, "text": "ÿ\u0000🜁"}
    first = await client.save(
        "t",
        state,
        metadata={"source": "loop", "step": 1},
        summary="Planned.",
        label="plan",
        agent_id="planner",
    )
    record = await client.load("t")
    assert record.state == state
    assert (record.thread_id, record.checkpoint_ns, record.checkpoint_id) == ("t", "", first)
    assert record.parent_checkpoint_id == ""
    assert record.metadata == {"source": "loop", "step": 1}
    assert (record.summary, record.label) == ("Planned.", "plan")
    assert (record.durability, record.seq, record.location) == ("journaled", 1, None)
    assert record.created is not None
    assert abs(record.created - datetime.now(UTC)) < timedelta(hours=1)
    assert [channel.version for channel in record.channels.values()] == [1] * 4
    assert record.writes == ()


async def test_records_carry_the_agent_of_their_thread(client: AsyncClient) -> None:
    await client.save("t", {"n": 1}, agent_id="planner")
    await client.save("nobody", {"n": 1})
    fork = await client.fork("t")
    await client.flush()
    listed = {record.thread_id: record.agent_id async for record in client.list()}
    assert listed == {"t": "planner", fork.new_thread_id: "planner", "nobody": ""}
    for view in ("entry", "full", "json"):
        assert (await client.load("t", view=view)).agent_id == "planner"
        assert (await client.load("t", source="blob", view=view)).agent_id == "planner"
    await client.save("t", {"n": 2}, agent_id="writer")
    assert [checkpoint.agent_id async for checkpoint in client.history("t")] == ["writer", "writer"]


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_checkpoint_is_found_without_its_thread(target: str, kind: str) -> None:
    face = Face(kind, target)
    first = await face.call("save", "t", {"n": 1})
    await face.call("save", "t", {"n": 2})
    inner = await face.call("save", "other", {"n": 3}, checkpoint_ns="sub")
    for view in ("full", "json"):
        record = await face.call("load", checkpoint_id=first, view=view)
        assert (record.thread_id, record.state) == ("t", {"n": 1})
    loaded = await face.call("load", checkpoint_id=inner)
    assert (loaded.thread_id, loaded.checkpoint_ns) == ("other", "sub")
    with pytest.raises(NotFound, match="checkpoint 'missing' not found in any thread") as absent:
        await face.call("load", checkpoint_id="missing")
    assert absent.value.reason == "CHECKPOINT_NOT_FOUND"
    with pytest.raises(NotFound, match=inner):
        await face.call("load", checkpoint_id=inner, checkpoint_ns="elsewhere")
    await face.aclose()


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_checkpoint_of_several_threads_needs_the_thread(target: str, kind: str) -> None:
    face = Face(kind, target)
    first = await face.call("save", "t", {"n": 1})
    await face.call("copy", "t", "copied")
    with pytest.raises(InvalidRequest, match=f"'{first}' is in .*name one of these") as several:
        await face.call("load", checkpoint_id=first)
    assert "'t'" in several.value.message
    assert "'copied'" in several.value.message
    assert several.value.violations[0][0] == "thread_id"
    assert (await face.call("load", "copied", first)).state == {"n": 1}
    for number in range(9):
        await face.call("copy", "t", f"copy-{number}")
    with pytest.raises(InvalidRequest, match=r"(, '[^']+'){4}, \.\.\.: name one"):
        await face.call("load", checkpoint_id=first)
    await face.aclose()


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_load_names_a_thread_or_a_checkpoint(target: str, kind: str) -> None:
    face = Face(kind, target)
    for arguments in ({}, {"checkpoint_id": ""}, {"checkpoint_ns": "sub"}):
        with pytest.raises(InvalidRequest, match="pass a thread_id, a checkpoint_id, or both"):
            await face.call("load", **arguments)
    await face.aclose()


async def test_each_save_follows_the_last(client: AsyncClient) -> None:
    ids = [await client.save("t", {"step": n, "same": "x" * 100}) for n in range(5)]
    assert ids == sorted(ids)
    assert [record.checkpoint_id async for record in client.list("t")] == ids[::-1]
    history = [checkpoint async for checkpoint in client.history("t", full=True)]
    assert [checkpoint.checkpoint_id for checkpoint in history] == ids
    assert [checkpoint.parent_checkpoint_id for checkpoint in history] == ["", *ids[:-1]]
    assert [checkpoint.state for checkpoint in history] == [
        {"step": n, "same": "x" * 100} for n in range(5)
    ]
    assert [checkpoint.channels["step"].version for checkpoint in history] == [1, 2, 3, 4, 5]
    assert {checkpoint.channels["same"].version for checkpoint in history} == {1}
    entries = [checkpoint async for checkpoint in client.history("t")]
    assert [entry.checkpoint_id for entry in entries] == ids
    assert all(entry.channels == {} for entry in entries)


async def test_callers_that_save_at_once_are_all_saved_in_one_line(target: str) -> None:
    """Each save follows the latest checkpoint, whatever its client knows and its clock says."""
    many = 64
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(AsyncClient(target)) for _ in range(8)]
        saves = (clients[n % 8].save("t", {"n": n, "same": 0}) for n in range(many))
        saved = await asyncio.gather(*saves)
        # A client that knows an older state of the thread continues without a conflict too.
        last = await clients[0].save("t", {"n": many, "same": 0})
        history = [record async for record in clients[0].list("t", view="full")][::-1]
    ids = [checkpoint.checkpoint_id for checkpoint in history]
    assert sorted([*saved, last]) == ids
    assert [checkpoint.parent_checkpoint_id for checkpoint in history] == ["", *ids[:-1]]
    assert [checkpoint.channels["n"].version for checkpoint in history] == list(range(1, many + 2))
    assert {checkpoint.channels["same"].version for checkpoint in history} == {1}


async def test_a_certified_save_names_its_location_and_loads_from_it(
    client: AsyncClient,
) -> None:
    saved = await client.save("t", {"a": [1, 2]}, durability="certified")
    record = await client.load("t", saved, source="blob")
    assert record.state == {"a": [1, 2]}
    assert record.durability == "certified"
    assert record.location is not None
    assert len(record.location.sha256) == 64
    assert record.location.size > 0
    (entry,) = [record async for record in client.manifest("t")]
    assert (entry.checkpoint_id, entry.segment) == (saved, record.location)
    assert await client.store_manifest("t") is not None
    later = await client.save("t", {"a": 3})
    with pytest.raises(PreconditionFailed):
        await client.load("t", later, source="blob")
    assert await client.flush() == 1
    assert (await client.load("t", later, source="blob")).state == {"a": 3}
    status = await client.status()
    assert (status.backlog_checkpoints, status.last_error) == (0, "")
    assert status.catalog is not None


async def test_threads_are_copied_listed_labelled_and_pruned(client: AsyncClient) -> None:
    ids = [await client.save("a", {"n": n}, metadata={"run_id": f"r{n}"}) for n in range(3)]
    assert await client.copy("a", "b") == 3
    with pytest.raises(AlreadyExists):
        await client.copy("a", "b")
    with pytest.raises(NotFound):
        await client.copy("nothing", "c")
    assert await client.label("b", "final") == ids[2]
    assert [thread.thread_id async for thread in client.threads()] == ["a", "b"]
    assert [thread.thread_id async for thread in client.threads(label="final")] == ["b"]
    latest = [thread async for thread in client.threads(latest_first=True)]
    assert [thread.thread_id for thread in latest] == ["b", "a"]
    changed = latest[0].updated
    assert [thread.thread_id async for thread in client.threads(changed_after=changed)] == ["b"]
    assert [thread.thread_id async for thread in client.threads(changed_before=changed)] == ["a"]
    assert [record.label async for record in client.list("b", label="final")] == ["final"]
    records = [record async for record in client.list(metadata={"run_id": "r1"}, full=True)]
    assert sorted((record.thread_id, record.state["n"]) for record in records) == [
        ("a", 1),
        ("b", 1),
    ]
    assert await client.delete_runs(["r0"]) == 2
    assert await client.prune("b") == 1
    assert [record.checkpoint_id async for record in client.list("b")] == [ids[2]]
    assert await client.prune(["a", "b", "nothing"], keep="nothing") == 3
    assert [record async for record in client.list()] == []


async def test_the_blocking_client_does_the_same(target: str) -> None:
    def work(client: Client) -> None:
        first = client.save("t", {"a": 1}, metadata={"run_id": "r"})
        second = client.save("t", {"a": 2})
        assert client.load("t").state == {"a": 2}
        assert client.load("t", first).state == {"a": 1}
        assert [record.checkpoint_id for record in client.list("t")] == [second, first]
        assert [checkpoint.state for checkpoint in client.history("t", full=True)] == [
            {"a": 1},
            {"a": 2},
        ]
        assert [record.checkpoint_id for record in client.list("t", before=second, limit=5)] == [
            first
        ]
        assert list(client.list("t", limit=0)) == []
        assert client.label("t", "x", checkpoint_id=first) == first
        assert client.thread("t").checkpoint_count == 2
        assert [thread.thread_id for thread in client.threads(state="idle")] == ["t"]
        assert client.copy("t", "u") == 2
        assert client.store_manifest("t") is None
        assert client.flush() == 4
        assert [record.checkpoint_id for record in client.manifest("t")] == [first, second]
        stored = client.store_manifest("t")
        assert stored is not None
        assert client.store_manifest("t") == stored
        assert client.status().certified_checkpoints >= 4
        assert client.prune("u") == 1
        assert client.delete_runs("r") == 1
        assert client.delete("t") == 1
        info = client.info()
        assert info.limits["max_value_bytes"] == 128 * 1024 * 1024
        assert "tuskpoint.v1.CheckpointService/SaveCheckpoint" in info.methods
        with pytest.raises(NotFound, match="list"):
            client.load("t")

    await blocking(target, work)


async def test_calls_wait_while_the_server_restarts(config: Config) -> None:
    async with serve.running_server(config) as server:
        target = f"127.0.0.1:{server.port}"
        client = AsyncClient(target)
        first = await client.save("t", {"a": 1})
    saving = asyncio.create_task(client.save("t", {"a": 2}))
    loading = asyncio.create_task(
        blocking(target, lambda blocking_client: blocking_client.load("t", first))
    )
    async with serve.running_server(config.model_copy(update={"listen": target})), client:
        second = await saving
        assert (await loading).state == {"a": 1}
        assert [record.checkpoint_id async for record in client.list("t")] == [second, first]
