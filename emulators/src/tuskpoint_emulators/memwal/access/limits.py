"""Rate limits: three sliding windows of points; a call needs room in each window.

`services/server/src/rate_limit.rs` of MystenLabs/MemWal.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, fields

from ..answers import Answer, json_answer
from ..clock import Clock

MINUTE_S = 60.0
HOUR_S = 3600.0

_RETRY_AFTER_S = {MINUTE_S: 60, HOUR_S: 300}


@dataclass(frozen=True, slots=True)
class RateLimits:
    """Points that calls may take; each attribute is one window.

    Attributes:
        delegate_key: Of one key, in a minute.
        account_burst: Of one account, in a minute.
        account_sustained: Of one account, in an hour.
    """

    delegate_key: int = 30
    account_burst: int = 60
    account_sustained: int = 500

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if type(value) is not int or value < 0:
                raise ValueError(f"{field.name} is not a whole number from 0 on")


class Limiter:
    """Counts the points of each key and account.

    Args:
        clock: Moves the windows.
        limits: Points that each window allows.
        enabled: Whether calls above the limits are refused.
    """

    def __init__(self, clock: Clock, limits: RateLimits, *, enabled: bool = True) -> None:
        self.limits = limits
        self.enabled = enabled
        self._clock = clock
        self._windows: dict[tuple[str, str], deque[tuple[float, int]]] = {}

    def take(self, public_key: str, account_id: str, points: int) -> Answer | None:
        """Take a call's points, or return the reason to refuse the call.

        Points of earlier windows stay taken if a later window has no room.
        """
        if not self.enabled or not points:
            return None
        now = self._clock.now()
        for layer, identity, seconds in (
            ("delegate_key", public_key, MINUTE_S),
            ("account_burst", account_id, MINUTE_S),
            ("account_sustained", account_id, HOUR_S),
        ):
            limit = getattr(self.limits, layer)
            window = self._windows.setdefault((layer, identity), deque())
            while window and window[0][0] <= now - seconds:
                window.popleft()
            if sum(cost for _, cost in window) + points > limit:
                return limited(layer, limit, _RETRY_AFTER_S[seconds])
            window.append((now, points))
        return None

    def reset(self) -> None:
        """Empty all windows."""
        self._windows.clear()


def limited(layer: str, limit: int, retry_after_s: int) -> Answer:
    """Return the answer to a call above a limit."""
    body = {
        "error": "Rate limit exceeded",
        "layer": layer,
        "limit": limit,
        "retry_after_seconds": retry_after_s,
    }
    return json_answer(body, 429, {"Retry-After": str(retry_after_s)})
