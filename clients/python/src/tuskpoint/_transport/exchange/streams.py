"""Threads of a client's `Exchange` streams, and the callers that wait for answers."""

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
    """A lane and the state of its stream.

    Attributes:
        lane: The calls.
        stream: The open stream, or the last one.
        wake: Queue that makes the writer of the open stream look for calls (`True`) or end
            (`False`); `None` while no stream is open.
        is_idle: Whether the writer waits for `wake`.
        is_outdated: Whether the writer ended the open stream because the token was replaced.
        is_running: Whether a thread serves the lane.
    """

    __slots__ = ("is_idle", "is_outdated", "is_running", "lane", "stream", "wake")

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.stream: Any = None
        # A finalizer may call `put` of this queue, wherever it interrupts the program.
        self.wake: SimpleQueue[bool] | None = None
        self.is_idle = False
        self.is_outdated = False
        self.is_running = False


class Streams:
    """Carries calls over at most two streams. The first call of each stream opens the stream.

    Callers may be threads and tasks of any event loops. A broken stream is opened again while
    callers wait. After `forsake`, an object that nobody closes leaves no thread running.

    Args:
        opened: Channels on which the streams are opened.
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
        """Make a call, block the thread until the answer, and return the answer.

        Raises:
            TuskPointError: The call was refused, its time is up, the streams cannot be opened, or
                they were closed.
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
        """Make a call, await the answer, and return the answer.

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
        """End the streams. Running calls and later calls raise."""
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
        """Let streams without calls end. Locks nothing, so that a finalizer may call it."""
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
        """Start or wake the thread of a lane that has calls to send. The caller holds the lock."""
        if link.is_idle:
            if link.wake is not None and link.lane.is_ready:
                link.is_idle = False
                link.wake.put(True)
        elif not link.is_running and link.lane.is_ready:
            threading.Thread(
                target=self._run, args=(link,), name="tuskpoint-exchange", daemon=True
            ).start()
            link.is_running = True

    # --- run by the thread of a lane -------------------------------------------------

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
            Seconds until the next stream should be opened; `None` if no caller waits.
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
            # After this block the writer of this stream sends nothing more.
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
        """Read the open stream; return the error with which it ended."""
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

    # --- run by threads of gRPC -------------------------------------------------------

    def _receive(self, link: _Link, data: bytes) -> ServerError | tuple[()]:
        """Process a message of the server inside gRPC's parser; return a breach of the contract.

        Otherwise every caller would wait until the thread of the lane wakes. gRPC holds a lock of
        the stream meanwhile, so this object must not call a stream while it holds its own lock.
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
        """Yield the messages of a stream.

        After the token was replaced, the stream sends nothing more, and ends when its saves are
        answered.
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
    """Resume callers: each thread separately, all tasks of an event loop together."""
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
