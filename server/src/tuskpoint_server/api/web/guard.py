"""Refuses requests of foreign pages in a browser, before anything else of a request is handled.

A browser sends requests for any page. Three rules keep foreign pages out:

- A page of another origin is refused, unless `--http-origins` names it.
- The contract accepts only POST, with content types that make a browser ask first (CORS).
- Without tokens and TLS, the host in a request must be an IP address, `localhost`, the host of
  `--http-listen`, or the host of one of `--http-origins`. So a foreign page whose name leads to
  this machine (DNS rebinding) is refused. Such a page has neither a token nor a certificate.
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
        """Return why a request for this host is refused; empty if the host is accepted."""
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
