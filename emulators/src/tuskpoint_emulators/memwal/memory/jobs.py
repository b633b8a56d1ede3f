"""Jobs: how a text that was accepted comes to be remembered, or does not.

A job's state follows from the clock and its fate; nothing runs in between. What is due
enters the ledger when `settle` is called, which every request does first.

`services/server/src/routes/remember.rs` and `jobs.rs` of MystenLabs/MemWal.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from enum import StrEnum

from ..answers import refused
from ..clock import Clock
from .blob_ids import blob_id_of
from .ledger import Ledger
from .statistics import Statistics

RESTART_LEASE_S = 60.0
"""How long a failed job's key starts nothing after the job was begun."""

_PENDING_UNTIL = 0.1
_RUNNING_UNTIL = 0.9


class JobStatus(StrEnum):
    """The words for how a job stands."""

    PENDING = "pending"
    RUNNING = "running"
    UPLOADED = "uploaded"
    DONE = "done"
    FAILED = "failed"
    NOT_FOUND = "not_found"


class Ending(StrEnum):
    """What becomes of a job."""

    DONE = "done"
    FAILED = "failed"
    """It fails when it would have been uploaded."""
    STUCK = "stuck"
    """It stays `running` until `Jobs.unstick`."""
    LOST = "lost"
    """Its ID is never heard of again, as if the relayer's database had lost the row."""


@dataclass(frozen=True, slots=True)
class Fate:
    """What a job comes to.

    Attributes:
        ending: What becomes of it.
        error: Why it fails.
        delay_s: Seconds that it takes; `None`: as long as all do.
    """

    ending: Ending = Ending.DONE
    error: str = ""
    delay_s: float | None = None


FINE = Fate()


@dataclass(slots=True)
class Job:
    """An accepted text. `begun_at`: seconds since 1970."""

    job_id: str
    owner: str
    namespace: str
    text: str
    begun_at: float
    delay_s: float
    ending: Ending
    error: str

    @property
    def blob_id(self) -> str:
        """The blob that it uploads: the same one when it is begun again."""
        return blob_id_of(self.job_id)

    @property
    def done_at(self) -> float:
        """When it can be recalled."""
        return self.begun_at + self.delay_s

    def status(self, now: float) -> JobStatus:
        """Return how it stands at a time."""
        age = now - self.begun_at
        if age < self.delay_s * _PENDING_UNTIL:
            return JobStatus.PENDING
        if age < self.delay_s * _RUNNING_UNTIL or self.ending is Ending.STUCK:
            return JobStatus.RUNNING
        if self.ending is Ending.FAILED:
            return JobStatus.FAILED
        return JobStatus.UPLOADED if age < self.delay_s else JobStatus.DONE


class Jobs:
    """All jobs.

    Args:
        clock: What time it is.
        ledger: Where texts end up.
        statistics: Where they are counted.
        delay_s: Seconds that a job takes.
    """

    def __init__(
        self, clock: Clock, ledger: Ledger, statistics: Statistics, delay_s: float
    ) -> None:
        self.delay_s = delay_s
        """Seconds that the jobs to come take."""
        self._clock = clock
        self._ledger = ledger
        self._statistics = statistics
        self._jobs: dict[str, Job] = {}
        self._open: dict[str, Job] = {}
        self._keys: dict[tuple[str, str], Job] = {}

    @property
    def unfinished(self) -> int:
        """Jobs that are neither done nor failed."""
        self.settle()
        return len(self._open)

    def begin(
        self, owner: str, namespace: str, text: str, fate: Fate = FINE, key: str | None = None
    ) -> str:
        """Accept a text and return its job's ID."""
        self._statistics.accepted[text] += 1
        job = Job(
            job_id=str(uuid.uuid4()),
            owner=owner,
            namespace=namespace,
            text=text,
            begun_at=self._clock.now(),
            delay_s=self.delay_s if fate.delay_s is None else fate.delay_s,
            ending=fate.ending,
            error=fate.error,
        )
        if fate.ending is not Ending.LOST:
            self._jobs[job.job_id] = self._open[job.job_id] = job
            if key is not None:
                self._keys[owner, key] = job
        return job.job_id

    def begin_once(self, owner: str, namespace: str, text: str, key: str, fate: Fate = FINE) -> str:
        """Accept a text under an idempotency key and return the key's job.

        A key that is known begins nothing, unless its job has failed and its lease is over.

        Raises:
            RefusedError: The key is of another text.
        """
        job = self._keys.get((owner, key))
        if job is None:
            return self.begin(owner, namespace, text, fate, key)
        if (job.namespace, job.text) != (namespace, text):
            raise refused("Idempotency key was already used with different content", 409)
        now = self._clock.now()
        failed = job.status(now) is JobStatus.FAILED
        if failed and now - job.begun_at >= RESTART_LEASE_S:
            job.begun_at, job.ending, job.error = now, fate.ending, fate.error
            job.delay_s = self.delay_s if fate.delay_s is None else fate.delay_s
            self._open[job.job_id] = job
        return job.job_id

    def find(self, owner: str, job_id: str) -> Job | None:
        """Return an owner's job."""
        job = self._jobs.get(job_id)
        return job if job is not None and job.owner == owner else None

    def status(self, job: Job) -> JobStatus:
        """Return how a job stands now."""
        return job.status(self._clock.now())

    def settle(self) -> None:
        """Bring what is done into the ledger."""
        now = self._clock.now()
        ended = [job for job in self._open.values() if job.status(now) in _ENDED]
        for job in ended:
            del self._open[job.job_id]
            if job.ending is Ending.DONE:
                self._statistics.stored[job.text] += 1
                self._ledger.store(
                    job.owner,
                    job.namespace,
                    job.text,
                    blob_id=job.blob_id,
                    created_at=job.done_at,
                )

    def unstick(self) -> int:
        """Let the jobs that are stuck begin anew, and return how many those are."""
        stuck = [job for job in self._open.values() if job.ending is Ending.STUCK]
        for job in stuck:
            job.ending, job.begun_at = Ending.DONE, self._clock.now()
        return len(stuck)


_ENDED = frozenset({JobStatus.DONE, JobStatus.FAILED})
