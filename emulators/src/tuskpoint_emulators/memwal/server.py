"""The emulator as a server: one port for the relayer, a Sui node and the control API."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable
from functools import partial
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from .access.accounts import Account, Credentials
from .access.auth import Caller, Gate, LateRefusal, SignedRequest
from .access.limits import Limiter
from .answers import Answer, ConnectionDroppedError, RefusedError
from .calls import unsigned
from .calls.control import Control
from .calls.fault_answers import refusal
from .calls.routes import Routes
from .calls.signed import Call, Endpoint, Endpoints
from .clock import Clock
from .faults import Fault, FaultKind, FaultPlan, Operation, Stage
from .memory.jobs import Jobs
from .memory.ledger import Ledger
from .memory.statistics import Statistics
from .settings import RelayerSettings

_SHUTDOWN_S = 2.0
_NO_TYPE = ""

Unsigned = Callable[[bytes], Answer]
Answerer = Callable[[web.Request, tuple[str, ...]], Awaitable[Answer]]


class MemWalEmulator:
    """A MemWal relayer on a port of this process.

    An async context manager. Without accounts in its settings it makes one: `credentials`.

    Args:
        settings: The settings of the relayer.
        clock: The clock of jobs, limits and lifetimes.

    Raises:
        ValueError: The settings contradict each other.
    """

    def __init__(
        self, settings: RelayerSettings | None = None, *, clock: Clock | None = None
    ) -> None:
        self.settings = settings if settings is not None else RelayerSettings()
        self.clock = clock if clock is not None else Clock()
        self.credentials = Credentials.make()
        """A key and its account; the relayer knows them if the settings name no account."""
        self.accounts: dict[str, Account] = {}
        """The accounts that may call, by ID."""
        self.faults = FaultPlan(self.clock, self.settings.seed)
        self.limiter = Limiter(self.clock, self.settings.limits, enabled=self.settings.limited)
        self.gate = Gate(
            self.accounts,
            self.clock,
            max_drift_s=self.settings.max_drift_s,
            max_body_bytes=self.settings.max_body_bytes,
        )
        self._runner: web.AppRunner | None = None
        self._begin()

    @property
    def statistics(self) -> Statistics:
        """The counts of requests and memories."""
        self.jobs.settle()
        return self._statistics

    @property
    def ledger(self) -> Ledger:
        """The memories."""
        self.jobs.settle()
        return self._ledger

    @property
    def owner(self) -> str:
        """The owner of `credentials`."""
        return self.credentials.account.owner

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that it listens on.

        Raises:
            RuntimeError: It has not been started.
        """
        if self._runner is None or not self._runner.addresses:
            raise RuntimeError("the emulator is not running")
        host, port, *_ = self._runner.addresses[0]
        return host, port

    @property
    def url(self) -> str:
        """The URL of the emulator.

        Raises:
            RuntimeError: It has not been started.
        """
        host, port = self.address
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Serve, on a free port by default.

        Raises:
            ValueError: Other machines could reach that host.
            OSError: The port is taken, or the host is not an address of this machine.
        """
        if not is_loopback(host):
            raise ValueError(f"{host} is not a loopback address")
        application = web.Application(client_max_size=0)
        application.router.add_route("*", "/{path:.*}", self._handle)
        application.on_response_prepare.append(_drop_content_type)
        runner = web.AppRunner(
            application,
            access_log=None,
            handle_signals=False,
            shutdown_timeout=_SHUTDOWN_S,
            auto_decompress=False,
        )
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port, backlog=1024).start()
        except BaseException:
            await runner.cleanup()
            raise
        self._runner = runner

    async def stop(self) -> None:
        """Stop serving; requests under way get a moment."""
        runner, self._runner = self._runner, None
        if runner is not None:
            self.faults.release()
            await runner.cleanup()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    def reset(self) -> None:
        """Remove memories, counts and planned faults, and restore the first accounts.

        The clock keeps its time.
        """
        self.faults.clear()
        self.faults.injected.clear()
        self.faults.reseed(self.settings.seed)
        self.limiter.reset()
        self.limiter.limits = self.settings.limits
        self.limiter.enabled = self.settings.limited
        self.gate.reset()
        self._begin()

    def to_json(self) -> dict[str, Any]:
        """Return all counts as one JSON object."""
        return {
            **self.statistics.to_json(),
            "unfinished_jobs": self.jobs.unfinished,
            "faults": self.faults.to_json()["injected"],
        }

    def _begin(self) -> None:
        own_accounts = {self.credentials.account_id: self.credentials.account}
        self.accounts.clear()
        self.accounts.update(self.settings.accounts or own_accounts)
        settings = self.settings
        self._statistics = Statistics()
        self._ledger = Ledger(self.clock, settings.lifetime_s)
        self.jobs = Jobs(self.clock, self._ledger, self._statistics, settings.job_delay_s)
        endpoints = Endpoints(self.clock, self._ledger, self.jobs, settings.quota_bytes)
        self._routes = Routes(
            [
                *self._unsigned(),
                *(
                    (method, path, partial(self._signed, endpoint))
                    for (method, path), endpoint in endpoints.all().items()
                ),
                *Control(self).routes(),
            ]
        )

    def _unsigned(self) -> list[tuple[str, str, Answerer]]:
        def answered(operation: Operation, handler: Unsigned) -> Answerer:
            return partial(self._answer_unsigned, operation, handler)

        return [
            ("GET", "/health", answered(Operation.HEALTH, lambda _: unsigned.health_answer())),
            ("GET", "/version", answered(Operation.VERSION, lambda _: unsigned.version_answer())),
            ("GET", "/config", answered(Operation.CONFIG, lambda _: self._config())),
            ("POST", unsigned.SUI_PATH, answered(Operation.SUI, unsigned.sui_answer)),
        ]

    def _config(self) -> Answer:
        return unsigned.config_answer(self.url, limited=self.limiter.enabled)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        match = self._routes.find(request.raw_path.partition("?")[0])
        if match is None:
            return _response(Answer(404))
        path, answerers, parameters = match
        answerer = answerers.get(request.method)
        try:
            if answerer is None:
                answer = Answer(405, headers={"Allow": ",".join(sorted(answerers))})
            else:
                answer = await answerer(request, parameters)
        except RefusedError as refused:
            answer = refused.answer
        except ConnectionDroppedError:
            self._count(request, path, "dropped")
            return _dropped(request)
        self._count(request, path, str(answer.code))
        return _response(answer)

    async def _answer_unsigned(
        self, operation: Operation, handler: Unsigned, request: web.Request, _: tuple[str, ...]
    ) -> Answer:
        raw = await request.read()
        fault = self.faults.take(operation)
        await self._strike(request, operation, fault, Stage.BEFORE)
        answer = handler(raw)
        await self._strike(request, operation, fault, Stage.AFTER)
        return answer

    async def _signed(
        self, endpoint: Endpoint, request: web.Request, parameters: tuple[str, ...]
    ) -> Answer:
        operation = endpoint.operation
        raw = await request.read()
        caller = await self._admit(request, raw)
        fault = self.faults.take(operation)
        await self._strike(request, operation, fault, Stage.BEFORE)
        refusal = self.limiter.take(caller.public_key, caller.account_id, endpoint.points)
        if refusal is not None:
            return refusal
        self.statistics.calls[operation] += 1
        self.statistics.points[operation] += endpoint.points
        query = request.raw_path.partition("?")[2]
        answer = endpoint.handler(Call(caller, raw, parameters, query, fault))
        await self._strike(request, operation, fault, Stage.AFTER)
        return answer

    async def _admit(self, request: web.Request, raw: bytes) -> Caller:
        try:
            return self.gate.admit(
                SignedRequest(request.method, request.raw_path, request.headers, raw)
            )
        except LateRefusal:
            await asyncio.sleep(self.settings.refusal_delay_s)
            raise

    async def _strike(
        self, request: web.Request, operation: Operation, fault: Fault | None, stage: Stage
    ) -> None:
        """Cause a fault if the request has reached its stage.

        Raises:
            RefusedError: The answer of the fault.
            ConnectionDroppedError: The fault cuts the connection, or the caller has left.
        """
        if fault is None or fault.stage is not stage:
            return
        if fault.latency_s:
            await self.faults.pause(fault.latency_s)
        match fault.kind:
            case FaultKind.HOLD:
                await self.faults.hold()
            case FaultKind.REFUSE | FaultKind.SAY:
                raise RefusedError(refusal(operation, fault))
            case FaultKind.DROP:
                raise ConnectionDroppedError
        if request.transport is None or request.transport.is_closing():
            raise ConnectionDroppedError

    def _count(self, request: web.Request, path: str, outcome: str) -> None:
        self.statistics.requests[f"{request.method} {path} {outcome}"] += 1


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _response(answer: Answer) -> web.Response:
    headers = {"Content-Type": _NO_TYPE, **answer.headers}
    return web.Response(status=answer.code, body=answer.body, headers=headers)


def _dropped(request: web.Request) -> web.Response:
    """Cut the connection; the returned answer is never sent."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


async def _drop_content_type(_request: web.Request, response: web.StreamResponse) -> None:
    """Remove the content type that the framework adds to answers without one."""
    if response.headers.get("Content-Type") == _NO_TYPE:
        del response.headers["Content-Type"]
