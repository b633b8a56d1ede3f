"""The HTTP client that MemWal's SDK speaks through, with the bounds that the SDK lacks."""

from __future__ import annotations

import functools
import ssl
from typing import Any

import httpx

MAX_ANSWER_BYTES = 4 * 1024 * 1024
"""Longest answer. A hundred memories of this server, escaped, are a sixth of that; others'
memories may be longer, a mebibyte each."""

_CONNECT_S = 4.0
_THIS_MACHINE = ("*localhost", "127.0.0.1", "[::1]")
_PLAIN = ("", "identity")


class Wire(httpx.AsyncClient):
    """Bounds answers and the time that connecting takes; knows whether a request was signed.

    Proxies and certificates from the environment count, but for this machine itself no
    proxy is asked. Redirects are not followed: a signature is good for one place.

    Attributes:
        asked: A signed request was begun. What the SDK does before (asking for versions, for
            the configuration, a session) changes nothing there, so whatever fails while
            this is false can be done again.
    """

    def __init__(self) -> None:
        super().__init__(
            headers={"User-Agent": "tuskpoint-server", "Accept-Encoding": "identity"},
            http2=False,
            follow_redirects=False,
            verify=_tls(),
            mounts={f"all://{host}": None for host in _THIS_MACHINE},
        )
        self.asked = False

    async def send(self, request: httpx.Request, **named: Any) -> httpx.Response:
        """Send a request and return its answer, read to the end.

        Raises:
            httpx.TransportError: As ever, and if the answer is too long or encoded.
        """
        if "x-signature" in request.headers:
            self.asked = True
        # The SDK asks for no bounds at all; whole calls are bounded by who makes them.
        bounds = dict(request.extensions.get("timeout") or {})
        request.extensions["timeout"] = bounds | {"connect": _CONNECT_S}
        response = await super().send(request, **(named | {"stream": True}))
        try:
            content = await _read(response)
        finally:
            await response.aclose()
        return httpx.Response(
            response.status_code, headers=response.headers, content=content, request=request
        )


async def _read(response: httpx.Response) -> bytes:
    """Return a body within bounds."""
    if response.headers.get("content-encoding", "") not in _PLAIN:
        raise httpx.RemoteProtocolError("the answer is encoded, which nobody asked for")
    chunks = []
    left = MAX_ANSWER_BYTES
    async for chunk in response.aiter_raw():
        left -= len(chunk)
        if left < 0:
            raise httpx.RemoteProtocolError("the answer is too long")
        chunks.append(chunk)
    return b"".join(chunks)


@functools.cache
def _tls() -> ssl.SSLContext:
    """Return what checks certificates; making it takes longer than many a request."""
    return httpx.create_ssl_context()
