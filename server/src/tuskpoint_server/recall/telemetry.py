"""Instruments of search (OpenTelemetry API; silent without an SDK)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from opentelemetry import metrics
from opentelemetry.metrics import MeterProvider, Observation

from ..domain.search import SearchMode
from ..journal.search.memories import MemoryTally

_SCOPE = "tuskpoint_server.recall"


@dataclass(frozen=True, slots=True)
class BacklogReading:
    """What a tenant's index lacks: checkpoints, and seconds since the oldest was journaled."""

    tenant: str
    checkpoints: int
    age_s: float


class Instruments:
    """What search measures.

    Args:
        read_backlog: Returns what is not indexed yet; called at each collection, in any
            thread.
        read_memories: Returns how the memories stand; likewise.
        provider: Where to measure; the global provider if none is given.
    """

    def __init__(
        self,
        read_backlog: Callable[[], Iterable[BacklogReading]] = tuple,
        read_memories: Callable[[], Iterable[MemoryTally]] = tuple,
        provider: MeterProvider | None = None,
    ) -> None:
        meter = metrics.get_meter(_SCOPE, meter_provider=provider)
        self._searches = meter.create_histogram(
            "tuskpoint.search.duration",
            unit="s",
            description="Time of a search, waiting for the index included, by mode.",
            explicit_bucket_boundaries_advisory=[
                0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10
            ],
        )  # fmt: skip
        self._indexed = meter.create_counter(
            "tuskpoint.search.indexed", unit="{checkpoint}", description="Checkpoints indexed."
        )
        self._failures = meter.create_counter(
            "tuskpoint.search.failures",
            unit="{batch}",
            description="Batches that failed and are tried again, by task: index, embed.",
        )
        self._embedded = meter.create_counter(
            "tuskpoint.search.embedded",
            unit="{checkpoint}",
            description="Checkpoints that the embedder gave a vector.",
        )
        self._calls = meter.create_counter(
            "tuskpoint.memwal.calls",
            unit="{call}",
            description="Calls of MemWal's relayer, by operation and outcome.",
        )
        meter.create_observable_gauge(
            "tuskpoint.search.backlog.size",
            [lambda _: [Observation(one.checkpoints, _of(one)) for one in read_backlog()]],
            unit="{checkpoint}",
            description="Checkpoints that are journaled and not indexed yet.",
        )
        meter.create_observable_gauge(
            "tuskpoint.search.backlog.age",
            [lambda _: [Observation(one.age_s, _of(one)) for one in read_backlog()]],
            unit="s",
            description="Time since the oldest of them was journaled.",
        )
        meter.create_observable_gauge(
            "tuskpoint.memwal.memories",
            [
                lambda _: [
                    Observation(one.memories, _of(one) | {"state": one.state.name.lower()})
                    for one in read_memories()
                ]
            ],
            unit="{memory}",
            description="Summaries for MemWal, by state.",
        )

    def searched(self, mode: SearchMode, seconds: float, *, fell_back: bool) -> None:
        """Count a search; `fell_back`: a better mode did not answer it."""
        self._searches.record(seconds, {"mode": mode.name.lower(), "fell_back": fell_back})

    def indexed(self, checkpoints: int) -> None:
        """Count checkpoints that were indexed."""
        self._indexed.add(checkpoints)

    def index_failed(self) -> None:
        """Count a batch that could not be indexed."""
        self._failures.add(1, {"task": "index"})

    def embedded(self, checkpoints: int) -> None:
        """Count checkpoints that the embedder gave a vector."""
        self._embedded.add(checkpoints)

    def embedding_failed(self) -> None:
        """Count a batch that could not be embedded."""
        self._failures.add(1, {"task": "embed"})

    def called(self, operation: str, outcome: str) -> None:
        """Count a call of MemWal's relayer."""
        self._calls.add(1, {"operation": operation, "outcome": outcome})


def _of(reading: BacklogReading | MemoryTally) -> dict[str, str]:
    return {"tenant": reading.tenant}
