"""How calls are made, sync and async: channel, deadline, retries, observation, errors.

Each call shows the caller's token, has a deadline, is tried again where that is safe (see
`_retry`), is observed (see `_telemetry`) and raises the errors of `tuskpoint.errors`. Both classes
may be shared by any number of threads, and the async one by any number of event loops.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from . import _methods as methods
from ._channel import GUARD, SYNC_CHANNELS, AioChannels, Opened
from ._courses import Course
from ._frames import Save
from ._methods import Method
from ._options import Options
from ._plans import Persistence, SaveAnswer, attempts, closed, frames_of, pause_or_raise
from ._telemetry import observe
from .errors import TuskPointError
from .v1.checkpoint_service_pb2 import SaveCheckpointResponse, SaveWritesResponse

RequestT = TypeVar("RequestT", bound=Message)
AnswerT = TypeVar("AnswerT", bound=Message)
FrameT = TypeVar("FrameT", bound=Message)
ItemT = TypeVar("ItemT")


class SyncTransport:
    """Makes calls that block their thread.

    Args:
        options: Target and times. The channel is opened by the first call.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self._lock = threading.Lock()
        self._opened: Opened[grpc.Channel] | None = None
        self._streams: set[Any] = set()
        self._is_closed = False

    def close(self) -> None:
        """Give the channel back. Calls made afterwards raise; closing again does nothing.

        A watch or replay that another thread reads raises there.
        """
        with self._lock:
            self._is_closed = True
            opened, self._opened = self._opened, None
            streams = [*self._streams]
        for stream in streams:
            stream.cancel()
        if opened is not None:
            SYNC_CHANNELS.release(self.options.place, opened)

    def _unary(self, method: Method[RequestT, AnswerT], request: RequestT) -> AnswerT:
        target = self.options.target
        tried = attempts(self.options, method, request)
        while True:
            call = self._callable("unary_unary", method)
            shown = self.options.security.headers()
            try:
                with observe(method.path, target) as rpc:
                    answer: AnswerT = call(
                        request,
                        timeout=tried.remaining_s(time.monotonic()),
                        metadata=(*shown, *rpc.headers),
                    )
                    return answer
            except grpc.RpcError as error:
                pause_s = pause_or_raise(tried, error, self.options, shown)
            time.sleep(pause_s)

    def _stream(
        self, method: Method[RequestT, AnswerT], request: RequestT
    ) -> Generator[AnswerT, None, None]:
        target = self.options.target
        tried = attempts(self.options, method, request)
        begun = False
        while True:
            call = self._callable("unary_stream", method)
            shown = self.options.security.headers()
            try:
                with observe(method.path, target) as rpc:
                    answer = call(
                        request,
                        timeout=tried.remaining_s(time.monotonic()),
                        metadata=(*shown, *rpc.headers),
                    )
                    try:
                        for frame in answer:
                            begun = True
                            yield frame
                    finally:
                        answer.cancel()
                    return
            except grpc.RpcError as error:
                pause_s = pause_or_raise(tried, error, self.options, shown, begun=begun)
            time.sleep(pause_s)

    def _resume(
        self, method: Method[RequestT, FrameT], course: Course[RequestT, FrameT, ItemT]
    ) -> Generator[ItemT, None, None]:
        target = self.options.target
        tried = Persistence(self.options, method, course.begin())
        while True:
            call = self._callable("unary_stream", method)
            shown = self.options.security.headers()
            try:
                with observe(method.path, target) as rpc:
                    answer = call(
                        course.begin(),
                        timeout=tried.timeout_s(),
                        metadata=(*shown, *rpc.headers),
                    )
                    try:
                        self._keep(answer)
                        for frame in answer:
                            item = course.take(frame)
                            if item is not None:
                                tried.delivered()
                                yield item
                    finally:
                        self._streams.discard(answer)
                        answer.cancel()
                course.end()
                return
            except (grpc.RpcError, TuskPointError) as error:
                pause_s = tried.pause_or_raise(error, shown)
            time.sleep(pause_s)

    def _save_on_stream(self, request: Save) -> SaveCheckpointResponse | SaveWritesResponse:
        method = methods.SAVE_CHECKPOINTS
        target = self.options.target
        tried = attempts(self.options, method, request)
        while True:
            call = self._callable("stream_stream", method)
            collected = SaveAnswer(request.durability)
            shown = self.options.security.headers()
            try:
                with observe(method.path, target) as rpc:
                    answer = call(
                        frames_of(request),
                        timeout=tried.remaining_s(time.monotonic()),
                        metadata=(*shown, *rpc.headers),
                    )
                    try:
                        for frame in answer:
                            collected.add(frame)
                    finally:
                        answer.cancel()
                return collected.end()
            except (grpc.RpcError, TuskPointError) as error:
                pause_s = pause_or_raise(tried, error, self.options, shown)
            time.sleep(pause_s)

    def _keep(self, answer: Any) -> None:
        with self._lock:
            self._streams.add(answer)
            is_closed = self._is_closed
        if is_closed:
            answer.cancel()

    def _callable(self, shape: str, method: Method[Any, Any]) -> Callable[..., Any]:
        GUARD.check()
        opened = self._opened
        if opened is None:
            with self._lock:
                if self._is_closed:
                    raise closed()
                if self._opened is None:
                    self._opened = SYNC_CHANNELS.lease(self.options.place)
                opened = self._opened
        return opened.callable(shape, method)


