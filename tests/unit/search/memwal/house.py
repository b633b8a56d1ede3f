"""A delivery with its rows, a scripted relayer, and a clock that jumps."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, cast

from sqlalchemy import LargeBinary, String, Table, func, insert, select

from tests.kit.drafts import TENANT
from tests.simulation.environment.crashes import Life
from tests.simulation.environment.memory_database import JournalFaults, MemoryDatabase, disk
from tests.simulation.environment.virtual_loop import VirtualLoop
from tuskpoint_server.core.search import MemoryState, memory_text, pointer_of
from tuskpoint_server.journal.sql.schema import checkpoints, documents, memories, threads
from tuskpoint_server.search.memories import MemoryRows
from tuskpoint_server.search.memwal.api import (
    COST_ASK,
    COST_BATCH,
    COST_REMEMBER,
    MAX_BATCH,
    Budget,
    Job,
    JobState,
    MemWalSettings,
    Recollection,
    RelayerError,
    RelayerHealth,
    RelayerTrouble,
)
from tuskpoint_server.search.memwal.delivery import MemoryDelivery
from tuskpoint_server.search.memwal.relayer import Relayer

SETTINGS = MemWalSettings(private_key="", account_id="")
START_US = 1_700_000_000_000_000
JOB_S = 20.0
"""Seconds that a job takes."""


class Carried(Enum):
    """Part of a request that a relayer carries out although the call fails."""

    NOTHING = 0
    ALL = 1


@dataclass(frozen=True)
class Fault:
    """The failure of a call.

    Attributes:
        error: Error of the call; `None`: the call is answered.
        carried: Part of the request that is done before the error.
        after_s: Seconds that the call takes.
        jobs_named: Number of jobs that the answer names; `None`: all.
        forgets: Whether the relayer forgets the accepted jobs; jobs of a batch are done all the
        same.
    """

    error: BaseException | None = None
    carried: Carried = Carried.NOTHING
    after_s: float = 0.1
    jobs_named: int | None = None
    forgets: bool = False


def limited(retry_after_s: float | None = 60.0) -> Fault:
    return Fault(RelayerError(RelayerTrouble.LIMITED, "too much", retry_after_s=retry_after_s))


def hangs(carried: Carried) -> Fault:
    error = RelayerError(RelayerTrouble.UNAVAILABLE, "no answer in time", unsure=True)
    return Fault(error, carried, after_s=SETTINGS.send_timeout_s)


def away() -> Fault:
    return Fault(RelayerError(RelayerTrouble.UNAVAILABLE, "no connection"))


def denied() -> Fault:
    return Fault(RelayerError(RelayerTrouble.DENIED, "the credentials are not accepted"))


def refused() -> Fault:
    return Fault(RelayerError(RelayerTrouble.REFUSED, "malformed"))


@dataclass(frozen=True)
class Call:
    """A call as the relayer received it."""

    at: float
    name: str
    namespace: str
    items: tuple[str, ...]
    key: str
    points: int


@dataclass
class _Job:
    text: str
    done_at: float
    fails: bool


class ScriptedRelayer(Relayer):
    """A relayer that stores what it is sent, and fails as `fault_of` decides."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.fault_of: Callable[[Call], Fault] = lambda call: Fault()
        self.fails: Counter[str] = Counter()
        """By summary, the number of its jobs that will fail."""
        self.job_s = JOB_S
        self.closed = 0
        self._jobs: dict[str, _Job] = {}
        self._made = 0
        self._unknown: list[_Job] = []
        self._by_key: dict[str, str] = {}

    @property
    def stored(self) -> Counter[str]:
        """By summary, the number of times that it is stored."""
        jobs = [*self._jobs.values(), *self._unknown]
        return Counter(job.text for job in jobs if not job.fails)

    async def remember(self, namespace: str, text: str, key: str) -> str:
        call = self._came("remember", namespace, [text], key, COST_REMEMBER)
        return (await self._send(call))[0]

    async def remember_batch(self, namespace: str, texts: Sequence[str]) -> list[str]:
        assert 2 <= len(texts) <= MAX_BATCH
        return await self._send(self._came("remember_batch", namespace, texts, "", COST_BATCH))

    async def jobs(self, job_ids: Sequence[str]) -> list[Job]:
        assert 1 <= len(job_ids) <= MAX_BATCH
        fault = self.fault_of(self._came("jobs", "", job_ids, "", COST_ASK))
        await asyncio.sleep(fault.after_s)
        if fault.error is not None:
            raise fault.error
        return [self._job(job_id) for job_id in job_ids][: fault.jobs_named]

    async def recall(self, namespace: str, query: str, limit: int) -> Recollection:
        raise AssertionError("a delivery recalls nothing")

    async def close(self) -> None:
        self.closed += 1

    def _came(self, name: str, namespace: str, items: Sequence[str], key: str, points: int) -> Call:
        now = asyncio.get_running_loop().time()
        call = Call(now, name, namespace, tuple(summary_of(item) for item in items), key, points)
        self.calls.append(call)
        return call

    async def _send(self, call: Call) -> list[str]:
        fault = self.fault_of(call)
        carried = fault.error is None or fault.carried is Carried.ALL
        job_ids = [self._store(item, call.key) for item in call.items] if carried else []
        if fault.forgets:
            lost = [self._jobs.pop(job_id) for job_id in job_ids]
            if call.key:
                del self._by_key[call.key]  # a job with a key is lost with its key
            else:
                self._unknown += lost
        await asyncio.sleep(fault.after_s)
        if fault.error is not None:
            raise fault.error
        return job_ids[: fault.jobs_named]

    def _store(self, text: str, key: str) -> str:
        """Create a job; a known key has a job already, which is restarted if it failed."""
        known = self._by_key.get(key, "") if key else ""
        if known and not self._jobs[known].fails:
            return known
        self._made += not known
        job_id = known or f"job {self._made}"
        if key:
            self._by_key[key] = job_id
        fails = self.fails[text] > 0
        self.fails[text] -= fails
        self._jobs[job_id] = _Job(text, asyncio.get_running_loop().time() + self.job_s, fails)
        return job_id

    def _job(self, job_id: str) -> Job:
        job = self._jobs.get(job_id)
        if job is None:
            return Job(job_id, JobState.UNKNOWN)
        if asyncio.get_running_loop().time() < job.done_at:
            return Job(job_id, JobState.RUNNING)
        if job.fails:
            return Job(job_id, JobState.FAILED, error="no gas left")
        return Job(job_id, JobState.DONE, blob_id=f"blob of {job.text}")


