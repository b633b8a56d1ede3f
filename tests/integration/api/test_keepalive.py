"""An idle client may ping; a client that pings too often is disconnected.

The server has its real options, with every time divided by `FASTER`, so that five minutes of pings
every 30 seconds take no time. `make soak-idle` waits for the real time, with the real clients.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.kit.servers import http2
from tuskpoint_server.api.server import server as rpc
from tuskpoint_server.api.server.server import OPTIONS, Server

FASTER = 1000
EVERY_S = 30 / FASTER
PINGS = 10
"""Pings of a client in five minutes."""


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    scaled = [(name, value // FASTER) for name, value in OPTIONS if name.endswith("_ms")]
    assert len(scaled) >= 4
    # time of the server's own pings, which this test does not need
    lasting = ("grpc.keepalive_time_ms", 2**31 - 1)
    times = dict([*scaled, lasting, ("grpc.keepalive_timeout_ms", 2**31 - 1)])
    times["grpc.server_handshake_timeout_ms"] = 20_000  # a busy machine needs 20 seconds
    monkeypatch.setattr(rpc, "OPTIONS", tuple({**dict(OPTIONS), **times}.items()))
    built = rpc.build("127.0.0.1", 0, (), max_call_seconds=60, memory_bytes=2**31, reflect=False)
    await built.start()
    yield built
    await built.drain(0)


async def answers(server: Server, pings: int, *, call: bool, every_s: float) -> list[int]:
    """Ping after each answer to the ping before; return the kinds of the answers."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    if call:
        writer.write(http2.opening("/grpc.health.v1.Health/Watch"))
        writer.write(http2.data(http2.message(b""), last=True))
        await http2.until_answered(reader)
    else:
        writer.write(http2.connecting())
    kinds: list[int] = []
    writer.write(http2.frame(http2.PING, 0, 0, bytes(8)))
    async for kind, flags, _ in http2.frames(reader):
        if kind == http2.GOAWAY or (kind == http2.PING and flags & http2.ACK):
            kinds.append(kind)
            if kind == http2.GOAWAY or len(kinds) == pings:
                break
            await asyncio.sleep(every_s)
            writer.write(http2.frame(http2.PING, 0, 0, bytes(8)))
    writer.close()
    return kinds


@pytest.mark.parametrize("call", [True, False], ids=["waiting", "idle"])
async def test_five_minutes_of_pings_do_not_end_a_connection(server: Server, call: bool) -> None:
    kinds = await answers(server, PINGS, call=call, every_s=EVERY_S)
    assert kinds == [http2.PING] * PINGS


async def test_a_flood_of_pings_ends_it(server: Server) -> None:
    kinds = await answers(server, 10_000, call=True, every_s=0)
    assert kinds[-1] == http2.GOAWAY
