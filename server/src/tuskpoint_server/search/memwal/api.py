"""Settings of MemWal, answers and failures of a relayer, and the budget of calls."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from ...core.credentials import DEFAULT_TENANT

MAX_BATCH = 20  # texts in a batch, and most jobs that one call polls
# most memories that one recall returns; a greater limit is silently cut to this
MAX_RECALLED = 100
# points of the relayer's rate limits that each call costs
COST_REMEMBER, COST_BATCH, COST_ASK, COST_RECALL = 5, 10, 1, 1
SPARE_POINTS_PER_MINUTE, SPARE_POINTS_PER_HOUR = 5, 50  # points reserved for recalls
MINUTE_S, HOUR_S = 60.0, 3600.0

# the relayer may count a call this much later than this server, so windows here are longer by it
LATENESS_S = 1.0
HEAD_START_S = 2.0  # additional wait of deliveries, compared with recalls, after a pause
# time for which a refused call counts as wanted, after the time when it may be retried
WANTED_S = 60.0
_Ceilings = tuple[int, int]  # most points per minute, and per hour
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MemWalSettings:
    """Settings of MemWal."""

    private_key: str = field(repr=False)  # seed of the delegate key, never logged
    account_id: str  # object ID of the account
    server_url: str = "https://relayer.memory.walrus.xyz"
    # namespace of tenant `default`; other tenants' namespaces have "/TENANT" after it
    namespace: str = "tuskpoint"
    points_per_minute: int = 25  # most points that deliveries spend in a minute, at least 10
    points_per_hour: int = 450  # most points that deliveries spend in an hour, at least 10
    gather_s: float = 2.0  # seconds for which summaries are gathered into a batch
    send_timeout_s: float = 30.0  # deadline of a call that sends
    recall_timeout_s: float = 5.0  # deadline of a recall
    first_ask_s: float = 15.0  # seconds after which a job is first polled; doubles
    longest_ask_s: float = 300.0  # bound on that interval
    ask_together_s: float = 5.0  # jobs that come due within this many seconds are polled together
    restart_s: float = 60.0  # shortest time before a failed job is started again
    lost_after_s: float = 3600.0  # seconds after which a job that is not done counts as lost
    first_retry_s: float = 1.0  # pause after the first failure; doubles with every further failure
    longest_retry_s: float = 300.0  # bound on that pause
    check_s: float = 300.0  # seconds without a recall after which a recall checks that recalls work

    def namespace_of(self, tenant: str) -> str:
        """Return the namespace of a tenant's memories."""
        return self.namespace if tenant == DEFAULT_TENANT else f"{self.namespace}/{tenant}"


class RelayerTrouble(Enum):
    """Kinds of failures of a call."""

    LIMITED = "limited"  # the rate limit is exhausted
    DENIED = "denied"  # the credentials are not accepted
    REFUSED = "refused"  # the request itself is not accepted; sending it again does not help
    UNAVAILABLE = "unavailable"  # no answer, or the answer of a broken service


class RelayerError(Exception):
    """A failed call; the message gives the reason, in one line without secrets."""

    def __init__(
        self,
        trouble: RelayerTrouble,
        problem: str,
        *,
        unsure: bool = False,  # whether the call may have been carried out anyway
        retry_after_s: float | None = None,  # pause that the relayer requested
    ) -> None:
        self.trouble = trouble
        self.unsure = unsure
        self.retry_after_s = retry_after_s
        super().__init__(problem)


