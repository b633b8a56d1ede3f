"""The gRPC server: every service of the contract, health, TLS, and reflection if wanted."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass

import grpc
from google.protobuf.descriptor import ServiceDescriptor

from ...core.limits import LIMITS
from ...features.call_memory import CallMemory
from ...features.trail.trail import Trail
from ..middleware.authentication import Authentication
from ..middleware.pipeline import CallPipeline, service_handler
from ..middleware.telemetry import Telemetry
from .health import Health

MAX_PENDING_CALLS = 100_000  # calls that may wait for the event loop

OPTIONS: tuple[tuple[str, int], ...] = (
    # Above the limit, so that the pipeline refuses too large messages: gRPC's own refusal has no
    # reason.
    ("grpc.max_receive_message_length", 2 * LIMITS.max_message),
    ("grpc.max_send_message_length", LIMITS.max_message),
    # A second server on a taken port must fail, not share it silently.
    ("grpc.so_reuseport", 0),
    ("grpc.max_concurrent_streams", 1024),  # streams of one connection
    # By default the core cancels calls at random when about 1,000 wait.
    ("grpc.server.max_pending_requests", MAX_PENDING_CALLS),
    ("grpc.server.max_pending_requests_hard_limit", MAX_PENDING_CALLS),
    # Time until a connection must speak HTTP/2; by default two minutes.
    ("grpc.server_handshake_timeout_ms", 10_000),
    # Find dead clients, and let live clients ping every 10 s, with or without a call.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.http2.max_ping_strikes", 3),
)


@dataclass(slots=True)
class Server:
    """A server before its start, and the port on which it listens."""

    grpc_server: grpc.aio.Server
    port: int
    pipeline: CallPipeline
    _health: Health
    http_url: str = ""  # URL of the listener for HTTP; empty without one
    has_console: bool = False  # whether that listener has the console's files

    @property
    def is_serving(self) -> bool:
        """Whether the server accepts calls, as health answers."""
        return self._health.is_serving

    async def start(self) -> None:
        """Serve, and report SERVING to health checks."""
        await self.grpc_server.start()
        self._health.set(serving=True)

    def report(self, part: str, problem: str) -> None:
        """Make health answer `NOT_SERVING` while a part of the server has a problem."""
        self._health.report(part, problem)

    def report_deletions(self, *, stopped: bool) -> None:
        """Make health answer `NOT_SERVING` for deletions while the clock stops them."""
        self._health.report_deletions(stopped=stopped)

    async def drain(self, grace_s: float) -> bool:
        """Stop serving; return whether every call finished within `grace_s` seconds.

        Health becomes NOT_SERVING, new calls are refused with `DRAINING` and long streams are
        notified; then running calls finish; then connections close.
        """
        self._health.set(serving=False)
        finished = await self.pipeline.drain(grace_s)
        # Time for last answers. Only watchers of health stay connected for longer.
        await self.grpc_server.stop(1.0 if finished else 0)
        return finished


def build(
    host: str,
    port: int,
    contract: Sequence[tuple[ServiceDescriptor, object]],
    *,
    max_call_seconds: float,
    memory_bytes: int,
    reflect: bool,
    max_connections: int | None = None,
    authentication: Authentication | None = None,
    tls: grpc.ServerCredentials | None = None,
    trail: Trail | None = None,
) -> Server:
    """Build a server that listens on an address (port 0 picks a free one), or raise `OSError`.

    gRPC closes connections beyond `max_connections` as soon as it has accepted them.
    Without `authentication` everybody is tenant `default`; without `tls` the server uses plaintext.
    Like health, reflection asks for no credential.
    """
    _try_to_listen(host, port)
    options = OPTIONS
    if max_connections is not None:
        options += (("grpc.max_allowed_incoming_connections", max_connections),)
    server = grpc.aio.server(options=options)
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        if tls is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, tls)
    except RuntimeError:
        port = 0
    if not port:
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
    pipeline = CallPipeline(
        Telemetry(host, port),
        authentication or Authentication(),
        max_call_seconds,
        CallMemory(memory_bytes),
        trail,
    )
    for service, servicer in contract:
        server.add_generic_rpc_handlers((service_handler(service, servicer, pipeline),))
    names = [service.full_name for service, _ in contract]
    health = Health(names)
    server.add_generic_rpc_handlers((health.handler(),))
    if reflect:
        from grpc_reflection.v1alpha import reflection  # type: ignore[import-untyped]

        names += ["grpc.health.v1.Health", reflection.SERVICE_NAME]
        reflection.enable_server_reflection(names, server)
    return Server(server, port, pipeline, health)


def _try_to_listen(host: str, port: int) -> None:
    """Listen for a moment with a socket, whose error has the reason that gRPC does not give."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
        probe.listen(1)
