"""Which pages of a browser may call: the first thing that a request over HTTP meets.

A browser sends requests for any page that it shows. Three rules keep foreign pages out:

- A page of another origin is refused, unless `--http-origins` names it.
- The contract takes POST alone, with content types that make a browser ask first (CORS).
- Without tokens, the host that a request names must be an IP address, `localhost`, the host that is
  listened on, or one of `--http-origins`. So a foreign page whose name was pointed at this machine
  (DNS rebinding) is refused; with tokens, such a page has none.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from connectrpc.code import Code
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send


class Guard:
    """Refuses the requests of foreign pages, and passes on all others."""

    def __init__(
        self, app: ASGIApp, *, host: str, origins: Iterable[str], asks_for_tokens: bool
    ) -> None:
        self._app = app
        self._origins = frozenset(origins)
        hosts = (urlsplit(origin).hostname for origin in self._origins)
        self._hosts = frozenset(("localhost", host.lower(), *filter(None, hosts)))
        self._asks_for_tokens = asks_for_tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        problem = self._problem(headers.get("host", ""), headers.get("origin"))
        if problem:
            error = {"code": Code.PERMISSION_DENIED.value, "message": problem}
            await JSONResponse(error, 403)(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _problem(self, host: str, origin: str | None) -> str:
        """Return why a request is refused; empty if it is not."""
        name = urlsplit(f"//{host}").hostname or ""
        if not self._asks_for_tokens and name not in self._hosts and not _is_address(name):
            return (
                f"this server asks for no token, so it answers only under names that it knows, and "
                f"'{name}' is none; add the address of the page to --http-origins"
            )
        if origin is None or origin in self._origins or urlsplit(origin).netloc == host:
            return ""
        return f"pages of {origin} may not call this server; --http-origins lists those that may"


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
