"""The epoch clock, which tests or the wall time advance."""

from __future__ import annotations

import time
from collections.abc import Callable


class EpochClock:
    """Returns the current epoch.

    With an epoch length, epochs also pass by themselves; otherwise only `advance` moves the clock.
    """

    def __init__(
        self,
        epoch: int = 1,
        epoch_s: float | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start at the beginning of an epoch.

        Args:
            epoch: The first epoch.
            epoch_s: Seconds that an epoch lasts; `None`: forever.
            now: Source of seconds.
        """
        if epoch_s is not None and epoch_s <= 0:
            raise ValueError("an epoch lasts more than 0 seconds")
        self._now = now
        self._epoch_s = epoch_s
        self._base = epoch
        self._started = now()

    @property
    def epoch(self) -> int:
        """The current epoch."""
        if self._epoch_s is None:
            return self._base
        return self._base + int((self.now() - self._started) / self._epoch_s)

    def now(self) -> float:
        """Return the seconds of the underlying clock, for delays shorter than an epoch."""
        return self._now()

    def advance(self, epochs: int = 1) -> int:
        """Advance by some epochs and return the new epoch."""
        if epochs < 0:
            raise ValueError("epochs do not go back")
        self._base += epochs
        return self.epoch