class JobState(Enum):
    """State of a job."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Job(NamedTuple):
    """Job of the relayer. `error` is the reason of its failure, for people."""

    job_id: str
    state: JobState
    blob_id: str = ""
    error: str = ""


class RelayerMemory(NamedTuple):
    """Memory as the relayer returned it: text that anyone may have written."""

    text: str
    distance: float


class Recollection(NamedTuple):
    """Answer to a recall, nearest first. `dropped`: matches that could not be returned."""

    memories: tuple[RelayerMemory, ...]
    dropped: int = 0


@dataclass(slots=True)
class RelayerHealth:
    """Outcome of the last call of one kind; a change is logged."""

    _clock_us: Callable[[], int]
    _works: str
    _waits: str
    _denied: str = ""  # log message for rejected credentials; empty: use `_waits`
    healthy: bool = False
    last_error: str = ""  # text for people; empty after a success, or if there is nothing to do
    last_error_us: int = 0  # 0: no error yet
    last_answer_us: int | None = None
    _trouble: RelayerTrouble | None = None

    def answered(self) -> None:
        """Note that a call succeeded."""
        if not self.healthy:
            _log.info("%s", self._works)
        self.healthy = True
        self.last_error = ""
        self.last_answer_us = self._clock_us()
        self._trouble = None

    def failed(self, error: RelayerError) -> None:
        """Note that a call failed."""
        self.healthy = False
        self.last_error = str(error)
        self.last_error_us = self._clock_us()
        if error.trouble is not self._trouble:
            self._trouble = error.trouble
            if error.trouble is RelayerTrouble.DENIED and self._denied:
                _log.error("%s: %s", self._denied, error)
            else:
                _log.warning("%s: %s", self._waits, error)


class Budget:
    """Points that calls of one account may cost, in sliding windows; for one event loop.

    Deliveries stay below ceilings of their own, so that points for recalls are always left. Recalls
    may use all points. If both want more than there is, each is limited to its half. Calls are
    counted before they are made, including failed calls: the relayer may have counted them.
    """

    def __init__(self, settings: MemWalSettings, clock: Callable[[], float]) -> None:
        granted = settings.points_per_minute, settings.points_per_hour
        minute, hour = granted[0] + SPARE_POINTS_PER_MINUTE, granted[1] + SPARE_POINTS_PER_HOUR
        half = max(minute // 2, COST_BATCH)
        self._clock = clock
        self._all = _Side((minute, hour), (minute, hour))
        self._deliveries = _Side(granted, (half, hour // 2), HEAD_START_S)
        self._recalls = _Side((minute, hour), (minute - half, hour - hour // 2))
        self._paused_until = -math.inf

    def take_recall(self) -> float:
        """Spend points on a recall; return 0, or the seconds until the points may be free."""
        wait_s = self._wait(self._recalls, self._deliveries, COST_RECALL)
        return wait_s or self._spend(self._recalls, COST_RECALL)

    def take_delivery(self, cost: int) -> float:
        """Spend points on a delivery, if they are free now; return as `take_recall` does."""
        return self.wait_delivery(cost) or self._spend(self._deliveries, cost)

    def wait_delivery(self, cost: int) -> float:
        """Return the result of `take_delivery` without spending points."""
        return self._wait(self._deliveries, self._recalls, cost)

    def _wait(self, side: _Side, other_side: _Side, cost: int) -> float:
        now = self._clock()
        free_at = max(part.free_at(cost, now, part.ceilings) for part in (self._all, side))
        wait_s = max(0.0, free_at - now, self._paused_until + side.later_s - now)
        if other_side.wanted_until > now:
            half_free_at = side.free_at(cost, now, side.half)
            wait_s = max(wait_s, min(half_free_at, other_side.wanted_until) - now)
        if wait_s:
            side.wanted_until = max(side.wanted_until, now + wait_s + WANTED_S)
        return wait_s

    def _spend(self, side: _Side, cost: int) -> float:
        for part in (self._all, side):
            part.spent.append((self._clock(), cost))
        return 0.0

    def pause(self, seconds: float) -> None:
        """Spend nothing for a while: the relayer reported that the limit is reached."""
        until = self._clock() + min(max(seconds, 0.0), HOUR_S)
        self._paused_until = max(self._paused_until, until)


@dataclass(slots=True)
class _Side:
    ceilings: _Ceilings
    half: _Ceilings
    later_s: float = 0.0  # additional wait after a pause
    # times and costs of calls in the last hour
    spent: deque[tuple[float, int]] = field(default_factory=deque)
    wanted_until: float = -math.inf  # until then, calls want more points than were free

    def free_at(self, cost: int, now: float, ceilings: _Ceilings) -> float:
        """Return the time from which `cost` fits below ceilings; a greater cost fits alone."""
        while self.spent and self.spent[0][0] + HOUR_S + LATENESS_S <= now:
            self.spent.popleft()
        free_at = now
        for length_s, ceiling in zip((MINUTE_S, HOUR_S), ceilings, strict=True):
            recent = [entry for entry in self.spent if entry[0] + length_s + LATENESS_S > now]
            points = sum(spent for _, spent in recent)
            excess = min(points, points + cost - ceiling)
            for at, spent in recent:
                if excess <= 0:
                    break
                excess -= spent
                free_at = max(free_at, at + length_s + LATENESS_S)
        return free_at
