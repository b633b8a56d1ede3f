"""Answers liveness and readiness probes."""

from __future__ import annotations

from collections.abc import Callable

from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

LIVE, READY = "/healthz", "/readyz"


class Probes:
    """Answers `/healthz` and `/readyz` to everybody, and passes all other requests on.

    A probe has no credential, and may name any host. The answer has nothing beyond gRPC's health
    protocol, which needs no credential either.
    """

    def __init__(self, app: ASGIApp, is_ready: Callable[[], bool]) -> None:
        self._app = app
        self._is_ready = is_ready

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] not in (LIVE, READY):
            await self._app(scope, receive, send)
            return
        await self._answer(scope)(scope, receive, send)

    def _answer(self, scope: Scope) -> Response:
        headers = {"cache-control": "no-store"}
        if scope["method"] not in ("GET", "HEAD"):
            return Response(status_code=405, headers={**headers, "allow": "GET, HEAD"})
        if scope["path"] == LIVE:
            return JSONResponse({"status": "ALIVE"}, headers=headers)
        if self._is_ready():
            return JSONResponse({"status": "SERVING"}, headers=headers)
        return JSONResponse({"status": "NOT_SERVING"}, 503, headers)
