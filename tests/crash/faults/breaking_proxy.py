"""A proxy that breaks connections at random bytes."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

PIECE_BYTES = 16 * 1024
RESET = struct.pack("ii", 1, 0)  # With SO_LINGER, close() sends RST and drops all unsent bytes.
DIAL_SECONDS = 0.02


class BreakingProxy:
    """Forwards connections to a server; most of them break after a random number of bytes.

    The bytes of both directions count. Then the proxy resets both sides, and all bytes in flight
    are lost.

    Args:
        target: The server, `host:port`.
        source: Draws the numbers.

    Attributes:
        target: The proxy's address, `host:port`.
        breaks: Number of connections that the proxy has broken.
    """

    def __init__(self, target: str, source: random.Random) -> None:
        host, port = target.rsplit(":", 1)
        self._server = (host, int(port))
        self._source = source
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.target = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.breaks = 0
        self._open: set[_Connection] = set()
        self._lock = threading.Lock()
        self._is_over = False

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._lock:
            self._is_over = True
            open_now = [*self._open]
        # shutdown() wakes a thread in accept(); close() does not.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in open_now:
            connection.reset()

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(
                target=self._serve, args=(accepted, self._allowed()), daemon=True
            ).start()

    def _allowed(self) -> int:
        """Return the number of bytes that a new connection may carry.

        The number ends a connection within the first frames or after many saves. A quarter of the
        connections has no limit, so that large values get through.
        """
        is_whole = self._source.random() < 0.25
        return sys.maxsize if is_whole else int(10 ** self._source.uniform(2.0, 4.7))

    def _pace(self) -> None:
        """Return at once: the next piece may pass without a delay."""

    def _serve(self, accepted: socket.socket, allowed: int) -> None:
        onwards = self._connected()
        if onwards is None:
            accepted.close()
            return
        connection = _Connection(accepted, onwards, allowed)
        with self._lock:
            self._open.add(connection)
            is_over = self._is_over
        if is_over:
            connection.reset()
        back = threading.Thread(
            target=self._carry, args=(connection, onwards, accepted), daemon=True
        )
        back.start()
        self._carry(connection, accepted, onwards)

    def _connected(self) -> socket.socket | None:
        """Connect to the server once it listens; return `None` if the proxy closes before.

        A refusal would make the client wait longer between two attempts.
        """
        while not self._is_over:
            try:
                return socket.create_connection(self._server)
            except OSError:
                time.sleep(DIAL_SECONDS)
        return None

    def _carry(self, connection: _Connection, source: socket.socket, target: socket.socket) -> None:
        connection.carry(source, target, self._pace)
        with self._lock:
            if connection in self._open:
                self._open.remove(connection)
                self.breaks += connection.is_broken
        connection.reset()


class _Connection:
    """The two sockets of a connection, and the number of bytes that may still pass."""

    def __init__(self, accepted: socket.socket, onwards: socket.socket, allowed: int) -> None:
        self._sockets = (accepted, onwards)
        self._left = allowed
        self._lock = threading.Lock()
        self.is_broken = False
        for side in self._sockets:
            side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def carry(self, source: socket.socket, target: socket.socket, pace: Callable[[], None]) -> None:
        """Carry one direction until it ends or the bytes are used up.

        `pace`: returns once the next piece may pass.
        """
        with contextlib.suppress(OSError):  # Either side was reset.
            while data := source.recv(PIECE_BYTES):
                pace()
                with self._lock:
                    passed = data[: self._left]
                    self._left -= len(passed)
                    self.is_broken = self._left == 0
                target.sendall(passed)
                if self.is_broken:
                    return

    def reset(self) -> None:
        """Reset both sides."""
        for side in self._sockets:
            with contextlib.suppress(OSError):  # The socket is closed already.
                side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                side.shutdown(socket.SHUT_RDWR)
            side.close()
