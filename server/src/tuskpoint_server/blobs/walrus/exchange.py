"""One request and one answer over HTTP, bounded in time and size."""

from __future__ import annotations

import asyncio
import functools
import ssl
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

import httpx

from ...domain.hosts import is_loopback
from ..api import Progress
from .answers import read_error
from .endpoints import Endpoint
from .failures import Failed
from .settings import WalrusSettings
from .symptoms import Operation, Symptom, Trouble, told

_MAX_ERROR_BYTES = 64 * 1024
_KEPT_ALIVE_S = 15.0
_OK = 200


@dataclass(frozen=True, slots=True)
class Request:
    """What to send.

    Attributes:
        operation: What it asks for.
        endpoint: Whom it asks.
        wire: The request itself.
        timeout_s: Bound on the whole exchange.
        max_bytes: Longest answer.
        recent: It is about a blob stored a moment ago.
        progress: Told how much of a good answer's body has arrived.
    """

    operation: Operation
    endpoint: Endpoint
    wire: httpx.Request
    timeout_s: float
    max_bytes: int
    recent: bool = False
    progress: Progress | None = None

    def failure(self, symptom: Symptom) -> Failed:
        """Return the failure of this request with a symptom."""
        return Failed(self.operation, self.endpoint.base, symptom)


def open_client(settings: WalrusSettings) -> httpx.AsyncClient:
    """Return the client that every request goes through.

    Proxies and certificates from the environment count, but for this machine itself no
    proxy is asked. Redirects are not followed: a put must not wander.
    """
    hosts = [urlsplit(url).hostname or "" for url in settings.publishers + settings.aggregators]
    local = {host for host in hosts if is_loopback(host)}
    at_once = settings.puts_at_once + settings.gets_at_once
    return httpx.AsyncClient(
        # Bytes are taken as they are, so an encoding would only have to be undone.
        headers={"User-Agent": "tuskpoint-server", "Accept-Encoding": "identity"},
        timeout=httpx.Timeout(None, connect=settings.connect_timeout_s),
        limits=httpx.Limits(
            max_connections=at_once,
            max_keepalive_connections=at_once,
            keepalive_expiry=_KEPT_ALIVE_S,
        ),
        http1=True,
        http2=False,
        follow_redirects=False,
        verify=_tls(),
        trust_env=local != set(hosts),
        mounts={f"all://{_bracketed(host)}": None for host in local},
    )


@functools.cache
def _tls() -> ssl.SSLContext:
    """Return what checks certificates; making it takes longer than many a request."""
    return httpx.create_ssl_context()


async def exchange(client: httpx.AsyncClient, request: Request) -> bytes:
    """Send a request and return the body of its answer.

    Raises:
        Failed: There was no answer, or one with another status than 200.
    """
    try:
        async with asyncio.timeout(request.timeout_s):
            response = await client.send(request.wire, stream=True)
            try:
                return await _body(request, response)
            finally:
                await response.aclose()
    except TimeoutError:
        raise request.failure(Symptom(Trouble.TIMEOUT)) from None
    except httpx.TransportError as error:
        raise request.failure(_symptom(error)) from error


async def _body(request: Request, response: httpx.Response) -> bytes:
    if response.status_code != _OK:
        told_body = await _read(response, _MAX_ERROR_BYTES) or b""
        content_type = response.headers.get("content-type", "")
        symptom = read_error(response.status_code, content_type, told_body)
        raise request.failure(replace(symptom, recent=request.recent))
    body = await _read(response, request.max_bytes, request.progress)
    if body is None:
        raise request.failure(Symptom(Trouble.TOO_LONG))
    return body


async def _read(
    response: httpx.Response, max_bytes: int, progress: Progress | None = None
) -> bytes | None:
    """Return a body, or `None` as soon as it is known to be longer than the bound.

    A body that is shorter than its Content-Length breaks the protocol, which httpx says.
    """
    length = response.headers.get("content-length", "")
    if length.isdecimal() and int(length) > max_bytes:
        return None
    chunks = []
    left = max_bytes
    async for chunk in response.aiter_raw():
        left -= len(chunk)
        if left < 0:
            return None
        chunks.append(chunk)
        if progress is not None:
            progress(max_bytes - left)
    return b"".join(chunks)


def _symptom(error: httpx.TransportError) -> Symptom:
    unreached = (
        httpx.ConnectError,
        httpx.ConnectTimeout,
        httpx.PoolTimeout,
        httpx.ProxyError,
        httpx.UnsupportedProtocol,
    )
    detail = told(str(error))
    if isinstance(error, unreached):
        return Symptom(Trouble.UNREACHED, detail=detail)
    if isinstance(error, httpx.TimeoutException):
        return Symptom(Trouble.TIMEOUT)
    return Symptom(Trouble.LOST, detail=detail)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
