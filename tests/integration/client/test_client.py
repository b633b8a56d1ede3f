"""`Client` and `AsyncClient` against a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tuskpoint import (
    AlreadyExists,
    AsyncClient,
    CheckpointRecord,
    Client,
    Conflict,
    InvalidRequest,
    NotFound,
    PreconditionFailed,
    UnreadableValue,
)
from tuskpoint._async.calls import AsyncCalls
from tuskpoint._sync.calls import SyncCalls
from tuskpoint._transport.settings.options import Options
from tuskpoint.v1.checkpoint_pb2 import Checkpoint, CheckpointRef, CheckpointState
from tuskpoint.v1.checkpoint_service_pb2 import (
    GetDeltaHistoryRequest,
    SaveCheckpointRequest,
    SaveWritesRequest,
)
from tuskpoint.v1.value_pb2 import Channel, PendingWrite, Value, Version
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


async def test_a_checkpoint_is_found_by_its_id_alone(client: AsyncClient) -> None:
    first = await client.save("t", {"n": 1})
    await client.save("t", {"n": 2})
    await client.fork("t", first, "fork")

    async def having(*arguments: Any, **named: Any) -> list[tuple[str, str]]:
        listed = client.list(*arguments, **named)
        return [(one.thread_id, one.checkpoint_id) async for one in listed]

    assert await having(checkpoint_id=first) == [("fork", first), ("t", first)]
    assert await having("t", checkpoint_id=first) == [("t", first)]
    assert await having(checkpoint_id=first[:-1]) == []


async def test_records_carry_the_agent_of_their_thread(client: AsyncClient) -> None:
    await client.save("t", {"n": 1}, agent_id="planner")
    await client.save("nobody", {"n": 1})
    fork = await client.fork("t")
    await client.flush()
    listed = {one.thread_id: one.agent_id async for one in client.list()}
    assert listed == {"t": "planner", fork.new_thread_id: "planner", "nobody": ""}
    for view in ("entry", "full", "json"):
        assert (await client.load("t", view=view)).agent_id == "planner"
        assert (await client.load("t", source="blob", view=view)).agent_id == "planner"
    await client.save("t", {"n": 2}, agent_id="writer")
    assert [one.agent_id async for one in client.history("t")] == ["writer", "writer"]


async def test_each_save_follows_the_last(client: AsyncClient) -> None:
    ids = [await client.save("t", {"step": n, "same": "x" * 100}) for n in range(5)]
    assert ids == sorted(ids)
    assert [one.checkpoint_id async for one in client.list("t")] == ids[::-1]
    history = [one async for one in client.history("t", full=True)]
    assert [one.checkpoint_id for one in history] == ids
    assert [one.parent_checkpoint_id for one in history] == ["", *ids[:-1]]
    assert [one.state for one in history] == [{"step": n, "same": "x" * 100} for n in range(5)]
    assert [one.channels["step"].version for one in history] == [1, 2, 3, 4, 5]
    assert {one.channels["same"].version for one in history} == {1}
    entries = [one async for one in client.history("t")]
    assert [one.checkpoint_id for one in entries] == ids
    assert all(one.channels == {} for one in entries)


async def test_two_clients_on_one_thread_make_one_line(target: str) -> None:
    async with AsyncClient(target) as mine, AsyncClient(target) as theirs:
        for number in range(3):
            await mine.save("t", {"mine": number})
            await theirs.save("t", {"theirs": number})
        history = [one async for one in mine.history("t")]
    assert len(history) == 6
    assert [one.parent_checkpoint_id for one in history] == [
        "",
        *[one.checkpoint_id for one in history[:-1]],
    ]


async def test_callers_that_save_at_once_are_all_saved_in_one_line(target: str) -> None:
    """Each follows the latest, whatever it knows of the thread and whatever its clock says."""
    many = 64
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(AsyncClient(target)) for _ in range(8)]
        saves = (clients[n % 8].save("t", {"n": n, "same": 0}) for n in range(many))
        saved = await asyncio.gather(*saves)
        # A client that knows the thread from before goes on without a conflict as well.
        last = await clients[0].save("t", {"n": many, "same": 0})
        history = [one async for one in clients[0].list("t", view="full")][::-1]
    ids = [one.checkpoint_id for one in history]
    assert sorted([*saved, last]) == ids
    assert [one.parent_checkpoint_id for one in history] == ["", *ids[:-1]]
    assert [one.channels["n"].version for one in history] == list(range(1, many + 2))
    assert {one.channels["same"].version for one in history} == {1}


async def test_an_expected_head_that_moved_is_a_conflict(client: AsyncClient) -> None:
    first = await client.save("t", {"a": 1}, expected_head="")
    await client.save("t", {"a": 2}, expected_head=first)
    with pytest.raises(Conflict) as caught:
        await client.save("t", {"a": 3}, expected_head=first)
    assert caught.value.reason == "HEAD_MOVED"


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
    (entry,) = [one async for one in client.manifest("t")]
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


async def test_a_thread_is_deleted_and_begins_again(client: AsyncClient, target: str) -> None:
    async with AsyncClient(target) as other:
        await client.save("t", {"a": 1})
        await client.save("t", {"a": 2})
        assert await other.delete("t") == 2
        assert await other.delete("t") == 0
        with pytest.raises(NotFound):
            await client.load("t")
        assert [one async for one in client.list("t")] == []
        again = await client.save("t", {"a": 3})
    record = await client.load("t")
    assert (record.checkpoint_id, record.parent_checkpoint_id) == (again, "")
    assert (await client.thread("t")).incarnation == 2


async def test_threads_are_copied_listed_labelled_and_pruned(client: AsyncClient) -> None:
    ids = [await client.save("a", {"n": n}, metadata={"run_id": f"r{n}"}) for n in range(3)]
    assert await client.copy("a", "b") == 3
    with pytest.raises(AlreadyExists):
        await client.copy("a", "b")
    with pytest.raises(NotFound):
        await client.copy("nothing", "c")
    assert await client.label("b", "final") == ids[2]
    assert [one.thread_id async for one in client.threads()] == ["a", "b"]
    assert [one.thread_id async for one in client.threads(label="final")] == ["b"]
    latest = [one async for one in client.threads(latest_first=True)]
    assert [one.thread_id for one in latest] == ["b", "a"]
    changed = latest[0].updated
    assert [one.thread_id async for one in client.threads(changed_after=changed)] == ["b"]
    assert [one.thread_id async for one in client.threads(changed_before=changed)] == ["a"]
    assert [one.label async for one in client.list("b", label="final")] == ["final"]
    found = [one async for one in client.list(metadata={"run_id": "r1"}, full=True)]
    assert sorted((one.thread_id, one.state["n"]) for one in found) == [("a", 1), ("b", 1)]
    assert await client.delete_runs(["r0"]) == 2
    assert await client.prune("b") == 1
    assert [one.checkpoint_id async for one in client.list("b")] == [ids[2]]
    assert await client.prune(["a", "b", "nothing"], keep="nothing") == 3
    assert [one async for one in client.list()] == []


async def test_the_blocking_client_does_the_same(target: str) -> None:
    def work(client: Client) -> None:
        first = client.save("t", {"a": 1}, metadata={"run_id": "r"})
        second = client.save("t", {"a": 2})
        assert client.load("t").state == {"a": 2}
        assert client.load("t", first).state == {"a": 1}
        assert [one.checkpoint_id for one in client.list("t")] == [second, first]
        assert [one.state for one in client.history("t", full=True)] == [{"a": 1}, {"a": 2}]
        assert [one.checkpoint_id for one in client.list("t", before=second, limit=5)] == [first]
        assert list(client.list("t", limit=0)) == []
        assert client.label("t", "x", checkpoint_id=first) == first
        assert client.thread("t").checkpoint_count == 2
        assert [one.thread_id for one in client.threads(state="idle")] == ["t"]
        assert client.copy("t", "u") == 2
        assert client.store_manifest("t") is None
        assert client.flush() == 4
        assert [one.checkpoint_id for one in client.manifest("t")] == [first, second]
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


async def test_a_value_of_any_size_goes_both_ways(client: AsyncClient, target: str) -> None:
    text = "0123456789abcdef" * (20 * 1024 * 1024 // 16)  # some messages, many chunks
    saved = await client.save("t", {"text": text, "small": 1})
    assert (await client.load("t")).state == {"text": text, "small": 1}
    found = [one async for one in client.list("t", full=True)]
    assert [one.state["text"] == text for one in found] == [True]
    await client.save("t", {"text": text, "small": 2})

    def work(blocking_client: Client) -> None:
        record: CheckpointRecord = blocking_client.load("t", saved)
        assert record.state == {"text": text, "small": 1}
        blocking_client.save("u", {"text": text})
        assert blocking_client.load("u").state == {"text": text}

    await blocking(target, work)


async def test_a_state_of_another_framework_is_not_guessed_at(target: str) -> None:
    calls = AsyncCalls(Options(target))
    value = Value(type="msgpack", data=b"\x81\xa1a\x01")
    channel = Channel(name="a", version=Version(text="1"), value=value)
    ref = CheckpointRef(thread_id="t", checkpoint_id="1")
    writes = [PendingWrite(task_id="x", channel="a", value=value)]
    await calls.save_checkpoint(
        SaveCheckpointRequest(
            checkpoint=Checkpoint(ref=ref, state=CheckpointState(channels=[channel])),
            writes=writes,
        )
    )
    await calls.aclose()
    async with AsyncClient(target) as client:
        record = await client.load("t")
    with pytest.raises(UnreadableValue, match="'a' is of type 'msgpack'"):
        _ = record.state
    assert (record.channels["a"].type, record.channels["a"].data) == ("msgpack", value.data)
    assert [(one.task_id, one.idx, one.data) for one in record.writes] == [("x", 0, value.data)]


async def test_large_writes_and_delta_histories_are_streamed(target: str) -> None:
    calls = AsyncCalls(Options(target))
    large = Value(type="bytes", data=b"w" * (3 << 20))
    root, leaf = (CheckpointRef(thread_id="t", checkpoint_id=one) for one in "12")
    channel = Channel(name="log", version=Version(integer=1), value=Value(type="b", data=b"seed"))
    state = CheckpointState(channels=[channel], delta_channels=["log"])
    await calls.save_checkpoint(SaveCheckpointRequest(checkpoint=Checkpoint(ref=root, state=state)))
    writes = [PendingWrite(task_id="x", channel="log", value=large)]
    await calls.save_writes(SaveWritesRequest(ref=root, writes=writes))
    await calls.save_checkpoint(
        SaveCheckpointRequest(
            checkpoint=Checkpoint(
                ref=leaf,
                parent_checkpoint_id="1",
                state=CheckpointState(delta_channels=["log"]),
            )
        )
    )
    request = GetDeltaHistoryRequest(ref=leaf, channels=["log"])
    (history,) = await calls.get_delta_history(request)
    await calls.aclose()
    assert history.seed.value.data == b"seed"
    assert [one.value for one in history.writes] == [large]

    def work() -> list[Value]:
        sync = SyncCalls(Options(target))
        (found,) = sync.get_delta_history(request)
        sync.close()
        return [one.value for one in found.writes]

    assert await asyncio.to_thread(work) == [large]


async def test_refusals_name_the_field(client: AsyncClient) -> None:
    with pytest.raises(InvalidRequest, match="thread_id") as caught:
        await client.save("", {"a": 1})
    assert caught.value.reason == "INVALID_FIELD"
    with pytest.raises(InvalidRequest, match="durability: it must be"):
        await client.save("t", {"a": 1}, durability="sometimes")  # type: ignore[arg-type]


async def test_calls_wait_while_the_server_restarts(config: Config) -> None:
    async with serve.running(config) as server:
        target = f"127.0.0.1:{server.port}"
        client = AsyncClient(target)
        first = await client.save("t", {"a": 1})
    saving = asyncio.create_task(client.save("t", {"a": 2}))
    loading = asyncio.create_task(blocking(target, lambda one: one.load("t", first)))
    async with serve.running(config.model_copy(update={"listen": target})), client:
        second = await saving
        assert (await loading).state == {"a": 1}
        assert [one.checkpoint_id async for one in client.list("t")] == [second, first]


async def test_a_guarded_save_whose_answer_was_lost_may_be_sent_again(target: str) -> None:
    calls = AsyncCalls(Options(target))
    one, two = (CheckpointRef(thread_id="t", checkpoint_id=number) for number in "12")
    state = CheckpointState()
    await calls.save_checkpoint(SaveCheckpointRequest(checkpoint=Checkpoint(ref=one, state=state)))
    guarded = SaveCheckpointRequest(
        checkpoint=Checkpoint(ref=two, parent_checkpoint_id="1", state=state), expected_head="1"
    )
    first = await calls.save_checkpoint(guarded)
    again = await calls.save_checkpoint(guarded)
    await calls.aclose()
    assert (first.seq, again.seq) == (2, 2)


async def test_threads_that_share_a_client_and_a_thread_make_one_line(target: str) -> None:
    with Client(target) as client:

        def save_some(name: str) -> list[str]:
            return [client.save("t", {name: number}) for number in range(5)]

        saved = await asyncio.gather(*(asyncio.to_thread(save_some, name) for name in "abcd"))
        history = await asyncio.to_thread(lambda: list(client.history("t")))
    assert {one.checkpoint_id for one in history} == {one for ids in saved for one in ids}
    parents = [one.parent_checkpoint_id for one in history]
    assert parents == ["", *[one.checkpoint_id for one in history[:-1]]]
