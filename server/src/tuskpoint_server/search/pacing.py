"""Settings of the index, and the pauses and log lines of its tasks after failures."""

from __future__ import annotations

import asyncio
import email.utils
import logging
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC

from ..core.errors import Refusal
from ..core.pacing import Backoff
from .embedders import EmbedderError

# waits for some seconds, or until an event, whichever comes first
Pause = Callable[[float, asyncio.Event], Awaitable[None]]
# bound on the pause that another service may request
LONGEST_RETRY_AFTER_S = 3600.0
DEFECT = "internal error; see the server's log"


def retry_after_s(said: object) -> float | None:
    """Return the bounded seconds that a `Retry-After` (RFC 9110) requests; `None` if invalid."""
    try:
        seconds = float(said)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        try:
            when = email.utils.parsedate_to_datetime(str(said))
        except ValueError:
            return None
        moment = when if when.tzinfo else when.replace(tzinfo=UTC)
        seconds = moment.timestamp() - time.time()
    return None if math.isnan(seconds) else min(max(seconds, 0.0), LONGEST_RETRY_AFTER_S)


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """Settings of the embedded index."""

    excluded: frozenset[str] = frozenset()  # channels and keys, at any depth, that are not indexed
    gather_s: float = 0.5  # seconds for which changes are gathered first, unless a caller searches
    # largest share of the time that indexing uses while nobody searches, 0 to 1
    busy_share: float = 0.25
    catch_up_s: float = 2.0  # longest time that a search waits for changes that precede it
    # most bytes of vectors in memory; other vectors are read for each search
    cache_bytes: int = 256 * 1024 * 1024
    first_retry_s: float = 0.5  # pause after the first failure; doubles with every further failure
    longest_retry_s: float = 60.0  # bound on that pause


class IndexTrouble(Backoff):
    """Failures of a task, each logged once; `problem` is the last one until a success."""

    def __init__(self, settings: IndexSettings, log: logging.Logger, task: str) -> None:
        super().__init__(settings.first_retry_s, settings.longest_retry_s)
        self.problem = ""
        self._log = log
        self._task = task
        self._logged = ""

    def met(self, error: Exception) -> float:
        """Count and log a failure; return the seconds to wait."""
        problem = f"{type(error).__name__}: {error}"
        anew, self._logged = problem != self._logged, problem
        if isinstance(error, (Refusal, EmbedderError)):
            self.problem = str(error)
            if anew:
                self._log.warning("%s is delayed: %s", self._task, error)
        else:
            self.problem = DEFECT  # the text of an unexpected exception is only logged
            if anew:
                self._log.error("%s failed", self._task, exc_info=error)
        return self.failed()

    def succeeded(self) -> None:
        """Reset the count of failures and the last problem."""
        super().succeeded()
        self.problem = self._logged = ""
