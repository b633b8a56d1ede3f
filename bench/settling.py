"""Waits until a server has finished its background work for acknowledged saves."""

from __future__ import annotations

import grpc.aio

from tuskpoint.v1.admin_service_pb2 import FlushRequest
from tuskpoint.v1.admin_service_pb2_grpc import AdminServiceStub
from tuskpoint.v1.search_service_pb2 import SearchCheckpointsRequest
from tuskpoint.v1.search_service_pb2_grpc import SearchServiceStub

_FLUSH_SECONDS = 300.0


async def settle(channel: grpc.aio.Channel, *, indexes: bool = True) -> None:
    """Wait until everything is certified and, by a search, until everything is indexed."""
    search = SearchServiceStub(channel)
    words = SearchCheckpointsRequest(text="settled", limit=1)
    while indexes and (await search.SearchCheckpoints(words)).unindexed_checkpoints:
        continue
    await AdminServiceStub(channel).Flush(FlushRequest(), timeout=_FLUSH_SECONDS)
