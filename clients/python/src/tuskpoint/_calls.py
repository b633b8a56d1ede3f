"""The calls of the service, sync and async: contract messages in, contract messages out.

Both classes have the same methods. Each call has a deadline, is tried again where that is safe
(see `_retry`), is observed (see `_telemetry`) and raises the errors of `tuskpoint.errors`. Both
may be shared by any number of threads, and the async one by any number of event loops.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing, closing
from typing import Any, TypeVar, cast

import grpc
from google.protobuf.message import Message

from . import _methods as methods
from ._channel import GUARD, SYNC_CHANNELS, AioChannels, Opened
from ._frames import CheckpointAssembler, DeltaHistoryAssembler, Save, fits_unary
from ._methods import Method
from ._options import Options
from ._plans import (
    SaveAnswer,
    attempts,
    closed,
    expect_absent,
    expect_too_large,
    frames_of,
    pause_or_raise,
    present,
    with_request_id,
)
from ._telemetry import observe
from .errors import NotFound, PreconditionFailed, TuskPointError
from .v1.admin_service_pb2 import (
    FlushRequest,
    FlushResponse,
    GetArchiveStatusRequest,
    GetArchiveStatusResponse,
    GetServerInfoRequest,
    GetServerInfoResponse,
)
from .v1.checkpoint_pb2 import (
    SOURCE_ANY,
    VIEW_FULL,
    Checkpoint,
    CheckpointRef,
    Source,
    View,
)
from .v1.checkpoint_service_pb2 import (
    DeltaChannelHistory,
    GetCheckpointRequest,
    GetDeltaHistoryRequest,
    ListCheckpointsRequest,
    LoadCheckpointRequest,
    SaveCheckpointRequest,
    SaveCheckpointResponse,
    SaveWritesRequest,
    SaveWritesResponse,
    SetLabelRequest,
    SetLabelResponse,
)
from .v1.thread_service_pb2 import (
    CopyThreadRequest,
    CopyThreadResponse,
    DeleteRunsRequest,
    DeleteRunsResponse,
    DeleteThreadRequest,
    DeleteThreadResponse,
    GetManifestRequest,
    GetManifestResponse,
    GetThreadRequest,
    GetThreadResponse,
    ListThreadsRequest,
    ListThreadsResponse,
    PruneThreadsRequest,
    PruneThreadsResponse,
    SetRetentionRequest,
    SetRetentionResponse,
)

__all__ = ["AsyncCalls", "Options", "SyncCalls"]

RequestT = TypeVar("RequestT", bound=Message)
AnswerT = TypeVar("AnswerT", bound=Message)


class SyncCalls:
    """The calls, each blocking its thread.

    Args:
        options: Target and times. The channel is opened by the first call.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self._lock = threading.Lock()
        self._opened: Opened[grpc.Channel] | None = None
        self._is_closed = False

    def save_checkpoint(self, request: SaveCheckpointRequest) -> SaveCheckpointResponse:
        """Save a checkpoint of any size: in one message if it fits, else on a stream."""
        if fits_unary(request):
            return self._unary(methods.SAVE_CHECKPOINT, request)
        return cast(SaveCheckpointResponse, self._save_on_stream(request))

    def save_writes(self, request: SaveWritesRequest) -> SaveWritesResponse:
        """Save pending writes of any size: in one message if they fit, else on a stream."""
        if fits_unary(request):
            return self._unary(methods.SAVE_WRITES, request)
        return cast(SaveWritesResponse, self._save_on_stream(request))

    def get_checkpoint(
        self, ref: CheckpointRef, *, view: View = VIEW_FULL, source: Source = SOURCE_ANY
    ) -> Checkpoint | None:
        """Return a checkpoint of any size, every value inline; `None` if it does not exist."""
        get = GetCheckpointRequest(ref=ref, view=view, source=source)
        load = LoadCheckpointRequest(ref=ref, view=view, source=source)
        try:
            return self._unary(methods.GET_CHECKPOINT, get).checkpoint
        except NotFound as error:
            expect_absent(error)
            return None
        except PreconditionFailed as error:
            expect_too_large(error)
        try:
            return self._load(load)
        except NotFound as error:
            expect_absent(error)
            return None

    def list_checkpoints(
        self, request: ListCheckpointsRequest
    ) -> Generator[Checkpoint, None, None]:
        """Yield checkpoints, greatest ID first, every value inline."""
        assembler = CheckpointAssembler()
        with closing(self._stream(methods.LIST_CHECKPOINTS, request)) as frames:
            for frame in frames:
                complete = assembler.add(frame)
                if complete is not None:
                    yield complete
        assembler.end()

    def get_delta_history(self, request: GetDeltaHistoryRequest) -> list[DeltaChannelHistory]:
        """Return what rebuilds each channel, in the order in which they were asked for."""
        assembler = DeltaHistoryAssembler()
        with closing(self._stream(methods.GET_DELTA_HISTORY, request)) as frames:
            for frame in frames:
                assembler.add(frame)
        return assembler.end()

    def set_label(self, request: SetLabelRequest) -> SetLabelResponse:
        """Set or clear the label of a checkpoint."""
        return self._unary(methods.SET_LABEL, request)

    def get_thread(self, request: GetThreadRequest) -> GetThreadResponse:
        """Describe one thread."""
        return self._unary(methods.GET_THREAD, request)

    def list_threads(self, request: ListThreadsRequest) -> ListThreadsResponse:
        """Return one page of threads."""
        return self._unary(methods.LIST_THREADS, request)

    def delete_thread(self, request: DeleteThreadRequest) -> DeleteThreadResponse:
        """Delete a thread and end its incarnation."""
        return self._unary(methods.DELETE_THREAD, request)

    def set_retention(self, request: SetRetentionRequest) -> SetRetentionResponse:
        """Set how long a thread is kept."""
        return self._unary(methods.SET_RETENTION, request)

    def copy_thread(self, request: CopyThreadRequest) -> CopyThreadResponse:
        """Copy a thread; an empty `request_id` is filled in, so that retries are safe."""
        return self._unary(methods.COPY_THREAD, with_request_id(request))

    def prune_threads(self, request: PruneThreadsRequest) -> PruneThreadsResponse:
        """Delete old checkpoints of threads."""
        return self._unary(methods.PRUNE_THREADS, request)

    def delete_runs(self, request: DeleteRunsRequest) -> DeleteRunsResponse:
        """Delete the checkpoints of runs."""
        return self._unary(methods.DELETE_RUNS, request)

    def get_manifest(self, request: GetManifestRequest) -> GetManifestResponse:
        """Return one page of a thread's folded manifest."""
        return self._unary(methods.GET_MANIFEST, request)

    def get_server_info(self) -> GetServerInfoResponse:
        """Return version, limits and backends of the server."""
        return self._unary(methods.GET_SERVER_INFO, GetServerInfoRequest())

    def get_archive_status(self) -> GetArchiveStatusResponse:
        """Return the state of the archive."""
        return self._unary(methods.GET_ARCHIVE_STATUS, GetArchiveStatusRequest())

    def flush(self) -> FlushResponse:
        """Certify everything journaled so far, and return then."""
        return self._unary(methods.FLUSH, FlushRequest())

    def close(self) -> None:
        """Give the channel back. Calls made afterwards raise; closing again does nothing."""
        with self._lock:
            self._is_closed = True
            opened, self._opened = self._opened, None
        if opened is not None:
            SYNC_CHANNELS.release(self.options.target, opened)

    def _load(self, request: LoadCheckpointRequest) -> Checkpoint:
        assembler = CheckpointAssembler()
        checkpoint = None
        with closing(self._stream(methods.LOAD_CHECKPOINT, request)) as frames:
            for frame in frames:
                checkpoint = assembler.add(frame) or checkpoint
        assembler.end()
        return present(checkpoint)

    def _unary(self, method: Method[RequestT, AnswerT], request: RequestT) -> AnswerT:
        call = self._callable("unary_unary", method)
        target = self.options.target
        tried = attempts(self.options, method, request)
        while True:
            try:
                with observe(method.path, target) as rpc:
                    answer: AnswerT = call(
                        request, timeout=tried.remaining_s(time.monotonic()), metadata=rpc.headers
                    )
                    return answer
            except grpc.RpcError as error:
                pause_s = pause_or_raise(tried, error, target)
            time.sleep(pause_s)

    def _stream(
        self, method: Method[RequestT, AnswerT], request: RequestT
    ) -> Generator[AnswerT, None, None]:
        call = self._callable("unary_stream", method)
        target = self.options.target
        tried = attempts(self.options, method, request)
        begun = False
        while True:
            try:
                with observe(method.path, target) as rpc:
                    timeout_s = tried.remaining_s(time.monotonic())
                    answer = call(request, timeout=timeout_s, metadata=rpc.headers)
                    try:
                        for frame in answer:
                            begun = True
                            yield frame
                    finally:
                        answer.cancel()
                    return
            except grpc.RpcError as error:
                pause_s = pause_or_raise(tried, error, target, begun=begun)
            time.sleep(pause_s)

    def _save_on_stream(self, request: Save) -> SaveCheckpointResponse | SaveWritesResponse:
        method = methods.SAVE_CHECKPOINTS
        call = self._callable("stream_stream", method)
        target = self.options.target
        tried = attempts(self.options, method, request)
        while True:
            collected = SaveAnswer(request.durability)
            try:
                with observe(method.path, target) as rpc:
                    timeout_s = tried.remaining_s(time.monotonic())
                    answer = call(frames_of(request), timeout=timeout_s, metadata=rpc.headers)
                    try:
                        for frame in answer:
                            collected.add(frame)
                    finally:
                        answer.cancel()
                return collected.end()
            except (grpc.RpcError, TuskPointError) as error:
                pause_s = pause_or_raise(tried, error, target)
            time.sleep(pause_s)

    def _callable(self, shape: str, method: Method[Any, Any]) -> Callable[..., Any]:
        GUARD.check()
        opened = self._opened
        if opened is None:
            with self._lock:
                if self._is_closed:
                    raise closed()
                if self._opened is None:
                    self._opened = SYNC_CHANNELS.lease(self.options.target)
                opened = self._opened
        return opened.callable(shape, method)


