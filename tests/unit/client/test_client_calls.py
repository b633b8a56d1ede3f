"""Unary calls and streams on a scripted channel: retries, fallbacks, error mapping."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import grpc
import grpc_testing  # type: ignore[import-untyped]
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

from tuskpoint import errors
from tuskpoint._sync.calls import SyncCalls
from tuskpoint._transport.settings.options import Options
from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint.v1 import thread_service_pb2
from tuskpoint.v1.checkpoint_pb2 import (
    SOURCE_BLOB,
    VIEW_ENTRY,
    Checkpoint,
    CheckpointRef,
    CheckpointState,
)
from tuskpoint.v1.value_pb2 import Channel, LargeValue, Value, ValueChunk

OK = grpc.StatusCode.OK
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
SERVICE = pb.DESCRIPTOR.services_by_name["CheckpointService"]
THREADS = thread_service_pb2.DESCRIPTOR.services_by_name["ThreadService"]
REF = CheckpointRef(thread_id="t", checkpoint_id="1")
SAVE = pb.SaveCheckpointRequest(checkpoint=Checkpoint(ref=REF))

Trailers = tuple[tuple[str, bytes], ...]


def refusal(code: grpc.StatusCode, reason: str, retry_after_s: int | None = None) -> Trailers:
    status = status_pb2.Status(code=code.value[0], message="m")
    status.details.add().Pack(error_details_pb2.ErrorInfo(reason=reason, domain="tuskpoint.dev"))
    if retry_after_s is not None:
        delay = Duration(seconds=retry_after_s)
        status.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=delay))
    return (("grpc-status-details-bin", status.SerializeToString()),)


class Clock:
    """The time of the calls, on which pauses take none."""

    monotonic = staticmethod(time.monotonic)

    def __init__(self, pauses: list[float]) -> None:
        self.sleep = pauses.append


class Script:
    """A client thread under test, and the server's side of its calls."""

    def __init__(
        self, channel: grpc_testing.Channel, calls: SyncCalls, pauses: list[float]
    ) -> None:
        self.channel, self.calls, self.pauses = channel, calls, pauses

    def start(self, call: Callable[[], Any]) -> Future[Any]:
        """Make a call in a thread that does not outlive a failed test's process."""
        outcome: Future[Any] = Future()

        def run() -> None:
            try:
                outcome.set_result(call())
            except Exception as error:  # noqa: BLE001 - handed to the test
                outcome.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        return outcome

    def unary(
        self,
        name: str,
        answer: Any = None,
        code: grpc.StatusCode = OK,
        trailers: Trailers = (),
        service: Any = SERVICE,
    ) -> Any:
        """Answer the next unary call; return its request."""
        _, request, rpc = self.channel.take_unary_unary(service.methods_by_name[name])
        rpc.send_initial_metadata(())
        rpc.terminate(answer, trailers, code, "m")
        return request

    def stream(
        self,
        name: str,
        *frames: Any,
        code: grpc.StatusCode = OK,
        trailers: Trailers = (),
    ) -> Any:
        """Answer the next call with a stream; return its request."""
        _, request, rpc = self.channel.take_unary_stream(SERVICE.methods_by_name[name])
        rpc.send_initial_metadata(())
        for frame in frames:
            rpc.send_response(frame)
        rpc.terminate(trailers, code, "m")
        return request


@contextmanager
def scripted(monkeypatch: pytest.MonkeyPatch, options: Options) -> Iterator[Script]:
    descriptors = [SERVICE, THREADS]
    channel = grpc_testing.channel(descriptors, grpc_testing.strict_real_time())
    pauses: list[float] = []
    monkeypatch.setattr(grpc, "insecure_channel", lambda *_, **__: channel)
    monkeypatch.setattr("tuskpoint._sync.transport.time", Clock(pauses))
    script = Script(channel, SyncCalls(options), pauses)
    script.calls._has_exchange = False
    yield script
    script.calls.close()


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Script]:
    with scripted(monkeypatch, Options("scripted:1")) as made:
        yield made


