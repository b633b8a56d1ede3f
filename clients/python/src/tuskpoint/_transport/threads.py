"""Calls of gRPC's blocking stack, made by the calling thread: what `loops` is for event loops."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from google.protobuf.message import Message

from .loops import Kept
from .settings.token import Headers


def answer_of(
    method: Any, request: Message | bytes, *, timeout_s: float, metadata: Headers, kept: Kept
) -> Any:
    """Make a call and return its answer.

    Args:
        method: A unary method of the channel.
        request: The request.
        timeout_s: Deadline in seconds.
        metadata: Metadata of the call.
        kept: Unused: gRPC gives no handle of a call that blocks, so nothing can cancel it.

    Raises:
        grpc.RpcError: It failed.
    """
    return method(request, timeout=timeout_s, metadata=metadata)


def frames_of(call: Any, kept: Kept) -> Generator[Any, None, None]:
    """Yield the frames of a stream. Leaving early cancels it.

    Args:
        call: The stream.
        kept: See `Kept`.

    Raises:
        grpc.RpcError: It failed.
    """
    try:
        with kept(call):
            yield from call
    finally:
        call.cancel()
