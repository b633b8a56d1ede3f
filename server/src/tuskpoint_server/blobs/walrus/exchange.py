"""One request and one answer over HTTP, bounded in time and size."""

from __future__ import annotations

import asyncio
import functools
import ssl
from urllib.parse import urlsplit

import httpx

from ...domain.credentials import is_loopback
from ..api import Progress
from .answers import read_error
from .failures import Symptom, Trouble, Unsuccessful, one_line
from .settings import WalrusSettings

_MAX_ERROR_BYTES = 64 * 1024
_KEPT_ALIVE_S = 15.0
_OK = 200


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
        follow_redirects=False,
        verify=_tls(),
        trust_env=local != set(hosts),
        mounts={f"all://[{host}]" if ":" in host else f"all://{host}": None for host in local},
    )


@functools.cache
def _tls() -> ssl.SSLContext:
    """Return what checks certificates; making it takes longer than many a request."""
    return httpx.create_ssl_context()


async def exchange(
    client: httpx.AsyncClient,
    request: httpx.Request,
    timeout_s: float,
    max_bytes: int,
    progress: Progress | None = None,
) -> bytes:
    """Send a request and return the body of its answer.

    Args:
        client: Sends it.
        request: What to send.
        timeout_s: Bound on the whole exchange.
        max_bytes: Longest answer.
        progress: Called with how much of a good answer's body has arrived.

    Raises:
        Unsuccessful: There was no answer, or one with another status than 200.
    """
    try:
        async with asyncio.timeout(timeout_s):
            response = await client.send(request, stream=True)
            try:
                if response.status_code != _OK:
                    body = await _read(response, _MAX_ERROR_BYTES) or b""
                    kind = response.headers.get("content-type", "")
                    raise Unsuccessful(read_error(response.status_code, kind, body))
                answer = await _read(response, max_bytes, progress)
            finally:
                await response.aclose()
    except TimeoutError:
        raise Unsuccessful(Symptom(Trouble.TIMEOUT)) from None
    except httpx.TransportError as error:
        raise Unsuccessful(_symptom(error)) from error
    if answer is None:
        raise Unsuccessful(Symptom(Trouble.TOO_LONG))
    return answer


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


_UNREACHED = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
)


def _symptom(error: httpx.TransportError) -> Symptom:
    if isinstance(error, _UNREACHED):
        return Symptom(Trouble.UNREACHED, detail=one_line(str(error)))
    if isinstance(error, httpx.TimeoutException):
        return Symptom(Trouble.TIMEOUT)
    return Symptom(Trouble.LOST, detail=one_line(str(error)))
