"""Common base of the blocking and the asyncio transport.

Any number of threads may share a transport, and any number of event loops an asyncio transport.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import TuskPointError
from .channel import CHANNELS, GUARD, OpenChannels, Server
from .exchange.frames import Request, payload_of
from .exchange.lanes import Call
from .exchange.streams import Streams
from .methods import Method
from .policy import attempts, closed, pause_or_raise
from .settings.options import Options


class Transport:
    """State of a transport: a lease of the channels, the streams on them, and the end of both.

    Args:
        options: Target and timeouts. The first call opens the channels.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self._lock = threading.Lock()
        self._opened: OpenChannels | None = None
        self._streams: Streams | None = None
        self._under_way: set[Any] = set()
        self._is_closed = False
        self._has_exchange = True

    def _close(self) -> None:
        with self._lock:
            self._is_closed = True
            opened, self._opened = self._opened, None
            streams, self._streams = self._streams, None
            under_way = [*self._under_way]
        for call in under_way:
            call.cancel()
        if streams is not None:
            streams.close()
        if opened is not None:
            CHANNELS.release(self.options.place, opened)

    @contextmanager
    def _kept(self, call: Any) -> Iterator[None]:
        """Register a call during a block, so that the end of this transport cancels the call."""
        with self._lock:
            self._under_way.add(call)
            is_closed = self._is_closed
        if is_closed:
            call.cancel()
        try:
            yield
        finally:
            self._under_way.discard(call)

    def _lease(self) -> OpenChannels:
        GUARD.check()
        opened = self._opened
        if opened is None:
            with self._lock:
                if self._is_closed:
                    raise closed()
                if self._opened is None:
                    self._opened = CHANNELS.lease(self.options.place)
                opened = self._opened
        return opened

    def _server(self) -> Server:
        return self._lease().next()

    def _exchanging(self) -> Streams:
        opened = self._lease()
        streams = self._streams
        if streams is None:
            with self._lock:
                if self._is_closed:
                    raise closed()
                if self._streams is None:
                    self._streams = Streams(opened, self.options)
                    # The threads of the streams end after their last call; they have no reference
                    # to the transport.
                    weakref.finalize(self, self._streams.forsake)
                streams = self._streams
        return streams

    def _pause_or_raise(self, error: TuskPointError, call: Call) -> float:
        """Return the seconds to wait before a call on the streams is sent again.

        Raises:
            TuskPointError: See `policy.pause_or_raise`.
        """
        return pause_or_raise(call.tried, error, self.options, self.options.security.headers())

    def _new_call(self, method: Method[Any, Any], request: Request) -> Call:
        payload = payload_of(request)
        has_chunks = payload.chunks is not None
        tried = attempts(self.options, method, request, is_large=has_chunks)
        return Call(payload, request, tried)
