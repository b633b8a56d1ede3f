"""What a relayer answers, how it fails, and whether it works."""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

MAX_BATCH = 20  # texts in a batch, and jobs asked for at once
# memories that one recall returns at most; a greater limit is cut to this, silently
MAX_RECALLED = 100
# points that calls take from the relayer's rate limits
COST_REMEMBER, COST_BATCH, COST_ASK, COST_RECALL = 5, 10, 1, 1
_log = logging.getLogger(__name__)


class Trouble(Enum):
    """Kinds of failures of a call."""

    LIMITED = "limited"  # the rate limit is exhausted
    DENIED = "denied"  # the credentials are not accepted
    REFUSED = "refused"  # the request as such is not accepted; to send it again does not help
    UNAVAILABLE = "unavailable"  # no answer, or one that says that something is broken


class RelayerError(Exception):
    """A call that failed; the message says why, in one line without secrets."""

    def __init__(
        self,
        trouble: Trouble,
        problem: str,
        *,
        unsure: bool = False,  # it may have been carried out all the same
        retry_after_s: float | None = None,  # as the relayer said
    ) -> None:
        self.trouble = trouble
        self.unsure = unsure
        self.retry_after_s = retry_after_s
        super().__init__(problem)


class JobState(Enum):
    """How a job stands."""

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


class Memorised(NamedTuple):
    """A memory as the relayer returned it: text that anyone may have written."""

    text: str
    distance: float


class Recollection(NamedTuple):
    """Answer to a recall, nearest first. `dropped`: matches that could not be returned."""

    memories: tuple[Memorised, ...]
    dropped: int = 0


class Health:
    """Outcome of the last call of one kind; told in the log when it changes."""

    def __init__(
        self, clock_us: Callable[[], int], works: str, waits: str, denied: str = ""
    ) -> None:
        self.healthy = False
        self.last_error = ""  # for people; empty since a success, or if there is nothing to do
        self.last_error_us = 0  # 0: there was none
        self.last_answer_us: int | None = None
        self._clock_us = clock_us
        self._works = works
        self._waits = waits
        self._denied = denied  # that credentials are not accepted; empty if others tell that
        self._trouble: Trouble | None = None

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
            if error.trouble is Trouble.DENIED and self._denied:
                _log.error("%s: %s", self._denied, error)
            else:
                _log.warning("%s: %s", self._waits, error)
