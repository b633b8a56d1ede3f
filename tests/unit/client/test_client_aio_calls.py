"""Unary calls against a scripted server without streams: retries, errors, several event loops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]
from grpc_status import rpc_status  # type: ignore[import-untyped]

from tuskpoint import AsyncClient, Client, NotFound, errors
from tuskpoint._async.calls import AsyncCalls
from tuskpoint._sync.calls import SyncCalls
from tuskpoint._transport.settings.options import Options
from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint.v1.checkpoint_pb2 import (
    DURABILITY_JOURNALED,
    Checkpoint,
    CheckpointRef,
    CheckpointState,
)
from tuskpoint.v1.checkpoint_service_pb2_grpc import (
    CheckpointServiceServicer,
    add_CheckpointServiceServicer_to_server,
)
from tuskpoint.v1.value_pb2 import Channel, LargeValue, Value, ValueChunk

REF = CheckpointRef(thread_id="t", checkpoint_id="1")
SAVE = pb.SaveCheckpointRequest(checkpoint=Checkpoint(ref=REF))


def refusal(code: grpc.StatusCode, reason: str, retry_after_s: int | None = None) -> Any:
    status = status_pb2.Status(code=code.value[0], message=f"refused: {reason}")
    status.details.add().Pack(error_details_pb2.ErrorInfo(reason=reason, domain="tuskpoint.dev"))
    if retry_after_s is not None:
        delay = Duration(seconds=retry_after_s)
        status.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=delay))
    return rpc_status.to_status(status)


class Flaky(CheckpointServiceServicer):
    """Refuses a given number of times, then answers."""

    def __init__(self) -> None:
        self.refusals: list[Any] = []
        self.late_refusals: list[Any] = []
        self.arrived = asyncio.Event()
        self.requests: list[Any] = []
        self.frames: list[Any] = []
        self.cancelled = asyncio.Event()
        self.hold = asyncio.Event()
        self.hold.set()

    async def _answer(self, request: Any, context: Any) -> None:
        self.requests.append(request)
        self.arrived.set()
        if self.refusals:
            await context.abort_with_status(self.refusals.pop(0))
        try:
            await self.hold.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    async def SaveCheckpoint(self, request: Any, context: Any) -> Any:
        await self._answer(request, context)
        return pb.SaveCheckpointResponse(
            ref=request.checkpoint.ref, durability=DURABILITY_JOURNALED
        )

    async def GetCheckpoint(self, request: Any, context: Any) -> Any:
        await self._answer(request, context)
        return pb.GetCheckpointResponse(checkpoint=Checkpoint(ref=request.ref))

    async def LoadCheckpoint(self, request: Any, context: Any) -> AsyncIterator[Any]:
        await self._answer(request, context)
        for frame in self.frames:
            yield frame

    async def ListCheckpoints(self, request: Any, context: Any) -> AsyncIterator[Any]:
        await self._answer(request, context)
        for frame in self.frames:
            yield frame
        if self.late_refusals:
            await context.abort_with_status(self.late_refusals.pop(0))


@pytest.fixture
async def served() -> AsyncIterator[tuple[Flaky, str]]:
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    flaky = Flaky()  # type: ignore[abstract]
    add_CheckpointServiceServicer_to_server(flaky, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield flaky, f"127.0.0.1:{port}"
    await server.stop(None)


@pytest.fixture
async def calls(served: tuple[Flaky, str]) -> AsyncIterator[AsyncCalls]:
    made = AsyncCalls(Options(served[1]))
    yield made
    await made.aclose()


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    asked: list[float] = []

    class Clock:
        CancelledError = asyncio.CancelledError

        @staticmethod
        async def sleep(seconds: float) -> None:
            asked.append(seconds)

    monkeypatch.setattr("tuskpoint._async.transport.asyncio", Clock)
    return asked


async def test_unavailable_then_ok(
    served: tuple[Flaky, str], calls: AsyncCalls, pauses: list[float]
) -> None:
    flaky, _ = served
    flaky.refusals = [
        refusal(grpc.StatusCode.UNAVAILABLE, "DRAINING", 3),
        refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, "BACKLOG_FULL", 7),
    ]
    saved = await calls.save_checkpoint(SAVE)
    assert saved.ref == REF
    assert flaky.requests == [SAVE] * 3
    assert 3 <= pauses[0] < 4
    assert 7 <= pauses[1] < 8


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (grpc.StatusCode.ABORTED, "HEAD_MOVED", errors.Conflict),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_EXCEEDED", errors.ResourceExhausted),
        (grpc.StatusCode.DATA_LOSS, "BLOB_HASH_MISMATCH", errors.DataLoss),
    ],
)
async def test_what_waiting_does_not_help_is_raised_at_once(
    served: tuple[Flaky, str],
    calls: AsyncCalls,
    pauses: list[float],
    code: grpc.StatusCode,
    reason: str,
    kind: type[errors.TuskPointError],
) -> None:
    flaky, _ = served
    flaky.refusals = [refusal(code, reason)]
    with pytest.raises(kind, match=f"refused: {reason}") as caught:
        await calls.save_checkpoint(SAVE)
    assert (caught.value.reason, caught.value.status) == (reason, code.name)
    assert (len(flaky.requests), pauses) == (1, [])


async def test_a_checkpoint_too_large_for_a_message_is_streamed(
    served: tuple[Flaky, str], calls: AsyncCalls
) -> None:
    flaky, _ = served
    flaky.refusals = [refusal(grpc.StatusCode.FAILED_PRECONDITION, "CHECKPOINT_TOO_LARGE")]
    state = CheckpointState(channels=[Channel(name="c", large=LargeValue(type="b", size_bytes=1))])
    flaky.frames = [
        pb.LoadCheckpointResponse(checkpoint=Checkpoint(ref=REF, state=state)),
        pb.LoadCheckpointResponse(chunk=ValueChunk(data=b"x")),
    ]
    found = await calls.get_checkpoint(REF)
    assert found is not None
    assert found.state.channels[0].value == Value(type="b", data=b"x")


async def test_a_missing_checkpoint_is_none(served: tuple[Flaky, str], calls: AsyncCalls) -> None:
    flaky, target = served
    missing = refusal(grpc.StatusCode.NOT_FOUND, "CHECKPOINT_NOT_FOUND")
    flaky.refusals = [missing, missing]
    assert await calls.get_checkpoint(REF) is None
    async with AsyncClient(target) as client:
        with pytest.raises(NotFound, match="'1' in namespace '' of thread 't'"):
            await client.load("t", "1")


async def test_a_listing_is_begun_again_only_before_its_first_frame(
    served: tuple[Flaky, str], calls: AsyncCalls, pauses: list[float]
) -> None:
    flaky, _ = served
    gone = refusal(grpc.StatusCode.UNAVAILABLE, "DRAINING", 1)
    flaky.frames = [pb.ListCheckpointsResponse(checkpoint=Checkpoint(ref=REF))]
    flaky.refusals, flaky.late_refusals = [gone], [gone]
    read = []

    async def read_all() -> None:
        async for one in calls.list_checkpoints(pb.ListCheckpointsRequest()):
            read.append(one)  # noqa: PERF401 - what came before the error counts

    with pytest.raises(errors.Unavailable):
        await read_all()
    assert (len(read), len(flaky.requests), len(pauses)) == (1, 2, 1)


async def test_a_cancelled_task_cancels_its_call(
    served: tuple[Flaky, str], calls: AsyncCalls
) -> None:
    flaky, _ = served
    flaky.hold.clear()
    saving = asyncio.create_task(calls.save_checkpoint(SAVE))
    await flaky.arrived.wait()
    saving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await saving
    await asyncio.wait_for(flaky.cancelled.wait(), 10)


async def test_a_deadline_is_kept_and_not_retried(served: tuple[Flaky, str]) -> None:
    flaky, target = served
    flaky.hold.clear()
    calls = AsyncCalls(Options(target, timeout_s=0.3))
    with pytest.raises(errors.DeadlineExceeded, match=target):
        await calls.save_checkpoint(SAVE)
    assert len(flaky.requests) == 1
    await calls.aclose()


async def test_closing_the_client_ends_a_call_of_another_task(served: tuple[Flaky, str]) -> None:
    flaky, target = served
    flaky.hold.clear()
    kinds: list[Callable[[AsyncCalls], Any]] = [
        lambda calls: calls.save_checkpoint(SAVE),
        lambda calls: anext(calls.list_checkpoints(pb.ListCheckpointsRequest(thread_id="t"))),
    ]
    for call in kinds:
        calls = AsyncCalls(Options(target))
        flaky.arrived.clear()
        blocked = asyncio.ensure_future(call(calls))
        await asyncio.wait_for(flaky.arrived.wait(), 10)
        await calls.aclose()
        with pytest.raises(errors.TuskPointError, match="closed"):
            await blocked


async def test_closing_the_client_ends_a_call_in_another_thread(served: tuple[Flaky, str]) -> None:
    flaky, target = served
    flaky.hold.clear()
    calls = SyncCalls(Options(target))
    blocked = asyncio.create_task(asyncio.to_thread(calls.save_checkpoint, SAVE))
    await asyncio.wait_for(flaky.arrived.wait(), 10)
    calls.close()
    with pytest.raises(errors.TuskPointError, match="closed"):
        await blocked


def in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


async def test_several_loops_in_threads_share_a_client(
    served: tuple[Flaky, str], calls: AsyncCalls
) -> None:
    flaky, _ = served

    async def save_some() -> None:
        await asyncio.gather(*(calls.save_checkpoint(SAVE) for _ in range(10)))

    threads = [in_thread(lambda: asyncio.run(save_some())) for _ in range(4)]
    await save_some()
    for thread in threads:
        await asyncio.to_thread(thread.join, 30)
    assert len(flaky.requests) == 50


async def test_a_client_outlives_the_loops_that_used_it(served: tuple[Flaky, str]) -> None:
    _, target = served
    calls = AsyncCalls(Options(target))

    async def save() -> None:
        await calls.save_checkpoint(SAVE)

    for _ in range(5):
        await asyncio.to_thread(asyncio.run, save())
    await save()
    await calls.aclose()
    with pytest.raises(errors.TuskPointError, match="closed"):
        await save()


async def test_many_threads_share_a_sync_client(served: tuple[Flaky, str]) -> None:
    flaky, target = served
    calls = SyncCalls(Options(target))

    def save_some() -> None:
        for _ in range(10):
            calls.save_checkpoint(SAVE)

    await asyncio.gather(*(asyncio.to_thread(save_some) for _ in range(8)))
    assert len(flaky.requests) == 80
    calls.close()


async def test_a_loopback_target_goes_around_the_proxy(
    served: tuple[Flaky, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, target = served
    for name in ("http_proxy", "https_proxy", "grpc_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    async with AsyncClient(target, timeout_s=5) as client:
        assert (await client.load("t", "1")).checkpoint_id == "1"
    with Client(target, timeout_s=5) as blocking:
        assert (await asyncio.to_thread(blocking.load, "t", "1")).checkpoint_id == "1"
