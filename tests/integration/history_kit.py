"""A `HistoryService` on the wire, over a journal and an archive that a test can reach into."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc

from tests.integration.archive_kit import TENANT, Clock, Kit, open_kit
from tuskpoint.v1 import checkpoint_pb2, value_pb2
from tuskpoint.v1 import history_service_pb2 as pb
from tuskpoint.v1.history_service_pb2_grpc import HistoryServiceStub
from tuskpoint_server.archive.eviction import EvictionSettings, Evictor
from tuskpoint_server.domain.limits import LIMITS
from tuskpoint_server.journal.event_log import EventLog
from tuskpoint_server.rpc import server as rpc
from tuskpoint_server.rpc.history_servicer import HistoryServicer
from tuskpoint_server.service.history import History

if TYPE_CHECKING:
    from tuskpoint.v1.history_service_pb2_grpc import HistoryServiceAsyncStub

KINDS = {number: name.removeprefix("EVENT_KIND_") for name, number in pb.EventKind.items()}
Stream = Any
"""A call that streams `WatchThreadResponse` or `ReplayThreadResponse`."""


@dataclass
class HistoryHouse:
    """The service with all rooms below it, and a client."""

    kit: Kit
    clock: Clock
    history: History
    server: rpc.Server
    stub: HistoryServiceAsyncStub

    def watch(self, thread_id: str = "t", **fields: Any) -> Stream:
        return self.stub.WatchThread(pb.WatchThreadRequest(thread_id=thread_id, **fields))

    def replay(self, thread_id: str = "t", **fields: Any) -> Stream:
        return self.stub.ReplayThread(pb.ReplayThreadRequest(thread_id=thread_id, **fields))

    async def forget(self) -> None:
        """Let all events grow old, and drop them."""
        self.clock.now_us += (LIMITS.event_ttl_s + 1) * 1_000_000
        await self.kit.journal.sweep(content_grace_s=1e9, early_write_ttl_s=1e9)

    async def evict(self) -> None:
        """Certify everything and evict what may go."""
        await self.kit.archive.certify_all(TENANT)
        settings = EvictionSettings(journal_bytes=0, grace_s=0)
        await Evictor(self.kit.journal, settings, clock_us=self.clock).evict_now()


@asynccontextmanager
async def open_history(
    root: Path, *, max_call_seconds: float = 300.0
) -> AsyncIterator[HistoryHouse]:
    clock = Clock()
    async with (
        open_kit(root, clock=clock) as kit,
        served(kit, clock, max_call_seconds=max_call_seconds) as house,
    ):
        yield house


@asynccontextmanager
async def served(
    kit: Kit, clock: Clock, *, max_call_seconds: float = 300.0
) -> AsyncIterator[HistoryHouse]:
    """Serve the history of a journal that is open."""
    history = History(kit.journal, EventLog(kit.journal), kit.archive, clock_us=clock)
    service = pb.DESCRIPTOR.services_by_name["HistoryService"]
    server = rpc.build(
        "127.0.0.1",
        0,
        [(service, HistoryServicer(history))],
        max_call_seconds=max_call_seconds,
        reflect=False,
    )
    await server.start()
    options = [("grpc.max_receive_message_length", LIMITS.max_message)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}", options=options) as channel:
        yield HistoryHouse(kit, clock, history, server, HistoryServiceStub(channel))
    await server.drain(10)


async def next_event(stream: Stream) -> pb.ThreadEvent:
    """Return the next event of a watch, the large values of its checkpoint put in place."""
    frame = await stream.read()
    assert frame is not grpc.aio.EOF
    assert frame.HasField("event")
    await _fill(stream, frame.event.checkpoint)
    event: pb.ThreadEvent = frame.event
    return event


async def next_events(stream: Stream, count: int) -> list[pb.ThreadEvent]:
    return [await next_event(stream) for _ in range(count)]


async def replayed(stream: Stream) -> list[checkpoint_pb2.Checkpoint]:
    """Return all checkpoints of a replay, their large values put in place."""
    found = []
    while (frame := await stream.read()) is not grpc.aio.EOF:
        assert frame.HasField("checkpoint")
        await _fill(stream, frame.checkpoint)
        found.append(frame.checkpoint)
    return found


async def _fill(stream: Stream, checkpoint: checkpoint_pb2.Checkpoint) -> None:
    """Read the chunks that follow a checkpoint."""
    holders: list[Any] = [*checkpoint.state.channels, *checkpoint.writes]
    large = [holder for holder in holders if holder.HasField("large")]
    for index, holder in enumerate(large):
        data = b""
        while len(data) < holder.large.size_bytes:
            chunk = (await stream.read()).chunk
            assert (chunk.value_index, chunk.offset) == (index, len(data))
            assert chunk.data
            data += chunk.data
        holder.value.CopyFrom(value_pb2.Value(type=holder.large.type, data=data))


def short(event: pb.ThreadEvent) -> tuple[int, str, str, int]:
    """Return number, kind, checkpoint and revision of an event."""
    checkpoint = event.checkpoint
    return event.seq, KINDS[event.kind], checkpoint.ref.checkpoint_id, checkpoint.revision
