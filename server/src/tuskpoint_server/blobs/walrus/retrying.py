"""The one retry policy: every attempt of every request goes through `Retrying.run`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from .endpoints import Endpoint, Endpoints
from .failures import Failed, Rule, Where

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt.

    Attributes:
        endpoint: Whom to ask.
        stale: How often this endpoint's answer seemed old; above 0: ask in a way that it
            (or a cache before it) has not seen.
    """

    endpoint: Endpoint
    stale: int


class Retrying:
    """Tries again what may succeed: bounded in tries and in time.

    A round asks each endpoint once, without a pause where another is well; between
    rounds it pauses as the rule of the last failure says.

    Args:
        clock: Monotonic time in seconds.
        sleep: Waits for some seconds.
        random: Returns a number from 0 to 1.
        on_retry: Told of every failure that is followed by another attempt.
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
        attempt: Callable[[Attempt], Awaitable[_T]],
        *,
        budget_s: float,
        patient: bool = True,
    ) -> _T:
        """Return what an attempt returns, as soon as one succeeds.

        Args:
            endpoints: Whom to ask; at least one.
            attempt: Does it, or raises `Failed`.
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
                result = await attempt(Attempt(endpoint, course.stale[endpoint]))
            except Failed as failed:
                pause_s = course.pause_after(failed, endpoint)
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

    def pause_after(self, failed: Failed, endpoint: Endpoint) -> float | None:
        """Note a failure; return the pause before the next attempt, `None` if there is none."""
        rule = failed.rule
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
        if self._round_goes_on(rule.where):
            return 0.0
        return self._next_round()

    def _round_goes_on(self, where: Where) -> bool:
        """Tell whether another endpoint can be asked at once."""
        if where is Where.HERE:
            return False
        following = self._endpoints.choose(self._tried, self._refused)
        if following is None or following in self._tried:
            return False
        return where is Where.ELSEWHERE_ONLY or self._endpoints.is_well(following)

    def _next_round(self) -> float | None:
        """Return the pause before another round: exponential, with full jitter by default."""
        rule = self._waiting
        if rule is None or not self._patient or not self._endpoints.has_other(self._refused):
            return None
        before = self._waits[rule.name]
        if before >= rule.pace.retries:
            return None
        self._waits[rule.name] += 1
        self._tried.clear()
        longest = min(rule.pace.first_s * 2.0**before, rule.pace.longest_s)
        return longest * self._random() if rule.pace.jitter else longest
