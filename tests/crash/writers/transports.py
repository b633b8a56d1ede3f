"""Transports between agents and a server: unary calls, streams and a client; and their failures."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast
from unittest import mock

import grpc
import grpc.aio
from google.protobuf.message import Message

from tuskpoint._async.calls import AsyncCalls
from tuskpoint._transport import channel, methods
from tuskpoint._transport.exchange import lanes
from tuskpoint._transport.methods import Method
from tuskpoint._transport.retry import RetryPolicy
from tuskpoint._transport.settings.options import Options
from tuskpoint.errors import TuskPointError, Unavailable
from tuskpoint.v1.checkpoint_pb2 import Checkpoint
from tuskpoint.v1.checkpoint_service_pb2 import (
    ExchangeRequest,
    Frame,
    Hello,
    SaveCheckpointRequest,
    SaveCheckpointResponse,
    SaveWritesRequest,
    SaveWritesResponse,
)
from tuskpoint.v1.errors_pb2 import CallError
from tuskpoint.v1.value_pb2 import LargeValue, PendingWrite, ValueChunk

if TYPE_CHECKING:
    from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceAsyncStub

T = TypeVar("T")
CHUNK_BYTES = 64 * 1024
CLIENT_SECONDS = 60.0
METHODS: dict[str, Method[Any, Any]] = {
    method.path.rpartition("/")[2]: method
    for method in vars(methods).values()
    if isinstance(method, Method)
}
STATUSES = {status.value[0]: status for status in grpc.StatusCode}
LOST_CONNECTION = {
    (grpc.StatusCode.CANCELLED, "CANCELLED"),
    (grpc.StatusCode.INTERNAL, "Internal error from Core"),
}
# The server restarts within a second; the default back-off would outlast the test.
RECONNECT_OPTIONS = [
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 200),
]
CHANNEL_OPTIONS = [*RECONNECT_OPTIONS, ("grpc.enable_retries", 0)]


class RefusedError(Exception):
    """A save was refused on a stream that stays open."""

    def __init__(self, error: CallError) -> None:
        super().__init__(error.message)
        self.status = STATUSES[error.code]


Failure = grpc.aio.AioRpcError | RefusedError | TuskPointError
FAILURES = (grpc.aio.AioRpcError, RefusedError, TuskPointError)


def status_of(failure: Failure) -> grpc.StatusCode:
    """Return the status of a failed call; a lost connection counts as `UNAVAILABLE`.

    A stopping server cancels calls that arrive after its last frame, and grpc.aio reports "Internal
    error from Core" if a stream ends while the client is writing to it. The client raises
    `Unavailable` for both.
    """
    if isinstance(failure, Unavailable):
        return grpc.StatusCode.UNAVAILABLE
    if isinstance(failure, TuskPointError):
        return grpc.StatusCode[failure.status]
    if isinstance(failure, RefusedError):
        return failure.status
    if (failure.code(), failure.details()) in LOST_CONNECTION:
        return grpc.StatusCode.UNAVAILABLE
    return failure.code()


class Unary:
    """Saves in unary calls, without any client of the project."""

    def __init__(self, stub: CheckpointServiceAsyncStub) -> None:
        self._stub = stub

    async def save_checkpoint(self, request: SaveCheckpointRequest) -> SaveCheckpointResponse:
        """Save a checkpoint."""
        return await self._stub.SaveCheckpoint(request, wait_for_ready=True)

    async def save_writes(self, request: SaveWritesRequest) -> SaveWritesResponse:
        """Save pending writes."""
        return await self._stub.SaveWrites(request, wait_for_ready=True)


def anywhere(source: random.Random, each: Sequence[T]) -> T:
    """Return a stub that makes each call on a random server.

    Args:
        source: Draws the server.
        each: The stub, or client, of each server.
    """
    return cast("T", _Anywhere(source, each))


def through_client(calls: AsyncCalls) -> Any:
    """Return stubs of all services; the client makes their unary calls, with its retries."""
    return _ThroughClient(calls)


class _ThroughClient:
    def __init__(self, calls: AsyncCalls) -> None:
        self._calls = calls

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def call(request: Message, **_: object) -> Any:
            return await self._calls.unary(METHODS[name], request)

        return call


class _Anywhere:
    def __init__(self, source: random.Random, each: Sequence[Any]) -> None:
        self._source = source
        self._each = each

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source.choice(self._each), name)


class CountingLane(lanes.Lane):
    """A lane with counters that all lanes share.

    Attributes:
        streams: Number of opened streams.
        resent: Number of frames resent on another stream because their stream broke before the
            answer.
    """

    streams = 0
    resent = 0

    def open(self) -> Hello:
        """See `Lane`."""
        CountingLane.streams += 1
        return super().open()

    def end(
        self, failure: TuskPointError, now_s: float, *, renewed: bool = False
    ) -> list[lanes.Call]:
        """See `Lane`."""
        sent = [call for call in self._sent.values() if not call.is_abandoned]
        failed = super().end(failure, now_s, renewed=renewed)
        CountingLane.resent += sum(call not in failed for call in sent)
        return failed


@contextmanager
def client(target: str, *, retries: bool) -> Iterator[AsyncCalls]:
    """Yield the calls of the Python client, whose saves and loads share its streams.

    Args:
        target: The servers, or a proxy before them.
        retries: Whether the client resends unanswered frames after a break.
    """
    policy = RetryPolicy(
        max_attempts=10_000 if retries else 1, initial_delay_s=0.02, max_delay_s=0.1
    )

    def options(address: str, *, has_others: bool) -> list[tuple[str, int | str]]:
        return [*default_options(address, has_others=has_others), *RECONNECT_OPTIONS]

    default_options = channel.channel_options
    with (
        mock.patch.object(lanes, "Lane", CountingLane),
        mock.patch.object(channel, "channel_options", options),
    ):
        # Loaded values are compared with saved values, so the server has to send them.
        yield AsyncCalls(
            Options(target, timeout_s=CLIENT_SECONDS, retry=policy, value_cache_bytes=0)
        )


async def stream_one(
    stub: CheckpointServiceAsyncStub, checkpoint: Checkpoint, writes: list[PendingWrite]
) -> int:
    """Save one checkpoint on a new stream; return the durability reached."""
    call = stub.Exchange(messages(checkpoint, writes), wait_for_ready=True)
    reached = 0
    try:
        async for message in call:
            for answer in message.answers:
                if answer.HasField("error"):
                    raise RefusedError(answer.error)
                reached = answer.saved.durability
    except grpc.aio.AioRpcError:
        # A failure of the stream after the answer does not revoke the answer.
        if not reached:
            raise
    if not reached:
        raise RuntimeError("the stream ended without an answer")
    return reached


async def messages(
    checkpoint: Checkpoint, writes: list[PendingWrite]
) -> AsyncIterator[ExchangeRequest]:
    """Yield a save frame by frame; values larger than a chunk come in chunks."""
    sent = Checkpoint()
    sent.CopyFrom(checkpoint)
    large = []
    for sent_channel in sent.state.channels:
        if len(sent_channel.value.data) > CHUNK_BYTES:
            data = sent_channel.value.data
            large.append(data)
            sent_channel.large.CopyFrom(
                LargeValue(type=sent_channel.value.type, size_bytes=len(data))
            )
    opening = SaveCheckpointRequest(checkpoint=sent, writes=writes)
    yield ExchangeRequest(frames=[Frame(id=1, save=opening)])
    for index, data in enumerate(large):
        for offset in range(0, len(data), CHUNK_BYTES):
            piece = data[offset : offset + CHUNK_BYTES]
            chunk = ValueChunk(value_index=index, offset=offset, data=piece)
            yield ExchangeRequest(frames=[Frame(id=1, chunk=chunk)])
