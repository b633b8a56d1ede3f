"""Jobs, which turn accepted texts into memories, or fail.

A job's state follows from the clock and its fate; no task runs. `settle`, which every request
calls first, moves the finished jobs into the ledger.

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
"""Seconds after the start of a failed job during which its key starts no new job."""

_PENDING_UNTIL = 0.1
_RUNNING_UNTIL = 0.9


class JobStatus(StrEnum):
    """The status of a job, as MemWal spells it."""

    PENDING = "pending"
    RUNNING = "running"
    UPLOADED = "uploaded"
    DONE = "done"
    FAILED = "failed"
    NOT_FOUND = "not_found"


class Ending(StrEnum):
    """The end of a job."""

    DONE = "done"
    FAILED = "failed"
    """The job fails at the moment of its upload."""
    STUCK = "stuck"
    """The job stays `running` until `Jobs.unstick`."""
    LOST = "lost"
    """The job is lost, as if the relayer's database had lost its row."""


@dataclass(frozen=True, slots=True)
class Fate:
    """The fate of a job.

    Attributes:
        ending: The end of the job.
        error: The error of a failed job.
        delay_s: Duration in seconds; `None`: the default of all jobs.
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
        """The blob that the job uploads; a job that starts again keeps it."""
        return blob_id_of(self.job_id)

    @property
    def done_at(self) -> float:
        """When the text can be recalled."""
        return self.begun_at + self.delay_s

    def status(self, now: float) -> JobStatus:
        """Return the status at a time."""
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
        clock: The emulator's clock.
        ledger: Stores the texts.
        statistics: Counts the texts.
        delay_s: Default duration of a job in seconds.
    """

    def __init__(
        self, clock: Clock, ledger: Ledger, statistics: Statistics, delay_s: float
    ) -> None:
        self.delay_s = delay_s
        """Duration of new jobs in seconds."""
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

        A known key starts no job, unless its job has failed and the lease of the key is over.

        Raises:
            RefusedError: The key belongs to another text.
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
        """Return a job if it belongs to the owner."""
        job = self._jobs.get(job_id)
        return job if job is not None and job.owner == owner else None

    def status(self, job: Job) -> JobStatus:
        """Return the present status of a job."""
        return job.status(self._clock.now())

    def settle(self) -> None:
        """Move finished jobs into the ledger."""
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
        """Restart all stuck jobs, and return their number."""
        stuck = [job for job in self._open.values() if job.ending is Ending.STUCK]
        for job in stuck:
            job.ending, job.begun_at = Ending.DONE, self._clock.now()
        return len(stuck)


_ENDED = frozenset({JobStatus.DONE, JobStatus.FAILED})
