"""Streamable HTTP: the socket, access rules, and the server on the socket."""

from __future__ import annotations

import hmac
import ipaddress
import signal
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

PATH = "/mcp"
_STOP_S = 3  # most seconds for running calls after SIGTERM
_BACKLOG = 128


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Address, names and credentials of the listener.

    Attributes:
        host: Address or name to listen on.
        port: Port; 0 picks a free port.
        names: Further names and addresses, with or without a port, under which clients reach the
            server.
        authorization: Returns the header `Authorization` that clients must send; `None` admits all
            clients.
        cert_file: Certificates for TLS, PEM; `None` serves plain HTTP.
        key_file: Private key of the first certificate, PEM.
    """

    host: str
    port: int
    names: Sequence[str] = ()
    authorization: Callable[[], str] | None = None
    cert_file: Path | None = None
    key_file: Path | None = None

    @property
    def scheme(self) -> str:
        """Scheme of the server's URL."""
        return "http" if self.cert_file is None else "https"

    def url(self, port: int) -> str:
        """Return the URL of the server on the actual port."""
        return f"{self.scheme}://{_bracketed(self.host)}:{port}{PATH}"


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a listening host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_wildcard(host: str) -> bool:
    """Return whether a listening host stands for all addresses of this machine."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return not host


def listen(endpoint: Endpoint) -> socket.socket:
    """Return a listening socket.

    Raises:
        OSError: The port is in use, or the address does not belong to this machine.
    """
    addresses = socket.getaddrinfo(
        endpoint.host, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    family, *_, address = addresses[0]
    return socket.create_server(address[:2], family=family, backlog=_BACKLOG)


async def serve(server: MCPServer, endpoint: Endpoint, listening: socket.socket) -> None:
    """Serve until SIGTERM or SIGINT."""
    app: ASGIApp = server.streamable_http_app(
        streamable_http_path=PATH,
        json_response=True,
        stateless_http=True,
        host=endpoint.host,
        transport_security=_security(endpoint),
    )
    if endpoint.authorization is not None:
        app = _OnlyWithToken(app, endpoint.authorization)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_STOP_S,
        ssl_certfile=endpoint.cert_file,
        ssl_keyfile=endpoint.key_file,
    )
    # uvicorn raises the signal again after it has stopped; a requested stop is not a failure.
    signal.signal(signal.SIGTERM, lambda *_: None)
    await uvicorn.Server(config).serve(sockets=[listening])


def _security(endpoint: Endpoint) -> TransportSecuritySettings:
    """Return the accepted `Host` and `Origin` headers: pages of other sites must not get in."""
    names = list(endpoint.names)
    if is_loopback(endpoint.host):
        names += ["127.0.0.1", "localhost", "[::1]"]
    elif not is_wildcard(endpoint.host):
        names.append(_bracketed(endpoint.host))
    hosts = [form for name in names for form in (name, f"{name}:*")]
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=hosts,
        # A proxy may end TLS, so the scheme that clients see is unknown here.
        allowed_origins=[f"{scheme}://{host}" for scheme in ("http", "https") for host in hosts],
    )


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


class _OnlyWithToken:
    """Admits requests that have the right header `Authorization`.

    Args:
        app: Application that admitted requests reach.
        expected: Returns the expected header.
    """

    def __init__(self, app: ASGIApp, expected: Callable[[], str]) -> None:
        self._app = app
        self._expected = expected

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._is_let_in(scope):
            refusal = JSONResponse(
                {"error": "invalid_token", "error_description": "send a valid bearer token"},
                status_code=401,
                headers={"WWW-Authenticate": 'Bearer error="invalid_token"'},
            )
            await refusal(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _is_let_in(self, scope: Scope) -> bool:
        expected = self._expected().encode()
        credentials = [value for name, value in scope["headers"] if name == b"authorization"]
        return len(credentials) == 1 and hmac.compare_digest(credentials[0], expected)
