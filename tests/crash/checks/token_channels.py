"""Channels that add a token to each call, for checks without the client."""

from __future__ import annotations

from typing import Any

import grpc


class _Showing(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):
    def __init__(self, token: str) -> None:
        self._shown = ("authorization", f"Bearer {token}")

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        return self._call(continuation, details, request)

    def intercept_unary_stream(self, continuation: Any, details: Any, request: Any) -> Any:
        return self._call(continuation, details, request)

    def _call(self, continuation: Any, details: Any, request: Any) -> Any:
        metadata = (*(details.metadata or ()), self._shown)
        return continuation(details._replace(metadata=metadata), request)


def showing(token: str, channel: grpc.Channel) -> grpc.Channel:
    """Return a channel that makes the same calls with a token."""
    return grpc.intercept_channel(channel, _Showing(token))
