"""Expiry of stored blobs, as far as the store's answers show it.

A store that lets blobs expire counts time in epochs of one length. Some answers name the epoch,
none names its start, so the clock keeps bounds: epoch 0 started after `_low` and not after `_high`.
For a blob that ends with the start of an epoch, the clock returns the earliest possible time. This
module also notes due blobs that could not be stored again.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from ...core.errors import Refusal
from ...core.model import StoredBlob
from ...core.pacing import doubled_pause
from ..flush.flusher import FlushTrouble
from ..read.read import DAMAGE
from ..rows.lifetimes import DueBlob

_log = logging.getLogger(__name__)

FIRST_RETRY_S = 30.0
_UNKNOWN_US = 1 << 62  # stands for an unknown bound
_FALL = 2  # epochs; the epochs in answers of concurrent puts differ by less


class EpochClock:
    """Clock that keeps bounds of a store's epochs. Safe to use from any thread.

    Times are microseconds since the Unix epoch. An epoch has no length if stored blobs never
    expire; a put asks for `epochs` epochs, at least 1. `on_new_epoch` is called in the thread of
    the reader that saw a new epoch; `fallen` is a pair of epochs where the later one is lower,
    which only a new network explains.
    """

    def __init__(self, epoch_s: float | None, epochs: int = 1) -> None:
        self.length_us = None if epoch_s is None else max(1, round(epoch_s * 1e6))
        self.epochs = epochs
        self.on_new_epoch: Callable[[], object] = lambda: None
        self.fallen: tuple[int, int] | None = None
        self._low, self._high = -_UNKNOWN_US, _UNKNOWN_US
        self._newest: tuple[int, int] | None = None
        self._lock = threading.Lock()

    def stored(self, blob: StoredBlob, now_us: int) -> int | None:
        """Note the answer of a put; return the earliest time at which the blob may be gone.

        Returns `None` if the blob never expires.
        """
        if self.length_us is None or blob.end_epoch is None:
            return None
        if blob.epoch is not None:
            self.observe(blob.epoch, now_us)
        else:
            # The store accepted a blob that lasts at least `epochs` epochs: so the epoch `epochs`
            # before the blob's end had not started.
            low = now_us - (blob.end_epoch - self.epochs + 1) * self.length_us
            with self._lock:
                self._low = max(self._low, low)
                if self._high <= self._low:
                    self._high = self._low + self.length_us
        return self.expire_us(blob.end_epoch)

    def observe(self, epoch: int, at_us: int) -> None:
        """Note the current epoch at a given time; the newest note wins."""
        if self.length_us is None:
            return
        low = at_us - (epoch + 1) * self.length_us
        high = at_us - epoch * self.length_us
        with self._lock:
            newest = self._newest
            is_newest = newest is None or at_us >= newest[1]
            if self._low < high and low < self._high:
                self._low, self._high = max(self._low, low), min(self._high, high)
            elif is_newest:
                self._low, self._high = low, high
            if is_newest:
                self._newest = (epoch, at_us)
            if newest is not None and is_newest and epoch <= newest[0] - _FALL:
                self.fallen = (newest[0], epoch)
        if newest is not None and (epoch > newest[0] or self.fallen):
            self.on_new_epoch()

    def expire_us(self, end_epoch: int) -> int | None:
        """Return the earliest time at which an epoch may start; `None` if unknown."""
        with self._lock:
            if self._low == -_UNKNOWN_US or self.length_us is None:
                return None
            return self._low + end_epoch * self.length_us

    def epoch_at(self, now_us: int) -> int | None:
        """Return the latest epoch that must have started; `None` if unknown."""
        with self._lock:
            if self._newest is None or self.length_us is None:
                return None
            return max(self._newest[0], (now_us - self._high) // self.length_us)


@dataclass(frozen=True, slots=True)
class _Failure:
    since_us: int  # time of the first failure
    last: FlushTrouble
    retry_us: int
    attempts: int
    gone: bool
    end_us: int  # end of the blob; if unknown, one margin after the first failure


@dataclass(eq=False)
class FailingBlobs:
    """Needed blobs of all tenants whose renewal fails.

    A blob is due for renewal one margin before its end.
    """

    _clock_us: Callable[[], int]
    _margin_us: int
    _epoch_us: int
    _longest_pause_s: float  # longest pause between attempts
    # failures by tenant and blob
    _of: defaultdict[str, dict[str, _Failure]] = field(default_factory=lambda: defaultdict(dict))

    def note(self, tenant: str, blob: DueBlob, refusal: Refusal) -> bool:
        """Note a failed renewal; return whether the blob is gone."""
        now_us = self._clock_us()
        failure = self._of[tenant].get(blob.blob_id)
        attempts = failure.attempts + 1 if failure else 1
        pause_s = doubled_pause(FIRST_RETRY_S, self._longest_pause_s, attempts)
        time_left = "unknown"
        if blob.expire_us is not None:
            time_left = f"{max(0, blob.expire_us - now_us) // 1_000_000} s"
        problem = (
            f"blob {blob.blob_id} could not be renewed, time left: {time_left}: {refusal.message}"
        )
        gone = refusal.reason in DAMAGE
        since_us = failure.since_us if failure else now_us
        self._of[tenant][blob.blob_id] = _Failure(
            since_us,
            FlushTrouble(problem, now_us),
            now_us + round(pause_s * 1e6),
            attempts,
            gone,
            blob.expire_us or since_us + self._margin_us,
        )
        _log.warning("tenant %s: %s", tenant, problem)
        return gone

    def forget(self, tenant: str, blob_id: str) -> None:
        """Forget a blob that is stored again or is no longer needed."""
        self._of[tenant].pop(blob_id, None)

    def keep_only(self, tenant: str, due: Collection[str]) -> None:
        """Forget the blobs of a tenant that are no longer due."""
        self._of[tenant] = {
            blob_id: failure for blob_id, failure in self._of[tenant].items() if blob_id in due
        }

    def clear(self) -> None:
        """Forget all blobs."""
        self._of.clear()

    def count(self, tenant: str) -> int:
        """Return the number of a tenant's failing blobs."""
        return len(self._of.get(tenant, ()))  # another thread may call this

    def trouble(self, tenant: str) -> FlushTrouble | None:
        """Return the last failed renewal of a tenant."""
        troubles = [failure.last for failure in self._of[tenant].values()]
        return max(troubles, key=lambda trouble: trouble.at_us, default=None)

    def waiting(self, tenant: str) -> set[str]:
        """Return the blobs whose next attempt is not due yet."""
        now_us = self._clock_us()
        return {
            blob_id for blob_id, failure in self._of[tenant].items() if failure.retry_us > now_us
        }

    def pauses_s(self) -> list[float]:
        """Return the seconds to the next attempt, for each blob."""
        now_us = self._clock_us()
        failures = (failure for by_blob in self._of.values() for failure in by_blob.values())
        return [(failure.retry_us - now_us) / 1e6 for failure in failures]

    def is_late(self, blob: DueBlob) -> bool:
        """Return whether less than half the margin remains until a blob expires."""
        soon_us = self._clock_us() + self._margin_us // 2
        return blob.expire_us is not None and blob.expire_us < soon_us

    def is_endangered(self, tenant: str, blob: DueBlob) -> bool:
        """Return whether a failing blob is gone, or must be saved now."""
        failure = self._of[tenant].get(blob.blob_id)
        return failure is not None and (
            failure.gone or self.is_late(blob._replace(expire_us=failure.end_us))
        )

    def is_over(self, tenant: str, blob: DueBlob) -> bool:
        """Return whether the store lacks a blob whose time is over.

        A missing blob whose time is not over may be back tomorrow: the server may have asked the
        wrong network.
        """
        failure = self._of[tenant].get(blob.blob_id)
        # The earliest possible end is less than an epoch before the true end.
        return (
            failure is not None
            and failure.gone
            and failure.end_us + self._epoch_us <= self._clock_us()
        )
