"""Health is right while the server serves and drains, and no watcher delays the drain."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]

from tests.kit.servers import http2
from tuskpoint_server.commands import serve
from tuskpoint_server.config.settings import Config

SERVICE = "tuskpoint.v1.CheckpointService"
UNKNOWN, SERVING, NOT_SERVING, SERVICE_UNKNOWN = range(4)

DEAF_WATCH = http2.opening("/grpc.health.v1.Health/Watch", window=0) + http2.data(
    http2.message(b""), last=True
)
"""A call of Watch by a client that accepts no byte of an answer."""


def watch(channel: grpc.aio.Channel, service: str = "") -> Any:
    request = health_pb2.HealthCheckRequest(service=service)
    return health_pb2_grpc.HealthStub(channel).Watch(request)


async def test_a_watcher_that_does_not_read_delays_nobody(tmp_path: Path) -> None:
    config = Config(listen="127.0.0.1:0", data_dir=tmp_path)
    async with asyncio.timeout(20), serve.running_server(config) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(DEAF_WATCH)
        await http2.until_answered(reader)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            watchers = [watch(channel, name) for name in ("", SERVICE)]
            for watcher in watchers:
                assert (await watcher.read()).status == SERVING
            draining = asyncio.create_task(server.drain(5))
            for watcher in watchers:
                assert (await watcher.read()).status == NOT_SERVING
            assert await draining
        writer.close()


async def test_every_service_is_healthy_and_others_are_not_known(tmp_path: Path) -> None:
    config = Config(listen="127.0.0.1:0", data_dir=tmp_path)
    async with (
        serve.running_server(config) as server,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        check = health_pb2_grpc.HealthStub(channel).Check
        for name in ("", SERVICE, "tuskpoint.v1.AdminService"):
            assert (await check(health_pb2.HealthCheckRequest(service=name))).status == SERVING
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await check(health_pb2.HealthCheckRequest(service="nobody"))
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND
        watcher = watch(channel, "nobody")
        assert (await watcher.read()).status == SERVICE_UNKNOWN
        watcher.cancel()
