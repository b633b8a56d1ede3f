"""Readers of large checkpoints that stop reading cost the server neither memory nor other calls."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.kit.messages import reported
from tuskpoint import AsyncClient
from tuskpoint.v1 import checkpoint_pb2
from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from tuskpoint_server.commands import serve
from tuskpoint_server.config.settings import Config
from tuskpoint_server.core.limits import MIB
from tuskpoint_server.features import call_memory as memories

LARGE = 8 * MIB
READERS = 72
"""Together these readers would need 576 MiB, and 512 MiB are allowed."""

NARROW = (
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 65536),
    ("grpc.use_local_subchannel_pool", 1),
)
"""Options that limit the unread bytes on the client's side of a stream to 64 KiB."""


def thread_ref(thread_id: str) -> checkpoint_pb2.CheckpointRef:
    return checkpoint_pb2.CheckpointRef(thread_id=thread_id)


async def first_refusal(calls: Iterable[Any]) -> str:
    """Read calls to their ends until a call is refused; return the reason."""
    for call in calls:
        try:
            async for _ in call:
                pass
        except grpc.aio.AioRpcError as error:
            return reported(error).reason
    return ""


async def test_they_are_ended_once_others_wait_for_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memories, "STALL_SECONDS", 0.2)
    monkeypatch.setattr(memories, "_LOOK_SECONDS", 0.05)
    config = Config(listen="127.0.0.1:0", data_dir=tmp_path, memory_bytes=512 * MIB)
    async with serve.running_server(config) as server:
        target, memory = f"127.0.0.1:{server.port}", server.pipeline.memory
        async with AsyncClient(target) as client:
            await client.save("small", {"n": 1})
            await client.save("large", {"text": "x" * LARGE})
        async with (
            grpc.aio.insecure_channel(target, options=NARROW) as slow,
            grpc.aio.insecure_channel(target) as other,
        ):
            request, stub = (
                pb.LoadCheckpointRequest(ref=thread_ref("large")),
                CheckpointServiceStub(slow),
            )
            calls = [stub.LoadCheckpoint(request) for _ in range(READERS)]
            while memory.held_bytes < memory.max_bytes - memories.WHOLE:  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.01)
            small = pb.GetCheckpointRequest(ref=thread_ref("small"))
            await CheckpointServiceStub(other).GetCheckpoint(small, timeout=30)
            size = 0
            async for frame in CheckpointServiceStub(other).LoadCheckpoint(request, timeout=60):
                size += len(frame.chunk.data)
                assert memory.held_bytes <= memory.max_bytes
            assert size > LARGE
            # Chance decides which reader has stalled for the longest time.
            assert await first_refusal(calls) == "READER_TOO_SLOW"
            for call in calls:
                call.cancel()
        while memory.held_bytes:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.01)
