"""Calls of gRPC's blocking stack, made by the calling thread: the counterpart of `loops`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from typing import Any

from google.protobuf.message import Message

from .loops import Kept
from .settings.token import Headers

_LAST_BEAT_S = 1.0


def answer_of(
    method: Any, request: Message | bytes, *, timeout_s: float, metadata: Headers, kept: Kept
) -> Any:
    """Make a call and return its answer.

    Args:
        method: A unary method of the channel.
        request: The request.
        timeout_s: Deadline in seconds.
        metadata: Metadata of the call.
        kept: Unused: gRPC returns no handle of a blocking call, so nothing can cancel the call.

    Raises:
        grpc.RpcError: The call failed.
    """
    return method(request, timeout=timeout_s, metadata=metadata)


def frames_of(call: Any, kept: Kept) -> Generator[Any, None, None]:
    """Yield the frames of a stream. An early end cancels the stream.

    Args:
        call: The stream.
        kept: See `Kept`.

    Raises:
        grpc.RpcError: The stream failed.
    """
    try:
        with kept(call):
            yield from call
    finally:
        call.cancel()


class Heartbeat:
    """Calls a function at intervals, in a thread that ends with the context.

    A call that runs at the end of the context is not waited for longer than a second: its thread
    ends after it.

    Args:
        beat: The function; returns whether to call it again.
        interval_s: Seconds between two calls.
    """

    def __init__(self, beat: Callable[[], bool], interval_s: float) -> None:
        self._beat = beat
        self._interval_s = interval_s
        self._ended = threading.Event()

    def __enter__(self) -> None:
        self._thread = threading.Thread(target=self._run, name="tuskpoint-heartbeat", daemon=True)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(_LAST_BEAT_S)

    def _run(self) -> None:
        while not self._ended.wait(self._interval_s) and self._beat():
            pass
