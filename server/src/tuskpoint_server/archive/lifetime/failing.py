"""Blobs that are due and could not be stored again, and how long there is still time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass

from ...domain.errors import Refusal
from ...journal.archiving.lifetimes import DueBlob
from ..flush.flusher import Trouble
from ..read import DAMAGE

_log = logging.getLogger(__name__)

FIRST_RETRY_S = 30.0


@dataclass(frozen=True, slots=True)
class _Failure:
    since_us: int  # time of the first one
    last: Trouble
    retry_us: int
    attempts: int
    gone: bool
    end_us: int  # of the blob; where it is not known, a margin of failures is too long


class Failing:
    """The needed blobs of all tenants that are not stored again.

    A blob is due at the margin before its end; attempts pause for `longest_pause_s` at most.
    """

    def __init__(
        self,
        clock_us: Callable[[], int],
        margin_us: int,
        epoch_us: int,
        longest_pause_s: float,
    ) -> None:
        self._clock_us = clock_us
        self._margin_us = margin_us
        self._epoch_us = epoch_us
        self._longest_pause_s = longest_pause_s
        self._failures: dict[tuple[str, str], _Failure] = {}

    def note(self, tenant: str, blob: DueBlob, refusal: Refusal) -> bool:
        """Note a failure, and return whether the blob is gone."""
        now_us = self._clock_us()
        before = self._failures.get((tenant, blob.blob_id))
        attempts = before.attempts + 1 if before else 1
        pause_s = min(self._longest_pause_s, FIRST_RETRY_S * 2 ** min(attempts - 1, 20))
        left = "unknown"
        if blob.expire_us is not None:
            left = f"{max(0, blob.expire_us - now_us) // 1_000_000} s"
        problem = f"blob {blob.blob_id} is not renewed, time left: {left}: {refusal.message}"
        gone = refusal.reason in DAMAGE
        since_us = before.since_us if before else now_us
        self._failures[tenant, blob.blob_id] = _Failure(
            since_us,
            Trouble(problem, now_us),
            now_us + round(pause_s * 1e6),
            attempts,
            gone,
            blob.expire_us or since_us + self._margin_us,
        )
        _log.warning("tenant %s: %s", tenant, problem)
        return gone

    def forget(self, tenant: str, blob_id: str) -> None:
        """Note that a blob is stored again, or not needed any more."""
        self._failures.pop((tenant, blob_id), None)

    def keep_only(self, due: Collection[str], tenant: str = "") -> None:
        """Forget the blobs of a tenant, or of all, that are not due any more."""
        for of, blob_id in list(self._failures):
            if tenant in ("", of) and blob_id not in due:
                del self._failures[of, blob_id]

    def count(self, tenant: str = "") -> int:
        """Return how many blobs of a tenant, or of all, fail."""
        return sum(1 for of, _ in list(self._failures) if tenant in ("", of))

    def trouble(self, tenant: str) -> Trouble | None:
        """Return the last failure of a tenant."""
        mine = [failure.last for (of, _), failure in self._failures.items() if of == tenant]
        return max(mine, key=lambda trouble: trouble.at_us, default=None)

    def waiting(self, tenant: str) -> set[str]:
        """Return the blobs whose next attempt is not due yet."""
        now_us = self._clock_us()
        return {
            blob_id
            for (of, blob_id), failure in self._failures.items()
            if of == tenant and failure.retry_us > now_us
        }

    def pauses_s(self) -> list[float]:
        """Return the seconds to the next attempt of each."""
        now_us = self._clock_us()
        return [(failure.retry_us - now_us) / 1e6 for failure in self._failures.values()]

    def is_late(self, blob: DueBlob) -> bool:
        """Return whether only half the margin is left of a blob."""
        soon_us = self._clock_us() + self._margin_us // 2
        return blob.expire_us is not None and blob.expire_us < soon_us

    def is_endangered(self, tenant: str, blob: DueBlob) -> bool:
        """Return whether a blob that fails is gone, or has to be saved now."""
        failure = self._failures.get((tenant, blob.blob_id))
        if failure is None:
            return False
        return failure.gone or self.is_late(blob._replace(expire_us=failure.end_us))

    def is_over(self, tenant: str, blob: DueBlob) -> bool:
        """Return whether the store does not have a blob, and should not have it any more.

        One that should still last may be there again tomorrow: the wrong network may have been
        asked for it.
        """
        failure = self._failures.get((tenant, blob.blob_id))
        # The earliest end that is possible is less than an epoch before the true one.
        return (
            failure is not None
            and failure.gone
            and failure.end_us + self._epoch_us <= self._clock_us()
        )
