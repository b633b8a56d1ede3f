"""The threads of a client's `Exchange` streams, and the callers that wait for answers."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Iterable, Iterator
from functools import partial
from queue import SimpleQueue
from typing import Any

import grpc

from ...errors import DeadlineExceeded, ServerError, TuskPointError, Unavailable
from ...v1.checkpoint_service_pb2 import ExchangeResponse, Hello
from ..channel import OpenChannels, Server
from ..loops import call_soon
from ..methods import EXCHANGE
from ..policy import closed
from ..settings.options import Options
from ..settings.token import Headers
from ..status import explain, from_rpc_error
from .frames import messages
from .lanes import Call, Lane, Lanes


class _Link:
    """A lane with what its stream needs.

    Attributes:
        lane: The calls.
        stream: The stream that is open or was last.
        wake: Lets the writer of the open stream look for calls (`True`) or end (`False`); `None`
            while no stream is open.
        is_idle: Whether the writer waits to be woken.
        is_outdated: Whether the writer ended the open stream because the token was replaced.
        is_running: Whether a thread serves the lane.
    """

    __slots__ = ("is_idle", "is_outdated", "is_running", "lane", "stream", "wake")

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.stream: Any = None
        # Its `put` may be called by a finalizer, wherever that interrupts.
        self.wake: SimpleQueue[bool] | None = None
        self.is_idle = False
        self.is_outdated = False
        self.is_running = False


class Streams:
    """Carries calls over at most two streams, which are opened by the first call of each.

    Callers may be threads and tasks of any event loops. What breaks is opened again, for as long
    as callers wait. An object that nobody closes leaves no thread behind once `forsake` was called.

    Args:
        opened: Where the streams are opened.
        options: Target, credential and schedule of retries.
    """

    def __init__(self, opened: OpenChannels, options: Options) -> None:
        self._options = options
        self._opened = opened
        self._lock = threading.Lock()
        self._lanes = Lanes()
        self._links = {lane: _Link(lane) for lane in (self._lanes.small, self._lanes.large)}
        self._closed = threading.Event()

    def call(self, call: Call) -> Any:
        """Return the answer to a call, and block the thread until it is there.

        Raises:
            TuskPointError: It was refused, its time is up, the streams cannot be opened, or this
                was closed.
        """
        call.waiter = threading.Lock()
        call.waiter.acquire()
        self._submit(call)
        left_s = call.tried.remaining_s(time.monotonic())
        try:
            call.waiter.acquire(timeout=min(left_s, threading.TIMEOUT_MAX))
        finally:
            self._leave(call)
        return self._result(call)

    async def acall(self, call: Call) -> Any:
        """Return the answer to a call.

        Raises:
            TuskPointError: See `call`.
        """
        call.loop = asyncio.get_running_loop()
        call.waiter = call.loop.create_future()
        left_s = call.tried.remaining_s(time.monotonic())
        late = call.loop.call_later(left_s, _settle, (call,))
        try:
            self._submit(call)
            await call.waiter
        finally:
            late.cancel()
            self._leave(call)
        return self._result(call)

    def close(self) -> None:
        """End the streams. Calls under way raise, and so do those made afterwards."""
        with self._lock:
            self._closed.set()
            calls = self._lanes.clear()
        for call in calls:
            call.fail(closed())
        _deliver(calls)
        self.forsake()
        for link in self._links.values():
            if link.stream is not None:
                link.stream.cancel()

    def forsake(self) -> None:
        """Let streams without calls end. Takes no lock, so that a finalizer may call it."""
        for link in self._links.values():
            if link.wake is not None:
                link.wake.put(False)

    def _submit(self, call: Call) -> None:
        with self._lock:
            if self._closed.is_set():
                raise closed()
            self._lanes.add(call)
            self._serve(self._links[self._lanes.lane_of(call)])

    def _leave(self, call: Call) -> None:
        if call.answer is not None or call.error is not None:
            return
        with self._lock:
            self._lanes.abandon(call)
            self._serve_all()

    def _result(self, call: Call) -> Any:
        if call.error is not None:
            raise call.error
        if call.answer is None:
            message = explain("DEADLINE_EXCEEDED", "Deadline Exceeded", self._options.target)
            raise DeadlineExceeded(message, status="DEADLINE_EXCEEDED")
        return call.answer

    def _serve_all(self) -> None:
        self._lanes.unpark()
        for link in self._links.values():
            self._serve(link)

    def _serve(self, link: _Link) -> None:
        """See to it that a lane's calls are sent. The lock is held."""
        if link.is_idle:
            if link.wake is not None and link.lane.is_ready:
                link.is_idle = False
                link.wake.put(True)
        elif not link.is_running and link.lane.is_ready:
            threading.Thread(
                target=self._run, args=(link,), name="tuskpoint-exchange", daemon=True
            ).start()
            link.is_running = True

    # --- in the thread of a lane -----------------------------------------------------

    def _run(self, link: _Link) -> None:
        try:
            while (pause_s := self._converse(link)) is not None:
                self._closed.wait(pause_s)
        except BaseException as error:
            with self._lock:
                calls = link.lane.calls
                link.lane.clear()
                link.is_running = False
            for call in calls:
                call.fail(ServerError(f"the stream failed: {error!r}", status="INTERNAL"))
            _deliver(calls)
            raise

    def _converse(self, link: _Link) -> float | None:
        """Open a stream and read until it ends.

        Returns:
            Seconds until the next one is to be opened; `None` if nobody waits for it.
        """
        security = self._options.security
        credentials = security.headers()
        wake: SimpleQueue[bool] = SimpleQueue()
        with self._lock:
            if self._closed.is_set():
                return None
            hello = link.lane.open()
            link.wake, link.is_idle, link.is_outdated = wake, False, False
            server = self._opened.next()
            converse: Any = server.channel.stream_stream(
                EXCHANGE.path, response_deserializer=partial(self._receive, link)
            )
            link.stream = converse(
                self._messages(link, wake, hello, credentials), metadata=credentials
            )
        failure = self._read(link, server)
        wake.put(False)
        refused = failure.status == "UNAUTHENTICATED" and security.headers() != credentials
        with self._lock:
            # From here on the writer of this stream takes nothing more.
            link.wake, link.is_idle = None, False
            renewed = refused or link.is_outdated
            failed = link.lane.end(failure, time.monotonic(), renewed=renewed)
            link.is_running = bool(link.lane.calls)
            pause_s = self._pause_s(link.lane, failure) if link.is_running else None
            self._serve_all()
        _deliver(failed)
        return 0.0 if renewed and pause_s is not None else pause_s

    def _pause_s(self, lane: Lane, failure: TuskPointError) -> float:
        jitter = random.random()  # noqa: S311 - spreads retries, guards nothing
        bound_s = self._options.retry.bound_s(lane.failures)
        return (failure.retry_after_s or 0.0) + jitter * bound_s

    def _read(self, link: _Link, server: Server) -> TuskPointError:
        """Read the open stream; return how it ended."""
        options = self._options
        try:
            for result in link.stream:
                if isinstance(result, ServerError):
                    link.stream.cancel()
                    return result
        except grpc.RpcError as error:
            server.failed(error)
            failure = from_rpc_error(error, options.target, tls=options.security.tls is not None)
            failure.__cause__ = error
            return failure
        message = explain("UNAVAILABLE", "the server ended the stream", options.target)
        return Unavailable(message, status="UNAVAILABLE")

    # --- in threads of gRPC's --------------------------------------------------------

    def _receive(self, link: _Link, data: bytes) -> ServerError | tuple[()]:
        """Take a message of the server as gRPC parses it; return how it breaks the contract, if so.

        The thread of the lane would have to be woken first, and every caller would wait for that.
        gRPC holds a lock of the stream meanwhile, so nothing may be done to a stream while the lock
        of this is held.
        """
        finished: list[Call] = []
        try:
            with self._lock:
                link.lane.receive(ExchangeResponse.FromString(data), finished)
                self._serve_all()
        except ServerError as error:
            return error
        finally:
            _deliver(finished)
        return ()

    def _messages(
        self, link: _Link, wake: SimpleQueue[bool], hello: Hello, credentials: Headers
    ) -> Iterator[bytes]:
        """Yield what a stream sends.

        Once the token was replaced, nothing more is sent, and the stream ends when the saves on it
        are answered.
        """
        security = self._options.security
        begin: Hello | None = hello
        while True:
            is_outdated = security.headers() != credentials
            with self._lock:
                if link.wake is not wake:
                    return
                stream, moves = link.stream, is_outdated and link.lane.may_move
                calls = [] if is_outdated else link.lane.take(time.monotonic())
                link.is_outdated, link.is_idle = moves, not (calls or moves)
            if moves:
                stream.cancel()
                return
            if calls:
                yield from messages(calls, begin)
                begin = None
            elif not wake.get():
                return


def _deliver(calls: Iterable[Call]) -> None:
    """Resume callers: threads one by one, the tasks of a loop all at once."""
    loops: dict[asyncio.AbstractEventLoop, list[Call]] = {}
    for call in calls:
        if call.loop is None:
            call.waiter.release()
        else:
            loops.setdefault(call.loop, []).append(call)
    for loop, waiting in loops.items():
        call_soon(loop, _settle, waiting)


def _settle(calls: Iterable[Call]) -> None:
    for call in calls:
        if not call.waiter.done():
            call.waiter.set_result(None)
