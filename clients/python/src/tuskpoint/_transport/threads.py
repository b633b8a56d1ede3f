"""Calls of gRPC's blocking stack, made by the calling thread: the counterpart of `loops`."""

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
