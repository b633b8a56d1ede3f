"""Every bad input gets a status, reason and field; nothing is stored, and service continues."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from tests.kit.messages import FIRST, channel, collect, ref, refused, save_request, write
from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint.v1 import thread_service_pb2 as tpb
from tuskpoint.v1 import value_pb2

if TYPE_CHECKING:
    from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceAsyncStub
    from tuskpoint.v1.thread_service_pb2_grpc import ThreadServiceAsyncStub

UNKNOWN: Any = 9  # not a value of any enum of the contract
INVALID = grpc.StatusCode.INVALID_ARGUMENT
VALUE = value_pb2.Value(type="t")
LARGE = value_pb2.LargeValue(type="t", size_bytes=1)
TEXT = value_pb2.Version(text="1")


def version(**kind: Any) -> value_pb2.Channel:
    return value_pb2.Channel(name="a", value=VALUE, version=value_pb2.Version(**kind))


def with_checkpoint(**fields: Any) -> pb.SaveCheckpointRequest:
    request = save_request()
    for name, value in fields.items():
        setattr(request.checkpoint, name, value)
    return request


def with_state(**fields: Any) -> pb.SaveCheckpointRequest:
    request = save_request()
    for name, value in fields.items():
        if isinstance(value, list):
            getattr(request.checkpoint.state, name).extend(value)
        else:
            setattr(request.checkpoint.state, name, value)
    return request


def seen(version: value_pb2.Version) -> pb.SaveCheckpointRequest:
    request = save_request()
    request.checkpoint.state.versions_seen["n"].channels["c"].CopyFrom(version)
    return request


def without_state() -> pb.SaveCheckpointRequest:
    request = save_request()
    request.checkpoint.ClearField("state")
    return request


def saving(channels: list[value_pb2.Channel]) -> pb.SaveCheckpointRequest:
    return save_request(channels=channels)


def writing(*writes: value_pb2.PendingWrite, **fields: Any) -> pb.SaveWritesRequest:
    fields.setdefault("ref", ref(FIRST))
    return pb.SaveWritesRequest(writes=writes, **fields)


LONG = "é" * 257  # 514 bytes

SAVES: list[tuple[pb.SaveCheckpointRequest, str]] = [
    (pb.SaveCheckpointRequest(), "checkpoint.ref.thread_id"),
    (save_request(thread_id=""), "checkpoint.ref.thread_id"),
    (save_request(thread_id=LONG), "checkpoint.ref.thread_id"),
    (save_request(thread_id="a\0b"), "checkpoint.ref.thread_id"),
    (save_request("x" * 129), "checkpoint.ref.checkpoint_id"),
    (save_request("\0"), "checkpoint.ref.checkpoint_id"),
    (save_request(parent="x" * 129), "checkpoint.parent_checkpoint_id"),
    (save_request(parent="a\0"), "checkpoint.parent_checkpoint_id"),
    (with_checkpoint(label="x" * 257), "checkpoint.label"),
    (with_checkpoint(label="\0"), "checkpoint.label"),
    (with_checkpoint(summary="x" * 1025), "checkpoint.summary"),
    (with_checkpoint(summary="\0"), "checkpoint.summary"),
    (with_checkpoint(metadata_json=b'"' + b"x" * 1024 * 1024 + b'"'), "checkpoint.metadata_json"),
    (without_state(), "checkpoint.state"),
    (with_state(ts="x" * 65), "checkpoint.state.ts"),
    (with_state(delta_channels=[""]), "checkpoint.state.delta_channels[0]"),
    (with_state(delta_channels=["a", "\0"]), "checkpoint.state.delta_channels[1]"),
    (seen(value_pb2.Version()), 'checkpoint.state.versions_seen["n"].channels["c"]'),
    (
        seen(value_pb2.Version(number=math.inf)),
        'checkpoint.state.versions_seen["n"].channels["c"]',
    ),
    (save_request(agent_id="x" * 257), "agent_id"),
    (save_request(agent_id="\0"), "agent_id"),
    (save_request(expected_head="x" * 129), "expected_head"),
    (save_request(durability=UNKNOWN), "durability"),
    (saving([channel("")]), "checkpoint.state.channels[0].name"),
    (saving([channel("\0")]), "checkpoint.state.channels[0].name"),
    (saving([channel(LONG)]), "checkpoint.state.channels[0].name"),
    (saving([channel("a"), channel("a")]), "checkpoint.state.channels[1].name"),
    (saving([version()]), "checkpoint.state.channels[0].version"),
    (saving([version(number=math.nan)]), "checkpoint.state.channels[0].version"),
    (saving([version(number=-math.inf)]), "checkpoint.state.channels[0].version"),
    (saving([version(text="x" * 513)]), "checkpoint.state.channels[0].version"),
    (saving([version(text="\0")]), "checkpoint.state.channels[0].version"),
    (
        saving([value_pb2.Channel(name="a", version=TEXT)]),
        "checkpoint.state.channels[0].content",
    ),
    (saving([channel("a", digest=b"short")]), "checkpoint.state.channels[0].digest"),
    (
        saving([channel("a", digest=bytes(32), inherit=value_pb2.Inherit())]),
        "checkpoint.state.channels[0].digest",
    ),
    (saving([channel("a", value=value_pb2.Value())]), "checkpoint.state.channels[0].value.type"),
    (
        saving([channel("a", value=value_pb2.Value(type="x" * 129))]),
        "checkpoint.state.channels[0].value.type",
    ),
    (
        saving([channel("a", value=value_pb2.Value(type="\0"))]),
        "checkpoint.state.channels[0].value.type",
    ),
    (saving([channel("a", large=LARGE)]), "checkpoint.state.channels[0].large"),
    (
        saving([value_pb2.Channel(name=str(n), empty=value_pb2.Empty()) for n in range(4097)]),
        "checkpoint.state.channels",
    ),
    (save_request(writes=[write("")]), "writes[0].task_id"),
    (save_request(writes=[write(), write(name="")]), "writes[1].channel"),
    (save_request(writes=[write() for _ in range(4097)]), "writes"),
]

WRITES: list[tuple[pb.SaveWritesRequest, str]] = [
    (writing(write(), ref=ref("")), "ref.checkpoint_id"),
    (writing(write(), ref=ref(FIRST, "")), "ref.thread_id"),
    (writing(write(), ref=ref(FIRST, checkpoint_ns="x" * 2049)), "ref.checkpoint_ns"),
    (writing(), "writes"),
    (writing(*[write() for _ in range(4097)]), "writes"),
    (writing(write("")), "writes[0].task_id"),
    (writing(write("x" * 513)), "writes[0].task_id"),
    (writing(write("\0")), "writes[0].task_id"),
    (writing(write(task_path="x" * 2049)), "writes[0].task_path"),
    (writing(write(task_path="\0")), "writes[0].task_path"),
    (writing(write(name="")), "writes[0].channel"),
    (writing(write(name="\0")), "writes[0].channel"),
    (writing(value_pb2.PendingWrite(task_id="t", channel="c")), "writes[0].content"),
    (writing(write(value=value_pb2.Value())), "writes[0].value.type"),
    (writing(write(large=LARGE)), "writes[0].large"),
    (writing(write(), durability=3), "durability"),
]


async def assert_nothing_is_stored(checkpoints: CheckpointServiceAsyncStub) -> None:
    assert await collect(checkpoints.ListCheckpoints(pb.ListCheckpointsRequest())) == []
    await checkpoints.SaveCheckpoint(save_request())
    loaded = await checkpoints.GetCheckpoint(pb.GetCheckpointRequest(ref=ref(FIRST)))
    assert not loaded.checkpoint.writes


async def test_bad_saves_are_refused_and_not_stored(
    checkpoints: CheckpointServiceAsyncStub,
) -> None:
    for request, field in SAVES:
        answer = await refused(checkpoints.SaveCheckpoint(request))
        assert (answer.code, answer.reason) == (INVALID, "INVALID_FIELD"), field
        assert answer.fields[0] == field
        assert answer.metadata["field"] == field
    await assert_nothing_is_stored(checkpoints)


async def test_bad_writes_are_refused_and_not_stored(
    checkpoints: CheckpointServiceAsyncStub,
) -> None:
    for request, field in WRITES:
        answer = await refused(checkpoints.SaveWrites(request))
        assert (answer.code, answer.reason) == (INVALID, "INVALID_FIELD"), field
        assert answer.fields[0] == field
    await assert_nothing_is_stored(checkpoints)


NO_OBJECTS = [
    b"[]", b"1", b"null", b"{", b'{"a": NaN}', b'{"a": Infinity}', b"\xff", b'{"a":1}x',
    b'{"a":' * 100_000,
]  # fmt: skip


async def test_metadata_that_is_no_object_is_refused(
    checkpoints: CheckpointServiceAsyncStub,
) -> None:
    for metadata in NO_OBJECTS:
        answer = await refused(checkpoints.SaveCheckpoint(save_request(metadata=metadata)))
        assert (answer.code, answer.reason) == (INVALID, "METADATA_NOT_JSON"), metadata[:9]
        assert answer.fields == ("checkpoint.metadata_json",)
        listing = pb.ListCheckpointsRequest(filter_json=metadata)
        answer = await refused(checkpoints.ListCheckpoints(listing))
        assert (answer.code, answer.reason) == (INVALID, "METADATA_NOT_JSON"), metadata[:9]
        assert answer.fields == ("filter_json",)
    await assert_nothing_is_stored(checkpoints)


@pytest.mark.parametrize("run_id", [r"\u0000", r"\ud800", "x" * 600])
async def test_a_run_that_cannot_be_named_is_no_obstacle(
    checkpoints: CheckpointServiceAsyncStub, run_id: str
) -> None:
    metadata = f'{{"run_id": "{run_id}", "parents": {{"": "{run_id}"}}}}'.encode()
    await checkpoints.SaveCheckpoint(save_request(metadata=metadata))
    loaded = await checkpoints.GetCheckpoint(pb.GetCheckpointRequest(ref=ref(FIRST)))
    assert loaded.checkpoint.metadata_json == metadata


async def test_a_wrong_digest_is_reported_with_the_right_one(
    checkpoints: CheckpointServiceAsyncStub,
) -> None:
    request = save_request(channels=[channel("a", digest=b"\1" * 32)])
    request.checkpoint.state.channels[0].value.CopyFrom(value_pb2.Value(type="t", data=b"d"))
    answer = await refused(checkpoints.SaveCheckpoint(request))
    assert (answer.code, answer.reason) == (INVALID, "DIGEST_MISMATCH")
    assert answer.metadata["claimed"] == "01" * 32
    request.checkpoint.state.channels[0].digest = bytes.fromhex(answer.metadata["computed"])
    await checkpoints.SaveCheckpoint(request)


NO_SUCH = "CHECKPOINT_NOT_FOUND"


READS: list[tuple[Callable[[CheckpointServiceAsyncStub], Any], Any, str, str | None]] = [
    (lambda c: c.GetCheckpoint(pb.GetCheckpointRequest()), INVALID, "INVALID_FIELD",
     "ref.thread_id"),
    (lambda c: c.GetCheckpoint(pb.GetCheckpointRequest(ref=ref("\0"))), INVALID,
     "INVALID_FIELD", "ref.checkpoint_id"),
    (lambda c: c.GetCheckpoint(pb.GetCheckpointRequest(ref=ref(), view=UNKNOWN)), INVALID,
     "INVALID_FIELD", "view"),
    (lambda c: c.LoadCheckpoint(pb.LoadCheckpointRequest(ref=ref(), source=UNKNOWN)), INVALID,
     "INVALID_FIELD", "source"),
    (lambda c: c.ListCheckpoints(pb.ListCheckpointsRequest(thread_id="")), INVALID,
     "INVALID_FIELD", "thread_id"),
    (lambda c: c.ListCheckpoints(pb.ListCheckpointsRequest(before="\0")), INVALID,
     "INVALID_FIELD", "before"),
    (lambda c: c.ListCheckpoints(pb.ListCheckpointsRequest(label="x" * 257)), INVALID,
     "INVALID_FIELD", "label"),
    (lambda c: c.GetDeltaHistory(pb.GetDeltaHistoryRequest(ref=ref(), channels=[""])),
     INVALID, "INVALID_FIELD", "channels[0]"),
    (lambda c: c.SetLabel(pb.SetLabelRequest(ref=ref(), label="\0")), INVALID,
     "INVALID_FIELD", "label"),
    (lambda c: c.SetLabel(pb.SetLabelRequest(ref=ref(), label="a")),
     grpc.StatusCode.NOT_FOUND, NO_SUCH, None),
    (lambda c: c.GetCheckpoint(pb.GetCheckpointRequest(ref=ref())),
     grpc.StatusCode.NOT_FOUND, NO_SUCH, None),
    (lambda c: c.LoadCheckpoint(pb.LoadCheckpointRequest(ref=ref(FIRST))),
     grpc.StatusCode.NOT_FOUND, NO_SUCH, None),
]  # fmt: skip


async def test_bad_reads_are_refused(checkpoints: CheckpointServiceAsyncStub) -> None:
    for number, (call, code, reason, field) in enumerate(READS):
        answer = await refused(call(checkpoints))
        assert (answer.code, answer.reason) == (code, reason), number
        assert answer.fields == ((field,) if field else ()), number


CALLS: list[tuple[Callable[[ThreadServiceAsyncStub], Any], str]] = [
    (lambda t: t.GetThread(tpb.GetThreadRequest()), "thread_id"),
    (lambda t: t.ListThreads(tpb.ListThreadsRequest(page_size=-1)), "page_size"),
    (lambda t: t.ListThreads(tpb.ListThreadsRequest(state=UNKNOWN)), "state"),
    (lambda t: t.ListThreads(tpb.ListThreadsRequest(agent_id="\0")), "agent_id"),
    (lambda t: t.ListThreads(tpb.ListThreadsRequest(order=UNKNOWN)), "order"),
    (
        lambda t: t.ListThreads(tpb.ListThreadsRequest(changed_after=Timestamp(nanos=-1))),
        "changed_after",
    ),
    (
        lambda t: t.ListThreads(
            tpb.ListThreadsRequest(
                changed_after=Timestamp(seconds=1), changed_before=Timestamp(seconds=1)
            )
        ),
        "changed_before",
    ),
    (lambda t: t.DeleteThread(tpb.DeleteThreadRequest(thread_id="\0")), "thread_id"),
    (lambda t: t.DeleteThread(tpb.DeleteThreadRequest(thread_id="a", durability=UNKNOWN)),
     "durability"),
    (lambda t: t.CopyThread(tpb.CopyThreadRequest(source_thread_id="a")),
     "target_thread_id"),
    (lambda t: t.CopyThread(tpb.CopyThreadRequest(
        source_thread_id="a", target_thread_id="b", request_id="x" * 129)), "request_id"),
    (lambda t: t.PruneThreads(tpb.PruneThreadsRequest(thread_ids=["a"])), "strategy"),
    (lambda t: t.PruneThreads(tpb.PruneThreadsRequest(thread_ids=["a"], strategy=UNKNOWN)),
     "strategy"),
    (lambda t: t.PruneThreads(tpb.PruneThreadsRequest(
        thread_ids=["a", ""], strategy=tpb.PRUNE_STRATEGY_KEEP_LATEST)), "thread_ids[1]"),
    (lambda t: t.PruneThreads(tpb.PruneThreadsRequest(
        thread_ids=["a"] * 1001, strategy=tpb.PRUNE_STRATEGY_KEEP_LATEST)), "thread_ids"),
    (lambda t: t.DeleteRuns(tpb.DeleteRunsRequest(run_ids=[""])), "run_ids[0]"),
    (lambda t: t.DeleteRuns(tpb.DeleteRunsRequest(run_ids=["a"] * 1001)), "run_ids"),
    (lambda t: t.GetManifest(tpb.GetManifestRequest(thread_id="a", page_size=-1)),
     "page_size"),
]  # fmt: skip


async def test_bad_calls_on_threads_are_refused(threads: ThreadServiceAsyncStub) -> None:
    for number, (call, field) in enumerate(CALLS):
        answer = await refused(call(threads))
        assert (answer.code, answer.reason) == (INVALID, "INVALID_FIELD"), number
        assert answer.fields == (field,), number


async def test_every_violation_is_reported_at_once(checkpoints: CheckpointServiceAsyncStub) -> None:
    request = save_request(thread_id="", parent="\0", durability=UNKNOWN)
    answer = await refused(checkpoints.SaveCheckpoint(request))
    assert answer.fields == (
        "checkpoint.ref.thread_id",
        "checkpoint.parent_checkpoint_id",
        "durability",
    )


async def test_bytes_that_are_no_message_are_refused(grpc_channel: grpc.aio.Channel) -> None:
    call: Any = grpc_channel.unary_unary("/tuskpoint.v1.CheckpointService/SaveCheckpoint")
    answer = await refused(call(b"\xff\xff\xff"))
    assert (answer.code, answer.reason, answer.fields) == (
        INVALID,
        "INVALID_FIELD",
        ("request",),
    )


async def test_a_message_above_the_limit_is_refused_with_the_reason(
    checkpoints: CheckpointServiceAsyncStub,
) -> None:
    request = save_request(channels=[channel("a", bytes(8 * 1024 * 1024))])
    answer = await refused(checkpoints.SaveCheckpoint(request))
    assert (answer.code, answer.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_EXCEEDED")


async def test_a_message_far_above_the_limit_is_refused_by_grpc_itself(
    checkpoints: CheckpointServiceAsyncStub,
) -> None:
    request = save_request(channels=[channel("a", bytes(16 * 1024 * 1024))])
    answer = await refused(checkpoints.SaveCheckpoint(request))
    assert (answer.code, answer.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "")
