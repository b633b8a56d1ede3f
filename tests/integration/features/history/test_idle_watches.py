"""A thousand idle watches cost little, and leave nothing behind at their end."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc

from tuskpoint import AsyncClient
from tuskpoint.v1 import history_service_pb2 as pb
from tuskpoint.v1.history_service_pb2_grpc import HistoryServiceStub
from tuskpoint_server.commands import serve
from tuskpoint_server.config.settings import Config

CHANNELS = 4
WATCHES = 1000


async def test_they_hold_no_memory_and_hear_of_the_next_save(tmp_path: Path) -> None:
    config = Config(listen="127.0.0.1:0", data_dir=tmp_path)
    async with serve.running_server(config) as server, AsyncExitStack() as stack:
        target = f"127.0.0.1:{server.port}"
        client = await stack.enter_async_context(AsyncClient(target))
        await client.save("t", {"n": 1})
        stubs = []
        for _ in range(CHANNELS):
            options = (("grpc.use_local_subchannel_pool", 1),)
            channel = grpc.aio.insecure_channel(target, options=options)
            stubs.append(HistoryServiceStub(await stack.enter_async_context(channel)))
        before = len(asyncio.all_tasks())
        request = pb.WatchThreadRequest(thread_id="t", kinds=[pb.EVENT_KIND_CHECKPOINT_SAVED])
        watches = [stubs[number % CHANNELS].WatchThread(request) for number in range(WATCHES)]
        first: list[Any] = await asyncio.gather(*(watch.read() for watch in watches))
        assert {frame.event.checkpoint.ref.thread_id for frame in first} == {"t"}
        assert server.pipeline.memory.held_bytes == 0
        saved = await client.save("t", {"n": 2})
        second: list[Any] = await asyncio.gather(*(watch.read() for watch in watches))
        assert {frame.event.checkpoint.ref.checkpoint_id for frame in second} == {saved}
        for watch in watches:
            watch.cancel()
        while len(asyncio.all_tasks()) > before:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.01)
        assert (await client.load("t")).state == {"n": 2}
