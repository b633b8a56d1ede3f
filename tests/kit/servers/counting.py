"""A proxy that counts the bytes it passes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

PIECE_BYTES = 64 * 1024


class CountingProxy:
    """Forwards connections to a server.

    Attributes:
        target: Address of the proxy, `host:port`.
        sent: Bytes that clients have sent.
        received: Bytes that clients have received.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self.target = ""
        self.sent = 0
        self.received = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_server = await asyncio.open_connection("127.0.0.1", self._port)
        async with asyncio.TaskGroup() as both_ways:
            both_ways.create_task(self._carry(reader, to_server[1], is_answer=False))
            both_ways.create_task(self._carry(to_server[0], writer, is_answer=True))

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_answer: bool
    ) -> None:
        try:
            while piece := await reader.read(PIECE_BYTES):
                if is_answer:
                    self.received += len(piece)
                else:
                    self.sent += len(piece)
                writer.write(piece)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()


@asynccontextmanager
async def counting(port: int) -> AsyncIterator[CountingProxy]:
    """Count the bytes between clients and the server at a port of this machine."""
    proxy = CountingProxy(port)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.target = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
