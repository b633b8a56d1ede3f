"""Saved checkpoints are loaded byte for byte, in the requested order and view."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import grpc
import pytest

from tests.kit.messages import (
    FIRST,
    SECOND,
    channel,
    collect,
    exchanged,
    frames,
    ref,
    refused,
    save_request,
    write,
)
from tuskpoint.v1 import admin_service_pb2, checkpoint_pb2, value_pb2
from tuskpoint.v1 import checkpoint_service_pb2 as pb

if TYPE_CHECKING:
    from tuskpoint.v1.admin_service_pb2_grpc import AdminServiceAsyncStub
    from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceAsyncStub

pytestmark = pytest.mark.usefixtures("database")

JOURNALED = checkpoint_pb2.DURABILITY_JOURNALED
CERTIFIED = checkpoint_pb2.DURABILITY_CERTIFIED


def get(checkpoint_id: str = FIRST, **fields: object) -> pb.GetCheckpointRequest:
    return pb.GetCheckpointRequest(ref=ref(checkpoint_id), **fields)  # type: ignore[arg-type]


async def test_a_checkpoint_comes_back_as_it_was_saved(
    checkpoints: CheckpointServiceAsyncStub,
) -> None:
    request = save_request(
        channels=[
            channel("text", b"\x00\xff", version=value_pb2.Version(text="0001.5")),
            channel("integer", b"", version=value_pb2.Version(integer=0)),
            channel("number", b"1", version=value_pb2.Version(number=1.0)),
            value_pb2.Channel(name="bare", value=value_pb2.Value(type="null")),
            channel("hollow", empty=value_pb2.Empty()),
        ],
        metadata=b'{ "step":1 ,"b":2, "a":[1.0]}',
        writes=[write("b"), write("a", name="__error__"), write("a"), write("a")],
        agent_id="planner",
    )
    checkpoint = request.checkpoint
    checkpoint.label, checkpoint.summary = "a label", "What happened."
    checkpoint.state.versions_seen["node"].channels["text"].text = "0001.4"
    checkpoint.state.updated_channels.names.append("text")
    checkpoint.state.delta_channels.append("integer")

    saved = await checkpoints.SaveCheckpoint(request)
    loaded = (await checkpoints.GetCheckpoint(get())).checkpoint

    assert (saved.durability, saved.seq, saved.incarnation) == (JOURNALED, 1, 1)
    assert loaded.seq == saved.seq
    assert loaded.metadata_json == checkpoint.metadata_json
    assert (loaded.label, loaded.summary) == ("a label", "What happened.")
    for sent, stored in zip(checkpoint.state.channels, loaded.state.channels, strict=True):
        assert (stored.name, stored.version) == (sent.name, sent.version)
        assert stored.WhichOneof("content") == sent.WhichOneof("content")
        assert stored.value == sent.value
        if sent.HasField("value"):
            content = sent.value.type.encode() + b"\0" + sent.value.data
            assert stored.digest == hashlib.sha256(content).digest()
    del loaded.state.channels[:]
    del checkpoint.state.channels[:]
    assert loaded.state == checkpoint.state
    assert [(each.task_id, each.idx) for each in loaded.writes] == [
        ("a", -1),
        ("a", 1),
        ("a", 2),
        ("b", 0),
    ]


async def test_absent_is_distinguished_from_empty(checkpoints: CheckpointServiceAsyncStub) -> None:
    request = save_request(channels=[value_pb2.Channel(name="a", empty=value_pb2.Empty())])
    await checkpoints.SaveCheckpoint(request)
    state = (await checkpoints.GetCheckpoint(get())).checkpoint.state
    assert not state.HasField("updated_channels")
    assert not state.channels[0].HasField("version")
    request.checkpoint.state.updated_channels.SetInParent()
    await checkpoints.SaveCheckpoint(request)
    state = (await checkpoints.GetCheckpoint(get())).checkpoint.state
    assert state.HasField("updated_channels")


async def test_a_state_without_anything_is_a_state(
    checkpoints: CheckpointServiceAsyncStub,
) -> None:
    request = save_request()
    request.checkpoint.state.Clear()
    request.checkpoint.state.SetInParent()
    await checkpoints.SaveCheckpoint(request)
    assert (await checkpoints.GetCheckpoint(get())).checkpoint.HasField("state")


async def test_the_entry_view_has_no_state(checkpoints: CheckpointServiceAsyncStub) -> None:
    await checkpoints.SaveCheckpoint(save_request(channels=[channel("a")], writes=[write()]))
    entry = (await checkpoints.GetCheckpoint(get(view=checkpoint_pb2.VIEW_ENTRY))).checkpoint
    assert not entry.HasField("state")
    assert not entry.writes
    assert entry.metadata_json == b'{"step": 1}'
    listed = await collect(
        checkpoints.ListCheckpoints(pb.ListCheckpointsRequest(view=checkpoint_pb2.VIEW_ENTRY))
    )
    assert listed == [entry]


@pytest.mark.parametrize("source", [checkpoint_pb2.SOURCE_ANY, checkpoint_pb2.SOURCE_BLOB])
async def test_a_certified_checkpoint_comes_from_either_source(
    checkpoints: CheckpointServiceAsyncStub, source: checkpoint_pb2.Source
) -> None:
    saved = await checkpoints.SaveCheckpoint(
        save_request(channels=[channel("a")], writes=[write()], durability=CERTIFIED)
    )
    assert saved.durability == CERTIFIED
    assert saved.catalog_blob_id
    loaded = (await checkpoints.GetCheckpoint(get(source=source))).checkpoint
    assert loaded.durability == CERTIFIED
    assert len(loaded.location.sha256) == 32
    assert loaded.state.channels[0].value.data == b"data"
    assert loaded.writes[0].value.data == b"written"
    listed = await collect(checkpoints.ListCheckpoints(pb.ListCheckpointsRequest(source=source)))
    assert listed == [loaded]


async def test_an_uncertified_checkpoint_does_not_come_from_the_blob_store(
    checkpoints: CheckpointServiceAsyncStub, admin: AdminServiceAsyncStub
) -> None:
    await checkpoints.SaveCheckpoint(save_request())
    blob = checkpoint_pb2.SOURCE_BLOB
    for call in (
        checkpoints.GetCheckpoint(get(source=blob)),
        checkpoints.LoadCheckpoint(pb.LoadCheckpointRequest(ref=ref(FIRST), source=blob)),
        checkpoints.ListCheckpoints(pb.ListCheckpointsRequest(source=blob)),
    ):
        answer = await refused(call)
        assert (answer.code, answer.reason) == (
            grpc.StatusCode.FAILED_PRECONDITION,
            "NOT_CERTIFIED",
        )
        assert answer.metadata["seq"] == "1"
    flushed = await admin.Flush(admin_service_pb2.FlushRequest())
    assert flushed.certified_checkpoints == 1
    await checkpoints.GetCheckpoint(get(source=blob))
    await checkpoints.SetLabel(pb.SetLabelRequest(ref=ref(FIRST), label="new"))
    assert (await refused(checkpoints.GetCheckpoint(get(source=blob)))).metadata == {
        "checkpoint_id": FIRST,
        "seq": "2",
    }


async def test_writes_are_certified_with_their_checkpoint_only(
    checkpoints: CheckpointServiceAsyncStub,
) -> None:
    request = pb.SaveWritesRequest(ref=ref(FIRST), writes=[write()], durability=CERTIFIED)
    answer = await refused(checkpoints.SaveWrites(request))
    assert answer.reason == "CHECKPOINT_MISSING"
    await checkpoints.SaveCheckpoint(save_request())
    loaded = (await checkpoints.GetCheckpoint(get())).checkpoint
    assert not loaded.writes, "refused writes are not stored"
    saved = await checkpoints.SaveWrites(request)
    assert (saved.durability, saved.seq) == (CERTIFIED, 2)


async def test_every_answer_names_the_number_of_its_change(
    checkpoints: CheckpointServiceAsyncStub,
) -> None:
    early = pb.SaveWritesRequest(ref=ref(FIRST), writes=[write()])
    for _ in range(2):  # a repeated save changes nothing
        answer = await checkpoints.SaveWrites(early)
        assert (answer.seq, answer.early) == (1, True)
    saved = await checkpoints.SaveCheckpoint(save_request())
    loaded = (await checkpoints.GetCheckpoint(get())).checkpoint
    assert loaded.seq == saved.seq == 2
    assert len(loaded.writes) == 1
    claimed = await checkpoints.SaveWrites(early)
    assert (claimed.seq, claimed.early) == (2, False)
    late = await checkpoints.SaveWrites(
        pb.SaveWritesRequest(ref=ref(FIRST), writes=[write("another")])
    )
    assert (late.seq, late.early) == (3, False)
    labelled = await checkpoints.SetLabel(pb.SetLabelRequest(ref=ref(FIRST), label="good"))
    assert labelled.seq == 4
    for writes, seq in (([], 4), ([write("another")], 4), ([write("third")], 5)):
        again = await checkpoints.SaveCheckpoint(save_request(writes=writes))
        assert again.seq == seq
    assert (await checkpoints.GetCheckpoint(get())).checkpoint.seq == 5


async def test_a_listing_is_newest_first_and_stops_at_its_limit(
    checkpoints: CheckpointServiceAsyncStub,
) -> None:
    ids = [f"{number:04}" for number in range(150)]
    for checkpoint_id in ids:
        await checkpoints.SaveCheckpoint(save_request(checkpoint_id))
    for limit, expected in ((None, 150), (0, 0), (1, 1), (64, 64), (65, 65), (1000, 150)):
        request = pb.ListCheckpointsRequest(view=checkpoint_pb2.VIEW_ENTRY)
        if limit is not None:
            request.limit = limit
        listed = await collect(checkpoints.ListCheckpoints(request))
        assert [each.ref.checkpoint_id for each in listed] == ids[::-1][:expected]


async def test_an_expected_head_guards_the_thread(
    checkpoints: CheckpointServiceAsyncStub,
) -> None:
    await checkpoints.SaveCheckpoint(save_request(FIRST, expected_head=""))
    answer = await refused(checkpoints.SaveCheckpoint(save_request(SECOND, expected_head="")))
    assert (answer.code, answer.reason) == (grpc.StatusCode.ABORTED, "HEAD_MOVED")
    assert answer.metadata["head"] == FIRST
    await checkpoints.SaveCheckpoint(save_request(SECOND, expected_head=FIRST))


async def test_values_that_are_not_stored_are_named(
    checkpoints: CheckpointServiceAsyncStub,
) -> None:
    request = save_request(
        channels=[channel("a", digest=bytes(32)), channel("b", inherit=value_pb2.Inherit())]
    )
    answer = await refused(checkpoints.SaveCheckpoint(request))
    assert (answer.code, answer.reason) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        "VALUES_MISSING",
    )
    assert answer.metadata["channels"] == '["a", "b"]'
    assert "PreconditionFailure" in answer.kinds


LARGE = 64 * 1024 * 1024 + 1


async def test_large_values_go_both_ways_byte_for_byte(
    checkpoints: CheckpointServiceAsyncStub,
) -> None:
    block = hashlib.sha256(b"seed").digest() * 32768
    large = (block * 65)[:LARGE]
    medium = block[: 300 * 1024]
    request = save_request(
        channels=[
            channel("large", large=value_pb2.LargeValue(type="bytes", size_bytes=LARGE)),
            channel("small"),
            channel("none", large=value_pb2.LargeValue(type="bytes", size_bytes=0)),
            channel("medium", large=value_pb2.LargeValue(type="m", size_bytes=len(medium))),
        ],
        writes=[write(large=value_pb2.LargeValue(type="w", size_bytes=len(medium)))],
    )
    answers = await exchanged(checkpoints, frames(1, request, [large, b"", medium, medium]))
    assert [answer.saved.seq for answer in answers] == [1]

    answer = await refused(checkpoints.GetCheckpoint(get()))
    assert (answer.code, answer.reason) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        "CHECKPOINT_TOO_LARGE",
    )
    for loaded in (
        await collect(checkpoints.LoadCheckpoint(pb.LoadCheckpointRequest(ref=ref(FIRST)))),
        await collect(checkpoints.ListCheckpoints(pb.ListCheckpointsRequest())),
    ):
        channels = {each.name: each.value for each in loaded[0].state.channels}
        assert channels["large"].data == large
        assert (channels["none"].type, channels["none"].data) == ("bytes", b"")
        assert (channels["medium"].type, channels["medium"].data) == ("m", medium)
        assert channels["small"].data == b"data"
        assert loaded[0].writes[0].value.data == medium


async def test_a_client_that_hangs_up_does_not_undo_its_saves(
    checkpoints: CheckpointServiceAsyncStub,
) -> None:
    stream = checkpoints.Exchange()
    for number in range(1, 21):
        frame = pb.Frame(id=number, save=save_request(f"{number:04}"))
        await stream.write(pb.ExchangeRequest(frames=[frame]))
    first = await stream.read()
    stream.cancel()
    assert isinstance(first, pb.ExchangeResponse)
    await checkpoints.SaveCheckpoint(save_request("9999"))
    listed = await collect(checkpoints.ListCheckpoints(pb.ListCheckpointsRequest()))
    stored = [each.ref.checkpoint_id for each in listed][:0:-1]
    assert stored == [f"{number:04}" for number in range(1, len(stored) + 1)], "without gaps"
    assert stored
