"""When stored blobs expire, as far as answers of the store tell.

A store that lets blobs expire counts time in epochs of one length. It says the epoch in some
answers and never when an epoch began, so the clock keeps bounds: epoch 0 would have begun after
`_low` and not after `_high`. Of a blob that ends with the start of an epoch it says the earliest
time at which that may be.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from ...domain.model import StoredBlob

_FALL = 2  # by so many epochs answers of puts that ran beside one another do not differ


class EpochClock:
    """What is known of a store's epochs. Safe to use from any thread.

    Times are microseconds since the Unix epoch. An epoch has no length if stored blobs never
    expire; a put asks for `epochs` of them, at least 1.

    Attributes:
        on_new_epoch: Called, in the thread of whoever saw it, when the epoch is another one.
        fallen: The last two epochs of a fall, which only a new network explains; or `None`.
    """

    def __init__(self, epoch_s: float | None, epochs: int = 1) -> None:
        self.length_us = None if epoch_s is None else max(1, round(epoch_s * 1e6))
        self.epochs = epochs
        self.on_new_epoch: Callable[[], None] = lambda: None
        self.fallen: tuple[int, int] | None = None
        self._low: int | None = None
        self._high: int | None = None
        self._newest: tuple[int, int] | None = None
        self._lock = threading.Lock()

    def stored(self, blob: StoredBlob, now_us: int) -> int | None:
        """Note what the answer of a put says; return the time before which the blob is not gone.

        `None` if it never is.
        """
        if self.length_us is None or blob.end_epoch is None:
            return None
        if blob.epoch is not None:
            self.observe(blob.epoch, now_us)
        else:
            # What the store takes for long enough lasts for at least what was asked: the epoch
            # that many before its end had not begun.
            low = now_us - (blob.end_epoch - self.epochs + 1) * self.length_us
            with self._lock:
                self._low = low if self._low is None else max(self._low, low)
                if self._high is not None and self._high <= self._low:
                    self._high = self._low + self.length_us
        return self.expire_us(blob.end_epoch)

    def observe(self, epoch: int, at_us: int) -> None:
        """Note that an epoch was the current one at a time; what is newest wins."""
        if self.length_us is None:
            return
        low = at_us - (epoch + 1) * self.length_us
        high = at_us - epoch * self.length_us
        with self._lock:
            before = self._newest
            is_newest = before is None or at_us >= before[1]
            agrees = (self._low is None or self._low < high) and (
                self._high is None or low < self._high
            )
            if agrees:
                self._low = low if self._low is None else max(self._low, low)
                self._high = high if self._high is None else min(self._high, high)
            elif is_newest:
                self._low, self._high = low, high
            if is_newest:
                self._newest = (epoch, at_us)
            if before is not None and is_newest and epoch <= before[0] - _FALL:
                self.fallen = (before[0], epoch)
        if before is not None and (epoch > before[0] or self.fallen):
            self.on_new_epoch()

    def expire_us(self, end_epoch: int) -> int | None:
        """Return the earliest time at which an epoch may begin; `None` if nothing says."""
        with self._lock:
            if self._low is None or self.length_us is None:
                return None
            return self._low + end_epoch * self.length_us

    def epoch_at(self, now_us: int) -> int | None:
        """Return the latest epoch that must have begun; `None` if nothing says."""
        with self._lock:
            if self._newest is None or self._high is None or self.length_us is None:
                return None
            return max(self._newest[0], (now_us - self._high) // self.length_us)
