"""An `Exchange` stream and its calls end correctly in every case."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from tests.integration.access.tls_kit import GRANTS, bearer, write_tokens
from tests.integration.api.exchange.exchange_kit import (
    CERTIFIED,
    EXCHANGE,
    Hold,
    Stream,
    chunk,
    get,
    hello,
    large,
    new_session,
    opened,
    reason_of,
    run,
    save,
    stored,
)
from tests.kit.messages import FIRST, SECOND, channel, collect, ref
from tests.kit.servers import http2
from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint.v1.checkpoint_pb2 import VIEW_JSON
from tuskpoint_server.api.server.server import Server
from tuskpoint_server.commands import serve
from tuskpoint_server.config.settings import Config
from tuskpoint_server.core.credentials import Credentials
from tuskpoint_server.features.checkpoints.checkpoints import Checkpoints

if TYPE_CHECKING:
    from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceAsyncStub

THIRD = "1f000000-0000-6000-8000-000000000003"
ABORTED, UNAVAILABLE = grpc.StatusCode.ABORTED, grpc.StatusCode.UNAVAILABLE
INVALID = grpc.StatusCode.INVALID_ARGUMENT


async def value_of(checkpoints: CheckpointServiceAsyncStub) -> bytes:
    [listed] = await collect(checkpoints.ListCheckpoints(pb.ListCheckpointsRequest()))
    return listed.state.channels[0].value.data


async def test_a_drain_answers_frames_already_read_and_begins_no_more(
    server: Server,
    grpc_channel: grpc.aio.Channel,
    hold: Hold,
    never_certified: asyncio.Event,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loading, load = asyncio.Event(), asyncio.Event()
    original = Checkpoints.load

    async def slow(*arguments: Any) -> Any:
        loading.set()
        await load.wait()
        return await original(*arguments)

    monkeypatch.setattr(Checkpoints, "load", slow)
    async with opened(grpc_channel) as stream:
        await stream.send(save(1, durability=CERTIFIED))
        while not stream.answers:
            await stream.read()
        await never_certified.wait()
        hold.close()
        await stream.send(
            get(2, view=VIEW_JSON),  # a load in its own task
            save(3, SECOND, durability=CERTIFIED),
            save(4, THIRD, channels=[channel("a", large=large(2))]),
            chunk(4, b"1"),
        )
        await hold.reached.wait()
        await loading.wait()
        draining = asyncio.create_task(server.pipeline.drain(60))
        while not stream.draining:
            await stream.read()
        await stream.send(save(5, THIRD), chunk(4, b"2", offset=1))
        assert reason_of(await stream.read_to(1)) == "DRAINING"
        hold.release()
        load.set()
        ended = await stream.end()
    assert ended is not None
    assert (ended.code, ended.reason) == (UNAVAILABLE, "DRAINING")
    assert "RetryInfo" in ended.kinds
    assert stream.last(2).got.checkpoint.ref.checkpoint_id == FIRST
    assert [reason_of(each) for each in stream.answers if each.id == 3] == ["", "DRAINING"]
    assert not {4, 5} & set(stream.numbers)
    assert await draining


async def test_a_new_stream_is_refused_while_the_server_drains(
    server: Server, grpc_channel: grpc.aio.Channel
) -> None:
    await server.pipeline.drain(1)
    stream, ended = await run(grpc_channel, [save(1)])
    assert ended is not None
    assert (ended.code, ended.reason) == (UNAVAILABLE, "DRAINING")
    assert not stream.answers


async def test_a_client_that_ends_the_stream_gets_every_answer(
    grpc_channel: grpc.aio.Channel, hold: Hold
) -> None:
    hold.close()
    async with opened(grpc_channel) as stream:
        await stream.send(save(1, durability=CERTIFIED), get(2, SECOND))
        await stream.call.done_writing()
        await hold.reached.wait()
        hold.release()
        assert await stream.end() is None
    assert sorted(stream.numbers) == [1, 1, 2]


# --- sessions --------------------------------------------------------------------------------


async def test_a_later_attempt_takes_the_place_of_the_older_stream(
    grpc_channel: grpc.aio.Channel, checkpoints: CheckpointServiceAsyncStub, hold: Hold
) -> None:
    session = new_session()
    hold.close()
    async with opened(grpc_channel) as older, opened(grpc_channel) as newer:
        await older.send(save(1, channels=[channel("a", b"old")]), hello=hello(session))
        await hold.reached.wait()
        again = save(1, channels=[channel("a", b"new")])
        await newer.send(again, get(2), hello=hello(session, 3))
        ending = asyncio.create_task(older.end())
        answering = asyncio.create_task(newer.read_to(2))
        hold.release()
        ended = await ending
        assert ended is not None
        assert (ended.code, ended.reason) == (ABORTED, "SESSION_RESUMED")
        assert ended.metadata == {"attempt": "3"}
        assert older.last(1).saved.seq == 1, "committed saves are answered"
        await answering
        assert (await newer.read_to(1)).saved.seq == 2
    assert await value_of(checkpoints) == b"new"


@pytest.mark.parametrize("attempt", [6, 7])
async def test_an_attempt_that_is_no_later_is_refused(
    grpc_channel: grpc.aio.Channel, attempt: int
) -> None:
    session = new_session()
    async with opened(grpc_channel) as live, opened(grpc_channel) as stale:
        await live.send(save(1), hello=hello(session, 7))
        await live.read_to(1)
        await stale.send(save(1, SECOND), hello=hello(session, attempt))
        ended = await stale.end()
        assert ended is not None
        assert (ended.code, ended.reason, ended.metadata) == (
            ABORTED,
            "SESSION_RESUMED",
            {"attempt": "7"},
        )
        assert not stale.answers
        await live.send(save(2, SECOND))
        assert (await live.read_to(2)).saved.seq == 2


async def test_of_three_attempts_the_last_goes_on(
    grpc_channel: grpc.aio.Channel, checkpoints: CheckpointServiceAsyncStub, hold: Hold
) -> None:
    session = new_session()
    hold.close()
    async with (
        opened(grpc_channel) as first,
        opened(grpc_channel) as second,
        opened(grpc_channel) as third,
    ):
        await first.send(save(1, channels=[channel("a", b"1")]), hello=hello(session, 1))
        await hold.reached.wait()
        await second.send(save(1, channels=[channel("a", b"2")]), hello=hello(session, 2))
        ended = asyncio.create_task(first.end())
        await third.send(save(1, channels=[channel("a", b"3")]), hello=hello(session, 3))
        cut_off = await second.end()
        assert cut_off is not None
        assert cut_off.reason == "SESSION_RESUMED"
        assert not second.answers
        hold.release()
        assert (await third.read_to(1)).saved.seq == 2
        await ended
    assert await value_of(checkpoints) == b"3"


async def test_a_session_goes_on_after_its_stream_has_ended(
    grpc_channel: grpc.aio.Channel,
) -> None:
    session = new_session()
    for _ in range(2):
        stream, ended = await run(
            grpc_channel, pb.ExchangeRequest(hello=hello(session), frames=[save(1)])
        )
        assert ended is None
        assert stream.numbers == [1]


# --- credentials -----------------------------------------------------------------------------


@pytest.fixture
def tokens(tmp_path: Path) -> dict[str, str]:
    return write_tokens(tmp_path / "tokens.toml", GRANTS)


@pytest.fixture
def guarded(tmp_path: Path, tokens: dict[str, str]) -> Config:
    return Config(
        listen="127.0.0.1:0",
        data_dir=tmp_path / "guarded",
        flush_interval=3600,
        scrub_bytes_per_second=0,
        tokens=tmp_path / "tokens.toml",
    )


async def test_each_frame_needs_the_scope_of_its_unary_twin(
    guarded: Config, tokens: dict[str, str]
) -> None:
    async with (
        serve.running_server(guarded) as server,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel_,
        opened(channel_, metadata=bearer(tokens["reader"])) as stream,
    ):
        refused = save(2, channels=[channel("a", large=large(1))])
        await stream.send(save(1, thread_id=""), refused, chunk(2, b"x"), get(3))
        await stream.read_to(3)
        twin = grpc.StatusCode.PERMISSION_DENIED.value[0]
        for number in (1, 2):
            error = stream.last(number).error
            assert (error.code, reason_of(stream.last(number))) == (twin, "SCOPE_MISSING")
            method = "/tuskpoint.v1.CheckpointService/SaveCheckpoint"
            assert dict(error.metadata) == {"scope": "write", "method": method}
        assert reason_of(stream.last(3)) == "CHECKPOINT_NOT_FOUND"


async def test_a_session_belongs_to_the_credential_that_opened_it(
    guarded: Config, tokens: dict[str, str]
) -> None:
    session = new_session()
    async with (
        serve.running_server(guarded) as server,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel_,
        opened(channel_, metadata=bearer(tokens["writer"])) as writer,
        opened(channel_, metadata=bearer(tokens["stranger"])) as stranger,
    ):
        await writer.send(save(1), hello=hello(session, 1))
        await writer.read_to(1)
        await stranger.send(save(1), hello=hello(session, 2))
        await stranger.read_to(1)
        await writer.send(save(2))
        assert (await writer.read_to(2)).saved.seq == 1


async def test_a_revoked_credential_ends_the_stream_after_its_commits(
    guarded: Config,
    tokens: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    never_certified: asyncio.Event,
) -> None:
    async with (
        serve.running_server(guarded) as server,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel_,
        opened(channel_, metadata=bearer(tokens["writer"])) as stream,
    ):
        await stream.send(save(1, durability=CERTIFIED))
        await never_certified.wait()
        hold = Hold(monkeypatch)
        hold.close()
        await stream.send(save(2, SECOND))
        await hold.reached.wait()
        server.pipeline._authentication.replace(Credentials())
        hold.release()
        ended = await stream.end()
        assert ended is not None
        assert (ended.code, ended.reason) == (
            grpc.StatusCode.UNAUTHENTICATED,
            "CREDENTIAL_INVALID",
        )
        assert stream.numbers == [1, 2]
        assert stream.last(2).saved.seq == 2


# --- clients that leave ----------------------------------------------------------------------


async def test_saves_of_a_client_that_went_away_are_committed(
    server: Server,
    grpc_channel: grpc.aio.Channel,
    checkpoints: CheckpointServiceAsyncStub,
    hold: Hold,
    caplog: pytest.LogCaptureFixture,
) -> None:
    hold.close()
    async with opened(grpc_channel) as stream:
        await stream.send(save(1))
        await hold.reached.wait()
        await stream.send(save(2, SECOND), get(3))
        await stream.read_to(3)
    assert await server.pipeline.drain(30), "the stream has ended on the server too"
    hold.release()
    server.pipeline._draining.clear()
    # This call is journaled after the saves of the client that left.
    await checkpoints.SetLabel(pb.SetLabelRequest(ref=ref(SECOND), label="kept"))
    assert sorted(await stored(checkpoints)) == [FIRST, SECOND]
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_a_connection_cut_at_any_byte_stores_nothing_by_halves(
    server: Server, checkpoints: CheckpointServiceAsyncStub
) -> None:
    content = pb.ExchangeRequest(frames=[save(1, channels=[channel("a")])]).SerializeToString()
    whole = http2.message(content)
    for length in range(len(whole)):
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(http2.opening(EXCHANGE) + http2.data(whole[:length]))
        await writer.drain()
        writer.close()
    assert await stored(checkpoints) == []
    assert await server.pipeline.drain(30)


# --- clients that break the protocol ---------------------------------------------------------

TWO = [channel("a", large=large(4)), channel("b", large=large(4))]
Messages = Sequence[Sequence[pb.Frame] | pb.ExchangeRequest]
SAID_HELLO = pb.ExchangeRequest(hello=hello(bytes(16)), frames=[save(2)])


@pytest.mark.parametrize(
    ("messages", "reason", "field"),
    [
        ([[save(2)], [save(0, SECOND)]], "INVALID_FIELD", "frames[0].id"),
        ([[save(2), save(2, SECOND)]], "INVALID_FIELD", "frames[1].id"),
        ([[save(2)], [get(1)]], "INVALID_FIELD", "frames[0].id"),
        ([[save(2), pb.Frame(id=3), save(4, SECOND)]], "INVALID_FIELD", "frames[1].call"),
        ([[save(2), chunk(2, b"x")]], "INVALID_FIELD", "frames[1].chunk"),
        ([[save(2), chunk(3, b"x")]], "INVALID_FIELD", "frames[1].chunk"),
        (
            [[save(2), save(3, SECOND, channels=TWO), chunk(2, b"1")]],
            "INVALID_FIELD",
            "frames[2].id",
        ),
        ([[save(2), save(3, SECOND, channels=TWO), get(4)]], "INVALID_FIELD", "frames[2].call"),
        (
            [[save(2), save(3, SECOND, channels=TWO), chunk(3, b"12345")]],
            "INVALID_FIELD",
            "chunk.data",
        ),
        ([[save(2), save(3, SECOND, channels=TWO), chunk(3, b"")]], "INVALID_FIELD", "chunk.data"),
        (
            [[save(2), save(3, SECOND, channels=TWO), chunk(3, b"1", index=1)]],
            "CHUNK_OUT_OF_ORDER",
            "",
        ),
        (
            [[save(2), save(3, SECOND, channels=TWO), chunk(3, b"1", offset=1)]],
            "CHUNK_OUT_OF_ORDER",
            "",
        ),
        (
            [
                [save(2), save(3, SECOND, channels=TWO), chunk(3, b"12")],
                [chunk(3, b"12", index=1)],
            ],
            "CHUNK_OUT_OF_ORDER",
            "",
        ),
        ([[save(2), save(3, SECOND, channels=TWO)]], "STREAM_TRUNCATED", ""),
        (
            [[save(2), save(3, SECOND, channels=TWO), chunk(3, b"1234"), chunk(3, b"1", index=1)]],
            "STREAM_TRUNCATED",
            "",
        ),
        ([SAID_HELLO, SAID_HELLO], "INVALID_FIELD", "hello"),
        ([[save(2)], pb.ExchangeRequest(hello=hello(bytes(16)))], "INVALID_FIELD", "hello"),
    ],
)
async def test_a_stream_that_breaks_the_protocol_ends(
    grpc_channel: grpc.aio.Channel,
    checkpoints: CheckpointServiceAsyncStub,
    messages: Messages,
    reason: str,
    field: str,
) -> None:
    stream, ended = await run(grpc_channel, *messages)
    assert ended is not None
    assert (ended.code, ended.reason) == (INVALID, reason)
    assert ended.fields == ((field,) if field else ())
    assert stream.numbers == [2], "what was complete is answered"
    assert await stored(checkpoints) == [FIRST], "what was not is not stored"


@pytest.mark.parametrize("session", [b"", bytes(15), bytes(65)])
async def test_a_session_has_to_be_named_at_length(
    grpc_channel: grpc.aio.Channel, session: bytes
) -> None:
    request = pb.ExchangeRequest(hello=hello(session), frames=[save(1)])
    stream, ended = await run(grpc_channel, request)
    assert ended is not None
    assert (ended.reason, ended.fields) == ("INVALID_FIELD", ("hello.session",))
    assert not stream.answers


async def test_a_message_that_is_too_large_ends_the_stream(
    grpc_channel: grpc.aio.Channel, checkpoints: CheckpointServiceAsyncStub
) -> None:
    frames = [save(number, channels=[channel("a", bytes(3 << 20))]) for number in range(2, 5)]
    stream, ended = await run(grpc_channel, [save(1, SECOND)], frames)
    assert ended is not None
    assert (ended.reason, ended.metadata["limit"]) == ("LIMIT_EXCEEDED", "max_message_bytes")
    assert stream.numbers == [1]
    assert await stored(checkpoints) == [SECOND]


async def test_bytes_cut_anywhere_are_no_danger(
    grpc_channel: grpc.aio.Channel, checkpoints: CheckpointServiceAsyncStub
) -> None:
    whole = pb.ExchangeRequest(
        frames=[save(1, channels=[channel("a")]), get(2)]
    ).SerializeToString()
    call: Any = grpc_channel.stream_stream(EXCHANGE, None, pb.ExchangeResponse.FromString)
    reasons = set()
    for length in range(1, len(whole)):
        stream = Stream(call(iter([whole[:length]])))
        ended = await stream.end()
        reasons.add(ended.reason if ended else "")
        assert ended is None or ended.code == INVALID
        assert {each.id for each in stream.answers} <= {1, 2}
    assert reasons == {"", "INVALID_FIELD"}
    assert set(await stored(checkpoints)) <= {FIRST}
