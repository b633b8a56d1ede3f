"""Calls to a scripted server retry, report errors, read large answers, and end cleanly."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from types import SimpleNamespace

import grpc
import pytest

from tests.unit.client.faces import CallsFace, Face
from tests.unit.client.scripted_services import Hold, Refuse, ScriptedServices
from tuskpoint import errors
from tuskpoint._async.calls import AsyncCalls
from tuskpoint._sync.calls import SyncCalls
from tuskpoint._transport.settings.options import Options
from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint.v1.checkpoint_pb2 import (
    SOURCE_BLOB,
    VIEW_ENTRY,
    Checkpoint,
    CheckpointRef,
    CheckpointState,
)
from tuskpoint.v1.value_pb2 import Channel, LargeValue, Value, ValueChunk

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
REF = CheckpointRef(thread_id="t", checkpoint_id="1")
SAVE = pb.SaveCheckpointRequest(checkpoint=Checkpoint(ref=REF))
SAVED = pb.SaveCheckpointResponse(ref=REF)
LISTING = pb.ListCheckpointsRequest(thread_id="t")
LISTED = pb.ListCheckpointsResponse(checkpoint=Checkpoint(ref=REF))
LOST = Refuse(UNAVAILABLE, "")


@pytest.fixture(params=["sync", "async"])
async def calls(request: pytest.FixtureRequest, target: str) -> AsyncIterator[CallsFace]:
    made = CallsFace(request.param, target)
    yield made
    await made.aclose()


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Record the pauses between attempts, and skip the waiting."""
    lengths: list[float] = []

    async def sleep(seconds: float) -> None:
        lengths.append(seconds)

    blocking = SimpleNamespace(monotonic=time.monotonic, sleep=lengths.append)
    awaited = SimpleNamespace(CancelledError=asyncio.CancelledError, sleep=sleep)
    monkeypatch.setattr("tuskpoint._sync.transport.time", blocking)
    monkeypatch.setattr("tuskpoint._async.transport.asyncio", awaited)
    return lengths


# --- retries and errors ----------------------------------------------------------------


async def test_a_save_is_sent_again_until_it_is_answered(
    services: ScriptedServices, calls: CallsFace, pauses: list[float]
) -> None:
    backlog = Refuse(grpc.StatusCode.RESOURCE_EXHAUSTED, "BACKLOG_FULL", retry_after_s=7)
    for step in (LOST, Refuse(UNAVAILABLE, "DRAINING", retry_after_s=3), backlog, SAVED):
        services.on("SaveCheckpoint", step)
    assert await calls.call("save_checkpoint", SAVE) == SAVED
    assert services.requests == [SAVE] * 4
    first, second, third = pauses
    assert 0 <= first < 0.2
    assert 3 <= second < 4
    assert 7 <= third < 8


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (grpc.StatusCode.ABORTED, "HEAD_MOVED", errors.Conflict),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "", errors.DeadlineExceeded),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_EXCEEDED", errors.ResourceExhausted),
        (grpc.StatusCode.FAILED_PRECONDITION, "VALUES_MISSING", errors.ValuesMissing),
        (grpc.StatusCode.INTERNAL, "INTERNAL_ERROR", errors.ServerError),
        (grpc.StatusCode.DATA_LOSS, "BLOB_HASH_MISMATCH", errors.DataLoss),
    ],
)
async def test_an_error_that_waiting_cannot_help_is_raised_at_once(
    services: ScriptedServices,
    calls: CallsFace,
    pauses: list[float],
    code: grpc.StatusCode,
    reason: str,
    kind: type[errors.TuskPointError],
) -> None:
    services.on("SaveCheckpoint", Refuse(code, reason))
    with pytest.raises(kind, match=f"refused: {reason}") as caught:
        await calls.call("save_checkpoint", SAVE)
    assert (caught.value.reason, caught.value.status) == (reason, code.name)
    assert (len(services.requests), pauses) == (1, [])


async def test_a_save_that_mints_its_id_is_not_sent_twice(
    services: ScriptedServices, calls: CallsFace, pauses: list[float]
) -> None:
    nameless = pb.SaveCheckpointRequest(checkpoint=Checkpoint(ref=CheckpointRef(thread_id="t")))
    services.on("SaveCheckpoint", LOST)
    with pytest.raises(errors.Unavailable):
        await calls.call("save_checkpoint", nameless)
    assert pauses == []


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_no_retry_begins_after_the_timeout(
    services: ScriptedServices, target: str, kind: str
) -> None:
    services.on("SaveCheckpoint", Refuse(UNAVAILABLE, "BLOB_UNAVAILABLE", retry_after_s=6))
    calls = CallsFace(kind, target, timeout_s=5.0)
    with pytest.raises(errors.Unavailable) as caught:
        await calls.call("save_checkpoint", SAVE)
    assert caught.value.retry_after_s == 6
    assert isinstance(caught.value.__cause__, grpc.RpcError)
    await calls.aclose()


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_call_is_not_retried_after_its_deadline(
    services: ScriptedServices, target: str, kind: str
) -> None:
    services.on("SaveCheckpoint", Hold())
    calls = CallsFace(kind, target, timeout_s=0.3)
    with pytest.raises(errors.DeadlineExceeded, match=target):
        await calls.call("save_checkpoint", SAVE)
    assert len(services.requests) <= 1  # none if connecting took all the time
    await calls.aclose()


async def test_only_a_missing_checkpoint_is_none(
    services: ScriptedServices, calls: CallsFace
) -> None:
    services.on("GetCheckpoint", Refuse(grpc.StatusCode.NOT_FOUND, "CHECKPOINT_NOT_FOUND"))
    assert await calls.call("get_checkpoint", REF) is None
    services.on("GetCheckpoint", Refuse(grpc.StatusCode.NOT_FOUND, "BLOB_NOT_FOUND"))
    with pytest.raises(errors.NotFound):
        await calls.call("get_checkpoint", REF, source=SOURCE_BLOB)


