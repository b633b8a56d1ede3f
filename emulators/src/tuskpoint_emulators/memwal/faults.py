"""The plan of faults, which tests and the control API write.

Each request of an operation takes the next fault from that operation's queue; when the
queue is empty, the first that stands for the operation; else each rule of chance draws in
turn, from one seeded source, and the first that hits gives the fault. So a seed and an
order of requests always fail the same way.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any, TypeVar

from .clock import Clock
from .memory.jobs import FINE, Ending, Fate

_Word = TypeVar("_Word", bound=StrEnum)


class Operation(StrEnum):
    """The operation of a request; each operation has a plan of its own."""

    HEALTH = "health"
    VERSION = "version"
    CONFIG = "config"
    SUI = "sui"
    REMEMBER = "remember"
    JOB_STATUS = "job_status"
    BULK = "bulk"
    BULK_STATUS = "bulk_status"
    RECALL = "recall"
    REMEMBER_MANUAL = "remember_manual"
    RECALL_MANUAL = "recall_manual"
    ANALYZE = "analyze"
    EMBED = "embed"
    ASK = "ask"
    RESTORE = "restore"
    STATS = "stats"
    NAMESPACES = "namespaces"
    FORGET = "forget"


UNSIGNED = frozenset({Operation.HEALTH, Operation.VERSION, Operation.CONFIG, Operation.SUI})
SIGNED = frozenset(Operation) - UNSIGNED

_ACCEPTING = frozenset({Operation.REMEMBER, Operation.BULK, Operation.ANALYZE})


class FaultKind(StrEnum):
    """What happens to a request."""

    DELAY = "delay"
    """Nothing but the latency."""
    HOLD = "hold"
    """No answer until `FaultPlan.release`. A caller that left before is not served."""
    REFUSE = "refuse"
    """An error answer with `status`, as MemWal gives it; 429 with `retry_after_s`."""
    SAY = "say"
    """The answer is `status` and `body`, unchanged."""
    DROP = "drop"
    """The connection is cut before the first byte of the answer."""
    FAIL_JOBS = "fail_jobs"
    """What is accepted fails with `message`, at `positions` of a batch or everywhere."""
    STICK_JOBS = "stick_jobs"
    """What is accepted stays `running`."""
    LOSE_JOBS = "lose_jobs"
    """What is accepted is lost: nobody knows its job, and it is never stored."""
    SLOW_JOBS = "slow_jobs"
    """What is accepted takes `delay_s`."""
    INVENT = "invent"
    """A recall also returns `texts`, at `distance`."""
    LEAK = "leak"
    """A recall looks in all namespaces of all owners."""


class Stage(StrEnum):
    """The point in a request at which the fault strikes."""

    BEFORE = "before"
    """The signature is valid; nothing is done, and no points are taken."""
    AFTER = "after"
    """The request is carried out; only the answer is missing. A refused request never gets here."""


_FATES = {
    FaultKind.FAIL_JOBS: Ending.FAILED,
    FaultKind.STICK_JOBS: Ending.STUCK,
    FaultKind.LOSE_JOBS: Ending.LOST,
    FaultKind.SLOW_JOBS: Ending.DONE,
}
_RECALLS = frozenset({FaultKind.INVENT, FaultKind.LEAK})


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A planned failure.

    Attributes:
        kind: What happens.
        stage: The point in the request at which the fault strikes.
        latency_s: Seconds to wait first.
        status: HTTP status of `REFUSE` and `SAY`.
        body: For `SAY`.
        message: For `REFUSE` and `FAIL_JOBS`: the error.
        retry_after_s: For `REFUSE` with 429: the header, and the body's `retry_after_seconds`.
        auth_error: For `REFUSE`: the header `x-auth-error`; without one if empty.
        positions: Items of a batch that the fault hits; all items if empty.
        delay_s: For `SLOW_JOBS`: duration of the jobs in seconds.
        texts: For `INVENT`: the texts to return.
        distance: For `INVENT`: the distance of the texts.
    """

    kind: FaultKind
    stage: Stage = Stage.BEFORE
    latency_s: float = 0.0
    status: int = 503
    body: str = ""
    message: str = "something is broken"
    retry_after_s: int = 60
    auth_error: str = ""
    positions: tuple[int, ...] = ()
    delay_s: float = 0.0
    texts: tuple[str, ...] = ()
    distance: float = 0.0

    def __post_init__(self) -> None:
        if not 200 <= self.status <= 599:
            raise ValueError(f"status {self.status} is not an answer: 200 to 599 are")
        if self.kind is FaultKind.REFUSE and self.status < 400:
            raise ValueError(f"status {self.status} is not an error: 400 to 599 are")
        if self.latency_s < 0 or self.delay_s < 0 or self.retry_after_s < 0:
            raise ValueError("delays are not negative")

    def fate(self, position: int = 0) -> Fate:
        """Return the fate of the job at a position of a batch."""
        ending = _FATES.get(self.kind)
        if ending is None or (self.positions and position not in self.positions):
            return FINE
        delay_s = self.delay_s if self.kind is FaultKind.SLOW_JOBS else None
        return Fate(ending, self.message if ending is Ending.FAILED else "", delay_s)