class AsyncTransport:
    """Makes calls that are awaited.

    Args:
        options: Target and times. A channel is opened by the first call on each loop.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self._channels = AioChannels(options.place, GUARD)
        self._is_closed = False

    async def aclose(self) -> None:
        """Close the channels. Calls made afterwards raise; closing again does nothing."""
        self._is_closed = True
        await self._channels.aclose()

    async def _unary(self, method: Method[RequestT, AnswerT], request: RequestT) -> AnswerT:
        target = self.options.target
        tried = attempts(self.options, method, request)
        while True:
            call = self._callable("unary_unary", method)
            shown = self.options.security.headers()
            try:
                with observe(method.path, target) as rpc:
                    answer: AnswerT = await call(
                        request,
                        timeout=tried.remaining_s(time.monotonic()),
                        metadata=(*shown, *rpc.headers),
                    )
                    return answer
            except asyncio.CancelledError:
                self._raise_if_closed()
                raise
            except grpc.RpcError as error:
                pause_s = pause_or_raise(tried, error, self.options, shown)
            await asyncio.sleep(pause_s)

    async def _stream(
        self, method: Method[RequestT, AnswerT], request: RequestT
    ) -> AsyncGenerator[AnswerT, None]:
        target = self.options.target
        tried = attempts(self.options, method, request)
        begun = False
        while True:
            call = self._callable("unary_stream", method)
            shown = self.options.security.headers()
            try:
                with observe(method.path, target) as rpc:
                    answer = call(
                        request,
                        timeout=tried.remaining_s(time.monotonic()),
                        metadata=(*shown, *rpc.headers),
                    )
                    try:
                        async for frame in answer:
                            begun = True
                            yield frame
                    finally:
                        answer.cancel()
                    return
            except asyncio.CancelledError:
                self._raise_if_closed()
                raise
            except grpc.RpcError as error:
                pause_s = pause_or_raise(tried, error, self.options, shown, begun=begun)
            await asyncio.sleep(pause_s)

    async def _resume(
        self, method: Method[RequestT, FrameT], course: Course[RequestT, FrameT, ItemT]
    ) -> AsyncGenerator[ItemT, None]:
        target = self.options.target
        tried = Persistence(self.options, method, course.begin())
        while True:
            call = self._callable("unary_stream", method)
            shown = self.options.security.headers()
            try:
                with observe(method.path, target) as rpc:
                    answer = call(
                        course.begin(),
                        timeout=tried.timeout_s(),
                        metadata=(*shown, *rpc.headers),
                    )
                    try:
                        async for frame in answer:
                            item = course.take(frame)
                            if item is not None:
                                tried.delivered()
                                yield item
                    finally:
                        answer.cancel()
                course.end()
                return
            except asyncio.CancelledError:
                self._raise_if_closed()
                raise
            except (grpc.RpcError, TuskPointError) as error:
                pause_s = tried.pause_or_raise(error, shown)
            await asyncio.sleep(pause_s)

    async def _save_on_stream(self, request: Save) -> SaveCheckpointResponse | SaveWritesResponse:
        method = methods.SAVE_CHECKPOINTS
        target = self.options.target
        tried = attempts(self.options, method, request)
        while True:
            call = self._callable("stream_stream", method)
            collected = SaveAnswer(request.durability)
            shown = self.options.security.headers()
            try:
                with observe(method.path, target) as rpc:
                    answer = call(
                        frames_of(request),
                        timeout=tried.remaining_s(time.monotonic()),
                        metadata=(*shown, *rpc.headers),
                    )
                    try:
                        async for frame in answer:
                            collected.add(frame)
                    finally:
                        answer.cancel()
                return collected.end()
            except asyncio.CancelledError:
                self._raise_if_closed()
                raise
            except (grpc.RpcError, TuskPointError) as error:
                pause_s = pause_or_raise(tried, error, self.options, shown)
            await asyncio.sleep(pause_s)

    def _raise_if_closed(self) -> None:
        """Pass if it is the task that is being cancelled.

        grpc.aio tells of a channel that was closed as if the task had been cancelled.

        Raises:
            TuskPointError: This was closed.
        """
        if self._is_closed and not _is_being_cancelled():
            raise closed() from None

    def _callable(self, shape: str, method: Method[Any, Any]) -> Callable[..., Any]:
        if self._is_closed:
            raise closed()
        return self._channels.here().callable(shape, method)


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
