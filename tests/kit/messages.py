"""Requests for the tests, and readers of the answers."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterable, Awaitable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

from tuskpoint.v1 import checkpoint_pb2, value_pb2
from tuskpoint.v1 import checkpoint_service_pb2 as pb

if TYPE_CHECKING:
    from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceAsyncStub

THREAD = "thread"
FIRST = "1f000000-0000-6000-8000-000000000001"
SECOND = "1f000000-0000-6000-8000-000000000002"


def incompressible(size: int, seed: str = "content") -> bytes:
    """Return bytes that do not compress, the same bytes in every run."""
    return hashlib.shake_256(seed.encode()).digest(size)


def ref(
    checkpoint_id: str = "", thread_id: str = THREAD, checkpoint_ns: str = ""
) -> checkpoint_pb2.CheckpointRef:
    return checkpoint_pb2.CheckpointRef(
        thread_id=thread_id, checkpoint_ns=checkpoint_ns, checkpoint_id=checkpoint_id
    )


def channel(name: str, data: bytes = b"data", **fields: Any) -> value_pb2.Channel:
    fields.setdefault("version", value_pb2.Version(text="1"))
    if not {"value", "large", "inherit", "empty", "digest"} & fields.keys():
        fields["value"] = value_pb2.Value(type="bytes", data=data)
    return value_pb2.Channel(name=name, **fields)


def write(task_id: str = "task", name: str = "messages", **fields: Any) -> value_pb2.PendingWrite:
    if "large" not in fields:
        fields.setdefault("value", value_pb2.Value(type="bytes", data=b"written"))
    return value_pb2.PendingWrite(task_id=task_id, channel=name, **fields)


def save_request(
    checkpoint_id: str = FIRST,
    channels: Iterable[value_pb2.Channel] = (),
    *,
    thread_id: str = THREAD,
    parent: str = "",
    metadata: bytes = b'{"step": 1}',
    **fields: Any,
) -> pb.SaveCheckpointRequest:
    return pb.SaveCheckpointRequest(
        checkpoint=checkpoint_pb2.Checkpoint(
            ref=ref(checkpoint_id, thread_id),
            parent_checkpoint_id=parent,
            state=checkpoint_pb2.CheckpointState(
                schema_version=4, ts="2026-01-01T00:00:00+00:00", channels=channels
            ),
            metadata_json=metadata,
        ),
        **fields,
    )


def frames(
    number: int,
    request: pb.SaveCheckpointRequest | pb.SaveWritesRequest,
    large: Sequence[bytes] = (),
    chunk_bytes: int = 1024 * 1024,
) -> list[pb.Frame]:
    """Return the frames of one save: the request, then the chunks of its large values."""
    if isinstance(request, pb.SaveCheckpointRequest):
        first = pb.Frame(id=number, save=request)
    else:
        first = pb.Frame(id=number, writes=request)
    return [first, *chunks(number, large, chunk_bytes)]


def chunks(number: int, large: Sequence[bytes], chunk_bytes: int = 1024 * 1024) -> list[pb.Frame]:
    """Return the chunks of the large values of a save."""
    return [
        pb.Frame(
            id=number,
            chunk=value_pb2.ValueChunk(
                value_index=index, offset=offset, data=data[offset : offset + chunk_bytes]
            ),
        )
        for index, data in enumerate(large)
        for offset in range(0, len(data), chunk_bytes)
    ]


async def exchanged(
    checkpoints: CheckpointServiceAsyncStub, sent: Iterable[pb.Frame]
) -> list[pb.Answer]:
    """Send frames on a new stream, each frame in its own message; return all answers."""
    messages = (pb.ExchangeRequest(frames=[frame]) for frame in sent)
    return [answer async for each in checkpoints.Exchange(messages) for answer in each.answers]


@dataclass(frozen=True)
class ReportedError:
    """The content of the status of a refused call."""

    code: grpc.StatusCode
    message: str
    reason: str
    metadata: dict[str, str] = field(default_factory=dict)
    fields: tuple[str, ...] = ()
    kinds: frozenset[str] = frozenset()


def reported(error: grpc.RpcError) -> ReportedError:
    """Read the details of a refused call; without details the reason is empty."""
    # pairs, whose type differs between gRPC's libraries
    trailers: Any = error.trailing_metadata() or ()
    raw = next((value for name, value in trailers if name == "grpc-status-details-bin"), b"")
    status = status_pb2.Status.FromString(raw)
    info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    for detail in status.details:
        if not detail.Unpack(info):
            detail.Unpack(bad)
    if info.reason:
        assert info.domain == "tuskpoint.dev"
        assert status.code == error.code().value[0]
        assert status.message == error.details()
    return ReportedError(
        error.code(),
        error.details() or "",
        info.reason,
        dict(sorted(info.metadata.items())),  # a map has no defined order
        tuple(violation.field for violation in bad.field_violations),
        frozenset(detail.TypeName().rpartition(".")[2] for detail in status.details),
    )


async def refused(call: Awaitable[Any] | Any) -> ReportedError:
    """Make a unary or server-streaming call that must be refused; return its error."""
    try:
        if hasattr(call, "__aiter__"):
            async for _ in call:
                pass
        else:
            await call
    except grpc.aio.AioRpcError as error:
        return reported(error)
    raise AssertionError("the call was not refused")


async def collect(
    stream: AsyncIterable[pb.LoadCheckpointResponse] | AsyncIterable[pb.ListCheckpointsResponse],
) -> list[checkpoint_pb2.Checkpoint]:
    """Return the checkpoints of a stream with their large values filled in."""
    checkpoints: list[checkpoint_pb2.Checkpoint] = []
    large: list[tuple[Any, bytearray]] = []
    async for frame in stream:
        if frame.HasField("checkpoint"):
            _settle(large)
            checkpoints.append(frame.checkpoint)
            large = [
                (holder, bytearray())
                for holder in (*frame.checkpoint.state.channels, *frame.checkpoint.writes)
                if holder.HasField("large")
            ]
        else:
            assert len(frame.chunk.data) <= 1024 * 1024
            _, data = large[frame.chunk.value_index]
            assert frame.chunk.offset == len(data)
            data += frame.chunk.data
    _settle(large)
    return checkpoints


def _settle(large: list[tuple[Any, bytearray]]) -> None:
    for holder, data in large:
        assert len(data) == holder.large.size_bytes
        holder.value.CopyFrom(value_pb2.Value(type=holder.large.type, data=bytes(data)))
