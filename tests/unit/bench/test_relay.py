"""Bytes pass the relay in order and late, in both directions."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from bench.running.servers import running_relay

_DELAY = 0.05


async def test_bytes_pass_in_order_and_late_in_both_directions(tmp_path: Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with running_relay(tmp_path, f"127.0.0.1:{port}", _DELAY) as target:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(target.rpartition(":")[2]))
        sent = bytes(range(256)) * 1024
        began = time.perf_counter()
        writer.write(sent)
        assert await reader.readexactly(len(sent)) == sent
        assert time.perf_counter() - began >= 2 * _DELAY
        writer.close()
        await writer.wait_closed()
    server.close()
    await server.wait_closed()
