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

    def is_well(self, endpoint: Endpoint) -> bool:
        """Return whether an endpoint is not put aside."""
        return self._health[endpoint].aside_until <= self._clock()

    def answered(self, endpoint: Endpoint) -> None:
        """Note that an endpoint did what was asked."""
        self._health[endpoint] = _Health()

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


class Retrying:
    """The one retry policy: tries again what may succeed, bounded in tries and in time.

    A round asks each endpoint once, without a pause where another is well; between
    rounds it pauses as the rule of the last failure says.

    Args:
        clock: Monotonic time in seconds.
        sleep: Waits for some seconds.
        random: Returns a number from 0 to 1.
        on_retry: Called with every failure that is followed by another attempt.
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
        """Return what an attempt returns, as soon as one succeeds.

        Args:
            endpoints: Whom to ask; at least one.
            attempt: Asks an endpoint, or raises `Failed`. It also gets how often the answer
                of this endpoint seemed old; above 0: ask in a way that it (or a cache before
                it) has not seen.
            budget_s: No attempt begins later than this.
            patient: Go on after the first round.

        Raises:
            Failed: The last failure.
        """
        course = _Course(endpoints, patient=patient, random=self._random)
        deadline = self._clock() + budget_s
        while True:
            endpoint = course.next_endpoint()
            try:
                result = await attempt(endpoint, course.stale[endpoint])
            except Failed as failed:
                pause_s = course.pause_after(failed.rule, endpoint)
                if pause_s is None or self._clock() + pause_s >= deadline:
                    raise
                self._on_retry(failed)
                if pause_s:
                    await self._sleep(pause_s)
            else:
                endpoints.answered(endpoint)
                return result


class _Course:
    """Where one run stands.

    Attributes:
        stale: How often the answer of each endpoint seemed old.
    """

    def __init__(self, endpoints: Endpoints, *, patient: bool, random: Callable[[], float]) -> None:
        self.stale: Counter[Endpoint] = Counter()
        self._endpoints = endpoints
        self._patient = patient
        self._random = random
        self._tried: set[Endpoint] = set()
        self._refused: set[Endpoint] = set()
        self._waiting: Rule | None = None  # of the last failure that may pass
        self._waits: Counter[str] = Counter()

    def next_endpoint(self) -> Endpoint:
        endpoint = self._endpoints.choose(self._tried, self._refused)
        if endpoint is None:
            raise ValueError("there is no endpoint to ask")
        return endpoint

    def pause_after(self, rule: Rule, endpoint: Endpoint) -> float | None:
        """Note a failure; return the pause before the next attempt, `None` if there is none."""
        if rule.blames:
            self._endpoints.failed(endpoint)
        if rule.stale:
            self.stale[endpoint] += 1
        if rule.where is Where.NOWHERE:
            return None
        if rule.where is Where.ELSEWHERE_ONLY:
            self._refused.add(endpoint)
        else:
            self._waiting = rule
        if rule.where is Where.ELSEWHERE:
            self._tried.add(endpoint)
        following = self._endpoints.choose(self._tried, self._refused)
        if following is None:
            return None
        at_once = rule.where is Where.ELSEWHERE_ONLY or self._endpoints.is_well(following)
        if rule.where is not Where.HERE and following not in self._tried and at_once:
            return 0.0  # the round goes on
        return self._next_round()

    def _next_round(self) -> float | None:
        """Return the pause before another round: exponential, with full jitter by default."""
        rule = self._waiting
        if rule is None or not self._patient:
            return None
        before = self._waits[rule.name]
        if before >= rule.pace.retries:
            return None
        self._waits[rule.name] += 1
        self._tried.clear()
        longest = min(rule.pace.first_s * 2.0**before, rule.pace.longest_s)
        return longest * self._random() if rule.pace.jitter else longest
