"""Calls of gRPC's blocking stack, awaited on any event loop.

grpc.aio has one completion queue for all event loops of a process, so that only one event loop can
use it safely. The blocking stack has no such limit, and carries batches equally fast.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import grpc
from google.protobuf.message import Message

from .policy import closed
from .settings.token import Headers

_READ_AHEAD = 8  # frames

Kept = Callable[[Any], AbstractContextManager[None]]
"""Function that returns a block during which the end of the transport cancels a call."""


class _End(NamedTuple):
    """End of a stream, with the error that ended it."""

    error: grpc.RpcError | None


async def answer_of(
    method: Any,
    request: Message | bytes,
    *,
    timeout_s: float,
    metadata: Headers,
    kept: Kept,
) -> Any:
    """Make a call and return its answer. Cancellation of the task cancels the call.

    Args:
        method: A unary method of the channel.
        request: The request.
        timeout_s: Deadline in seconds.
        metadata: Metadata of the call.
        kept: See `Kept`.

    Raises:
        grpc.RpcError: The call failed.
        TuskPointError: The transport was closed during the call.
    """
    loop = asyncio.get_running_loop()
    call = method.future(request, timeout=timeout_s, metadata=metadata)
    done = loop.create_future()

    def settle() -> None:
        if not done.done():
            done.set_result(None)

    call.add_done_callback(lambda _: call_soon(loop, settle))
    try:
        with kept(call):
            await done
    finally:
        if not call.done():
            call.cancel()
    try:
        return call.result()
    except grpc.FutureCancelledError:
        raise closed() from None


async def frames_of(call: Any, kept: Kept) -> AsyncGenerator[Any, None]:
    """Yield the frames of a stream, which a thread reads ahead. An early end cancels the stream.

    Args:
        call: The stream.
        kept: See `Kept`.

    Raises:
        grpc.RpcError: The stream failed.
    """
    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[Any] = asyncio.Queue()
    room = threading.Semaphore(_READ_AHEAD)

    def read() -> None:
        end = _End(None)
        try:
            for frame in call:
                call_soon(loop, arrived.put_nowait, frame)
                room.acquire()
        except grpc.RpcError as error:
            end = _End(error)
        call_soon(loop, arrived.put_nowait, end)

    threading.Thread(target=read, name="tuskpoint-stream", daemon=True).start()
    try:
        with kept(call):
            while not isinstance(frame := await arrived.get(), _End):
                room.release()
                yield frame
        if frame.error is not None:
            raise frame.error
    finally:
        call.cancel()
        room.release()


class Heartbeat:
    """Calls a function at intervals, in a task that ends with the context.

    Args:
        beat: The function; returns whether to call it again.
        interval_s: Seconds between two calls.
    """

    def __init__(self, beat: Callable[[], Awaitable[bool]], interval_s: float) -> None:
        self._beat = beat
        self._interval_s = interval_s

    async def __aenter__(self) -> None:
        self._task = asyncio.create_task(self._run(), name="tuskpoint-heartbeat")

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        again = True
        while again:
            await asyncio.sleep(self._interval_s)
            again = await self._beat()


def call_soon(
    loop: asyncio.AbstractEventLoop, callback: Callable[..., object], *arguments: Any
) -> None:
    """Call a function on a loop, from any thread. Do nothing if the loop was closed."""
    try:
        loop.call_soon_threadsafe(callback, *arguments)
    except RuntimeError:
        pass  # the tasks of the loop ended with the loop
