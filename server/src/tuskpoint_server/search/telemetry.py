"""Instruments of search (OpenTelemetry API; silent without an SDK)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from opentelemetry import metrics
from opentelemetry.metrics import MeterProvider, Observation

from ..core.search import SearchMode
from .change_feed import IndexBacklog
from .memories import MemoryTally


class SearchInstruments:
    """Instruments of search."""

    def __init__(
        self,
        read_backlog: Callable[[], Iterable[IndexBacklog]] = tuple,
        read_memories: Callable[[], Iterable[MemoryTally]] = tuple,
        provider: MeterProvider | None = None,
        clock_us: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        meter = metrics.get_meter("tuskpoint_server.search", meter_provider=provider)
        self._searches = meter.create_histogram(
            "tuskpoint.search.duration",
            unit="s",
            description="Time of a search, waiting for the index included, by mode.",
            explicit_bucket_boundaries_advisory=[
                0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10
            ],
        )  # fmt: skip
        indexed = "Checkpoints indexed."
        self.indexed = meter.create_counter("tuskpoint.search.indexed", "{checkpoint}", indexed)
        failed = "Batches that failed and are tried again, by task: index, embed."
        self.failures = meter.create_counter("tuskpoint.search.failures", "{batch}", failed)
        embedded = "Checkpoints that the embedder gave a vector."
        self.embedded = meter.create_counter("tuskpoint.search.embedded", "{checkpoint}", embedded)
        calls = "Calls of MemWal's relayer, by operation and outcome."
        self._calls = meter.create_counter("tuskpoint.memwal.calls", "{call}", calls)

        def sizes(_: object) -> Iterable[Observation]:
            for backlog in read_backlog():
                yield Observation(backlog.checkpoints, {"tenant": backlog.tenant})

        def ages(_: object) -> Iterable[Observation]:
            for backlog in read_backlog():
                age_s = (
                    max(0.0, (clock_us() - backlog.since_us) / 1e6) if backlog.checkpoints else 0.0
                )
                yield Observation(age_s, {"tenant": backlog.tenant})

        def memories(_: object) -> Iterable[Observation]:
            for tenant, state, count in read_memories():
                yield Observation(count, {"tenant": tenant, "state": state.name.lower()})

        behind = "Checkpoints journaled and not indexed yet."
        meter.create_observable_gauge(
            "tuskpoint.search.backlog.size", [sizes], "{checkpoint}", behind
        )
        oldest = "Time since the oldest of them was journaled."
        meter.create_observable_gauge("tuskpoint.search.backlog.age", [ages], "s", oldest)
        states = "Summaries for MemWal, by state."
        meter.create_observable_gauge("tuskpoint.memwal.memories", [memories], "{memory}", states)

    def searched(self, mode: SearchMode, seconds: float, *, fell_back: bool) -> None:
        """Count a search; `fell_back`: a better mode did not answer it."""
        self._searches.record(seconds, {"mode": mode.name.lower(), "fell_back": fell_back})

    def called(self, operation: str, outcome: str) -> None:
        """Count a call of MemWal's relayer."""
        self._calls.add(1, {"operation": operation, "outcome": outcome})
