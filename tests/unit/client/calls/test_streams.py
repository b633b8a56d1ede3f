"""Replays and watches continue after a lost stream: nothing is missing, nothing is repeated."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from tests.unit.client.faces import Face
from tests.unit.client.scripted_services import Hold, Refuse, ScriptedServices, serving
from tuskpoint import (
    InvalidRequest,
    NotFound,
    ServerError,
    TuskPointError,
    Unavailable,
    UnreadableValue,
    Write,
)
from tuskpoint._async.calls import AsyncCalls
from tuskpoint._sync.calls import SyncCalls
from tuskpoint._transport import policy
from tuskpoint._transport.methods import FORK_THREAD, GET_SERVER_INFO, WATCH_THREAD
from tuskpoint._transport.policy import ResumeAttempts, attempts, pause_or_raise
from tuskpoint._transport.retry import Repeat
from tuskpoint._transport.settings.options import Options
from tuskpoint.v1 import history_service_pb2 as pb
from tuskpoint.v1.admin_service_pb2 import GetServerInfoRequest
from tuskpoint.v1.checkpoint_pb2 import (
    VIEW_FULL,
    Checkpoint,
    CheckpointRef,
    CheckpointState,
)
from tuskpoint.v1.thread_service_pb2 import ForkThreadRequest
from tuskpoint.v1.value_pb2 import Channel, LargeValue, ValueChunk

GONE = Refuse(grpc.StatusCode.UNAVAILABLE, "DRAINING")
DROPPED = Refuse(grpc.StatusCode.CANCELLED, "")


def checkpoint(checkpoint_id: str, ns: str = "", *, large: int = 0) -> pb.ReplayThreadResponse:
    ref = CheckpointRef(thread_id="t", checkpoint_ns=ns, checkpoint_id=checkpoint_id)
    message = Checkpoint(ref=ref)
    if large:
        announced = LargeValue(type="json", size_bytes=large)
        message.state.CopyFrom(CheckpointState(channels=[Channel(name="c", large=announced)]))
    return pb.ReplayThreadResponse(checkpoint=message)


def replay_chunk(data: bytes, offset: int = 0) -> pb.ReplayThreadResponse:
    return pb.ReplayThreadResponse(chunk=ValueChunk(offset=offset, data=data))


def event(
    seq: int, kind: pb.EventKind = pb.EVENT_KIND_CHECKPOINT_SAVED, *, large: int = 0
) -> pb.WatchThreadResponse:
    made = pb.ThreadEvent(
        kind=kind, cursor=b"c%d" % seq, seq=seq, incarnation=1, time=Timestamp(seconds=seq)
    )
    if kind == pb.EVENT_KIND_CHECKPOINT_SAVED:
        made.checkpoint.CopyFrom(checkpoint(str(seq), large=large).checkpoint)
    return pb.WatchThreadResponse(event=made)


def watch_chunk(data: bytes, offset: int = 0) -> pb.WatchThreadResponse:
    return pb.WatchThreadResponse(chunk=ValueChunk(offset=offset, data=data))


@pytest.mark.parametrize("end", [GONE, DROPPED], ids=["draining", "dropped"])
async def test_a_replay_goes_on_after_the_last_checkpoint_of_all_namespaces(
    services: ScriptedServices, face: Face, end: Refuse
) -> None:
    services.on("ReplayThread", end)
    services.on("ReplayThread", checkpoint("1"), checkpoint("2"), checkpoint("2", "a"), end)
    services.on(
        "ReplayThread",
        checkpoint("2"),
        checkpoint("2", "a"),
        checkpoint("2", "b", large=2),
        replay_chunk(b"1"),
        end,
    )
    services.on(
        "ReplayThread",
        checkpoint("2", "a"),
        checkpoint("2", "b", large=2),
        replay_chunk(b"1"),
        replay_chunk(b"2", 1),
        checkpoint("3"),
    )
    checkpoints = await face.take("replay", 99, "t")
    assert [(checkpoint.checkpoint_id, checkpoint.checkpoint_ns) for checkpoint in checkpoints] == [
        ("1", ""),
        ("2", ""),
        ("2", "a"),
        ("2", "b"),
        ("3", ""),
    ]
    assert checkpoints[3].state == {"c": 12}
    assert [request.from_checkpoint_id for request in services.requests] == ["", "", "2", "2"]


async def test_a_replay_that_was_read_is_not_read_twice_after_its_end(
    services: ScriptedServices, face: Face
) -> None:
    services.on("ReplayThread", checkpoint("1"), GONE)
    services.on("ReplayThread", checkpoint("1"))
    assert len(await face.take("replay", 99, "t")) == 1


async def test_a_replay_that_breaks_the_contract_is_an_error(
    services: ScriptedServices, face: Face
) -> None:
    services.on("ReplayThread", checkpoint("1", large=2), replay_chunk(b"1"))
    with pytest.raises(ServerError, match="the end in the middle of a checkpoint's values"):
        await face.take("replay", 99, "t")


async def test_a_thread_that_is_gone_ends_a_replay(services: ScriptedServices, face: Face) -> None:
    services.on("ReplayThread", checkpoint("1"), GONE)
    services.on("ReplayThread", Refuse(grpc.StatusCode.NOT_FOUND, "THREAD_NOT_FOUND"))
    with pytest.raises(NotFound):
        await face.take("replay", 99, "t")


async def test_a_watch_asks_for_everything_by_default_and_ends_when_it_is_left(
    services: ScriptedServices, face: Face
) -> None:
    hold = Hold()
    services.on("WatchThread", event(1), hold)
    assert len(await face.take("watch", 1, "t")) == 1
    assert services.requests == [pb.WatchThreadRequest(thread_id="t", view=VIEW_FULL)]
    assert await asyncio.to_thread(hold.left.wait, 10)


@pytest.mark.parametrize("end", [(GONE,), (DROPPED,), ()], ids=["draining", "dropped", "ended"])
async def test_a_watch_goes_on_after_the_last_event_that_was_whole(
    services: ScriptedServices, face: Face, end: tuple[Refuse, ...]
) -> None:
    services.on("WatchThread", event(1), event(2), *end)
    services.on("WatchThread", *end)
    services.on("WatchThread", event(3, large=2), watch_chunk(b"1"), *end)
    services.on(
        "WatchThread", event(3, large=2), watch_chunk(b"1"), watch_chunk(b"2", 1), event(4), *end
    )
    services.on("WatchThread", event(5), Hold())
    events = await face.take("watch", 5, "t")
    assert [event.seq for event in events] == [1, 2, 3, 4, 5]
    assert events[2].checkpoint.state == {"c": 12}
    assert [request.cursor for request in services.requests] == [b"", b"c2", b"c2", b"c2", b"c4"]


async def test_progress_moves_the_cursor_and_is_reported_only_if_asked_for(
    services: ScriptedServices, face: Face
) -> None:
    progress = event(6, pb.EVENT_KIND_PROGRESS)
    for _ in range(2):
        services.on("WatchThread", progress, GONE)
        services.on("WatchThread", event(7, pb.EVENT_KIND_LABEL_SET), Hold())
    (label_event,) = await face.take("watch", 1, "t")
    assert (label_event.kind, label_event.checkpoint) == ("label_set", None)
    assert services.requests[1].cursor == b"c6"
    events = await face.take("watch", 2, "t", progress_s=1.5)
    assert services.requests[-1].progress_interval.ToMilliseconds() == 1500
    assert [event.kind for event in events] == ["progress", "label_set"]
    assert [event.is_progress for event in events] == [True, False]


async def test_a_kind_that_this_client_does_not_know_is_reported_by_its_number(
    services: ScriptedServices, face: Face
) -> None:
    services.on("WatchThread", event(1, 99), Hold())  # type: ignore[arg-type]
    (unknown_event,) = await face.take("watch", 1, "t")
    assert unknown_event.kind == "99"


@pytest.mark.parametrize(
    ("named", "field"),
    [
        ({"kinds": ["saved"]}, "kinds"),
        ({"kinds": []}, "kinds"),
        ({"view": "whole"}, "view"),
        ({"progress_s": 0.5}, "progress_s"),
        ({"progress_s": float("inf")}, "progress_s"),
    ],
)
async def test_a_watch_that_cannot_be_is_refused_before_any_call(
    services: ScriptedServices, face: Face, named: dict[str, object], field: str
) -> None:
    with pytest.raises(InvalidRequest, match=field):
        await face.take("watch", 1, "t", **named)
    assert services.requests == []


async def test_a_watch_gives_up_when_no_server_comes_back(target: str) -> None:
    options = replace(Options(target, timeout_s=0.3), resume_timeout_s=0.3)
    services = ScriptedServices()
    for _ in range(60):
        services.on("WatchThread", GONE)
    with serving(services) as own:
        options = replace(options, target=own)
        calls = AsyncCalls(options)
        with pytest.raises(Unavailable):
            await anext(calls.watch_thread(pb.WatchThreadRequest(thread_id="t")))
        await calls.aclose()
    assert len(services.requests) < 60


def test_the_time_to_find_a_server_begins_anew_with_every_delivery() -> None:
    options = Options("h:1", timeout_s=1e-9, resume_timeout_s=1000.0)
    tried = ResumeAttempts(options, WATCH_THREAD, pb.WatchThreadRequest())
    lost = Unavailable("gone", status="UNAVAILABLE")
    assert tried.timeout_s() is None
    with pytest.raises(Unavailable):
        tried.pause_or_raise(lost, ())
    tried.delivered()
    # 200 is more than the attempts of any call: only the time ends a watch.
    assert all(tried.pause_or_raise(lost, ()) <= 2 for _ in range(200))


def test_a_watch_without_events_goes_on_too(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(policy, "time", SimpleNamespace(monotonic=lambda: now))
    tried = ResumeAttempts(Options("h:1"), WATCH_THREAD, pb.WatchThreadRequest())
    lost = Unavailable("gone", status="UNAVAILABLE")
    for _ in range(3):
        tried.timeout_s()
        now += 3600  # the connection lasts an hour, and breaks
        began = now
        while now < began + 290:
            now += tried.pause_or_raise(lost, ())
            tried.timeout_s()
            now += 2  # no server answers
    now = began + 301
    with pytest.raises(Unavailable):
        tried.pause_or_raise(lost, ())


@pytest.mark.parametrize(("request_id", "repeat"), [("", Repeat.UNSAFE), ("x", Repeat.SAFE)])
def test_a_call_that_creates_is_repeated_only_with_a_request_id(
    request_id: str, repeat: Repeat
) -> None:
    lost = Unavailable("gone", status="UNAVAILABLE", reason="")
    request = ForkThreadRequest(request_id=request_id)
    tried = attempts(Options("h:1"), FORK_THREAD, request)
    if repeat is Repeat.SAFE:
        assert pause_or_raise(tried, lost, Options("h:1"), ()) >= 0
    else:
        with pytest.raises(Unavailable):
            pause_or_raise(tried, lost, Options("h:1"), ())


def test_closing_the_client_ends_a_watch_in_another_thread(
    services: ScriptedServices, target: str
) -> None:
    services.on("WatchThread", event(1), Hold())
    # A second client keeps the shared channel open.
    other, calls = SyncCalls(Options(target)), SyncCalls(Options(target))
    services.on("GetServerInfo", Refuse(grpc.StatusCode.INTERNAL, "INTERNAL_ERROR"))
    with pytest.raises(ServerError):
        other.unary(GET_SERVER_INFO, GetServerInfoRequest())
    watch = calls.watch_thread(pb.WatchThreadRequest(thread_id="t"))
    next(watch)

    async def closing() -> None:
        blocked = asyncio.create_task(asyncio.to_thread(next, watch))
        await asyncio.sleep(0)
        await asyncio.to_thread(calls.close)
        with pytest.raises(TuskPointError, match="closed"):
            await blocked

    asyncio.run(closing())
    other.close()


async def test_closing_the_client_ends_a_watch_of_another_task(
    services: ScriptedServices, target: str
) -> None:
    services.on("WatchThread", event(1), Hold())
    calls = AsyncCalls(Options(target))
    watch = calls.watch_thread(pb.WatchThreadRequest(thread_id="t"))
    await anext(watch)
    blocked = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0)
    await calls.aclose()
    with pytest.raises(TuskPointError, match="closed"):
        await blocked


async def test_a_task_that_is_cancelled_leaves_its_watch(
    services: ScriptedServices, target: str
) -> None:
    hold = Hold()
    services.on("WatchThread", event(1), hold)
    calls = AsyncCalls(Options(target))
    watch = calls.watch_thread(pb.WatchThreadRequest(thread_id="t"))
    await anext(watch)
    blocked = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0)
    blocked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await blocked
    assert await asyncio.to_thread(hold.left.wait, 10)
    await calls.aclose()


def test_a_pending_write_is_read_as_json() -> None:
    question = b'[{"value":"go?"}]'
    assert Write("task", "", -3, "__interrupt__", "json", question).value == [{"value": "go?"}]
    with pytest.raises(UnreadableValue, match="view='json'"):
        _ = Write("task", "", 0, "c", "msgpack", b"\x00").value
