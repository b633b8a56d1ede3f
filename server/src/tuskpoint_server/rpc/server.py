"""The gRPC server: every service of the contract, health, TLS, and reflection if wanted."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]
from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Observation

from ..domain.limits import LIMITS
from .authentication import Authentication
from .calls import Around, Context, service_handler
from .telemetry import SCOPE, Telemetry

MAX_PENDING_CALLS = 100_000  # calls that may wait to be picked up

_OPTIONS: tuple[tuple[str, int], ...] = (
    # Above the limit, so that a message which is too large can be told why; gRPC's own refusal
    # of what exceeds this one carries no reason.
    ("grpc.max_receive_message_length", 2 * LIMITS.max_message),
    ("grpc.max_send_message_length", LIMITS.max_message),
    # A second server on a taken port must fail, not share it silently.
    ("grpc.so_reuseport", 0),
    ("grpc.max_concurrent_streams", 1024),  # of one connection
    # By default the core cancels calls at random once about 1,000 wait to be picked up.
    ("grpc.server.max_pending_requests", MAX_PENDING_CALLS),
    ("grpc.server.max_pending_requests_hard_limit", MAX_PENDING_CALLS),
    # By default whoever connects and says nothing keeps a descriptor for two minutes.
    ("grpc.server_handshake_timeout_ms", 20_000),
    # Find dead clients, and let live ones ping every 10 s, with or without a call.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
    ("grpc.http2.max_ping_strikes", 3),
)


@dataclass(slots=True)
class Server:
    """A built server, not yet started, and the port that it listens on."""

    grpc_server: grpc.aio.Server
    port: int
    around: Around
    _health: Health

    async def start(self) -> None:
        """Serve, and say so to health checks."""
        await self.grpc_server.start()
        self._health.tell(serving=True)

    async def drain(self, grace_s: float) -> bool:
        """Stop serving; tell whether every call finished within `grace_s` seconds.

        Health turns to NOT_SERVING, new calls are refused with `DRAINING` and long streams
        are told; then the calls inside finish; then the connections close.
        """
        self._health.tell(serving=False)
        finished = await self.around.drain(grace_s)
        # Lets last answers leave. Only watchers of health are still connected for longer.
        await self.grpc_server.stop(1.0 if finished else 0)
        return finished


def build(
    host: str,
    port: int,
    contract: Sequence[tuple[ServiceDescriptor, object]],
    *,
    max_call_seconds: float,
    reflect: bool,
    authentication: Authentication | None = None,
    tls: grpc.ServerCredentials | None = None,
) -> Server:
    """Build a server that listens on an address (port 0 picks a free one), or raise `OSError`.

    Without `authentication` everybody is tenant `default`; without `tls` it serves in plaintext.
    Like health, reflection asks for no credential.
    """
    _try_to_listen(host, port)
    server = grpc.aio.server(options=_OPTIONS)
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
    around = Around(Telemetry(host, port), authentication or Authentication(), max_call_seconds)
    for service, servicer in contract:
        server.add_generic_rpc_handlers((service_handler(service, servicer, around),))
    names = [service.full_name for service, _ in contract]
    health = Health(names)
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    if reflect:
        from grpc_reflection.v1alpha import reflection  # type: ignore[import-untyped]

        names += ["grpc.health.v1.Health", reflection.SERVICE_NAME]
        reflection.enable_server_reflection(names, server)
    return Server(server, port, around, health)


def _try_to_listen(host: str, port: int) -> None:
    """Listen for a moment: a socket says why it cannot, gRPC does not."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
        probe.listen(1)


class Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc] # gRPC's class has no types
    """Whether the server takes calls: one answer for it and for its services, to everybody.

    gRPC's own servicer holds a lock while it writes to a watcher. One that stops reading, which
    takes no credential, would then keep all others waiting, and the server from draining.
    """

    def __init__(self, services: Iterable[str]) -> None:
        self._names = frozenset(("", *services))
        self._status = health_pb2.HealthCheckResponse.NOT_SERVING
        self._changed = asyncio.Event()

    def tell(self, *, serving: bool) -> None:
        """Change the answer, and wake who watches it."""
        status = health_pb2.HealthCheckResponse
        self._status = status.SERVING if serving else status.NOT_SERVING
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def Check(self, request: Any, context: Context) -> Any:
        if request.service not in self._names:
            await context.abort(grpc.StatusCode.NOT_FOUND, "there is no such service")
        return self._answer(request.service)

    async def Watch(self, request: Any, context: Context) -> None:
        while True:
            changed = self._changed  # taken before the answer: what changes meanwhile is told
            await context.write(self._answer(request.service))
            await changed.wait()

    def _answer(self, service: str) -> Any:
        unknown = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        status = self._status if service in self._names else unknown
        return health_pb2.HealthCheckResponse(status=status)


@dataclass(frozen=True, slots=True, repr=False)
class Certified:
    """What a server shows of itself, and whom it asks to do the same. All PEM, or seconds."""

    certificates: bytes  # its certificate, and those between it and the root
    key: bytes  # the private key of the first
    client_ca: bytes | None  # roots that a client's must lead to; `None`: none is asked for
    expires_s: float  # end of the certificate, since the Unix epoch


class Tls:
    """gRPC's `credentials` of a server, of which the certificate can be replaced as it serves.

    gRPC asks for the certificate before each handshake, so new connections get the new one and
    old ones go on. TLS 1.2 is the oldest version that gRPC's core speaks.
    """

    def __init__(
        self, certified: Certified, *, meter_provider: metrics.MeterProvider | None = None
    ) -> None:
        self._expires_s = certified.expires_s
        # Read in gRPC's threads, written in the event loop's; both ends are atomic.
        self._next: deque[grpc.ServerCertificateConfiguration] = deque(maxlen=1)
        self.credentials = grpc.dynamic_ssl_server_credentials(
            _configuration(certified),
            self._fetch,  # type: ignore[arg-type] # it may return None, says gRPC
            require_client_authentication=certified.client_ca is not None,
        )
        metrics.get_meter(SCOPE, meter_provider=meter_provider).create_observable_gauge(
            "tuskpoint.server.certificate.expiry",
            [self._observe],
            unit="s",
            description="Seconds until the certificate of the server expires.",
        )

    def replace(self, certified: Certified) -> None:
        """Show another certificate from the next handshake on."""
        self._next.append(_configuration(certified))
        self._expires_s = certified.expires_s

    def _fetch(self) -> grpc.ServerCertificateConfiguration | None:
        """Return the certificate to use from now on; `None` if it is the same as before."""
        try:
            return self._next.pop()
        except IndexError:
            return None

    def _observe(self, options: CallbackOptions) -> Iterable[Observation]:
        yield Observation(self._expires_s - time.time())


def _configuration(certified: Certified) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(certified.key, certified.certificates)], root_certificates=certified.client_ca
    )
