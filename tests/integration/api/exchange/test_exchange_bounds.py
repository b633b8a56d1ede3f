"""An `Exchange` stream has bounds of frames, bytes and time, whatever its client does."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.integration.api.exchange.exchange_kit import (
    CERTIFIED,
    EXCHANGE,
    Hold,
    chunk,
    get,
    large,
    opened,
    reason_of,
    run,
    save,
    stored,
    writes,
)
from tests.integration.api.shapes import TRACE_PARENT
from tests.kit.messages import FIRST, SECOND, channel, incompressible
from tests.kit.servers import http2
from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint_server.api.checkpoints import exchange, servicer
from tuskpoint_server.api.middleware.telemetry import Telemetry
from tuskpoint_server.api.server.server import Server
from tuskpoint_server.core.errors import checkpoint_not_found
from tuskpoint_server.features.checkpoints.checkpoints import Checkpoints

if TYPE_CHECKING:
    from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceAsyncStub

MIB = 1024 * 1024


class Watched(exchange.Exchange):
    """A stream that records its greatest size, and the moment when it stops reading."""

    opened: asyncio.Queue[Watched]

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.most_unanswered = self.most_bytes = self.most_unsent = 0
        self.full = asyncio.Event()
        self.opened.put_nowait(self)

    @property
    def _is_full(self) -> bool:
        self.most_unanswered = max(self.most_unanswered, self._unanswered)
        self.most_bytes = max(self.most_bytes, self._unanswered_bytes)
        is_full = super()._is_full
        if is_full:
            self.full.set()
        return is_full

    def _answer(self, *arguments: Any, **options: Any) -> None:
        super()._answer(*arguments, **options)
        self.most_unsent = max(self.most_unsent, self._outgoing.size_bytes)


@pytest.fixture
async def streams(monkeypatch: pytest.MonkeyPatch) -> asyncio.Queue[Watched]:
    """Streams that were opened, oldest first."""
    Watched.opened = asyncio.Queue()
    monkeypatch.setattr(servicer, "Exchange", Watched)
    return Watched.opened


async def deaf(server: Server, *messages: pb.ExchangeRequest) -> asyncio.StreamWriter:
    """Open a stream, send messages, and read no byte of the answers."""
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    sent = b"".join(http2.message(each.SerializeToString()) for each in messages)
    writer.write(http2.opening(EXCHANGE, window=0) + http2.data(sent))
    return writer


async def test_a_client_that_reads_no_answer_is_not_read_from_for_long(
    server: Server, grpc_channel: grpc.aio.Channel, streams: asyncio.Queue[Watched]
) -> None:
    frames = [save(number, "") for number in range(1, 600)]
    writer = await deaf(server, pb.ExchangeRequest(frames=frames))
    stream = await streams.get()
    await stream.full.wait()
    async with opened(grpc_channel) as other:
        await other.send(save(1, FIRST))
        await other.read_to(1)
        await other.send(get(2), save(3, SECOND))
        assert reason_of(await other.read_to(2)) == ""
        await other.read_to(3)
    assert stream.most_unanswered == exchange.MAX_UNANSWERED
    writer.close()
    assert await server.pipeline.drain(30)


async def test_loads_that_nobody_reads_are_not_begun_without_end(
    server: Server,
    grpc_channel: grpc.aio.Channel,
    streams: asyncio.Queue[Watched],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exchange, "MAX_UNSENT_BYTES", 4 * MIB)
    monkeypatch.setattr(exchange, "LOADS_AT_ONCE", 2)
    await run(grpc_channel, [save(1, channels=[channel("a", incompressible(MIB))])])
    await streams.get()
    writer = await deaf(server, pb.ExchangeRequest(frames=[get(n) for n in range(1, 257)]))
    stream = await streams.get()
    await stream.full.wait()
    while stream._loading or stream._outgoing.size_bytes < exchange.MAX_UNSENT_BYTES:
        await run(grpc_channel, [get(1)])
    assert stream.most_unsent < exchange.MAX_UNSENT_BYTES + 3 * MIB
    writer.close()
    assert await server.pipeline.drain(30)


async def test_loads_of_one_message_leave_other_streams_their_turn(
    grpc_channel: grpc.aio.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, load_inline = asyncio.get_running_loop(), Checkpoints.load_inline
    turns: list[int] = []
    # number of loads, and the number of turns of other tasks before
    batches: list[tuple[int, int]] = []

    def watched(self: Checkpoints, tenant: str, loads: Any) -> Any:
        batches.append((len(loads), len(turns)))
        loop.call_soon(turns.append, 1)
        return load_inline(self, tenant, loads)

    await run(grpc_channel, [save(1)])
    monkeypatch.setattr(Checkpoints, "load_inline", watched)
    await run(grpc_channel, [get(number) for number in range(1, 101)])
    assert sum(count for count, _ in batches) == 100
    assert max(count for count, _ in batches) == exchange.LOADS_AT_ONCE
    before = [turn for _, turn in batches]
    assert before == sorted(set(before)), "no two batches without a turn between"


async def test_frames_of_many_bytes_hold_reading_up(
    grpc_channel: grpc.aio.Channel,
    streams: asyncio.Queue[Watched],
    hold: Hold,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exchange, "MAX_UNANSWERED_BYTES", 100_000)
    hold.close()
    frames = [save(number, "", channels=[channel("a", bytes(30_000))]) for number in range(1, 11)]
    async with opened(grpc_channel) as stream:
        await stream.send(*frames[:5])
        await stream.send(*frames[5:])
        watched = await streams.get()
        await watched.full.wait()
        assert 100_000 <= watched.most_bytes < 135_000
        assert watched._last_id == 4
        hold.release()
        await stream.call.done_writing()
        assert await stream.end() is None
    assert sorted(stream.numbers) == list(range(1, 11))
    assert watched._unanswered == watched._unanswered_bytes == 0


async def test_a_save_with_more_bytes_than_may_be_unanswered_goes_through(
    grpc_channel: grpc.aio.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "MAX_UNANSWERED_BYTES", 10_000)
    pieces = [chunk(1, bytes(9_000), offset=9_000 * number) for number in range(5)]
    frames = [save(1, channels=[channel("a", large=large(45_000))]), *pieces, save(2, SECOND)]
    stream, ended = await run(grpc_channel, *([frame] for frame in frames))
    assert ended is None
    assert stream.numbers == [1, 2]


async def test_saves_that_wait_for_certainty_hold_nothing_up(
    grpc_channel: grpc.aio.Channel, never_certified: asyncio.Event
) -> None:
    count = exchange.MAX_UNANSWERED + 20
    frames = [save(number, "", durability=CERTIFIED) for number in range(1, count + 1)]
    async with opened(grpc_channel) as stream:
        await stream.send(*frames)
        await stream.send(save(count + 1))
        await stream.read_to(count + 1)
    assert sorted(stream.numbers) == list(range(1, count + 2))
    assert not any(each.last for each in stream.answers if each.id <= count)


async def test_more_waits_for_certainty_than_are_kept_do(
    grpc_channel: grpc.aio.Channel,
    streams: asyncio.Queue[Watched],
    never_certified: asyncio.Event,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exchange, "MAX_CERTIFYING", 3)
    frames = [save(number, "", durability=CERTIFIED) for number in range(1, 6)]
    for frame in frames[:2]:
        frame.timeout.FromSeconds(1)
    async with opened(grpc_channel) as stream:
        await stream.send(*frames[:3])
        while len(stream.answers) < 3:
            await stream.read()
        await stream.send(frames[3])
        watched = await streams.get()
        await watched.full.wait()
        await stream.send(frames[4])
        while 5 not in stream.numbers:
            await stream.read()
    assert {reason_of(stream.last(number)) for number in (1, 2)} == {"DEADLINE_EXCEEDED"}


# --- time ------------------------------------------------------------------------------------


async def test_a_save_that_the_journal_has_not_begun_is_withdrawn_at_its_deadline(
    grpc_channel: grpc.aio.Channel, checkpoints: CheckpointServiceAsyncStub, hold: Hold
) -> None:
    hold.close()
    async with opened(grpc_channel) as stream:
        await stream.send(save(1))
        await hold.reached.wait()
        waiting = [save(2, SECOND), writes(3)]
        for frame in waiting:
            frame.timeout.FromMilliseconds(50)
        await stream.send(*waiting)
        for number in (2, 3):
            assert reason_of(await stream.read_to(number)) == "DEADLINE_EXCEEDED"
        hold.release()
        assert (await stream.read_to(1)).saved.seq == 1
    assert await stored(checkpoints) == [FIRST]


async def test_a_commit_that_has_begun_outlives_the_deadline_of_its_frame(
    grpc_channel: grpc.aio.Channel, checkpoints: CheckpointServiceAsyncStub, hold: Hold
) -> None:
    hold.close()
    async with opened(grpc_channel) as stream:
        late = save(1)
        late.timeout.FromMilliseconds(200)
        await stream.send(late)
        await hold.reached.wait()
        assert reason_of(await stream.read_to(1)) == "DEADLINE_EXCEEDED"
        hold.release()
        await stream.send(get(2))
        await stream.read_to(2)
        await stream.send(save(3, SECOND))
        await stream.read_to(3)
    assert await stored(checkpoints) == [SECOND, FIRST]
    assert stream.numbers == [1, 2, 3], "each is answered once"


async def test_a_deadline_ends_waits_for_certainty_and_for_chunks(
    grpc_channel: grpc.aio.Channel, never_certified: asyncio.Event
) -> None:
    certain = save(1, durability=CERTIFIED)
    unfinished = save(2, SECOND, channels=[channel("a", large=large(2))])
    for frame in (certain, unfinished):
        frame.timeout.FromMilliseconds(100)
    async with opened(grpc_channel) as stream:
        await stream.send(certain, unfinished, chunk(2, b"1"))
        for number in (1, 2):
            assert reason_of(await stream.read_to(number)) == "DEADLINE_EXCEEDED"
        await stream.send(chunk(2, b"2", offset=1), save(3))
        await stream.read_to(3)
    assert stream.numbers.count(1) == 2


async def test_the_cap_of_the_server_is_that_of_a_frame_too(
    server: Server, grpc_channel: grpc.aio.Channel, never_certified: asyncio.Event
) -> None:
    server.pipeline.max_call_seconds = 0.1
    longer = save(1, durability=CERTIFIED)
    longer.timeout.FromSeconds(3600)
    async with opened(grpc_channel) as stream:
        await stream.send(longer, save(2, SECOND, durability=CERTIFIED))
        for number in (1, 2):
            assert reason_of(await stream.read_to(number)) == "DEADLINE_EXCEEDED"


# --- telemetry -------------------------------------------------------------------------------


async def test_frames_are_measured_as_the_calls_that_they_are(
    server: Server, grpc_channel: grpc.aio.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    loading: list[int] = []

    async def nothing(*arguments: object) -> None:
        loading.append(trace.get_current_span().get_span_context().span_id)
        raise checkpoint_not_found("t", "", "1")

    monkeypatch.setattr(Checkpoints, "load", nothing)
    spans, reader, tracers = InMemorySpanExporter(), InMemoryMetricReader(), TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    meters = MeterProvider([reader])
    server.pipeline.telemetry = Telemetry(tracer_provider=tracers, meter_provider=meters)
    traced = save(1)
    traced.traceparent = TRACE_PARENT
    mangled = get(3, SECOND)
    mangled.traceparent = "00-nonsense"
    _, ended = await run(grpc_channel, [traced, save(2, thread_id=""), mangled])
    assert ended is None
    service = "tuskpoint.v1.CheckpointService"
    counted: dict[tuple[str, str], int] = {}
    data: Any = reader.get_metrics_data()
    for metric in data.resource_metrics[0].scope_metrics[0].metrics:
        if metric.name == "rpc.server.call.duration":
            for point in metric.data.data_points:
                attributes = point.attributes
                method = attributes["rpc.method"].removeprefix(f"{service}/")
                counted[method, attributes["rpc.response.status_code"]] = point.count
        if metric.name == "tuskpoint.server.active_calls":
            assert {point.value for point in metric.data.data_points} == {0}
    assert counted == {
        ("SaveCheckpoint", "OK"): 1,
        ("SaveCheckpoint", "INVALID_ARGUMENT"): 1,
        ("GetCheckpoint", "NOT_FOUND"): 1,
        ("Exchange", "OK"): 1,
    }
    finished = spans.get_finished_spans()
    assert len(finished) == 4
    of_loads = [span for span in finished if span.name == f"{service}/GetCheckpoint"]
    assert [span.context.span_id for span in of_loads] == loading
    of_trace = [span for span in finished if format(span.context.trace_id, "032x") in TRACE_PARENT]
    assert [span.name for span in of_trace] == [f"{service}/SaveCheckpoint"]
