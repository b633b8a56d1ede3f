"""What calls may still cost: the relayer counts points, over the last minute and hour.

Deliveries keep below ceilings of their own, so that recalls find something left at any time.
Recalls may use all there is. Where both want more than that, each keeps to its half. Calls
are counted before they are made, and failed ones too: the relayer may have counted them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence

from ..settings import MemWalSettings
from .api import COST_BATCH, COST_RECALL

MINUTE_S, HOUR_S = 60.0, 3600.0

LATENESS_S = 1.0
"""How much later than here the relayer may count a call: its windows are as much longer."""

HEAD_START_S = 2.0
"""How much longer deliveries wait after a pause than recalls do."""

WANTED_S = 60.0
"""How long a call that was refused counts as wanted, after the time when it may try again."""


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
        ceilings = (settings.recall_points_per_minute, settings.recall_points_per_hour)
        self._all = _windows(*ceilings)
        halves = [max(ceiling // 2, COST_BATCH) for ceiling in ceilings]
        rests = [
            max(ceiling - half, COST_RECALL) for ceiling, half in zip(ceilings, halves, strict=True)
        ]
        own = (settings.points_per_minute, settings.points_per_hour)
        self._deliveries = _Side(_windows(*own), halves)
        self._recalls = _Side(_windows(*ceilings), rests)
        self._paused_until = -math.inf

    def take_recall(self, cost: int) -> float:
        """Spend points on a recall, if that is possible now.

        Returns:
            0 if they are spent, or else the seconds after which they can be unless others
            come first.
        """
        wait_s = self._wait(self._recalls, self._deliveries, cost, self._paused_until)
        if not wait_s:
            self._spend(self._recalls, cost)
        return wait_s

    def take_delivery(self, cost: int) -> float:
        """Spend points on a delivery, if that is possible now; return what `take_recall` does."""
        wait_s = self.wait_delivery(cost)
        if not wait_s:
            self._spend(self._deliveries, cost)
        return wait_s

    def wait_delivery(self, cost: int) -> float:
        """Return what `take_delivery` would, without spending anything."""
        paused_until = self._paused_until + HEAD_START_S
        return self._wait(self._deliveries, self._recalls, cost, paused_until)

    def _wait(self, side: _Side, other: _Side, cost: int, not_before: float) -> float:
        now = self._clock()
        free_at = max(window.free_at(cost, now) for window in (*self._all, *side.windows))
        wait_s = max(0.0, free_at - now, not_before - now)
        if other.wanted_until > now:
            wait_s = max(wait_s, min(side.half_free_at(cost, now), other.wanted_until) - now)
        if wait_s:
            side.wanted_until = max(side.wanted_until, now + wait_s + WANTED_S)
        return wait_s

    def _spend(self, side: _Side, cost: int) -> None:
        for window in (*self._all, *side.windows):
            window.spend(cost, self._clock())

    def pause(self, seconds: float) -> None:
        """Spend nothing for a while: the relayer says that there is nothing left.

        An end of a longer pause stays.
        """
        until = self._clock() + min(max(seconds, 0.0), HOUR_S)
        self._paused_until = max(self._paused_until, until)


class _Side:
    """Deliveries, or recalls.

    Attributes:
        windows: What they spent.
        wanted_until: Until then more calls are wanted than there were points for.
    """

    def __init__(self, windows: Sequence[_Window], halves: Sequence[int]) -> None:
        self.windows = windows
        self.wanted_until = -math.inf
        self._halves = halves

    def half_free_at(self, cost: int, now: float) -> float:
        """Return the time from which points can be spent within the half that is theirs."""
        return max(
            window.free_at(cost, now, half)
            for window, half in zip(self.windows, self._halves, strict=True)
        )


class _Window:
    """Points spent within a stretch of time that ends now."""

    def __init__(self, length_s: float, ceiling: int) -> None:
        if ceiling < COST_BATCH:
            raise ValueError(f"a ceiling of {ceiling} points lets no batch through")
        self._length_s = length_s + LATENESS_S
        self._ceiling = ceiling
        self._spent: deque[tuple[float, int]] = deque()
        self._sum = 0

    def free_at(self, cost: int, now: float, within: int | None = None) -> float:
        """Return the time from which points can be spent; `now` if they can be at once.

        Args:
            cost: The points.
            now: The time.
            within: A lower ceiling than the window's own; a higher cost fits it alone.
        """
        self._forget(now)
        if within is None:
            if cost > self._ceiling:
                raise ValueError(f"a call that costs {cost} points never fits {self._ceiling}")
            within = self._ceiling
        excess = min(self._sum, self._sum + cost - within)
        if excess <= 0:
            return now
        for at, spent in self._spent:
            excess -= spent
            if excess <= 0:
                return at + self._length_s
        return now

    def _forget(self, now: float) -> None:
        while self._spent and self._spent[0][0] + self._length_s <= now:
            self._sum -= self._spent.popleft()[1]

    def spend(self, cost: int, now: float) -> None:
        """Count points."""
        self._spent.append((now, cost))
        self._sum += cost


def _windows(per_minute: int, per_hour: int) -> tuple[_Window, _Window]:
    return _Window(MINUTE_S, per_minute), _Window(HOUR_S, per_hour)