async def test_loading_a_missing_checkpoint_names_it(
    services: ScriptedServices, face: Face
) -> None:
    services.on("GetCheckpoint", Refuse(grpc.StatusCode.NOT_FOUND, "CHECKPOINT_NOT_FOUND"))
    with pytest.raises(errors.NotFound, match="checkpoint '1' not found in thread 't'"):
        await face.call("load", "t", "1")


async def test_a_checkpoint_too_large_for_a_message_is_streamed(
    services: ScriptedServices, calls: CallsFace
) -> None:
    state = CheckpointState(channels=[Channel(name="c", large=LargeValue(type="b", size_bytes=2))])
    too_large = Refuse(grpc.StatusCode.FAILED_PRECONDITION, "CHECKPOINT_TOO_LARGE")
    services.on("GetCheckpoint", too_large)
    services.on(
        "LoadCheckpoint",
        pb.LoadCheckpointResponse(checkpoint=Checkpoint(ref=REF, state=state)),
        pb.LoadCheckpointResponse(chunk=ValueChunk(data=b"xy")),
    )
    checkpoint = await calls.call("get_checkpoint", REF, view=VIEW_ENTRY, source=SOURCE_BLOB)
    (channel,) = checkpoint.state.channels
    assert channel.value == Value(type="b", data=b"xy")
    requests = [(request.ref, request.view, request.source) for request in services.requests]
    assert requests == [(REF, VIEW_ENTRY, SOURCE_BLOB)] * 2


async def test_a_listing_is_begun_again_only_before_its_first_frame(
    services: ScriptedServices, calls: CallsFace, pauses: list[float]
) -> None:
    services.on("ListCheckpoints", LOST)
    services.on("ListCheckpoints", LISTED, LISTED)
    assert len(await calls.take("list_checkpoints", 9, LISTING)) == 2
    assert len(pauses) == 1
    services.on("ListCheckpoints", LISTED, LOST)
    with pytest.raises(errors.Unavailable):
        await calls.take("list_checkpoints", 9, LISTING)
    assert len(pauses) == 1


# --- how calls end ---------------------------------------------------------------------


async def test_leaving_a_listing_cancels_it(services: ScriptedServices, calls: CallsFace) -> None:
    hold = Hold()
    services.on("ListCheckpoints", LISTED, hold)
    [first] = await calls.take("list_checkpoints", 1, LISTING)
    assert first.ref == REF
    assert await asyncio.to_thread(hold.left.wait, 10)


async def test_cancelling_a_task_cancels_its_call(services: ScriptedServices, target: str) -> None:
    calls, hold = AsyncCalls(Options(target)), Hold()
    services.on("SaveCheckpoint", hold)
    saving = asyncio.create_task(calls.save_checkpoint(SAVE))
    assert await asyncio.to_thread(hold.arrived.wait, 10)
    saving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await saving
    assert await asyncio.to_thread(hold.left.wait, 10)
    await calls.aclose()


async def test_closing_the_client_ends_its_calls(
    services: ScriptedServices, calls: CallsFace
) -> None:
    ends: list[Awaitable[object]] = []
    for name, method, request in (
        ("SaveCheckpoint", "save_checkpoint", SAVE),
        ("ListCheckpoints", "list_checkpoints", LISTING),
    ):
        hold = Hold()
        services.on(name, hold)
        call = calls.take(method, 1, request) if request is LISTING else calls.call(method, request)
        ends.append(asyncio.ensure_future(call))
        assert await asyncio.to_thread(hold.arrived.wait, 10)
    await calls.aclose()
    for end in ends:
        with pytest.raises(errors.TuskPointError, match="closed"):
            await end


async def test_a_closed_client_raises(services: ScriptedServices, calls: CallsFace) -> None:
    await calls.aclose()
    await calls.aclose()
    with pytest.raises(errors.TuskPointError, match="closed"):
        await calls.call("save_checkpoint", SAVE)
    assert services.requests == []


# --- event loops and threads -----------------------------------------------------------


def in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


async def test_several_event_loops_share_a_client(services: ScriptedServices, target: str) -> None:
    calls = AsyncCalls(Options(target))
    for _ in range(50):
        services.on("SaveCheckpoint", SAVED)

    async def save_some() -> None:
        await asyncio.gather(*(calls.save_checkpoint(SAVE) for _ in range(10)))

    threads = [in_thread(lambda: asyncio.run(save_some())) for _ in range(4)]
    await save_some()
    for thread in threads:
        await asyncio.to_thread(thread.join, 30)
    assert len(services.requests) == 50
    await calls.aclose()


async def test_a_client_outlives_the_loops_that_used_it(
    services: ScriptedServices, target: str
) -> None:
    calls = AsyncCalls(Options(target))

    async def save() -> None:
        services.on("SaveCheckpoint", SAVED)
        await calls.save_checkpoint(SAVE)

    for _ in range(5):
        await asyncio.to_thread(asyncio.run, save())
    await save()
    await calls.aclose()


async def test_many_threads_share_a_blocking_client(
    services: ScriptedServices, target: str
) -> None:
    calls = SyncCalls(Options(target))
    for _ in range(80):
        services.on("SaveCheckpoint", SAVED)

    def save_some() -> None:
        for _ in range(10):
            calls.save_checkpoint(SAVE)

    await asyncio.gather(*(asyncio.to_thread(save_some) for _ in range(8)))
    assert len(services.requests) == 80
    calls.close()
