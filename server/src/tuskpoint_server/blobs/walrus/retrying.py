"""Publishers and aggregators: whom to ask, whom to ask after a failure, and when."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import quote, unquote, urlsplit

from .failures import Failed, Rule, Where

_T = TypeVar("_T")

_FIRST_ASIDE_S = 1.0
_LONGEST_ASIDE_S = 60.0
_DOUBLINGS = 10  # more would not lengthen the pause, and in the end not be a number any more


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where requests go: a URL without credentials, and the header that these make, or none."""

    base: str
    authorization: str = ""

    @classmethod
    def parse(cls, url: str) -> Endpoint:
        """Return the endpoint of a URL, which may or may not go as far as the route."""
        parts = urlsplit(url)
        path = parts.path.rstrip("/")
        for route in ("/v1/blobs", "/v1/quilts", "/v1"):
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
    """The endpoints of one kind, in order of preference, and how they have done lately.

    One that fails is put aside, at first shortly, then for twice as long with every further
    failure, until it answers.
    """

    def __init__(self, urls: Iterable[str], clock: Callable[[], float]) -> None:
        self._health = {Endpoint.parse(url): _Health() for url in urls}
        self._clock = clock

    def choose(
        self, tried: Collection[Endpoint] = (), refused: Collection[Endpoint] = ()
    ) -> Endpoint | None:
        """Return whom to ask: the first that is well, else the one least long aside.

        Those tried lately are asked again only if no other is well, the refused ones never.
        """

        def preference(endpoint: Endpoint) -> tuple[bool, bool, float]:
            well = self.is_well(endpoint)
            return not well, endpoint in tried, 0.0 if well else self._health[endpoint].aside_until

        left = [endpoint for endpoint in self._health if endpoint not in refused]
        return min(left, key=preference, default=None)

    def is_well(self, endpoint: Endpoint) -> bool:
        """Return whether an endpoint is not put aside."""
        return self._health[endpoint].aside_until <= self._clock()

    def answered(self, endpoint: Endpoint) -> None:
        """Note that an endpoint did what was asked."""
        self._health[endpoint] = _Health()

    def failed(self, endpoint: Endpoint) -> None:
        """Put an endpoint aside."""
        health = self._health[endpoint]
        if not self.is_well(endpoint):
            return  # several requests failed of the same cause
        pause_s = _FIRST_ASIDE_S * 2.0 ** min(health.failures, _DOUBLINGS)
        health.failures += 1
        health.aside_until = self._clock() + min(pause_s, _LONGEST_ASIDE_S)


class Retrying:
    """The one retry policy: tries again what may succeed, bounded in tries and in time.

    A round asks each endpoint once, without a pause where another is well; between
    rounds it pauses as the rule of the last failure says. Failures that are followed by
    another attempt are told to `on_retry`.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        random: Callable[[], float],
        on_retry: Callable[[Failed], None],
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._random = random
        self._on_retry = on_retry

    async def run(
        self,
        endpoints: Endpoints,
        attempt: Callable[[Endpoint, int], Awaitable[_T]],
        *,
        budget_s: float,
        patient: bool = True,
    ) -> _T:
        """Return what an attempt returns, as soon as one succeeds; raise the last failure.

        An attempt also gets how often the answer of this endpoint seemed old; above 0: ask in a
        way that it (or a cache before it) has not seen. None begins after the budget, and unless
        patient none after the first round.
        """
        deadline = self._clock() + budget_s
        tried: set[Endpoint] = set()
        refused: set[Endpoint] = set()
        stale: Counter[Endpoint] = Counter()
        waits: Counter[str] = Counter()
        waiting: Rule | None = None  # of the last failure that may pass
        while True:
            endpoint = endpoints.choose(tried, refused)
            if endpoint is None:
                raise ValueError("there is no endpoint to ask")
            try:
                result = await attempt(endpoint, stale[endpoint])
            except Failed as failed:
                rule = failed.rule
                if rule.blames:
                    endpoints.failed(endpoint)
                stale[endpoint] += rule.stale
                if rule.where is Where.ELSEWHERE_ONLY:
                    refused.add(endpoint)
                else:
                    waiting = rule
                if rule.where is Where.ELSEWHERE:
                    tried.add(endpoint)
                following = endpoints.choose(tried, refused)
                if rule.where is Where.NOWHERE or following is None:
                    raise
                at_once = rule.where is Where.ELSEWHERE_ONLY or endpoints.is_well(following)
                pause_s = 0.0
                if rule.where is Where.HERE or following in tried or not at_once:
                    # The round is over.
                    if waiting is None or not patient:
                        raise
                    if waits[waiting.name] >= waiting.pace.retries:
                        raise
                    pause_s = self._pause_s(waiting, waits[waiting.name])
                    waits[waiting.name] += 1
                    tried.clear()
                if self._clock() + pause_s >= deadline:
                    raise
                self._on_retry(failed)
                if pause_s:
                    await self._sleep(pause_s)
            else:
                endpoints.answered(endpoint)
                return result

    def _pause_s(self, rule: Rule, before: int) -> float:
        """Return the pause before another round: exponential, with full jitter by default."""
        longest = min(rule.pace.first_s * 2.0**before, rule.pace.longest_s)
        return longest * self._random() if rule.pace.jitter else longest
