"""Frames of an `Exchange` stream, and a client that reads every answer."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from tests.kit.messages import FIRST, ReportedError, collect, ref, reported, save_request, write
from tuskpoint.v1 import checkpoint_pb2, errors_pb2, value_pb2
from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint_server.journal.sql.backend import Backend

if TYPE_CHECKING:
    from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceAsyncStub

JOURNALED = checkpoint_pb2.DURABILITY_JOURNALED
CERTIFIED = checkpoint_pb2.DURABILITY_CERTIFIED
EXCHANGE = "/tuskpoint.v1.CheckpointService/Exchange"


def save(number: int, checkpoint_id: str = FIRST, **fields: Any) -> pb.Frame:
    return pb.Frame(id=number, save=save_request(checkpoint_id, **fields))


def writes(number: int, checkpoint_id: str = FIRST, **fields: Any) -> pb.Frame:
    fields.setdefault("writes", [write()])
    return pb.Frame(id=number, writes=pb.SaveWritesRequest(ref=ref(checkpoint_id), **fields))


def get(number: int, checkpoint_id: str = FIRST, **fields: Any) -> pb.Frame:
    return pb.Frame(id=number, get=pb.GetCheckpointRequest(ref=ref(checkpoint_id), **fields))


def large(size: int) -> value_pb2.LargeValue:
    return value_pb2.LargeValue(type="bytes", size_bytes=size)


def chunk(number: int, data: bytes, *, index: int = 0, offset: int = 0) -> pb.Frame:
    piece = value_pb2.ValueChunk(value_index=index, offset=offset, data=data)
    return pb.Frame(id=number, chunk=piece)


def hello(session: bytes, attempt: int = 1) -> pb.Hello:
    return pb.Hello(session=session, attempt=attempt)


def new_session() -> bytes:
    return secrets.token_bytes(16)


def reason_of(answer: pb.Answer) -> str:
    """Return the reason of an error answer; empty for other answers."""
    if not answer.HasField("error"):
        return ""
    return errors_pb2.ErrorReason.Name(answer.error.reason).removeprefix("ERROR_REASON_")


class Stream:
    """A stream that is read message by message."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self.answers: list[pb.Answer] = []
        self.messages = 0
        self.draining = False

    async def send(self, *frames: pb.Frame, hello: pb.Hello | None = None) -> None:
        await self.call.write(pb.ExchangeRequest(hello=hello, frames=frames))

    async def read(self) -> list[pb.Answer] | None:
        """Return the answers of the next message; `None` at the end of the stream."""
        response = await self.call.read()
        if response is grpc.aio.EOF:
            return None
        self.messages += 1
        self.draining |= response.draining
        self.answers += response.answers
        return list(response.answers)

    async def read_to(self, number: int) -> pb.Answer:
        """Read until a frame has its last answer; return this answer."""
        while True:
            for answer in self.answers:
                if answer.id == number and answer.last:
                    return answer
            assert await self.read() is not None, f"no answer to {number}"

    async def end(self) -> ReportedError | None:
        """Read to the end; return the error of the stream, if it was refused."""
        try:
            while await self.read() is not None:
                pass
        except grpc.aio.AioRpcError as error:
            return reported(error)
        return None

    def last(self, number: int) -> pb.Answer:
        """Return the last answer to a frame."""
        [answer] = [each for each in self.answers if each.id == number and each.last]
        return answer

    @property
    def numbers(self) -> list[int]:
        """Frames with an answer, in the order of the answers."""
        return [each.id for each in self.answers]


@asynccontextmanager
async def opened(channel: grpc.aio.Channel, **options: Any) -> AsyncIterator[Stream]:
    call: Any = channel.stream_stream(
        EXCHANGE, pb.ExchangeRequest.SerializeToString, pb.ExchangeResponse.FromString
    )(**options)
    try:
        yield Stream(call)
    finally:
        call.cancel()


async def run(
    channel: grpc.aio.Channel, *messages: Iterable[pb.Frame] | pb.ExchangeRequest
) -> tuple[Stream, ReportedError | None]:
    """Send messages and end the stream; return the stream, and its error if it was refused."""
    async with opened(channel) as stream:
        for each in messages:
            request = each
            if not isinstance(each, pb.ExchangeRequest):
                request = pb.ExchangeRequest(frames=each)
            try:
                await stream.call.write(request)
            except (grpc.aio.AioRpcError, grpc.aio.UsageError):
                break  # the server ended the stream; the answers say why
        else:
            await stream.call.done_writing()
        return stream, await stream.end()


class Hold:
    """Blocks the writer at its commits while closed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._open = threading.Event()
        self._open.set()
        self._loop = asyncio.get_running_loop()
        self.reached = asyncio.Event()
        commit = Backend.commit

        def held(backend: Backend, connection: Any, **changes: Any) -> None:
            writes = threading.current_thread().name == "journal-writer"
            if writes and not self._open.is_set():
                self._loop.call_soon_threadsafe(self.reached.set)
                self._open.wait()
            commit(backend, connection, **changes)

        monkeypatch.setattr(Backend, "commit", held)

    def close(self) -> None:
        self._open.clear()

    def release(self) -> None:
        self._open.set()


async def stored(checkpoints: CheckpointServiceAsyncStub) -> list[str]:
    listed = await collect(checkpoints.ListCheckpoints(pb.ListCheckpointsRequest()))
    return [each.ref.checkpoint_id for each in listed]
