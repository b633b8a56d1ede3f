"""A server in this process, and its database for edits behind the server's back."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from typing import Any, TypeVar

import grpc
import psycopg

from tests.attacks.journal_edits.edited_journal import SKIP_TRIGGERS
from tests.kit.databases import journal_of
from tuskpoint.v1.admin_service_pb2_grpc import AdminServiceStub
from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from tuskpoint.v1.handoff_service_pb2_grpc import HandoffServiceStub
from tuskpoint.v1.history_service_pb2_grpc import HistoryServiceStub
from tuskpoint.v1.search_service_pb2_grpc import SearchServiceStub
from tuskpoint.v1.snapshot_service_pb2_grpc import SnapshotServiceStub
from tuskpoint.v1.store_service_pb2_grpc import StoreServiceStub
from tuskpoint.v1.thread_service_pb2_grpc import ThreadServiceStub
from tuskpoint_server.commands import serve
from tuskpoint_server.config.settings import Config


def name(number: int) -> str:
    """Return the ID of the checkpoint with this number."""
    return f"1f000000-0000-6000-8000-{number:012}"


class Services:
    """The services of a server."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.checkpoints = CheckpointServiceStub(channel)
        self.threads = ThreadServiceStub(channel)
        self.history = HistoryServiceStub(channel)
        self.admin = AdminServiceStub(channel)
        self.search = SearchServiceStub(channel)
        self.store = StoreServiceStub(channel)
        self.handoffs = HandoffServiceStub(channel)
        self.snapshots = SnapshotServiceStub(channel)


S = TypeVar("S", bound=Services)


@asynccontextmanager
async def serving(kind: type[S], config: Config, **changed: object) -> AsyncIterator[S]:
    """Run a server and connect to its services."""
    async with (
        serve.running_server(config.model_copy(update=changed)) as server,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as opened,
    ):
        yield kind(opened)


@contextmanager
def opened_journal(config: Config) -> Iterator[tuple[Any, str]]:
    """Open the database behind the server's back; yield it and its parameter placeholder."""
    url = journal_of(config.data_dir)
    opened: Any = psycopg.connect(url) if url else sqlite3.connect(config.data_dir / "journal.db")
    with closing(opened) as journal:
        if url:
            journal.execute(SKIP_TRIGGERS)
        yield journal, "%s" if url else "?"
        journal.commit()


async def ids_of(stream: Any) -> tuple[list[str], str]:
    """Return the IDs of the checkpoints in a stream, and the message of the stream's error."""
    checkpoint_ids: list[str] = []

    async def read() -> None:
        async for frame in stream:
            checkpoint_ids.extend(
                [frame.checkpoint.ref.checkpoint_id] if frame.HasField("checkpoint") else []
            )

    try:
        await read()
    except grpc.aio.AioRpcError:
        error = await stream.code(), await stream.details()
        return checkpoint_ids, error[1] if error[0] is grpc.StatusCode.DATA_LOSS else f"not {error}"
    return checkpoint_ids, ""
