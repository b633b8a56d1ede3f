"""Publishers and aggregators in order of preference, the failing ones put aside."""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from urllib.parse import quote, unquote, urlsplit

_FIRST_ASIDE_S = 1.0
_LONGEST_ASIDE_S = 60.0
_DOUBLINGS = 10
"""More would not lengthen the pause, and in the end not be a number any more."""

_ROUTES = ("/v1/blobs", "/v1/quilts", "/v1")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where requests go.

    Attributes:
        base: URL before the route, without credentials.
        authorization: Header that the credentials of the URL make; empty: none.
    """

    base: str
    authorization: str = ""

    @classmethod
    def parse(cls, url: str) -> Endpoint:
        """Return the endpoint of a URL, which may or may not go as far as the route."""
        parts = urlsplit(url)
        path = parts.path.rstrip("/")
        for route in _ROUTES:
            if path.endswith(route):
                path = path[: -len(route)].rstrip("/")
                break
        host = parts.netloc.rpartition("@")[2]
        authorization = ""
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            authorization = "Basic " + base64.b64encode(pair.encode()).decode()
        return cls(f"{parts.scheme}://{host}{path}", authorization)

    def url(self, *segments: str) -> str:
        """Return the URL of a route; each segment is percent-encoded, slashes too."""
        return "/".join([self.base, "v1", *(quote(segment, safe="") for segment in segments)])


@dataclass(slots=True)
class _Health:
    failures: int = 0
    aside_until: float = 0.0


class Endpoints:
    """The endpoints of one kind and how they have done lately.

    An endpoint that fails is put aside, at first shortly, then for twice as long with
    every further failure, until it answers.

    Args:
        urls: In order of preference.
        clock: Monotonic time in seconds.
    """

    def __init__(self, urls: Iterable[str], clock: Callable[[], float]) -> None:
        self._health = {Endpoint.parse(url): _Health() for url in urls}
        self._order = {endpoint: place for place, endpoint in enumerate(self._health)}
        self._clock = clock

    def choose(
        self, tried: Collection[Endpoint] = (), refused: Collection[Endpoint] = ()
    ) -> Endpoint | None:
        """Return whom to ask: the first that is well, else the one least long aside.

        Args:
            tried: Asked lately; asked again only if no other is well.
            refused: Never asked again.
        """
        now = self._clock()

        def preference(endpoint: Endpoint) -> tuple[bool, bool, float, int]:
            health = self._health[endpoint]
            aside = health.aside_until > now
            until = health.aside_until if aside else 0.0
            return aside, endpoint in tried, until, self._order[endpoint]

        left = [endpoint for endpoint in self._health if endpoint not in refused]
        return min(left, key=preference, default=None)

    def has_other(self, refused: Collection[Endpoint]) -> bool:
        """Tell whether there is an endpoint besides these."""
        return any(endpoint not in refused for endpoint in self._health)

    def is_well(self, endpoint: Endpoint) -> bool:
        """Tell whether an endpoint is not put aside."""
        return self._health[endpoint].aside_until <= self._clock()

    def answered(self, endpoint: Endpoint) -> None:
        """Note that an endpoint did what was asked."""
        health = self._health[endpoint]
        health.failures = 0
        health.aside_until = 0.0

    def failed(self, endpoint: Endpoint) -> None:
        """Put an endpoint aside."""
        health = self._health[endpoint]
        now = self._clock()
        if health.aside_until > now:
            return  # several requests failed of the same cause
        health.failures += 1
        doublings = min(health.failures - 1, _DOUBLINGS)
        pause = min(_FIRST_ASIDE_S * 2.0**doublings, _LONGEST_ASIDE_S)
        health.aside_until = now + pause
