"""Connections of the listener for HTTP: accepted up to a bound, and closed if they are slow.

A stranger may open connections, and send requests slowly or never. So the connections in total and
of one address are bounded, and handshake, headers and the unread rest of an answered request have
deadlines.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

DEADLINE_SECONDS = 10.0  # for a handshake, headers, and the rest of an answered request
_AT_ONCE = 64  # connections accepted in one turn of the event loop
_PAUSE_SECONDS = 0.5  # seconds before another try, if the system has no free descriptor


class Connection(H11Protocol):
    """A connection that must send the headers of each request in time."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.lost: asyncio.Future[None] = self.loop.create_future()
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unwatch()
        if not self.lost.done():
            self.lost.set_result(None)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def _watch(self) -> None:
        """Set the deadline while unread input of the client is expected; otherwise remove it."""
        their_state, our_state = self.conn.their_state, self.conn.our_state
        awaits_headers = their_state is h11.IDLE
        awaits_rest = their_state is h11.SEND_BODY and our_state in (h11.DONE, h11.MUST_CLOSE)
        if not (awaits_headers or awaits_rest):
            self._unwatch()
        elif self._late is None:
            self._late = self.loop.call_later(DEADLINE_SECONDS, self.transport.abort)

    def _unwatch(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


class Acceptor:
    """Accepts the connections of a listening socket, in place of an `asyncio.Server`.

    A connection above a bound is closed at once: a queue would lock out other clients, too.

    Args:
        listening: The socket.
        most: Most connections at once; half of them may come from one address.
        tls: The TLS of the connections, if any.
    """

    def __init__(self, listening: socket.socket, most: int, tls: ssl.SSLContext | None) -> None:
        self._listening = listening
        self._most = most
        self._most_of_one = max(1, most // 2)
        self._tls = tls
        self._from: Counter[str] = Counter()  # open connections by address
        self._tasks: set[asyncio.Task[None]] = set()
        self._make: Callable[[], Connection]
        self._is_open = False

    def start(self, make: Callable[[], Connection]) -> None:
        """Start to accept connections; each gets a protocol."""
        self._make = make
        self._is_open = True
        self._listening.setblocking(False)
        self._resume()

    def close(self) -> None:
        """Stop accepting connections."""
        self._is_open = False
        asyncio.get_running_loop().remove_reader(self._listening)

    async def end(self) -> None:
        """Cancel unfinished handshakes."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def wait_closed(self) -> None:
        """Do nothing: uvicorn waits for the connections itself."""

    def _resume(self) -> None:
        if self._is_open:
            asyncio.get_running_loop().add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(_AT_ONCE):
            try:
                accepted, address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # no descriptor or no memory is free; retry soon
                loop.remove_reader(self._listening)
                loop.call_later(_PAUSE_SECONDS, self._resume)
                return
            host = address[0]
            if len(self._tasks) >= self._most or self._from[host] >= self._most_of_one:
                accepted.close()
                continue
            self._from[host] += 1
            task = loop.create_task(self._serve(accepted, host))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(self, accepted: socket.socket, host: str) -> None:
        """Serve a connection until it ends."""
        accepted.setblocking(False)
        connection = self._make()
        timeout = DEADLINE_SECONDS if self._tls is not None else None
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection, accepted, ssl=self._tls, ssl_handshake_timeout=timeout
            )
            await connection.lost
        except OSError:
            accepted.close()  # the handshake failed, or took too long
        finally:
            self._from[host] -= 1
            if not self._from[host]:
                del self._from[host]