class AsyncCalls:
    """The calls, each to be awaited.

    Args:
        options: Target and times. A channel is opened by the first call on each loop.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self._channels = AioChannels(options.target, GUARD)
        self._is_closed = False

    async def save_checkpoint(self, request: SaveCheckpointRequest) -> SaveCheckpointResponse:
        """Save a checkpoint of any size: in one message if it fits, else on a stream."""
        if fits_unary(request):
            return await self._unary(methods.SAVE_CHECKPOINT, request)
        return cast(SaveCheckpointResponse, await self._save_on_stream(request))

    async def save_writes(self, request: SaveWritesRequest) -> SaveWritesResponse:
        """Save pending writes of any size: in one message if they fit, else on a stream."""
        if fits_unary(request):
            return await self._unary(methods.SAVE_WRITES, request)
        return cast(SaveWritesResponse, await self._save_on_stream(request))

    async def get_checkpoint(
        self, ref: CheckpointRef, *, view: View = VIEW_FULL, source: Source = SOURCE_ANY
    ) -> Checkpoint | None:
        """Return a checkpoint of any size, every value inline; `None` if it does not exist."""
        get = GetCheckpointRequest(ref=ref, view=view, source=source)
        load = LoadCheckpointRequest(ref=ref, view=view, source=source)
        try:
            return (await self._unary(methods.GET_CHECKPOINT, get)).checkpoint
        except NotFound as error:
            expect_absent(error)
            return None
        except PreconditionFailed as error:
            expect_too_large(error)
        try:
            return await self._load(load)
        except NotFound as error:
            expect_absent(error)
            return None

    async def list_checkpoints(
        self, request: ListCheckpointsRequest
    ) -> AsyncGenerator[Checkpoint, None]:
        """Yield checkpoints, greatest ID first, every value inline."""
        assembler = CheckpointAssembler()
        async with aclosing(self._stream(methods.LIST_CHECKPOINTS, request)) as frames:
            async for frame in frames:
                complete = assembler.add(frame)
                if complete is not None:
                    yield complete
        assembler.end()

    async def get_delta_history(self, request: GetDeltaHistoryRequest) -> list[DeltaChannelHistory]:
        """Return what rebuilds each channel, in the order in which they were asked for."""
        assembler = DeltaHistoryAssembler()
        async with aclosing(self._stream(methods.GET_DELTA_HISTORY, request)) as frames:
            async for frame in frames:
                assembler.add(frame)
        return assembler.end()

    async def set_label(self, request: SetLabelRequest) -> SetLabelResponse:
        """Set or clear the label of a checkpoint."""
        return await self._unary(methods.SET_LABEL, request)

    async def get_thread(self, request: GetThreadRequest) -> GetThreadResponse:
        """Describe one thread."""
        return await self._unary(methods.GET_THREAD, request)

    async def list_threads(self, request: ListThreadsRequest) -> ListThreadsResponse:
        """Return one page of threads."""
        return await self._unary(methods.LIST_THREADS, request)

    async def delete_thread(self, request: DeleteThreadRequest) -> DeleteThreadResponse:
        """Delete a thread and end its incarnation."""
        return await self._unary(methods.DELETE_THREAD, request)

    async def set_retention(self, request: SetRetentionRequest) -> SetRetentionResponse:
        """Set how long a thread is kept."""
        return await self._unary(methods.SET_RETENTION, request)

    async def copy_thread(self, request: CopyThreadRequest) -> CopyThreadResponse:
        """Copy a thread; an empty `request_id` is filled in, so that retries are safe."""
        return await self._unary(methods.COPY_THREAD, with_request_id(request))

    async def prune_threads(self, request: PruneThreadsRequest) -> PruneThreadsResponse:
        """Delete old checkpoints of threads."""
        return await self._unary(methods.PRUNE_THREADS, request)

    async def delete_runs(self, request: DeleteRunsRequest) -> DeleteRunsResponse:
        """Delete the checkpoints of runs."""
        return await self._unary(methods.DELETE_RUNS, request)

    async def get_manifest(self, request: GetManifestRequest) -> GetManifestResponse:
        """Return one page of a thread's folded manifest."""
        return await self._unary(methods.GET_MANIFEST, request)

    async def get_server_info(self) -> GetServerInfoResponse:
        """Return version, limits and backends of the server."""
        return await self._unary(methods.GET_SERVER_INFO, GetServerInfoRequest())

    async def get_archive_status(self) -> GetArchiveStatusResponse:
        """Return the state of the archive."""
        return await self._unary(methods.GET_ARCHIVE_STATUS, GetArchiveStatusRequest())

    async def flush(self) -> FlushResponse:
        """Certify everything journaled so far, and return then."""
        return await self._unary(methods.FLUSH, FlushRequest())

    async def aclose(self) -> None:
        """Close the channels. Calls made afterwards raise; closing again does nothing."""
        self._is_closed = True
        await self._channels.aclose()

    async def _load(self, request: LoadCheckpointRequest) -> Checkpoint:
        assembler = CheckpointAssembler()
        checkpoint = None
        async with aclosing(self._stream(methods.LOAD_CHECKPOINT, request)) as frames:
            async for frame in frames:
                checkpoint = assembler.add(frame) or checkpoint
        assembler.end()
        return present(checkpoint)

    async def _unary(self, method: Method[RequestT, AnswerT], request: RequestT) -> AnswerT:
        call = self._callable("unary_unary", method)
        target = self.options.target
        tried = attempts(self.options, method, request)
        while True:
            try:
                with observe(method.path, target) as rpc:
                    answer: AnswerT = await call(
                        request, timeout=tried.remaining_s(time.monotonic()), metadata=rpc.headers
                    )
                    return answer
            except grpc.RpcError as error:
                pause_s = pause_or_raise(tried, error, target)
            await asyncio.sleep(pause_s)

    async def _stream(
        self, method: Method[RequestT, AnswerT], request: RequestT
    ) -> AsyncGenerator[AnswerT, None]:
        call = self._callable("unary_stream", method)
        target = self.options.target
        tried = attempts(self.options, method, request)
        begun = False
        while True:
            try:
                with observe(method.path, target) as rpc:
                    timeout_s = tried.remaining_s(time.monotonic())
                    answer = call(request, timeout=timeout_s, metadata=rpc.headers)
                    try:
                        async for frame in answer:
                            begun = True
                            yield frame
                    finally:
                        answer.cancel()
                    return
            except grpc.RpcError as error:
                pause_s = pause_or_raise(tried, error, target, begun=begun)
            await asyncio.sleep(pause_s)

    async def _save_on_stream(self, request: Save) -> SaveCheckpointResponse | SaveWritesResponse:
        method = methods.SAVE_CHECKPOINTS
        call = self._callable("stream_stream", method)
        target = self.options.target
        tried = attempts(self.options, method, request)
        while True:
            collected = SaveAnswer(request.durability)
            try:
                with observe(method.path, target) as rpc:
                    timeout_s = tried.remaining_s(time.monotonic())
                    answer = call(frames_of(request), timeout=timeout_s, metadata=rpc.headers)
                    try:
                        async for frame in answer:
                            collected.add(frame)
                    finally:
                        answer.cancel()
                return collected.end()
            except (grpc.RpcError, TuskPointError) as error:
                pause_s = pause_or_raise(tried, error, target)
            await asyncio.sleep(pause_s)

    def _callable(self, shape: str, method: Method[Any, Any]) -> Callable[..., Any]:
        if self._is_closed:
            raise closed()
        return self._channels.here().callable(shape, method)
