"""The emulator as a server: one port for the publisher, the aggregator and the control API."""

from __future__ import annotations

from collections import Counter
from types import TracebackType
from typing import Any, Self

from aiohttp import web
from multidict import CIMultiDict

from .answers import CORS, Answer, failure_answer
from .endpoints.aggregator import Aggregator
from .endpoints.control import Control
from .endpoints.publisher import Publisher, api_answer, status_answer
from .errors import Failure
from .faults import FaultPlan
from .ledger.state import Ledger
from .requests.cdn import CachedAnswer, Cdn
from .requests.routes import Match, Route, Routes
from .settings import EmulatorSettings
from .world import ConnectionDroppedError, World

_READ_BUFFER_BYTES = 1024 * 1024
_MAX_LINE_BYTES = 256 * 1024
_SHUTDOWN_S = 2.0
_NO_TYPE = ""
_NOT_FOUND = Answer(404, b"")
_PREFLIGHT = {"Access-Control-Allow-Methods": "*", "Access-Control-Allow-Headers": "*"}


class WalrusEmulator:
    """A Walrus publisher and aggregator on a port of this process.

    An async context manager. Two emulators of one `world` are two endpoints of one network,
    each with its own limits, cache and tokens.

    Args:
        settings: The settings of publisher and aggregator.
        world: State that it shares with another emulator; by default a new state.

    Raises:
        ValueError: The settings contradict each other.
    """

    def __init__(
        self, settings: EmulatorSettings | None = None, *, world: World | None = None
    ) -> None:
        self.settings = settings if settings is not None else EmulatorSettings()
        self.world = world if world is not None else World(self.settings)
        self.publisher = Publisher(self.world, self.settings)
        self.aggregator = Aggregator(self.world, self.settings)
        self.cdn = Cdn(self.settings.cdn) if self.settings.cdn is not None else None
        self.requests: Counter[str] = Counter()
        """Requests by method, route and status."""
        self._routes = Routes(self._all_routes())
        self._runner: web.AppRunner | None = None

    @property
    def ledger(self) -> Ledger:
        """The ledger of stored blobs."""
        return self.world.ledger

    @property
    def faults(self) -> FaultPlan:
        """The plan of faults."""
        return self.world.faults

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
            OSError: The port is taken, or the host is not an address of this machine.
        """
        application = web.Application(client_max_size=0)
        application.router.add_route("*", "/{path:.*}", self._handle)
        application.on_response_prepare.append(_drop_content_type)
        runner = web.AppRunner(
            application,
            access_log=None,
            handle_signals=False,
            shutdown_timeout=_SHUTDOWN_S,
            read_bufsize=_READ_BUFFER_BYTES,
            auto_decompress=False,
            max_line_size=_MAX_LINE_BYTES,
            max_field_size=_MAX_LINE_BYTES,
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
        """Remove blobs, cached answers, counts, used tokens and planned faults."""
        self.world.reset()
        self.publisher.gate.reset()
        self.requests.clear()
        if self.cdn is not None:
            self.cdn.clear()

    def statistics(self) -> dict[str, Any]:
        """Return all counts as one JSON object."""
        return {
            "epoch": self.ledger.clock.epoch,
            "ledger": self.ledger.statistics.to_json(),
            "requests": dict(sorted(self.requests.items())),
            "inFlight": {
                "stores": self.publisher.admission.present,
                "reads": self.aggregator.admission.present,
            },
            "faults": self.faults.to_json()["injected"],
            "cdnHits": self.cdn.hits if self.cdn is not None else 0,
        }

    def _all_routes(self) -> list[Route]:
        publisher, aggregator = self.publisher, self.aggregator
        blobs = "/v1/blobs"
        return [
            Route("/status", {"GET": _status}),
            Route("/v1/api", {"GET": _api}),
            Route(blobs, {"PUT": publisher.put_blob}),
            Route("/v1/quilts", {"PUT": publisher.put_quilt}),
            _read(f"{blobs}/by-object-id/{{object_id}}", GET=aggregator.get_blob_by_object_id),
            _read(f"{blobs}/by-quilt-patch-id/{{patch_id}}", GET=aggregator.get_patch),
            _read(
                f"{blobs}/by-quilt-id/{{quilt_id}}/{{identifier}}",
                GET=aggregator.get_patch_by_identifier,
            ),
            _read(f"{blobs}/{{blob_id}}", GET=aggregator.get_blob),
            _read(f"{blobs}/{{blob_id}}/byte-range", GET=aggregator.get_byte_range),
            _read("/v1/quilts/{quilt_id}/patches", GET=aggregator.list_patches),
            _read("/v1alpha/blobs/concat", GET=aggregator.concat, POST=aggregator.concat_posted),
            _read("/v1alpha/blobs/{blob_id}/stream", GET=aggregator.stream_blob),
            *Control(self).routes(),
        ]

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        match = self._routes.find(request.rel_url.raw_path)
        if match is None:
            return await _send(request, _NOT_FOUND)
        try:
            answer = await self._answer(request, match)
        except (
            ConnectionDroppedError,
            ConnectionResetError,
        ):  # a fault, or the caller left during its body
            self._count(request, match, "dropped")
            return _dropped(request)
        self._count(request, match, str(answer.code))
        return await _send(request, answer)

    async def _answer(self, request: web.Request, match: Match) -> Answer:
        if request.method == "OPTIONS":
            return Answer(200, b"", _PREFLIGHT)
        handler = match.handler(request.method)
        if handler is None:
            return Answer(405, b"", {"Allow": match.allowed})
        cdn = self.cdn if match.route.is_read and request.method != "POST" else None
        url = request.rel_url.raw_path_qs
        ranged = "Range" in request.headers
        if cdn is not None:
            hit = cdn.find(url, ranged=ranged)
            if hit is not None:
                return Answer(hit.code, hit.body, {**hit.headers, "X-Cache": "HIT"})
        try:
            answer: Answer = await handler(request, *match.parameters())
        except Failure as failure:
            answer = failure_answer(failure)
        if cdn is not None and answer.cut_at is None:
            cdn.keep(url, CachedAnswer(answer.code, answer.body, answer.headers))
            return Answer(answer.code, answer.body, {**answer.headers, "X-Cache": "MISS"})
        return answer

    def _count(self, request: web.Request, match: Match, outcome: str) -> None:
        self.requests[f"{request.method} {match.route.path} {outcome}"] += 1


def _read(path: str, **handlers: Any) -> Route:
    return Route(path, handlers, is_read=True)


async def _status(_request: web.Request) -> Answer:
    return status_answer()


async def _api(_request: web.Request) -> Answer:
    return api_answer()


async def _send(request: web.Request, answer: Answer) -> web.StreamResponse:
    headers = CIMultiDict({**CORS, **answer.headers})
    headers.setdefault("Content-Type", _NO_TYPE)
    if answer.cut_at is None and not answer.streamed:
        return web.Response(status=answer.code, body=answer.body, headers=headers)
    response = web.StreamResponse(status=answer.code, headers=headers)
    if not answer.streamed:
        response.content_length = len(answer.body)
    await response.prepare(request)
    if request.method != "HEAD":
        await response.write(answer.body[: answer.cut_at])
    if answer.cut_at is not None:
        return _closed(request, response)
    await response.write_eof()
    return response


def _dropped(request: web.Request) -> web.StreamResponse:
    """Cut the connection; the returned answer is never sent."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


def _closed(request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
    """Close the connection in the middle of a body."""
    if request.transport is not None:
        request.transport.close()
    return response


async def _drop_content_type(_request: web.Request, response: web.StreamResponse) -> None:
    """Remove the content type that the framework adds to answers without one."""
    if response.headers.get("Content-Type") == _NO_TYPE:
        del response.headers["Content-Type"]
