"""What a relayer answers and how it fails."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

MAX_BATCH = 20
"""Texts in a batch, and jobs asked for at once."""

MAX_RECALLED = 100
"""Memories that one recall returns at most; a greater limit is cut to this, silently."""

COST_REMEMBER, COST_BATCH, COST_ASK, COST_RECALL = 5, 10, 1, 1
"""Points that calls take from the relayer's rate limits."""


class Trouble(Enum):
    """Kinds of failures of a call."""

    LIMITED = "limited"
    """The rate limit is exhausted."""
    DENIED = "denied"
    """The credentials are not accepted."""
    REFUSED = "refused"
    """The request as such is not accepted; to send it again does not help."""
    UNAVAILABLE = "unavailable"
    """No answer, or one that says that something is broken."""


class RelayerError(Exception):
    """A call that failed; the message says why, in one line without secrets.

    Attributes:
        trouble: Kind of failure.
        unsure: The request may have been carried out all the same.
        retry_after_s: Seconds after which it is worth trying again, if the relayer said so.
    """

    def __init__(
        self,
        trouble: Trouble,
        problem: str,
        *,
        unsure: bool = False,
        retry_after_s: float | None = None,
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


@dataclass(frozen=True, slots=True)
class Job:
    """A job of the relayer. `error`: why it failed, for people."""

    job_id: str
    state: JobState
    blob_id: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Memorised:
    """A memory as the relayer returned it: text that anyone may have written."""

    text: str
    distance: float


@dataclass(frozen=True, slots=True)
class Recollection:
    """Answer to a recall, nearest first. `dropped`: matches that could not be returned."""

    memories: tuple[Memorised, ...]
    dropped: int = 0
