"""Calls over `Exchange` streams succeed or fail correctly whatever the server does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from tests.unit.client.exchange.kit import DRAINING, Client, off_loop, save
from tests.unit.client.exchange.server import ExchangeServer, answer_to, refusal_of
from tests.unit.client.recorded import Recorded
from tests.unit.client.scripted_services import WAIT_SECONDS, Refuse, ScriptedServices, serving
from tuskpoint import errors
from tuskpoint._async.calls import AsyncCalls
from tuskpoint._sync.calls import SyncCalls
from tuskpoint._transport.settings.options import Options
from tuskpoint._transport.settings.security import Security
from tuskpoint._transport.settings.token import TokenFile
from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint.v1.checkpoint_pb2 import (
    DURABILITY_CERTIFIED,
    DURABILITY_JOURNALED,
    Checkpoint,
    CheckpointRef,
    Durability,
)
from tuskpoint.v1.errors_pb2 import CallError, ErrorReason
from tuskpoint.v1.value_pb2 import PendingWrite, Value


def until(done: Callable[[], bool]) -> None:
    while not done():
        time.sleep(0.001)


async def test_calls_share_a_stream_and_may_be_answered_in_any_order(
    server: ExchangeServer, client: Client
) -> None:
    saved = client.start("save_checkpoint", save("1"))
    stream = await off_loop(server.accept)
    first = await off_loop(stream.receive)
    assert first.hello.attempt == 1
    (save_frame,) = first.frames
    assert save_frame.save == save("1")
    assert 29 < save_frame.timeout.ToTimedelta().total_seconds() <= 30
    writes = pb.SaveWritesRequest(ref=save().checkpoint.ref)
    written = client.start("save_writes", writes)
    (writes_frame,) = await off_loop(stream.frames, 1)
    got = client.start("get_checkpoint", save("3").checkpoint.ref)
    (get_frame,) = await off_loop(stream.frames, 1)
    assert (writes_frame.writes, get_frame.get.ref.checkpoint_id) == (writes, "3")
    for frame in (get_frame, save_frame, writes_frame):
        stream.send(answer_to(frame))
    assert (await saved).ref.checkpoint_id == "1"
    assert (await written).durability
    assert (await got).ref.checkpoint_id == "3"
    assert server.is_idle


async def test_calls_made_while_two_messages_are_under_way_go_into_the_next(
    server: ExchangeServer, client: Client
) -> None:
    made = [client.start("save_checkpoint", save("0"))]
    stream = await off_loop(server.accept)
    frames = await off_loop(stream.frames, 1)
    made.append(client.start("save_checkpoint", save("1")))
    frames += await off_loop(stream.frames, 1)
    lanes = (client.blocking if client.kind == "sync" else client.awaited)._streams
    assert lanes is not None
    made += [client.start("save_checkpoint", save(str(number))) for number in range(2, 12)]
    await off_loop(until, lambda: len(lanes._lanes.small.calls) == 12)
    stream.send(answer_to(frames[0]))
    message = await off_loop(stream.receive)
    assert len(message.frames) == 10
    stream.send(*(answer_to(frame) for frame in (frames[1], *message.frames)))
    assert len(await asyncio.gather(*made)) == 12


async def test_a_call_that_waiting_helps_is_sent_again_on_the_same_stream(
    server: ExchangeServer, client: Client
) -> None:
    saved = client.start("save_checkpoint", save("1"))
    stream = await off_loop(server.accept)
    full = CallError(
        code=grpc.StatusCode.RESOURCE_EXHAUSTED.value[0],
        reason=ErrorReason.ERROR_REASON_BACKLOG_FULL,
        retry_after=Duration(nanos=1),
    )
    (frame,) = await off_loop(stream.frames, 1)
    stream.send(refusal_of(frame, full))
    (again,) = await off_loop(stream.frames, 1)
    assert (again.id, again.save) == (2, save("1"))
    stream.send(answer_to(again))
    await saved


@pytest.mark.parametrize(
    "end",
    [None, DRAINING, Refuse(grpc.StatusCode.INTERNAL, ""), Refuse(grpc.StatusCode.CANCELLED, "")],
    ids=["ended", "draining", "internal", "cancelled"],
)
async def test_after_a_break_unanswered_calls_are_sent_again_in_order(
    server: ExchangeServer, client: Client, end: Refuse | None
) -> None:
    made = [client.start("save_checkpoint", save("0"))]
    stream = await off_loop(server.accept)
    first = await off_loop(stream.receive)
    made.append(client.start("save_checkpoint", save("1")))
    (answered,) = await off_loop(stream.frames, 1)
    stream.send(answer_to(answered))
    await made[1]
    made.append(client.start("save_checkpoint", save("2")))
    await off_loop(stream.frames, 1)
    stream.end(end)
    stream = await off_loop(server.accept)
    message = await off_loop(stream.receive)
    assert message.hello == pb.Hello(session=first.hello.session, attempt=2)
    again = [*message.frames]
    assert [frame.save.checkpoint.ref.checkpoint_id for frame in again] == ["0", "2"]
    stream.send(*(answer_to(frame) for frame in again))
    assert [checkpoint.ref.checkpoint_id for checkpoint in await asyncio.gather(*made)] == [
        "0",
        "1",
        "2",
    ]


async def test_a_save_without_an_id_fails_if_its_outcome_is_unknown(
    server: ExchangeServer, client: Client
) -> None:
    minted = client.start("save_checkpoint", save(""))
    stream = await off_loop(server.accept)
    await off_loop(stream.frames, 1)
    stream.end(Refuse(grpc.StatusCode.UNAVAILABLE, ""))
    with pytest.raises(errors.Unavailable):
        await minted
    assert server.is_idle


async def test_a_save_without_an_id_is_sent_again_if_the_server_did_not_begin_it(
    server: ExchangeServer, client: Client
) -> None:
    minted = client.start("save_checkpoint", save(""))
    stream = await off_loop(server.accept)
    await off_loop(stream.frames, 1)
    stream.send(draining=True)
    stream.end(DRAINING)
    stream = await off_loop(server.accept)
    (frame,) = await off_loop(stream.frames, 1)
    stream.send(answer_to(frame))
    await minted


async def test_a_certified_save_waits_for_its_last_answer(
    server: ExchangeServer, client: Client
) -> None:
    saved = client.start("save_checkpoint", save("1", durability=DURABILITY_CERTIFIED))
    stream = await off_loop(server.accept)
    (frame,) = await off_loop(stream.frames, 1)
    assert frame.timeout.seconds > 200
    stream.send(answer_to(frame, last=False))
    stream.send(answer_to(frame, DURABILITY_CERTIFIED))
    assert (await saved).durability == DURABILITY_CERTIFIED


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_silent_server_takes_no_more_than_the_time_of_a_call(
    server: ExchangeServer, target: str, kind: str
) -> None:
    client = Client(kind, Options(target, timeout_s=0.2))
    for _ in range(3):  # unanswered calls block no later call
        late = client.start("save_checkpoint", save("1"))
        with pytest.raises(errors.DeadlineExceeded, match=target):
            await asyncio.wait_for(late, WAIT_SECONDS)
    stream = await off_loop(server.accept)
    frames = await off_loop(stream.frames, 3)
    kept = client.start("save_checkpoint", save("2"))
    (frame,) = await off_loop(stream.frames, 1)
    stream.send(*(answer_to(frame) for frame in (*frames, frame)))
    assert (await kept).ref.checkpoint_id == "2", "late answers are dropped"
    await client.aclose()


async def test_a_task_that_is_cancelled_leaves_its_call(
    server: ExchangeServer, target: str
) -> None:
    calls = AsyncCalls(Options(target))
    left = asyncio.create_task(calls.save_checkpoint(save("1")))
    stream = await off_loop(server.accept)
    (frame,) = await off_loop(stream.frames, 1)
    left.cancel()
    with pytest.raises(asyncio.CancelledError):
        await left
    unsent = asyncio.create_task(calls.save_checkpoint(save("2")))
    unsent.cancel()
    kept = asyncio.create_task(calls.save_checkpoint(save("3")))
    (other,) = await off_loop(stream.frames, 1)
    assert other.save.checkpoint.ref.checkpoint_id == "3"
    stream.send(answer_to(frame), answer_to(other))
    assert (await kept).ref.checkpoint_id == "3"
    await calls.aclose()


async def test_a_stream_that_breaks_the_contract_fails_its_calls(
    server: ExchangeServer, client: Client
) -> None:
    failed = client.start("save_checkpoint", save("1"))
    stream = await off_loop(server.accept)
    await off_loop(stream.frames, 1)
    stream.send(pb.Answer(id=99, last=True))
    with pytest.raises(errors.ServerError, match="an answer to unknown frame"):
        await failed
    assert await off_loop(stream.left.wait, WAIT_SECONDS)


async def test_large_saves_have_a_stream_of_their_own(
    server: ExchangeServer, client: Client
) -> None:
    value = Value(type="b", data=b"x" * (2 << 20))
    large = pb.SaveWritesRequest(
        ref=CheckpointRef(thread_id="large", checkpoint_id="1"),
        writes=[PendingWrite(task_id="a", channel="c", value=value)],
    )
    written = client.start("save_writes", large)
    chunked = await off_loop(server.accept)
    first, *chunks = await off_loop(chunked.frames, 3)
    assert first.writes.writes[0].large.size_bytes == 2 << 20
    assert b"".join(chunk.chunk.data for chunk in chunks) == value.data
    small = client.start("save_checkpoint", save("1"))
    stream = await off_loop(server.accept)
    (frame,) = await off_loop(stream.frames, 1)
    stream.send(answer_to(frame))
    await small
    after = client.start("save_checkpoint", save("2", "large"))
    other = client.start("save_checkpoint", save("3"))
    (frame,) = await off_loop(stream.frames, 1)
    assert frame.save == save("3"), "the save of the thread waits for its large one"
    chunked.send(answer_to(first))
    await written
    (last,) = await off_loop(stream.frames, 1)
    assert last.save == save("2", "large")
    stream.send(answer_to(frame), answer_to(last))
    await asyncio.gather(after, other)


async def test_a_message_that_is_too_large_is_not_sent(client: Client) -> None:
    huge = save()
    huge.checkpoint.metadata_json = bytes(9 << 20)
    with pytest.raises(errors.ResourceExhausted, match="save less in metadata"):
        await client.start("save_checkpoint", huge)


async def test_a_token_that_was_replaced_is_shown_by_the_next_stream(
    server: ExchangeServer, target: str, tmp_path: Path
) -> None:
    unknown = Refuse(grpc.StatusCode.UNAUTHENTICATED, "CREDENTIAL_INVALID")
    file = tmp_path / "token"
    file.write_text("old")
    options = Options(target, security=Security(token=TokenFile(file)))
    calls = AsyncCalls(options)
    saved = asyncio.create_task(calls.save_checkpoint(save("1")))
    stream = await off_loop(server.accept)
    assert stream.metadata["authorization"] == "Bearer old"
    await off_loop(stream.frames, 1)
    file.write_text("newer")
    stream.end(unknown)
    stream = await off_loop(server.accept)
    assert stream.metadata["authorization"] == "Bearer newer"
    await off_loop(stream.frames, 1)
    stream.end(unknown)
    with pytest.raises(errors.Unauthenticated, match="TUSKPOINT_TOKEN"):
        await saved
    assert server.is_idle
    await calls.aclose()


@pytest.mark.parametrize("durability", [DURABILITY_JOURNALED, DURABILITY_CERTIFIED])
async def test_a_new_token_moves_calls_to_another_stream_while_the_old_one_is_valid(
    server: ExchangeServer, target: str, tmp_path: Path, durability: Durability
) -> None:
    file = tmp_path / "token"
    file.write_text("old")
    calls = AsyncCalls(Options(target, security=Security(token=TokenFile(file))))
    first = save("1", durability=durability)
    saves = [asyncio.create_task(calls.save_checkpoint(first))]
    old = await off_loop(server.accept)
    (frame,) = await off_loop(old.frames, 1)
    file.write_text("newer")
    saves.append(asyncio.create_task(calls.save_checkpoint(save("2"))))
    streams = calls._streams
    assert streams is not None
    link = streams._links[streams._lanes.small]
    await off_loop(until, lambda: len(link.lane.calls) == 2 and link.is_idle)
    assert server.is_idle, "the stream ended before its save was answered"
    is_whole = durability == DURABILITY_JOURNALED
    old.send(answer_to(frame, last=is_whole))
    new = await off_loop(server.accept)
    assert new.metadata["authorization"] == "Bearer newer"
    assert await off_loop(old.left.wait, WAIT_SECONDS)
    expected = [save("2")] if is_whole else [first, save("2")]
    frames = await off_loop(new.frames, len(expected))
    assert [frame.save for frame in frames] == expected
    new.send(*(answer_to(frame, durability) for frame in frames))
    assert [checkpoint.ref.checkpoint_id for checkpoint in await asyncio.gather(*saves)] == [
        "1",
        "2",
    ]
    assert server.is_idle
    await calls.aclose()


def test_a_server_without_streams_gets_unary_calls() -> None:
    services = ScriptedServices()
    ref = save("1").checkpoint.ref
    services.on("GetCheckpoint", pb.GetCheckpointResponse(checkpoint=Checkpoint(ref=ref)))
    large = save()
    large.checkpoint.state.channels.add(name="c").value.data = bytes(2 << 20)
    with serving(services) as old:
        calls = SyncCalls(Options(old))
        checkpoint = calls.get_checkpoint(ref)
        assert checkpoint is not None
        assert checkpoint.ref == ref
        with pytest.raises(errors.Unimplemented, match="lacks this call"):
            calls.save_checkpoint(large)
        calls.close()


async def test_a_frame_carries_the_trace_of_its_caller(
    server: ExchangeServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = Recorded(monkeypatch)
    saved = client.start("save_checkpoint", save("1"))
    stream = await off_loop(server.accept)
    (frame,) = await off_loop(stream.frames, 1)
    stream.send(answer_to(frame))
    await saved
    span = recorded.span()
    context = span.get_span_context()
    assert context is not None
    assert frame.traceparent.split("-")[1:3] == [
        f"{context.trace_id:032x}",
        f"{context.span_id:016x}",
    ]
    assert span.name == "tuskpoint.v1.CheckpointService/SaveCheckpoint"
