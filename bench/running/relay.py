"""`python -m bench.running.relay ADDRESS SECONDS`: a TCP relay with a delay.

It listens on a port of the loopback interface, connects each connection to the address, and
passes bytes on in either direction after the given delay. The address is HOST:PORT.
"""

from __future__ import annotations

import asyncio
import selectors
import signal
import sys


class _End(asyncio.Protocol):
    """An end of a relayed connection; its bytes go to the other end after the delay."""

    def __init__(self, delay: float) -> None:
        self._delay = delay
        self._loop = asyncio.get_running_loop()
        self._early: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self.other: _End | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        for data in self._early:
            transport.write(data)

    def data_received(self, data: bytes) -> None:
        self._loop.call_later(self._delay, self._pass_on, data)

    def connection_lost(self, _: Exception | None) -> None:
        self._loop.call_later(self._delay, self._close_other)

    def _pass_on(self, data: bytes) -> None:
        assert self.other is not None
        self.other.send(data)

    def _close_other(self) -> None:
        if self.other is not None and self.other._transport is not None:
            self.other._transport.close()

    def send(self, data: bytes) -> None:
        """Send the other end's bytes."""
        if self._transport is None:
            self._early.append(data)
        else:
            self._transport.write(data)


async def relay(host: str, port: int, delay: float) -> None:
    """Relay until SIGTERM."""
    loop = asyncio.get_running_loop()
    opening: set[asyncio.Task[object]] = set()

    def accept() -> _End:
        near, far = _End(delay), _End(delay)
        near.other, far.other = far, near
        task: asyncio.Task[object] = loop.create_task(_connect(far, host, port))
        opening.add(task)
        task.add_done_callback(opening.discard)
        return near

    server = await loop.create_server(accept, "127.0.0.1", 0)
    print(f"relay listening on 127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    stopped = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    await stopped.wait()
    server.close()


async def _connect(far: _End, host: str, port: int) -> None:
    await asyncio.get_running_loop().create_connection(lambda: far, host, port)


def main() -> None:
    """Run the relay of the command line."""
    address, seconds = sys.argv[1:]
    host, _, port = address.rpartition(":")
    # Its timers count microseconds; the timers of epoll and of uvloop count milliseconds.
    loop = asyncio.SelectorEventLoop(selectors.SelectSelector())
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(relay(host, int(port), float(seconds)))


if __name__ == "__main__":
    main()
