"""What calls may still cost: the relayer counts points, over the last minute and hour.

Deliveries keep below ceilings of their own, so that recalls find something left at any time.
Recalls may use all there is, unless deliveries wait for it: then up to half is theirs, or
steady searching would keep new summaries from ever being found. Calls are counted before they
are made, and failed ones too: the relayer may have counted them as well.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable

from ..settings import MemWalSettings
from .api import COST_BATCH, COST_RECALL, COST_REMEMBER

MINUTE_S, HOUR_S = 60.0, 3600.0

LATENESS_S = 1.0
"""How much later than here the relayer may count a call: its windows are as much longer."""

HEAD_START_S = 2.0
"""How much longer deliveries wait after a pause than recalls do."""

CLAIM_S = 60.0
"""How long what a delivery was refused is kept for it, after the time when it may try again."""


class Budget:
    """Points of one account, in sliding windows. Used in one event loop only.

    Args:
        settings: Ceilings.
        clock: Seconds of a clock that never goes back.

    Raises:
        ValueError: A ceiling is lower than what one call costs.
    """

    def __init__(self, settings: MemWalSettings, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._all = (
            _Window(MINUTE_S, settings.recall_points_per_minute),
            _Window(HOUR_S, settings.recall_points_per_hour),
        )
        self._deliveries = (
            _Window(MINUTE_S, settings.points_per_minute),
            _Window(HOUR_S, settings.points_per_hour),
        )
        half = (settings.recall_points_per_minute // 2, settings.recall_points_per_hour // 2)
        self._half = tuple(max(points, COST_BATCH) for points in half)
        # A recall has to fit beside what is claimed, or it never would.
        self._most_claimed = (
            min(settings.recall_points_per_minute, settings.recall_points_per_hour) - COST_RECALL
        )
        self._claimed = 0
        self._claimed_until = -math.inf
        self._paused_until = -math.inf

    def take_recall(self, cost: int) -> float:
        """Spend points on a recall, if that is possible now.

        Returns:
            0 if they are spent, or else the seconds after which they can be unless others
            come first.
        """
        now = self._clock()
        wait_s = _wait_s(self._all, cost, now, self._paused_until)
        if self._claimed_until > now:
            beside_s = _wait_s(self._all, cost + self._claimed, now, self._paused_until)
            wait_s = max(wait_s, min(beside_s, self._claimed_until - now))
        if not wait_s:
            _spend(self._all, cost, now)
        return wait_s

    def take_delivery(self, cost: int) -> float:
        """Spend points on a delivery, if that is possible now; return what `take_recall` does."""
        wait_s = self.wait_delivery(cost)
        if not wait_s:
            _spend((*self._all, *self._deliveries), cost, self._clock())
            if cost >= min(self._claimed, COST_REMEMBER):  # one memory was claimed for as a batch
                self._claimed_until = -math.inf
        return wait_s

    def wait_delivery(self, cost: int) -> float:
        """Return what `take_delivery` would, without spending anything.

        If deliveries had less than half so far, recalls leave them what this costs.
        """
        now = self._clock()
        windows = (*self._all, *self._deliveries)
        wait_s = _wait_s(windows, cost, now, self._paused_until + HEAD_START_S)
        if wait_s and self._is_due(cost, now):
            still = self._claimed if self._claimed_until > now else 0
            self._claimed = min(max(cost, still), self._most_claimed)
            self._claimed_until = max(self._claimed_until, now + wait_s + CLAIM_S)
        return wait_s

    def _is_due(self, cost: int, now: float) -> bool:
        """Tell whether a delivery would still be within the half that is theirs."""
        return all(
            window.spent(now) + cost <= half
            for window, half in zip(self._deliveries, self._half, strict=True)
        )

    def pause(self, seconds: float) -> None:
        """Spend nothing for a while: the relayer says that there is nothing left.

        An end of a longer pause stays.
        """
        until = self._clock() + min(max(seconds, 0.0), HOUR_S)
        self._paused_until = max(self._paused_until, until)


class _Window:
    """Points spent within a stretch of time that ends now."""

    def __init__(self, length_s: float, ceiling: int) -> None:
        if ceiling < COST_BATCH:
            raise ValueError(f"a ceiling of {ceiling} points lets no batch through")
        self._length_s = length_s + LATENESS_S
        self._ceiling = ceiling
        self._spent: deque[tuple[float, int]] = deque()
        self._sum = 0

    def spent(self, now: float) -> int:
        """Return the points that count now."""
        while self._spent and self._spent[0][0] + self._length_s <= now:
            self._sum -= self._spent.popleft()[1]
        return self._sum

    def free_at(self, cost: int, now: float) -> float:
        """Return the time from which points can be spent; `now` if they can be at once."""
        excess = self.spent(now) + cost - self._ceiling
        if excess <= 0:
            return now
        for at, spent in self._spent:
            excess -= spent
            if excess <= 0:
                return at + self._length_s
        raise ValueError(f"a call that costs {cost} points never fits {self._ceiling}")

    def spend(self, cost: int, now: float) -> None:
        """Count points."""
        self._spent.append((now, cost))
        self._sum += cost


def _wait_s(windows: Iterable[_Window], cost: int, now: float, not_before: float) -> float:
    free_at = max(window.free_at(cost, now) for window in windows)
    return max(0.0, free_at - now, not_before - now)


def _spend(windows: Iterable[_Window], cost: int, now: float) -> None:
    for window in windows:
        window.spend(cost, now)
