"""The listener for HTTP: the contract's paths, and the console under every other path."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import uvicorn
from connectrpc.code import Code
from google.protobuf.descriptor import ServiceDescriptor
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..middleware.errors import incident
from ..middleware.pipeline import CallPipeline
from .connect import ConnectApplication
from .connections import Acceptor, Connection
from .console import Console
from .guard import Guard
from .probes import Probes
from .requests import refusal

_REQUEST_HEADERS = (
    "authorization",
    "connect-protocol-version",
    "connect-timeout-ms",
    "content-type",
    "grpc-timeout",
    "traceparent",
    "tracestate",
    "x-grpc-web",
    "x-user-agent",
)
_ANSWER_HEADERS = ("grpc-message", "grpc-status", "grpc-status-details-bin")
_PREFLIGHT_SECONDS = 7200  # seconds for which a browser remembers the answer; Chromium's maximum
_WAITING_CONNECTIONS = 256  # connections that the system queues before they are accepted
_CLOSING_SECONDS = 1  # seconds in which connections must close after the last call


class _Server(uvicorn.Server):
    """A uvicorn server that leaves signals to the program, and connections to `Acceptor`."""

    def __init__(self, config: uvicorn.Config, acceptor: Acceptor) -> None:
        super().__init__(config)
        self._acceptor = acceptor

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._acceptor.start(self._connection)
        self.servers = [self._acceptor]  # type: ignore[list-item] # closed like one of asyncio's
        self.started = True

    def _connection(self) -> Connection:
        return Connection(config=self.config, server_state=self.server_state, app_state={})

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@dataclass(slots=True)
class Listener:
    """A listener before its start."""

    url: str
    has_console: bool
    _server: _Server
    _socket: socket.socket
    _acceptor: Acceptor
    _serving: asyncio.Task[None] | None = field(default=None, init=False)

    def start(self) -> None:
        """Serve."""
        self._serving = asyncio.create_task(self._server.serve([self._socket]))

    async def stop(self) -> None:
        """Close every connection; calls that the pipeline did not drain are cancelled."""
        self._server.should_exit = True
        if self._serving is not None:
            await self._serving
        state = self._server.server_state
        if state.tasks:
            await asyncio.wait(state.tasks, timeout=_CLOSING_SECONDS)
        for connection in state.connections:
            connection.transport.abort()  # the client does not read the end of its answer
        if state.tasks:
            await asyncio.wait(state.tasks)
        await self._acceptor.end()
        self._socket.close()


def build(
    host: str,
    port: int,
    contract: Sequence[tuple[ServiceDescriptor, object]],
    pipeline: CallPipeline,
    *,
    is_ready: Callable[[], bool],
    max_connections: int,
    origins: Iterable[str] = (),
    asks_for_tokens: bool = False,
    tls: ssl.SSLContext | None = None,
) -> Listener:
    """Build a listener for an address (port 0 picks a free one), or raise `OSError`.

    `is_ready` returns whether the server accepts calls, for probes.
    """
    listening = _listen(host, port)
    origins = tuple(origins)
    console = Console()
    cors = CORSMiddleware(
        _PathRouter(ConnectApplication(contract, pipeline), console, contract),
        allow_origins=origins,
        allow_methods=("POST",),
        allow_headers=_REQUEST_HEADERS,
        expose_headers=_ANSWER_HEADERS,
        max_age=_PREFLIGHT_SECONDS,
    )
    checks_host = not asks_for_tokens and tls is None
    guard = Guard(cors, host=host, origins=origins, checks_host=checks_host)
    config = uvicorn.Config(
        _ExceptionMask(Probes(guard, is_ready)),
        http=Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=_CLOSING_SECONDS,
    )
    name = f"[{host}]" if ":" in host else host
    scheme = "http" if tls is None else "https"
    url = f"{scheme}://{name}:{listening.getsockname()[1]}"
    acceptor = Acceptor(listening, max_connections, tls)
    return Listener(url, console.is_built, _Server(config, acceptor), listening, acceptor)


def _listen(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(_WAITING_CONNECTIONS)
    except OSError:
        listening.close()
        raise
    return listening


class _ExceptionMask:
    """Hides unexpected exceptions, whose texts uvicorn would log."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_started = False

        async def watched(message: Message) -> None:
            nonlocal is_started
            is_started = True
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except asyncio.CancelledError:
            pass  # cancelled by `Listener.stop`
        except Exception as error:  # noqa: BLE001 - a defect, known by its incident ID
            hidden = incident(error, "the listener for HTTP")
            if not is_started:
                await refusal(500, Code.INTERNAL, hidden.message)(scope, receive, send)


class _PathRouter:
    """Sends each request to the contract or to the console, by its path."""

    def __init__(
        self,
        calls: ASGIApp,
        console: ASGIApp,
        contract: Sequence[tuple[ServiceDescriptor, object]],
    ) -> None:
        packages = {service.file.package for service, _ in contract}
        self._prefixes = tuple(f"/{package}." for package in packages)
        self._calls = calls
        self._console = console

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_call = scope["path"].startswith(self._prefixes)
        await (self._calls if is_call else self._console)(scope, receive, send)