def summary_of(text: str) -> str:
    return text.partition(" ckpt:")[0]


@dataclass(frozen=True)
class Row:
    """A memory in the journal."""

    state: MemoryState
    unsure: bool
    attempts: int


def now_us() -> int:
    return START_US + int(asyncio.get_running_loop().time() * 1e6)


class House:
    """The deliveries of a server over several lives. Needs virtual time."""

    def __init__(
        self, settings: MemWalSettings = SETTINGS, rng: random.Random | None = None
    ) -> None:
        self.loop = cast(VirtualLoop, asyncio.get_running_loop())
        self.settings = settings
        self.relayer = ScriptedRelayer()
        self.rng = rng or random.Random(0)
        self.budget = Budget(settings, self.loop.time)
        self.health = RelayerHealth(now_us, "MemWal works", "memories wait")
        self.disk = disk("memwal")
        self.disk.format("memwal")
        self.faults = JournalFaults()
        self.open()

    @property
    def calls(self) -> list[tuple[str, int]]:
        """Short form of the calls: their names and their numbers of items."""
        return [(call.name, len(call.items)) for call in self.relayer.calls]

    @property
    def points(self) -> int:
        return sum(call.points for call in self.relayer.calls)

    def open(self) -> None:
        """Start a life that knows only the journal."""
        self.life = Life()
        self.journal = MemoryDatabase(self.disk, now_us, self.rng, self.life, self.faults)
        self.journal.binder.is_complete = False  # the rows of this house have no MACs
        self.rows = MemoryRows(self.journal)
        self.delivery = MemoryDelivery(
            self.rows,
            self.relayer,
            self.budget,
            self.settings,
            self.health,
            now_us,
        )

    def crash(self) -> None:
        """End the life at once; nothing that is left of it has an effect."""
        self.life.end()
        for task in self.loop.living():
            if task.get_name() == "memwal-delivery":
                task.cancel()

    def remember(self, *summaries: str, tenant: str = TENANT) -> None:
        """Save checkpoints with indexed summaries, and wake the delivery."""
        with self.disk.engine.begin() as connection:
            first = connection.execute(select(func.count()).select_from(memories)).scalar_one() + 1
            rows = [
                _rows(tenant, *numbered_summary) for numbered_summary in enumerate(summaries, first)
            ]
            for table in _EMPTY if rows else ():
                connection.execute(insert(table), [_EMPTY[table] | row[table] for row in rows])
        self.delivery.wake()

    async def until(self, seconds: float) -> None:
        """Advance the time to a given second."""
        while (left := seconds - self.loop.time()) > 0:
            self.loop.forget_turns()
            await asyncio.sleep(min(left, 600))

    def at(self) -> dict[str, Row]:
        """Return the memories by their summaries."""
        rows = self.disk.ask("SELECT text, state, unsure, attempts FROM search_memories")
        return {
            summary_of(text): Row(MemoryState(state), bool(unsure), attempts)
            for text, state, unsure, attempts in rows
        }

    def states(self) -> Counter[MemoryState]:
        return Counter(row.state for row in self.at().values())


