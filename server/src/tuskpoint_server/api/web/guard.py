"""Which pages of a browser may call: the first thing that a request over HTTP meets.

A browser sends requests for any page that it shows. Three rules keep foreign pages out:

- A page of another origin is refused, unless `--http-origins` names it.
- The contract takes POST alone, with content types that make a browser ask first (CORS).
- Without tokens and TLS, the host that a request names must be an IP address, `localhost`, the host
  that is listened on, or that of one of `--http-origins`. So a foreign page whose name was pointed
  at this machine (DNS rebinding) is refused. Such a page has no token, and no certificate either.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from connectrpc.code import Code
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from .requests import refusal

_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^][:/?#@\s]+))(?::\d+)?", re.IGNORECASE)


class Guard:
    """Refuses the requests of foreign pages, and passes on all others."""

    def __init__(
        self, app: ASGIApp, *, host: str, origins: Iterable[str], checks_host: bool
    ) -> None:
        self._app = app
        self._origins = frozenset(origins)
        hosts = (urlsplit(origin).hostname for origin in self._origins)
        self._hosts = frozenset(("localhost", host.lower(), *filter(None, hosts)))
        self._checks_host = checks_host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        host, origins = headers.get("host", ""), headers.getlist("origin")
        problem = self._host_problem(host) if self._checks_host else ""
        own_origin = f"{scope['scheme']}://{host}".lower()
        for origin in origins:
            if origin != own_origin and origin not in self._origins:
                problem = problem or (
                    f"pages of {origin} may not call this server; --http-origins lists those that "
                    "may"
                )
        if problem:
            answer = refusal(403, Code.PERMISSION_DENIED, problem)
            await answer(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _host_problem(self, host: str) -> str:
        """Return why a request for this host is refused; empty if it is not."""
        match = _HOST.fullmatch(host)
        name = (match[1] or match[2]).lower() if match else ""
        if name in self._hosts or _is_address(name):
            return ""
        return (
            "this server asks for no token, so it answers only under names that it knows, and "
            f"'{host}' is none; add the address of the page to --http-origins"
        )


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