def test_a_save_is_sent_again_until_it_is_answered(script: Script) -> None:
    saving = script.start(lambda: script.calls.save_checkpoint(SAVE))
    drained = refusal(UNAVAILABLE, "DRAINING", 1)
    assert script.unary("SaveCheckpoint", code=UNAVAILABLE) == SAVE
    assert script.unary("SaveCheckpoint", code=UNAVAILABLE, trailers=drained) == SAVE
    answer = pb.SaveCheckpointResponse(ref=REF, seq=1)
    assert script.unary("SaveCheckpoint", answer) == SAVE
    assert saving.result(5) == answer
    first, second = script.pauses
    assert 0 <= first < 0.2
    assert 1 <= second < 2


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (grpc.StatusCode.ABORTED, "HEAD_MOVED", errors.Conflict),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "", errors.DeadlineExceeded),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_EXCEEDED", errors.ResourceExhausted),
        (grpc.StatusCode.FAILED_PRECONDITION, "VALUES_MISSING", errors.ValuesMissing),
        (grpc.StatusCode.FAILED_PRECONDITION, "THREAD_DELETED", errors.ThreadDeleted),
        (grpc.StatusCode.INTERNAL, "INTERNAL_ERROR", errors.ServerError),
    ],
)
def test_what_waiting_does_not_help_is_raised_at_once(
    script: Script, code: grpc.StatusCode, reason: str, kind: type[Exception]
) -> None:
    saving = script.start(lambda: script.calls.save_checkpoint(SAVE))
    script.unary("SaveCheckpoint", code=code, trailers=refusal(code, reason) if reason else ())
    with pytest.raises(kind):
        saving.result(5)
    assert script.pauses == []


def test_a_full_backlog_is_waited_for(script: Script) -> None:
    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    saving = script.start(lambda: script.calls.save_checkpoint(SAVE))
    script.unary("SaveCheckpoint", code=code, trailers=refusal(code, "BACKLOG_FULL", 5))
    script.unary("SaveCheckpoint", pb.SaveCheckpointResponse())
    saving.result(5)
    assert 5 <= script.pauses[0] < 6


def test_a_save_that_mints_its_id_is_not_sent_twice(script: Script) -> None:
    nameless = pb.SaveCheckpointRequest(checkpoint=Checkpoint(ref=CheckpointRef(thread_id="t")))
    saving = script.start(lambda: script.calls.save_checkpoint(nameless))
    script.unary("SaveCheckpoint", code=UNAVAILABLE)
    with pytest.raises(errors.Unavailable):
        saving.result(5)
    assert script.pauses == []


def test_the_time_for_retries_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted(monkeypatch, Options("scripted:2", timeout_s=5.0)) as script:
        saving = script.start(lambda: script.calls.save_checkpoint(SAVE))
        trailers = refusal(UNAVAILABLE, "BLOB_UNAVAILABLE", 6)
        script.unary("SaveCheckpoint", code=UNAVAILABLE, trailers=trailers)
        with pytest.raises(errors.Unavailable) as caught:
            saving.result(5)
        assert caught.value.retry_after_s == 6
        assert isinstance(caught.value.__cause__, grpc.RpcError)


def test_a_missing_checkpoint_is_none_and_nothing_else_is(script: Script) -> None:
    code = grpc.StatusCode.NOT_FOUND
    getting = script.start(lambda: script.calls.get_checkpoint(REF))
    trailers = refusal(code, "CHECKPOINT_NOT_FOUND")
    script.unary("GetCheckpoint", code=code, trailers=trailers)
    assert getting.result(5) is None
    getting = script.start(lambda: script.calls.get_checkpoint(REF, source=SOURCE_BLOB))
    script.unary("GetCheckpoint", code=code, trailers=refusal(code, "BLOB_NOT_FOUND"))
    with pytest.raises(errors.NotFound):
        getting.result(5)


