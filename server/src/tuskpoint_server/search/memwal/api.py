"""MemWal's settings, the answers and failures of a relayer, and the budget of calls."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from ...core.credentials import DEFAULT_TENANT

MAX_BATCH = 20  # texts in a batch, and jobs asked for at once
# memories that one recall returns at most; a greater limit is cut to this, silently
MAX_RECALLED = 100
# points that calls take from the relayer's rate limits
COST_REMEMBER, COST_BATCH, COST_ASK, COST_RECALL = 5, 10, 1, 1
SPARE_POINTS_PER_MINUTE, SPARE_POINTS_PER_HOUR = 5, 50  # that recalls have for themselves
MINUTE_S, HOUR_S = 60.0, 3600.0

# the relayer may count a call this much later than this server, whose windows are so much longer
LATENESS_S = 1.0
HEAD_START_S = 2.0  # how much longer deliveries wait after a pause than recalls do
# how long a call that was refused counts as wanted, after the time when it may try again
WANTED_S = 60.0
_Ceilings = tuple[int, int]  # most points in a minute, and in an hour
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MemWalSettings:
    """Settings of MemWal."""

    private_key: str = field(repr=False)  # seed of the delegate key, never logged
    account_id: str  # object ID of the account
    server_url: str = "https://relayer.memory.walrus.xyz"
    namespace: str = "tuskpoint"  # of tenant `default`; others' have "/TENANT" after it
    points_per_minute: int = 25  # most points that deliveries spend in a minute, at least 10
    points_per_hour: int = 450  # most points that deliveries spend in an hour, at least 10
    gather_s: float = 2.0  # seconds for which summaries are gathered into a batch
    send_timeout_s: float = 30.0  # deadline of a call that sends
    recall_timeout_s: float = 5.0  # deadline of a recall
    first_ask_s: float = 15.0  # seconds after which a job is first asked for; doubles
    longest_ask_s: float = 300.0  # bound on that
    ask_together_s: float = 5.0  # jobs that come due within so many seconds are asked for together
    restart_s: float = 60.0  # shortest time before a failed job is started again
    lost_after_s: float = 3600.0  # seconds after which a job that is not done counts as lost
    first_retry_s: float = 1.0  # pause after a first failure; doubles with every further one
    longest_retry_s: float = 300.0  # bound on that pause
    check_s: float = 300.0  # after which a recall proves that they work, if there was none

    def namespace_of(self, tenant: str) -> str:
        """Return the namespace of a tenant's memories."""
        return self.namespace if tenant == DEFAULT_TENANT else f"{self.namespace}/{tenant}"


class RelayerTrouble(Enum):
    """Kinds of failures of a call."""

    LIMITED = "limited"  # the rate limit is exhausted
    DENIED = "denied"  # the credentials are not accepted
    REFUSED = "refused"  # the request as such is not accepted; to send it again does not help
    UNAVAILABLE = "unavailable"  # no answer, or one of a broken service


class RelayerError(Exception):
    """A call that failed; the message gives the reason, in one line without secrets."""

    def __init__(
        self,
        trouble: RelayerTrouble,
        problem: str,
        *,
        unsure: bool = False,  # it may have been carried out all the same
        retry_after_s: float | None = None,  # as the relayer asked
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
    """A job of the relayer. `error`: why it failed, for people."""

    job_id: str
    state: JobState
    blob_id: str = ""
    error: str = ""


class RelayerMemory(NamedTuple):
    """A memory as the relayer returned it: text that anyone may have written."""

    text: str
    distance: float


class Recollection(NamedTuple):
    """Answer to a recall, nearest first. `dropped`: matches that could not be returned."""

    memories: tuple[RelayerMemory, ...]
    dropped: int = 0


@dataclass(slots=True)
class RelayerHealth:
    """Outcome of the last call of one kind; logged when it changes."""

    _clock_us: Callable[[], int]
    _works: str
    _waits: str
    _denied: str = ""  # message for credentials that are not accepted; empty: `_waits` serves
    healthy: bool = False
    last_error: str = ""  # for people; empty since a success, or if there is nothing to do
    last_error_us: int = 0  # 0: there was none
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
    """Points that calls of one account may still cost, in sliding windows; for one event loop.

    Deliveries keep below ceilings of their own, so that recalls find something left at any time.
    Recalls may use all there is. Where both want more than that, each keeps to its half. Calls
    are counted before they are made, and failed ones too: the relayer may have counted them.
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
        """Spend points on a recall; return 0, or the seconds after which they may be there."""
        wait_s = self._wait(self._recalls, self._deliveries, COST_RECALL)
        return wait_s or self._spend(self._recalls, COST_RECALL)

    def take_delivery(self, cost: int) -> float:
        """Spend points on a delivery, if possible now; returns like `take_recall`."""
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
        """Spend nothing for a while: the relayer reports that the limit is reached."""
        until = self._clock() + min(max(seconds, 0.0), HOUR_S)
        self._paused_until = max(self._paused_until, until)


@dataclass(slots=True)
class _Side:
    ceilings: _Ceilings
    half: _Ceilings
    later_s: float = 0.0  # after a pause
    spent: deque[tuple[float, int]] = field(default_factory=deque)  # points in the last hour
    wanted_until: float = -math.inf  # more calls are wanted than there were points for

    def free_at(self, cost: int, now: float, ceilings: _Ceilings) -> float:
        """Return the time from which points fit below ceilings; more than one fit it alone."""
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
