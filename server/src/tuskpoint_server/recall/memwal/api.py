"""What the deliverer and the lookup need of a relayer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

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


class Relayer(Protocol):
    """One client of a relayer; to be used by one task only.

    Every call ends within its deadline. `RelayerError` can come from every call.
    """

    async def remember(self, namespace: str, text: str, key: str) -> str:
        """Send a text under an idempotency key; return its job."""

    async def remember_batch(self, namespace: str, texts: Sequence[str]) -> list[str]:
        """Send up to `MAX_BATCH` texts; return their jobs, in order."""

    async def jobs(self, job_ids: Sequence[str]) -> list[Job]:
        """Return how up to `MAX_BATCH` jobs stand, in order."""

    async def recall(self, namespace: str, query: str, limit: int) -> Recollection:
        """Return up to `limit` memories, at most `MAX_RECALLED`, nearest to a query."""

    async def close(self) -> None:
        """Close its connections."""