@dataclass(frozen=True, slots=True)
class Chance:
    """A fault that hits each request with a probability."""

    fault: Fault
    probability: float


@dataclass(frozen=True, slots=True)
class StandingFault:
    """A fault that hits each request until a time of the clock; `None`: until it is cleared."""

    fault: Fault
    until: float | None


class FaultPlan:
    """The faults to come, and how often each happened.

    Args:
        clock: Ends the faults that last for some time.
        seed: Seed of the source that chances draw from.
    """

    def __init__(self, clock: Clock, seed: int = 0) -> None:
        self._clock = clock
        self._random = random.Random(seed)  # noqa: S311 - repeatable on purpose
        self._queues: dict[Operation, deque[Fault]] = {
            operation: deque() for operation in Operation
        }
        self._standing: dict[Operation, list[StandingFault]] = {
            operation: [] for operation in Operation
        }
        self._chances: dict[Operation, list[Chance]] = {operation: [] for operation in Operation}
        self._released = asyncio.Event()
        self._held = 0
        self.injected: Counter[tuple[Operation, FaultKind]] = Counter()
        """How often a fault of each kind hit a request of each operation."""

    def add(self, operation: Operation, *faults: Fault, times: int = 1) -> None:
        """Let the next requests of an operation meet these faults, one each.

        Args:
            operation: The operation of the requests.
            faults: In this order.
            times: How often the list of faults is queued.

        Raises:
            ValueError: A fault that cannot happen to this operation.
        """
        for fault in faults:
            _check(operation, fault)
        for _ in range(times):
            self._queues[operation].extend(faults)

    def stand(self, fault: Fault, *operations: Operation, seconds: float | None = None) -> None:
        """Let every request of some operations meet a fault for some time.

        Args:
            fault: What happens.
            operations: The operations of the requests; by default all signed operations.
            seconds: Duration by the clock; `None`: until `clear`.

        Raises:
            ValueError: As for `add`.
        """
        until = None if seconds is None else self._clock.now() + seconds
        for operation in operations or SIGNED:
            _check(operation, fault)
        for operation in operations or SIGNED:
            self._standing[operation].append(StandingFault(fault, until))

    def add_chance(self, operation: Operation, fault: Fault, probability: float) -> None:
        """Let each request of an operation meet a fault with a probability.

        Raises:
            ValueError: As for `add`, or a probability outside 0 to 1.
        """
        _check(operation, fault)
        if not 0 <= probability <= 1:
            raise ValueError(f"{probability} is not a probability: 0 to 1 are")
        self._chances[operation].append(Chance(fault, probability))

    def reseed(self, seed: int) -> None:
        """Seed the source of chances again."""
        self._random.seed(seed)

    def clear(self) -> None:
        """Remove all planned faults and release held requests; the counts stay."""
        for operation in Operation:
            self._queues[operation].clear()
            self._standing[operation].clear()
            self._chances[operation].clear()
        self.release()

    def take(self, operation: Operation) -> Fault | None:
        """Return the fault of the next request of an operation, and count the fault."""
        queue = self._queues[operation]
        fault = queue.popleft() if queue else self._stands(operation) or self._draw(operation)
        if fault is not None:
            self.injected[operation, fault.kind] += 1
        return fault

    @property
    def held(self) -> int:
        """Requests that `HOLD` keeps waiting."""
        return self._held

    async def hold(self) -> None:
        """Wait until the next `release`."""
        self._held += 1
        try:
            await self._released.wait()
        finally:
            self._held -= 1

    async def pause(self, seconds: float) -> None:
        """Wait for some seconds, or until the next `release`."""
        try:
            await asyncio.wait_for(self._released.wait(), seconds)
        except TimeoutError:
            pass

    def release(self) -> None:
        """Continue all requests that wait because of `HOLD` or a latency."""
        released, self._released = self._released, asyncio.Event()
        released.set()

    def to_json(self) -> dict[str, Any]:
        """Return the planned faults and the counts of past ones."""
        return {
            "queued": {
                operation: [asdict(fault) for fault in self._queues[operation]]
                for operation in Operation
            },
            "standing": {
                operation: [asdict(standing) for standing in self._standing[operation]]
                for operation in Operation
            },
            "chances": {
                operation: [asdict(chance) for chance in self._chances[operation]]
                for operation in Operation
            },
            "held": self._held,
            "injected": {
                f"{operation}.{kind}": count for (operation, kind), count in self.injected.items()
            },
        }

    def _stands(self, operation: Operation) -> Fault | None:
        now = self._clock.now()
        standing = self._standing[operation]
        standing[:] = [
            standing_fault
            for standing_fault in standing
            if standing_fault.until is None or standing_fault.until > now
        ]
        return standing[0].fault if standing else None

    def _draw(self, operation: Operation) -> Fault | None:
        for chance in self._chances[operation]:
            if self._random.random() < chance.probability:
                return chance.fault
        return None


