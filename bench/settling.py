"""Waiting until a server has nothing left to do for what it acknowledged."""

from __future__ import annotations

import asyncio

import grpc.aio

from tuskpoint.v1.admin_service_pb2 import FlushRequest, GetArchiveStatusRequest
from tuskpoint.v1.admin_service_pb2_grpc import AdminServiceStub

_FLUSH_SECONDS = 300.0
_LOOK_SECONDS = 0.1


async def settle(channel: grpc.aio.Channel) -> int:
    """Wait until everything is certified and indexed; return how many checkpoints the flush did."""
    stub = AdminServiceStub(channel)
    done = await stub.Flush(FlushRequest(), timeout=_FLUSH_SECONDS)
    waiting = GetArchiveStatusRequest()
    while (await stub.GetArchiveStatus(waiting)).search.unindexed_checkpoints:  # noqa: ASYNC110 - of another process
        await asyncio.sleep(_LOOK_SECONDS)
    return done.certified_checkpoints
