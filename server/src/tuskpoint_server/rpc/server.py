"""The gRPC server: every service of the contract, health, and reflection if wanted."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from grpc_health.v1 import health_pb2_grpc  # type: ignore[import-untyped]

from tuskpoint.v1 import (
    admin_service_pb2,
    checkpoint_service_pb2,
    handoff_service_pb2,
    history_service_pb2,
    search_service_pb2,
    snapshot_service_pb2,
    thread_service_pb2,
)

from ..domain.limits import LIMITS
from ..service.admin import Admin
from ..service.checkpoints import Checkpoints
from ..service.handoffs import Handoffs
from ..service.history import History
from ..service.manifests import Manifests
from ..service.searching import Search
from ..service.snapshots import Snapshots
from ..service.threads import Threads
from .admin_servicer import AdminServicer
from .authentication import Authentication
from .calls import Layer
from .checkpoint_servicer import CheckpointServicer
from .handlers import built_methods, service_handler
from .handoff_servicer import HandoffServicer
from .health import SERVICE_NAME as HEALTH
from .health import Health
from .history_servicer import HistoryServicer
from .layers import DeadlineCap, DrainGate, errors
from .policy import Authorisation
from .search_servicer import SearchServicer
from .snapshot_servicer import SnapshotServicer
from .telemetry import Telemetry
from .thread_servicer import ThreadServicer

MAX_PENDING_CALLS = 100_000
"""Calls that may wait to be picked up."""

MAX_CONCURRENT_STREAMS = 1024
"""Calls that one connection may have open."""

_OPTIONS: tuple[tuple[str, int], ...] = (
    # Above the limit, so that a message which is too large can be told why; gRPC's own refusal
    # of what exceeds this one carries no reason.
    ("grpc.max_receive_message_length", 2 * LIMITS.max_message),
    ("grpc.max_send_message_length", LIMITS.max_message),
    # A second server on a taken port must fail, not share it silently.
    ("grpc.so_reuseport", 0),
    ("grpc.max_concurrent_streams", MAX_CONCURRENT_STREAMS),
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


@dataclass(frozen=True, slots=True)
class Rooms:
    """What the servicers call: each group of calls with the room that gives them meaning."""

    checkpoints: Checkpoints
    threads: Threads
    manifests: Manifests
    snapshots: Snapshots
    history: History
    handoffs: Handoffs
    search: Search
    admin: Admin


def services(rooms: Rooms) -> list[tuple[ServiceDescriptor, object]]:
    """Return every service of the contract with its servicer."""
    built: list[tuple[ServiceDescriptor, object]] = [
        (
            _service(checkpoint_service_pb2, "CheckpointService"),
            CheckpointServicer(rooms.checkpoints),
        ),
        (
            _service(thread_service_pb2, "ThreadService"),
            ThreadServicer(rooms.threads, rooms.manifests, rooms.checkpoints),
        ),
        (_service(history_service_pb2, "HistoryService"), HistoryServicer(rooms.history)),
        (_service(handoff_service_pb2, "HandoffService"), HandoffServicer(rooms.handoffs)),
        (_service(search_service_pb2, "SearchService"), SearchServicer(rooms.search)),
        (_service(snapshot_service_pb2, "SnapshotService"), SnapshotServicer(rooms.snapshots)),
    ]
    admin_service = _service(admin_service_pb2, "AdminService")
    methods = [name for service, servicer in built for name in built_methods(service, servicer)]
    methods += built_methods(admin_service, AdminServicer)
    return [*built, (admin_service, AdminServicer(rooms.admin, methods))]


def layers(
    telemetry: Telemetry,
    gate: DrainGate,
    authentication: Authentication,
    authorisation: Authorisation,
    max_call_seconds: float,
) -> list[Layer]:
    """Return what is done around every call, outermost first."""
    return [
        telemetry,
        errors,
        DeadlineCap(max_call_seconds),
        gate,
        authentication,
        authorisation,
    ]


@dataclass(slots=True)
class Server:
    """A built server, not yet started.

    Attributes:
        grpc_server: gRPC's own.
        gate: Closed by draining.
        port: The port that it listens on.
    """

    grpc_server: grpc.aio.Server
    gate: DrainGate
    port: int
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
        finished = await self.gate.drain(grace_s)
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
    """Build a server that listens on an address.

    Args:
        host: Name or IP address to listen on.
        port: Port to listen on; 0 picks a free one.
        contract: What `services` returned.
        max_call_seconds: Longest time of a call.
        reflect: Whether to offer server reflection; like health, it asks for no credential.
        authentication: Says who calls; `None`: everybody is tenant `default`.
        tls: What to serve TLS with; `None`: plaintext.

    Raises:
        OSError: The address cannot be listened on.
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
    gate = DrainGate()
    around = layers(
        Telemetry(host, port),
        gate,
        authentication or Authentication(),
        Authorisation(),
        max_call_seconds,
    )
    for service, servicer in contract:
        server.add_generic_rpc_handlers((service_handler(service, servicer, around),))
    names = [service.full_name for service, _ in contract]
    health = Health(names)
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    if reflect:
        from grpc_reflection.v1alpha import reflection  # type: ignore[import-untyped]

        reflection.enable_server_reflection((*names, HEALTH, reflection.SERVICE_NAME), server)
    return Server(server, gate, port, health)


def _try_to_listen(host: str, port: int) -> None:
    """Listen for a moment: a socket says why it cannot, gRPC does not."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
        probe.listen(1)


def _service(module: object, name: str) -> ServiceDescriptor:
    service: ServiceDescriptor = module.DESCRIPTOR.services_by_name[name]  # type: ignore[attr-defined]
    return service