def fault_from_json(raw: Mapping[str, Any]) -> Fault:
    """Return the fault that a JSON object describes: the attributes of `Fault` by name.

    Raises:
        ValueError: An unknown name, or a value that does not fit.
    """
    unknown = set(raw) - {field.name for field in fields(Fault)}
    if unknown:
        raise ValueError(f"a fault has no {', '.join(sorted(unknown))}")
    values = dict(raw)
    for name, kinds in _TYPES.items():
        if name in values and type(values[name]) not in kinds:
            raise ValueError(f"{name} is not {' or '.join(kind.__name__ for kind in kinds)}")
    for name, kind in _MEMBERS.items():
        if name in values:
            if any(type(member) is not kind for member in values[name]):
                raise ValueError(f"{name} holds what is not {kind.__name__}")
            values[name] = tuple(values[name])
    values["kind"] = _word(FaultKind, "kind", values.get("kind", ""))
    values["stage"] = _word(Stage, "stage", values.get("stage", Stage.BEFORE))
    return Fault(**values)


_TYPES: Mapping[str, tuple[type, ...]] = {
    "kind": (str,),
    "stage": (str,),
    "latency_s": (int, float),
    "status": (int,),
    "body": (str,),
    "message": (str,),
    "retry_after_s": (int,),
    "auth_error": (str,),
    "positions": (list,),
    "delay_s": (int, float),
    "texts": (list,),
    "distance": (int, float),
}

_MEMBERS: Mapping[str, type] = {"positions": int, "texts": str}


def operation_from_json(raw: Any) -> Operation:
    """Return the operation of that name.

    Raises:
        ValueError: No operation has the name.
    """
    return _word(Operation, "operation", raw)


def _word(kind: type[_Word], name: str, raw: Any) -> _Word:
    try:
        return kind(raw)
    except ValueError:
        raise ValueError(f"{name} is one of {', '.join(kind)}") from None


def _check(operation: Operation, fault: Fault) -> None:
    if fault.kind in _FATES and operation not in _ACCEPTING:
        raise ValueError(f"{fault.kind} cannot happen to {operation}: it accepts no texts")
    if fault.kind in _RECALLS and operation is not Operation.RECALL:
        raise ValueError(f"{fault.kind} cannot happen to {operation}")