def _rows(tenant: str, number: int, summary: str) -> dict[Table, dict[str, object]]:
    """Return the rows of a checkpoint in a new thread whose summary MemWal must get."""
    pointer = pointer_of(tenant, "", summary)
    text = memory_text(summary, pointer)
    return {
        threads: {"number": number, "tenant": tenant, "thread_id": f"about {summary}"},
        checkpoints: {"number": number, "thread": number, "summary": summary},
        documents: {"number": number, "tenant": tenant, "thread": number, "pointer": pointer},
        memories: {
            "number": number,
            "tenant": tenant,
            "pointer": pointer,
            "text": text,
            "digest": hashlib.sha256(text.encode()).digest(),
            "state": MemoryState.WAITING.value,
            "due_us": now_us(),
        },
    }


def _nothing(kind: object) -> object:
    if isinstance(kind, LargeBinary):
        return b""
    return "" if isinstance(kind, String) else 0


# Values of the columns that a test does not set: empty, 0 or false.
_EMPTY: dict[Table, dict[str, object]] = {
    table: {column.name: _nothing(column.type) for column in table.columns if not column.nullable}
    for table in (threads, checkpoints, documents, memories)
}


def quick(**changes: Any) -> MemWalSettings:
    return replace(SETTINGS, **changes)


def named(count: int, word: str = "summary") -> list[str]:
    return [f"{word} {number}" for number in range(count)]


def sends(house: House) -> list[Call]:
    """Return the calls that send memories."""
    return [call for call in house.relayer.calls if call.name != "jobs"]


def faults(*first: Fault, then: Fault | None = None) -> Callable[[Call], Fault]:
    """Let the first calls that send memories fail in turn."""
    left = list(first)

    def fault_of(call: Call) -> Fault:
        if call.name == "jobs":
            return Fault()
        return left.pop(0) if left else (then or Fault())

    return fault_of


def once_each(house: House, summaries: Sequence[str]) -> None:
    """Check that all summaries are delivered, and that none is stored twice."""
    assert house.states() == {MemoryState.DELIVERED: len(summaries)}
    assert house.relayer.stored == dict.fromkeys(summaries, 1)


def most(spent: Iterable[tuple[float, int]], length_s: float) -> int:
    """Return the most points spent in any period of this length."""
    listed = sorted(spent)
    return max(
        (sum(cost for at, cost in listed if start <= at < start + length_s) for start, _ in listed),
        default=0,
    )
