"""Maps paths and methods to handlers."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from ..answers import Answer
from ..errors import text

Handler = Callable[..., Awaitable[Answer]]
"""Answers a request; the second argument has the decoded parameters of the path."""

_PARAMETER = re.compile(r"\{[a-z_]+\}")


@dataclass(frozen=True, slots=True)
class Route:
    """A path and its handlers.

    Attributes:
        path: Segments; a segment in braces matches any text and becomes a parameter.
        handlers: By method; GET answers HEAD too.
        is_read: Whether a cache may keep the answers.
    """

    path: str
    handlers: Mapping[str, Handler]
    is_read: bool = False


@dataclass(frozen=True, slots=True)
class Match:
    """A matching route, and the parameters of the path, still encoded."""

    route: Route
    raw_parameters: tuple[str, ...]

    def handler(self, method: str) -> Handler | None:
        """Return the handler of a method."""
        return self.route.handlers.get("GET" if method == "HEAD" else method)

    def parameters(self) -> list[str]:
        """Return the parameters, decoded.

        Raises:
            Failure: A parameter is not UTF-8: HTTP 400, plain text.
        """
        try:
            return [unquote_to_bytes(raw).decode() for raw in self.raw_parameters]
        except UnicodeDecodeError:
            raise text(400, "Invalid URL: Invalid UTF-8 in path") from None

    @property
    def allowed(self) -> str:
        """The methods that have a handler."""
        names = set(self.route.handlers)
        if "GET" in names:
            names.add("HEAD")
        return ",".join(sorted(names))


class Routes:
    """All routes. The first route that matches a path answers, so literal paths come first.

    Args:
        routes: In order.
    """

    def __init__(self, routes: Iterable[Route]) -> None:
        self._fixed: dict[str, Match] = {}
        self._patterns: list[tuple[re.Pattern[str], Route]] = []
        for route in routes:
            if "{" in route.path:
                pattern = _PARAMETER.sub("([^/]+)", route.path)
                self._patterns.append((re.compile(pattern), route))
            else:
                self._fixed[route.path] = Match(route, ())

    def find(self, raw_path: str) -> Match | None:
        """Return the route of a path that is still percent-encoded."""
        fixed = self._fixed.get(raw_path)
        if fixed is not None:
            return fixed
        for pattern, route in self._patterns:
            match = pattern.fullmatch(raw_path)
            if match is not None:
                return Match(route, match.groups())
        return None
