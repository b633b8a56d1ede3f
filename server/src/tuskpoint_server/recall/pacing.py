"""How the tasks of search go on: pauses, what is told of failures, and when to come again."""

from __future__ import annotations

import asyncio
import email.utils
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC

from ..domain.errors import Refusal
from .embedders import EmbedderError

# waits for seconds, but not longer than until an event
Pause = Callable[[float, asyncio.Event], Awaitable[None]]
# bound on what another service may ask to wait: it is asked again then, whatever it said
LONGEST_RETRY_AFTER_S = 3600.0
DEFECT = "a defect of the server; its log tells more"


async def pause(seconds: float | None, ended: asyncio.Event) -> None:
    """Wait for seconds (`None`: for ever), but not longer than until an event."""
    try:
        async with asyncio.timeout(seconds):
            await ended.wait()
    except TimeoutError:
        return


def doubled(first_s: float, longest_s: float, failures: int) -> float:
    """Return a pause that is twice as long after each failure in a row, up to a bound."""
    return min(longest_s, first_s * 2.0 ** min(failures - 1, 20))


def retry_after_s(said: object) -> float | None:
    """Return the bounded seconds that a `Retry-After` (RFC 9110) asks to wait; `None`: nothing."""
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

    excluded: frozenset[str] = frozenset()  # channels and keys, at any depth, not to be indexed
    gather_s: float = 0.5  # for which changes are gathered before, unless someone searches
    busy_share: float = 0.25  # most of the time that indexing takes while nobody searches, 0 to 1
    catch_up_s: float = 2.0  # longest time that a search waits for what was journaled before it
    cache_bytes: int = 256 * 1024 * 1024  # of vectors held in memory; others are read
    first_retry_s: float = 0.5  # pause after a first failure; doubles with every further one
    longest_retry_s: float = 60.0  # bound on that pause


@dataclass
class Backoff:
    """Pauses after failures in a row: each twice as long as the one before, up to a bound."""

    _first_s: float
    _longest_s: float
    failures: int = 0
    until: float = 0.0  # end of a pause, for whoever keeps it here

    def failed(self) -> float:
        """Count a failure; return how long to wait, shortened at random by up to a half."""
        self.failures += 1
        bound = doubled(self._first_s, self._longest_s, self.failures)
        return bound * random.uniform(0.5, 1.0)  # noqa: S311 - no secret

    def succeeded(self) -> None:
        """Begin anew."""
        self.failures = 0


class Trouble(Backoff):
    """What goes wrong with a task, logged once; `problem` says it until a success."""

    def __init__(self, settings: IndexSettings, log: logging.Logger, task: str) -> None:
        super().__init__(settings.first_retry_s, settings.longest_retry_s)
        self.problem = ""
        self._log = log
        self._task = task
        self._told = ""

    def met(self, error: Exception) -> float:
        """Count and tell a failure; return how long to wait."""
        told = f"{type(error).__name__}: {error}"
        anew, self._told = told != self._told, told
        if isinstance(error, (Refusal, EmbedderError)):
            self.problem = str(error)
            if anew:
                self._log.warning("%s waits: %s", self._task, error)
        else:
            self.problem = DEFECT  # what it says stays in the log
            if anew:
                self._log.error("%s failed", self._task, exc_info=error)
        return self.failed()

    def succeeded(self) -> None:
        """Begin anew."""
        super().succeeded()
        self.problem = self._told = ""
