"""Waits for evictions from the journal."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tuskpoint.v1 import admin_service_pb2

if TYPE_CHECKING:
    from tuskpoint.v1.admin_service_pb2_grpc import AdminServiceAsyncStub

WAIT_SECONDS = 30


async def flush_and_evict(admin: AdminServiceAsyncStub, size: int) -> None:
    """Certify everything, and wait until a number of bytes left the journal and evictions end."""
    await admin.Flush(admin_service_pb2.FlushRequest())
    request = admin_service_pb2.GetArchiveStatusRequest()
    async with asyncio.timeout(WAIT_SECONDS):
        evicted = 0
        while evicted < size or evicted != (await admin.GetArchiveStatus(request)).evicted_bytes:
            evicted = (await admin.GetArchiveStatus(request)).evicted_bytes
            await asyncio.sleep(0.05)
