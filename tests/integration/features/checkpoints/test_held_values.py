"""A load leaves out exactly the values that its caller has."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from tests.integration.api.exchange.exchange_kit import reason_of
from tests.integration.archive.evictions import flush_and_evict
from tests.kit.messages import (
    FIRST,
    channel,
    collect,
    exchanged,
    incompressible,
    ref,
    refused,
    save_request,
    write,
)
from tuskpoint.v1 import checkpoint_pb2, thread_service_pb2, value_pb2
from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint.v1.admin_service_pb2_grpc import AdminServiceStub
from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from tuskpoint_server.commands import serve
from tuskpoint_server.config.settings import Config

if TYPE_CHECKING:
    from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceAsyncStub
    from tuskpoint.v1.thread_service_pb2_grpc import ThreadServiceAsyncStub

pytestmark = pytest.mark.usefixtures("database")

CERTIFIED = checkpoint_pb2.DURABILITY_CERTIFIED
MIB = 1024 * 1024
Load = Callable[..., Awaitable[checkpoint_pb2.Checkpoint]]
"""A load of the latest checkpoint of a thread."""


async def by_call(
    checkpoints: CheckpointServiceAsyncStub, held: Collection[bytes] = (), **fields: Any
) -> checkpoint_pb2.Checkpoint:
    request = pb.GetCheckpointRequest(ref=ref(), held_digests=held, **fields)
    return (await checkpoints.GetCheckpoint(request)).checkpoint


async def by_frame(
    checkpoints: CheckpointServiceAsyncStub, held: Collection[bytes] = (), **fields: Any
) -> checkpoint_pb2.Checkpoint:
    request = pb.GetCheckpointRequest(ref=ref(), held_digests=held, **fields)
    [answer] = await exchanged(checkpoints, [pb.Frame(id=1, get=request)])
    return answer.got.checkpoint


async def by_stream(
    checkpoints: CheckpointServiceAsyncStub, held: Collection[bytes] = (), **fields: Any
) -> checkpoint_pb2.Checkpoint:
    request = pb.LoadCheckpointRequest(ref=ref(), held_digests=held, **fields)
    [checkpoint] = await collect(checkpoints.LoadCheckpoint(request))
    return checkpoint


each_way = pytest.mark.parametrize("load", [by_call, by_frame, by_stream])


def holders(
    checkpoint: checkpoint_pb2.Checkpoint,
) -> list[value_pb2.Channel | value_pb2.PendingWrite]:
    return [*checkpoint.state.channels, *checkpoint.writes]


def left_out(checkpoint: checkpoint_pb2.Checkpoint) -> list[str]:
    """Return the names of values with a digest and without content."""
    names = []
    for holder in holders(checkpoint):
        if isinstance(holder, value_pb2.PendingWrite):
            name = f"{holder.task_id}:{holder.channel}"
        else:
            name = holder.name
        if holder.digest and holder.WhichOneof("content") is None:
            names.append(name)
    return names


def put_back(
    checkpoint: checkpoint_pb2.Checkpoint, whole: checkpoint_pb2.Checkpoint
) -> checkpoint_pb2.Checkpoint:
    """Fill the values that were left out with the values of the whole checkpoint."""
    values = {holder.digest: holder.value for holder in holders(whole) if holder.digest}
    for holder in holders(checkpoint):
        if holder.digest and holder.WhichOneof("content") is None:
            assert holder.size_bytes == len(values[holder.digest].data)
            holder.ClearField("size_bytes")
            holder.value.CopyFrom(values[holder.digest])
    return checkpoint


def digest_of(checkpoint: checkpoint_pb2.Checkpoint, name: str) -> bytes:
    """Return the digest of a channel, or of the first write to a name that is not a channel."""
    digests = {write.channel: write.digest for write in reversed(checkpoint.writes)}
    return (digests | {each.name: each.digest for each in checkpoint.state.channels})[name]


@pytest.fixture
async def saved(checkpoints: CheckpointServiceAsyncStub) -> checkpoint_pb2.Checkpoint:
    """A checkpoint with an empty channel, an empty value, and two equal writes."""
    request = save_request(
        channels=[
            channel("plain", b"plain"),
            channel("packed", b"compresses well " * 400),
            channel("nothing", b""),
            channel("hollow", empty=value_pb2.Empty()),
        ],
        writes=[
            write("a", "plain", value=value_pb2.Value(type="bytes", data=b"plain")),
            write("a", "own", value=value_pb2.Value(type="bytes", data=b"own " * 500)),
            write("b", "own", value=value_pb2.Value(type="bytes", data=b"own " * 500)),
            write("b", "other"),
        ],
    )
    await checkpoints.SaveCheckpoint(request)
    return await by_call(checkpoints)


@each_way
async def test_held_values_alone_are_left_out(
    checkpoints: CheckpointServiceAsyncStub, saved: checkpoint_pb2.Checkpoint, load: Load
) -> None:
    for names in (["plain"], ["packed", "nothing"], ["plain", "packed", "nothing"]):
        held = [digest_of(saved, name) for name in names]
        loaded = await load(checkpoints, held)
        expected = [*names, "a:plain"] if "plain" in names else names
        assert sorted(left_out(loaded)) == sorted(expected)
        assert put_back(loaded, saved) == saved


@each_way
async def test_held_values_of_writes_are_left_out(
    checkpoints: CheckpointServiceAsyncStub, saved: checkpoint_pb2.Checkpoint, load: Load
) -> None:
    [own] = {write.digest for write in saved.writes if write.channel == "own"}
    loaded = await load(checkpoints, [own])
    assert left_out(loaded) == ["a:own", "b:own"]
    assert put_back(loaded, saved) == saved
    everything = await load(checkpoints, {holder.digest for holder in holders(saved)} - {b""})
    assert len(left_out(everything)) == len(holders(saved)) - 1
    assert put_back(everything, saved) == saved


@each_way
async def test_other_digests_have_no_effect(
    checkpoints: CheckpointServiceAsyncStub, saved: checkpoint_pb2.Checkpoint, load: Load
) -> None:
    foreign = save_request(thread_id="other", channels=[channel("secret", b"secret")])
    await checkpoints.SaveCheckpoint(foreign)
    request = pb.GetCheckpointRequest(ref=ref(thread_id="other"))
    secret = (await checkpoints.GetCheckpoint(request)).checkpoint.state.channels[0].digest
    assert await load(checkpoints, [secret, bytes(32), bytes(32)]) == saved


@each_way
async def test_views_and_reads_of_the_blob_store_leave_nothing_out(
    checkpoints: CheckpointServiceAsyncStub, saved: checkpoint_pb2.Checkpoint, load: Load
) -> None:
    held = {holder.digest for holder in holders(saved)} - {b""}
    for view in (checkpoint_pb2.VIEW_JSON, checkpoint_pb2.VIEW_ENTRY):
        assert await load(checkpoints, held, view=view) == await load(checkpoints, view=view)
    await checkpoints.SetLabel(pb.SetLabelRequest(ref=ref(), label="l", durability=CERTIFIED))
    from_blobs = await load(checkpoints, held, source=checkpoint_pb2.SOURCE_BLOB)
    assert left_out(from_blobs) == []


@each_way
async def test_all_but_the_held_values_is_as_the_last_change_left_it(
    checkpoints: CheckpointServiceAsyncStub,
    threads: ThreadServiceAsyncStub,
    saved: checkpoint_pb2.Checkpoint,
    load: Load,
) -> None:
    held = {holder.digest for holder in holders(saved)} - {b""}
    await checkpoints.SetLabel(pb.SetLabelRequest(ref=ref(), label="labelled"))
    late = pb.SaveWritesRequest(ref=ref(FIRST), writes=[write("late", "own")])
    await checkpoints.SaveWrites(late)
    labelled = await load(checkpoints, held)
    whole = await load(checkpoints)
    assert (labelled.label, labelled.seq) == ("labelled", 3)
    assert [write.task_id for write in labelled.writes] == ["a", "a", "b", "b", "late"]
    assert put_back(labelled, whole) == whole
    await threads.DeleteThread(thread_service_pb2.DeleteThreadRequest(thread_id=ref().thread_id))
    try:
        loaded = await load(checkpoints, held)
    except grpc.aio.AioRpcError as error:
        code = error.code()
    else:
        assert loaded == checkpoint_pb2.Checkpoint()  # the frame was answered with an error
        code = grpc.StatusCode.NOT_FOUND
    assert code is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize(
    ("digests", "field"),
    [
        ([bytes(31)], "held_digests[0]"),
        ([bytes(32), b""], "held_digests[1]"),
        ([bytes(33)], "held_digests[0]"),
        ([bytes(32)] * 257, "held_digests"),
    ],
    ids=["short", "empty", "long", "many"],
)
async def test_what_is_no_digest_is_refused(
    checkpoints: CheckpointServiceAsyncStub, digests: list[bytes], field: str
) -> None:
    get = pb.GetCheckpointRequest(ref=ref(), held_digests=digests)
    load = pb.LoadCheckpointRequest(ref=ref(), held_digests=digests)
    for call in (checkpoints.GetCheckpoint(get), checkpoints.LoadCheckpoint(load)):
        error = await refused(call)
        assert (error.code, error.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD")
        assert error.fields == (field,)
    [answer] = await exchanged(checkpoints, [pb.Frame(id=1, get=get)])
    assert reason_of(answer) == "INVALID_FIELD"


async def test_as_many_digests_as_allowed_are_taken(
    checkpoints: CheckpointServiceAsyncStub, saved: checkpoint_pb2.Checkpoint
) -> None:
    others = [number.to_bytes(32, "big") for number in range(255)]
    loaded = await by_call(checkpoints, [*others, digest_of(saved, "packed")])
    assert left_out(loaded) == ["packed"]


async def test_loads_of_one_checkpoint_in_one_message_each_leave_out_what_they_name(
    checkpoints: CheckpointServiceAsyncStub, saved: checkpoint_pb2.Checkpoint
) -> None:
    names: list[list[str]] = [[], ["packed"], ["own", "plain"], ["other"]]
    gets = [
        pb.GetCheckpointRequest(ref=ref(), held_digests=[digest_of(saved, name) for name in held])
        for held in names
    ]
    requests = [pb.Frame(id=number, get=get) for number, get in enumerate(gets, 1)]
    call = checkpoints.Exchange(iter([pb.ExchangeRequest(frames=requests)]))
    answers = {answer.id: answer async for each in call for answer in each.answers}
    assert [left_out(answers[number].got.checkpoint) for number in range(1, 5)] == [
        [],
        ["packed"],
        ["plain", "a:plain", "a:own", "b:own"],
        ["b:other"],
    ]
    for answer in answers.values():
        assert put_back(answer.got.checkpoint, saved) == saved


async def save_large(checkpoints: CheckpointServiceAsyncStub, count: int) -> None:
    """Save a line of checkpoints, each with one more value of 3 MiB."""
    for number in range(count):
        channels = [channel(f"c{each}", inherit=value_pb2.Inherit()) for each in range(number)]
        channels.append(channel(f"c{number}", incompressible(3 * MIB, str(number))))
        parent = f"{number - 1}" if number else ""
        await checkpoints.SaveCheckpoint(save_request(f"{number}", channels, parent=parent))


async def test_a_large_checkpoint_of_which_one_value_is_missing_is_one_message(
    checkpoints: CheckpointServiceAsyncStub,
) -> None:
    await save_large(checkpoints, 8)
    error = await refused(checkpoints.GetCheckpoint(pb.GetCheckpointRequest(ref=ref())))
    assert error.reason == "CHECKPOINT_TOO_LARGE"
    saved = await by_stream(checkpoints)
    held = {digest_of(saved, f"c{number}") for number in range(7)}
    for load in (by_call, by_frame):
        loaded = await load(checkpoints, held)
        assert left_out(loaded) == [f"c{number}" for number in range(7)]
        assert put_back(loaded, saved) == saved
        small = await load(checkpoints, {*held, digest_of(saved, "c7")})
        assert small.ByteSize() < 2000
    call = checkpoints.LoadCheckpoint(pb.LoadCheckpointRequest(ref=ref(), held_digests=held))
    frames = [frame async for frame in call]
    assert sum(frame.ByteSize() for frame in frames) < 3 * MIB + 2000


async def test_a_held_value_is_not_fetched_from_the_blob_store(config: Config) -> None:
    settings = {"journal_bytes": 0, "eviction_grace": 0.0, "cache_bytes": 0}
    async with (
        serve.running_server(config.model_copy(update=settings)) as server,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as connected,
    ):
        checkpoints, admin = CheckpointServiceStub(connected), AdminServiceStub(connected)
        channels = [channel("evicted", incompressible(MIB)), channel("small", b"small")]
        written = value_pb2.Value(type="bytes", data=incompressible(MIB, "written"))
        first = save_request(FIRST, channels, writes=[write("a", "evicted", value=written)])
        await checkpoints.SaveCheckpoint(first)
        load = pb.GetCheckpointRequest(ref=ref(FIRST))
        saved = (await checkpoints.GetCheckpoint(load)).checkpoint
        await checkpoints.SaveCheckpoint(save_request("2", [channel("new")], parent=FIRST))
        await flush_and_evict(admin, 2 * MIB)
        shutil.rmtree(config.data_dir / "blobs")
        unavailable = await refused(checkpoints.GetCheckpoint(load))
        assert unavailable.reason in ("BLOB_UNAVAILABLE", "BLOB_NOT_FOUND")
        load.held_digests.extend({holder.digest for holder in holders(saved)})
        loaded = (await checkpoints.GetCheckpoint(load)).checkpoint
        assert left_out(loaded) == ["evicted", "small", "a:evicted"]
        assert (loaded.durability, loaded.seq) == (CERTIFIED, saved.seq)
        assert loaded.location.sha256