def test_a_checkpoint_too_large_for_a_message_is_streamed(script: Script) -> None:
    code = grpc.StatusCode.FAILED_PRECONDITION
    call = lambda: script.calls.get_checkpoint(REF, view=VIEW_ENTRY, source=SOURCE_BLOB)  # noqa: E731
    getting = script.start(call)
    trailers = refusal(code, "CHECKPOINT_TOO_LARGE")
    asked = script.unary("GetCheckpoint", code=code, trailers=trailers)
    assert (asked.view, asked.source) == (VIEW_ENTRY, SOURCE_BLOB)
    state = CheckpointState(channels=[Channel(name="c", large=LargeValue(type="b", size_bytes=2))])
    asked = script.stream(
        "LoadCheckpoint",
        pb.LoadCheckpointResponse(checkpoint=Checkpoint(ref=REF, state=state)),
        pb.LoadCheckpointResponse(chunk=ValueChunk(data=b"xy")),
    )
    assert (asked.ref, asked.view, asked.source) == (REF, VIEW_ENTRY, SOURCE_BLOB)
    (channel,) = getting.result(5).state.channels
    assert channel.value == Value(type="b", data=b"xy")


def test_a_stream_is_begun_again_only_before_its_first_frame(script: Script) -> None:
    listing = script.start(lambda: list(script.calls.list_checkpoints(pb.ListCheckpointsRequest())))
    one = pb.ListCheckpointsResponse(checkpoint=Checkpoint(ref=REF))
    script.stream("ListCheckpoints", code=UNAVAILABLE)
    script.stream("ListCheckpoints", one, one)
    assert len(listing.result(5)) == 2

    read = threading.Event()

    def read_all() -> None:
        for _ in script.calls.list_checkpoints(pb.ListCheckpointsRequest()):
            read.set()

    listing = script.start(read_all)
    method = SERVICE.methods_by_name["ListCheckpoints"]
    _, _, rpc = script.channel.take_unary_stream(method)
    rpc.send_initial_metadata(())
    rpc.send_response(one)
    assert read.wait(5)
    rpc.terminate((), UNAVAILABLE, "m")
    with pytest.raises(errors.Unavailable):
        listing.result(5)
    assert len(script.pauses) == 1


def test_a_listing_that_is_left_is_cancelled(script: Script) -> None:
    def read_one() -> Checkpoint:
        listing = script.calls.list_checkpoints(pb.ListCheckpointsRequest())
        first = next(listing)
        listing.close()
        return first

    reading = script.start(read_one)
    method = SERVICE.methods_by_name["ListCheckpoints"]
    _, _, rpc = script.channel.take_unary_stream(method)
    rpc.send_initial_metadata(())
    rpc.send_response(pb.ListCheckpointsResponse(checkpoint=Checkpoint(ref=REF)))
    assert reading.result(5).ref == REF
    rpc.cancelled()


def test_a_copy_is_named_once_for_all_its_attempts(script: Script) -> None:
    request = thread_service_pb2.CopyThreadRequest(source_thread_id="a", target_thread_id="b")
    copying = script.start(lambda: script.calls.copy_thread(request))
    first = script.unary("CopyThread", code=UNAVAILABLE, service=THREADS)
    second = script.unary("CopyThread", thread_service_pb2.CopyThreadResponse(), service=THREADS)
    copying.result(5)
    assert first.request_id == second.request_id != ""
    assert request.request_id == ""
    copying = script.start(lambda: script.calls.copy_thread(request))
    third = script.unary("CopyThread", thread_service_pb2.CopyThreadResponse(), service=THREADS)
    copying.result(5)
    assert third.request_id not in ("", first.request_id)


def test_a_closed_client_says_so(script: Script) -> None:
    script.calls.close()
    script.calls.close()
    with pytest.raises(errors.TuskPointError, match="closed"):
        script.calls.flush()
