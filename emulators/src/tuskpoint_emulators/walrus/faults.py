"""The plan of faults, which tests and the control API write.

Each request of an operation takes the next fault from that operation's queue; when the
queue is empty, each rule of chance draws in turn, from one seeded source, and the first
that hits gives the fault. So a seed and an order of requests always fail the same way.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any, TypeVar

_Word = TypeVar("_Word", bound=StrEnum)


class Operation(StrEnum):
    """The operation of a request; each operation has a plan of its own."""

    PUT_BLOB = "put_blob"
    PUT_QUILT = "put_quilt"
    GET_BLOB = "get_blob"
    GET_PATCH = "get_patch"
    LIST = "list"


class FaultKind(StrEnum):
    """What happens to a request."""

    DELAY = "delay"
    """Nothing but the latency."""
    HOLD = "hold"
    """The request waits until `FaultPlan.release`, then continues normally."""
    REFUSE = "refuse"
    """An error answer with `status`, and Walrus's body for that status."""
    GATEWAY = "gateway"
    """The HTML page of a proxy, with `status`."""
    ERROR_RESULT = "error_result"
    """HTTP 200 with an `error`; stores only."""
    OUT_OF_WAL = "out_of_wal"
    """The wallet is empty: HTTP 500 before anything is paid; stores only."""
    DROP = "drop"
    """The connection is cut before the first byte of the answer."""
    CUT = "cut"
    """The connection is cut in the middle of the answer's body."""
    SHORT = "short"
    """The answer lacks its last byte and looks complete; reads only."""
    CORRUPT = "corrupt"
    """One byte of the answer is wrong; reads only."""
    HIDE = "hide"
    """The blob is not found for `hidden_reads` reads or `hidden_s` seconds; stores only."""


class Stage(StrEnum):
    """The point in a store at which the fault strikes. Reads have only `BEFORE`."""

    BEFORE = "before"
    """The content has arrived; nothing is paid."""
    REGISTERED = "registered"
    """The blob is paid and registered, but not certified: nobody can read it."""
    CERTIFIED = "certified"
    """The blob is stored; only the answer is missing."""


ENDINGS = frozenset({FaultKind.REFUSE, FaultKind.GATEWAY, FaultKind.ERROR_RESULT, FaultKind.DROP})
"""The kinds that end a store."""

_STORES = frozenset({Operation.PUT_BLOB, Operation.PUT_QUILT})
_ONLY_STORES = frozenset({FaultKind.ERROR_RESULT, FaultKind.OUT_OF_WAL, FaultKind.HIDE})
_ONLY_READS = frozenset({FaultKind.SHORT, FaultKind.CORRUPT})


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A planned failure.

    Attributes:
        kind: What happens.
        status: HTTP status of `REFUSE` and `GATEWAY`.
        stage: The point in the store at which the fault strikes.
        latency_s: Seconds to wait first, while the request counts as running.
        hidden_reads: For `HIDE`: reads that do not find the blob.
        hidden_s: For `HIDE`: seconds until reads find it.
        phase: For `ERROR_RESULT`: its `failurePhase`.
        message: For `ERROR_RESULT`: its `errorMsg`.
    """

    kind: FaultKind
    status: int = 500
    stage: Stage = Stage.BEFORE
    latency_s: float = 0.0
    hidden_reads: int = 0
    hidden_s: float = 0.0
    phase: str = "certify"
    message: str = "the certification result is missing"

    def __post_init__(self) -> None:
        if not 400 <= self.status <= 599:
            raise ValueError(f"status {self.status} is not an error: 400 to 599 are")
        if self.latency_s < 0 or self.hidden_s < 0 or self.hidden_reads < 0:
            raise ValueError("delays and counts are not negative")


@dataclass(frozen=True, slots=True)
class Chance:
    """A fault that hits each request with a probability."""

    fault: Fault
    probability: float


class FaultPlan:
    """The faults to come, and how often each happened.

    Args:
        seed: Seed of the source that chances draw from.
    """

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)  # noqa: S311 - repeatable on purpose
        self._queues: dict[Operation, deque[Fault]] = {
            operation: deque() for operation in Operation
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
            self._chances[operation].clear()
        self.release()

    def take(self, operation: Operation) -> Fault | None:
        """Return the fault of the next request of an operation, and count the fault."""
        queue = self._queues[operation]
        fault = queue.popleft() if queue else self._draw(operation)
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
            "chances": {
                operation: [asdict(chance) for chance in self._chances[operation]]
                for operation in Operation
            },
            "held": self._held,
            "injected": {
                f"{operation}.{kind}": count for (operation, kind), count in self.injected.items()
            },
        }

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
    values["kind"] = _word(FaultKind, "kind", values.get("kind", ""))
    values["stage"] = _word(Stage, "stage", values.get("stage", Stage.BEFORE))
    return Fault(**values)


_TYPES: Mapping[str, tuple[type, ...]] = {
    "kind": (str,),
    "status": (int,),
    "stage": (str,),
    "latency_s": (int, float),
    "hidden_reads": (int,),
    "hidden_s": (int, float),
    "phase": (str,),
    "message": (str,),
}


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
    is_store = operation in _STORES
    if (fault.kind in _ONLY_STORES and not is_store) or (fault.kind in _ONLY_READS and is_store):
        raise ValueError(f"{fault.kind} cannot happen to {operation}")
    if fault.stage is not Stage.BEFORE and not is_store:
        raise ValueError(f"{operation} has no stage {fault.stage}")
    if fault.kind is FaultKind.OUT_OF_WAL and fault.stage is not Stage.BEFORE:
        raise ValueError(f"{fault.kind} happens before anything is paid")
