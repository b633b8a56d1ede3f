"""A `HistoryService` on a socket, over a journal and an archive that a test can reach into."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc

from tests.kit.archives import House
from tests.kit.archives import house as open_house
from tests.kit.blobs.stores import MemoryStore
from tests.kit.drafts import TENANT, draft, key
from tuskpoint.v1 import checkpoint_pb2, value_pb2
from tuskpoint.v1 import history_service_pb2 as pb
from tuskpoint.v1.history_service_pb2_grpc import HistoryServiceStub
from tuskpoint_server.api.history import HistoryServicer
from tuskpoint_server.api.server import server as rpc
from tuskpoint_server.archive.evict.eviction import EvictionSettings, Evictor
from tuskpoint_server.core.limits import LIMITS
from tuskpoint_server.core.model import Checkpoint, SaveOutcome, View
from tuskpoint_server.features.checkpoints.completing import Completer
from tuskpoint_server.features.history.history import History
from tuskpoint_server.features.removal.removal_rows import RemovalRows
from tuskpoint_server.journal.database.pending_writes import StoredWrite

if TYPE_CHECKING:
    from tuskpoint.v1.history_service_pb2_grpc import HistoryServiceAsyncStub

KINDS = {number: name.removeprefix("EVENT_KIND_") for name, number in pb.EventKind.items()}
Stream = Any
"""A call that streams `WatchThreadResponse` or `ReplayThreadResponse`."""


@dataclass
class HistoryHouse:
    """The service with all packages below it, and a client."""

    home: House
    removal: RemovalRows
    history: History
    server: rpc.Server
    stub: HistoryServiceAsyncStub

    def watch(self, thread_id: str = "t", **fields: Any) -> Stream:
        return self.stub.WatchThread(pb.WatchThreadRequest(thread_id=thread_id, **fields))

    def replay(self, thread_id: str = "t", **fields: Any) -> Stream:
        return self.stub.ReplayThread(pb.ReplayThreadRequest(thread_id=thread_id, **fields))

    async def save(
        self,
        checkpoint_id: str,
        parent_id: str = "",
        *,
        content: bytes = b"state",
        metadata: dict[str, object] | None = None,
        **fields: Any,
    ) -> SaveOutcome:
        return await self.home.journal.save_checkpoint(
            TENANT,
            draft(
                checkpoint_id,
                parent_id,
                {"messages": content},
                metadata=metadata or {"step": 1},
                **fields,
            ),
        )

    async def save_writes(self, checkpoint_id: str, *writes: StoredWrite) -> SaveOutcome:
        return await self.home.journal.save_writes(TENANT, key(checkpoint_id), writes)

    async def delete(self, thread_id: str = "t") -> None:
        await self.removal.delete_thread(TENANT, thread_id)

    async def journaled(self, checkpoint_id: str) -> Checkpoint:
        """Return the events in the journal."""
        checkpoint = await self.home.journal.load(TENANT, key(checkpoint_id), View.FULL)
        assert checkpoint is not None
        return checkpoint

    async def forget(self) -> None:
        """Certify everything, let all events grow old, and drop them."""
        await self.home.flush()
        self.home.clock.advance(LIMITS.event_ttl_s + 1)
        await self.removal.sweep(early_write_ttl_s=1e9, indexing=False)

    async def evict(self) -> None:
        """Certify everything, and evict all values that may go."""
        await self.home.flush()
        self.home.clock.advance(1)
        settings = EvictionSettings(journal_bytes=0, grace_s=0)
        await Evictor(self.home.journal.database, settings).evict()


@asynccontextmanager
async def open_history(
    root: Path, *, max_call_seconds: float = 300.0
) -> AsyncIterator[HistoryHouse]:
    async with (
        open_house(root, MemoryStore()) as home,
        served(home, max_call_seconds=max_call_seconds) as house,
    ):
        yield house


@asynccontextmanager
async def served(home: House, *, max_call_seconds: float = 300.0) -> AsyncIterator[HistoryHouse]:
    """Serve the history of an open journal."""
    journal = home.journal
    completer = Completer(journal, home.archive)
    history = History(journal, journal.events, completer, home.clock)
    service = pb.DESCRIPTOR.services_by_name["HistoryService"]
    server = rpc.build(
        "127.0.0.1",
        0,
        [(service, HistoryServicer(history))],
        max_call_seconds=max_call_seconds,
        memory_bytes=LIMITS.max_bundle,
        reflect=False,
    )
    await server.start()
    options = [("grpc.max_receive_message_length", LIMITS.max_message)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}", options=options) as channel:
        removal = RemovalRows(journal.database)
        yield HistoryHouse(home, removal, history, server, HistoryServiceStub(channel))
    await server.drain(10)


async def next_event(stream: Stream) -> pb.ThreadEvent:
    """Return the next event of a watch, with the large values of its checkpoint filled in."""
    frame = await stream.read()
    assert frame is not grpc.aio.EOF
    assert frame.HasField("event")
    await _fill(stream, frame.event.checkpoint)
    event: pb.ThreadEvent = frame.event
    return event


async def next_events(stream: Stream, count: int) -> list[pb.ThreadEvent]:
    return [await next_event(stream) for _ in range(count)]


async def replayed(stream: Stream) -> list[checkpoint_pb2.Checkpoint]:
    """Return all checkpoints of a replay, with their large values filled in."""
    checkpoints = []
    while (frame := await stream.read()) is not grpc.aio.EOF:
        assert frame.HasField("checkpoint")
        await _fill(stream, frame.checkpoint)
        checkpoints.append(frame.checkpoint)
    return checkpoints


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


def short(event: pb.ThreadEvent) -> tuple[int, str, str]:
    """Return number, kind and checkpoint of an event."""
    return event.seq, KINDS[event.kind], event.checkpoint.ref.checkpoint_id
