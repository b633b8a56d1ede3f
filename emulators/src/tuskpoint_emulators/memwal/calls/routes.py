"""Maps paths and methods to handlers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Generic, TypeVar
from urllib.parse import unquote

T = TypeVar("T")

_PARAMETER = re.compile(r"\{[a-z_]+\}")


class Routes(Generic[T]):
    """The routes. The first route that matches answers, so literal paths come first.

    Args:
        routes: Method, path and answerer; a segment of a path in braces matches any.
    """

    def __init__(self, routes: Iterable[tuple[str, str, T]]) -> None:
        self._routes: dict[str, tuple[re.Pattern[str], dict[str, T]]] = {}
        for method, path, answerer in routes:
            pattern = re.compile(_PARAMETER.sub("([^/]+)", path))
            self._routes.setdefault(path, (pattern, {}))[1][method] = answerer

    def find(self, raw_path: str) -> tuple[str, dict[str, T], tuple[str, ...]] | None:
        """Return the matching path, its handlers by method, and its decoded parameters.

        Args:
            raw_path: Still percent-encoded.
        """
        for path, (pattern, answerers) in self._routes.items():
            match = pattern.fullmatch(raw_path)
            if match is not None:
                return path, answerers, tuple(unquote(parameter) for parameter in match.groups())
        return None
