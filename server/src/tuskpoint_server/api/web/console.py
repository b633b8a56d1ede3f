"""The console's files, which `make console` builds, with rules for the browser."""

from __future__ import annotations

from pathlib import Path

from connectrpc.code import Code
from starlette.datastructures import Headers
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .requests import refusal

ASSETS = Path(__file__).parent / "assets"
"""Folder into which `make console` writes the console, also inside a wheel."""

_NOT_BUILT = (
    "This server was installed without the console. In the repository, `make console` builds it; a "
    "wheel has it.\nThe contract is served all the same: POST /tuskpoint.v1.ThreadService/"
    "ListThreads with JSON, for one.\n"
)

_HEADERS = {
    # No other host, nothing inline: text that an agent wrote cannot become a script.
    "content-security-policy": "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "img-src 'self' data:",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


class Console:
    """Serves the console's files and page as an ASGI application.

    The page chooses its content by the path, so a browser gets the page under every path without a
    file. A program that asks for such a path other than `/` gets 404.
    """

    def __init__(self, assets: Path = ASSETS) -> None:
        self._page = assets / "index.html"
        self._files: ASGIApp | None = None
        if self._page.is_file():
            # Answers the exceptions that the files raise for bad requests.
            self._files = ExceptionMiddleware(StaticFiles(directory=assets / "static"))

    @property
    def is_built(self) -> bool:
        """Whether this installation has the console's files."""
        return self._files is not None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [(name.encode(), text.encode()) for name, text in _HEADERS.items()]
                message["headers"] = [*message.get("headers", ()), *headers]
            await send(message)

        await self._answer(scope)(scope, receive, send_with_headers)

    def _answer(self, scope: Scope) -> ASGIApp:
        path: str = scope["path"]
        reads = scope["method"] in ("GET", "HEAD")
        is_file = path.startswith("/static/") and self._files is not None
        is_page = path == "/" or (reads and "text/html" in Headers(scope=scope).get("accept", ""))
        if not is_file and not is_page:
            return refusal(
                404,
                Code.NOT_FOUND,
                f"there is nothing at {path}: a call is POST /tuskpoint.v1.SERVICE/METHOD, and "
                "/healthz and /readyz are for probes",
            )
        if self._files is None:
            return PlainTextResponse(_NOT_BUILT, 404)
        if is_file:
            scope["path"] = path.removeprefix("/static")
            return self._files
        if not reads:
            return Response(status_code=405, headers={"allow": "GET, HEAD"})
        headers = {"cache-control": "no-cache", "vary": "accept"}
        return FileResponse(self._page, headers=headers)
