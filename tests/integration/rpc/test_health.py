"""Health: what it says while the server serves and drains, and that no watcher is in the way."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]

from tuskpoint_server import app
from tuskpoint_server.config import Config

SERVICE = "tuskpoint.v1.CheckpointService"
UNKNOWN, SERVING, NOT_SERVING, SERVICE_UNKNOWN = range(4)

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _SETTINGS = 0, 1, 4
_END_STREAM, _END_HEADERS = 1, 4
_INITIAL_WINDOW_SIZE = 4


def frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    """Return a frame of HTTP/2 (RFC 9113, section 4.1)."""
    return struct.pack(">I", len(content))[1:] + struct.pack(">BBI", kind, flags, stream) + content


def header(name: bytes, value: bytes) -> bytes:
    """Return a header as a literal that is not indexed (RFC 7541, section 6.2.2)."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def deaf_watch() -> bytes:
    """Return a call of Watch by somebody who lets no byte of an answer through."""
    headers = (
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", b"/grpc.health.v1.Health/Watch"),
        (b":authority", b"localhost"),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
    )
    return (
        _PREFACE
        + frame(_SETTINGS, 0, 0, struct.pack(">HI", _INITIAL_WINDOW_SIZE, 0))
        + frame(_HEADERS, _END_HEADERS, 1, b"".join(header(*one) for one in headers))
        + frame(_DATA, _END_STREAM, 1, bytes(5))
    )


async def until_answered(reader: asyncio.StreamReader) -> None:
    """Read up to the headers of an answer."""
    kind = None
    while kind != _HEADERS:
        start = await reader.readexactly(9)
        kind = start[3]
        await reader.readexactly(int.from_bytes(start[:3], "big"))


def watch(channel: grpc.aio.Channel, service: str = "") -> Any:
    request = health_pb2.HealthCheckRequest(service=service)
    return health_pb2_grpc.HealthStub(channel).Watch(request)


async def test_a_watcher_who_does_not_read_holds_up_nobody(tmp_path: Path) -> None:
    config = Config(listen="127.0.0.1:0", data_dir=tmp_path)
    async with asyncio.timeout(20), app.running(config) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(deaf_watch())
        await until_answered(reader)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            watchers = [watch(channel, name) for name in ("", SERVICE)]
            for one in watchers:
                assert (await one.read()).status == SERVING
            draining = asyncio.create_task(server.drain(5))
            for one in watchers:
                assert (await one.read()).status == NOT_SERVING
            assert await draining
        writer.close()


async def test_a_service_that_is_not_there_is_not_known(tmp_path: Path) -> None:
    config = Config(listen="127.0.0.1:0", data_dir=tmp_path)
    async with (
        app.running(config) as server,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        check = health_pb2_grpc.HealthStub(channel).Check
        assert (await check(health_pb2.HealthCheckRequest(service=SERVICE))).status == SERVING
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await check(health_pb2.HealthCheckRequest(service="nobody"))
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND
        watcher = watch(channel, "nobody")
        assert (await watcher.read()).status == SERVICE_UNKNOWN
        watcher.cancel()
