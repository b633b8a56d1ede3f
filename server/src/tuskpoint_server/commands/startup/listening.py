"""Builds the listeners for gRPC and HTTP, or explains why an address cannot be used."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import TYPE_CHECKING

from google.protobuf.descriptor import ServiceDescriptor

from ...api.server import server as rpc
from ...auth.access import Access
from ...config.settings import Config, split_address
from ...core.process import EXIT_ADDRESS, ConfigError, StartError
from ...features.trail.trail import Trail

if TYPE_CHECKING:
    from ...api.web.listener import Listener

Contract = Sequence[tuple[ServiceDescriptor, object]]


class AddressError(StartError):
    """The server cannot listen on an address.

    Attributes:
        flag: The option that names the address.
        reason: The reason, for a message.
        advice: A remedy besides another address; empty if nothing else helps.
    """

    def __init__(self, flag: str, address: str, error: OSError) -> None:
        self.flag = flag
        self.reason = error.strerror or str(error)
        is_taken = error.errno == errno.EADDRINUSE
        self.advice = "stop the program that uses it, or " if is_taken else ""
        super().__init__(
            EXIT_ADDRESS,
            f"cannot listen on {address}: {self.reason}; {self.advice}choose another {flag} "
            "(port 0 picks a free one)",
        )


def listen(
    config: Config, contract: Contract, access: Access, trail: Trail, max_connections: int
) -> rpc.Server:
    """Return a server for gRPC before its start."""
    host, port = split_address(config.listen)
    try:
        return rpc.build(
            host,
            port,
            contract,
            max_call_seconds=config.max_call_seconds,
            memory_bytes=config.memory_bytes,
            reflect=config.reflection,
            max_connections=max_connections,
            authentication=access.authentication,
            tls=access.tls.credentials if access.tls is not None else None,
            trail=trail,
        )
    except OSError as error:
        raise AddressError("--listen", config.listen, error) from None


def can_serve_http() -> bool:
    """Return whether the libraries for HTTP are installed."""
    try:
        from ...api.web import listener  # noqa: F401 - whether it can be imported is the question
    except ImportError:
        return False
    return True


def listen_http(
    config: Config, contract: Contract, access: Access, server: rpc.Server, max_connections: int
) -> Listener:
    """Return a listener for HTTP with the same pipeline as the server for gRPC."""
    try:
        from ...api.web import listener
    except ImportError:
        raise ConfigError(
            "--http-listen needs the libraries for HTTP; pip install 'tuskpoint-server[http]'"
        ) from None
    host, port = split_address(config.http_listen, "--http-listen")
    try:
        tls = access.tls.context() if access.tls is not None else None
    except OSError as error:
        raise ConfigError(
            f"--http-listen cannot load the TLS files: {error}; the key is in a temporary file for "
            "a moment, in the folder that TMPDIR names"
        ) from None
    try:
        http_listener = listener.build(
            host,
            port,
            contract,
            server.pipeline,
            is_ready=lambda: server.is_serving,
            max_connections=max_connections,
            origins=config.http_origins,
            asks_for_tokens=config.tokens is not None,
            tls=tls,
        )
    except OSError as error:
        raise AddressError("--http-listen", config.http_listen, error) from None
    server.http_url = http_listener.url
    server.has_console = http_listener.has_console
    return http_listener
