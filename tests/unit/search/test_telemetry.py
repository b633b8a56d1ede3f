"""Search reports its state as metrics."""

from __future__ import annotations

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from tuskpoint_server.core.search import MemoryState, SearchMode
from tuskpoint_server.search.change_feed import IndexBacklog
from tuskpoint_server.search.memories import MemoryTally
from tuskpoint_server.search.telemetry import SearchInstruments


def readings(reader: InMemoryMetricReader) -> dict[str, list[tuple[dict[str, object], object]]]:
    """Return the points of every instrument: attributes, and a value or count."""
    data = reader.get_metrics_data()
    assert data is not None
    return {
        metric.name: [
            (dict(point.attributes or {}), getattr(point, "value", getattr(point, "count", None)))
            for point in metric.data.data_points
        ]
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def test_waiting_memories_are_reported_by_tenant_and_state() -> None:
    reader = InMemoryMetricReader()
    SearchInstruments(
        lambda: [IndexBacklog("a", 7, 500_000), IndexBacklog("b", 0, 0)],
        lambda: [MemoryTally("a", MemoryState.WAITING, 3)],
        MeterProvider([reader]),
        lambda: 2_000_000,
    )
    metrics = readings(reader)
    assert metrics["tuskpoint.search.backlog.size"] == [({"tenant": "a"}, 7), ({"tenant": "b"}, 0)]
    assert metrics["tuskpoint.search.backlog.age"] == [
        ({"tenant": "a"}, 1.5),
        ({"tenant": "b"}, 0.0),
    ]
    assert metrics["tuskpoint.memwal.memories"] == [({"tenant": "a", "state": "waiting"}, 3)]


def test_searches_documents_failures_and_calls_are_counted() -> None:
    reader = InMemoryMetricReader()
    instruments = SearchInstruments(provider=MeterProvider([reader]))
    instruments.searched(SearchMode.VECTOR, 0.02, fell_back=False)
    instruments.searched(SearchMode.LEXICAL, 0.03, fell_back=True)
    instruments.searched(SearchMode.LEXICAL, 0.03, fell_back=True)
    instruments.indexed.add(32)
    instruments.embedded.add(16)
    instruments.failures.add(1, {"task": "index"})
    instruments.failures.add(1, {"task": "embed"})
    instruments.called("recall", "limited")
    metrics = readings(reader)
    assert metrics["tuskpoint.search.duration"] == [
        ({"mode": "vector", "fell_back": False}, 1),
        ({"mode": "lexical", "fell_back": True}, 2),
    ]
    assert metrics["tuskpoint.search.indexed"] == [({}, 32)]
    assert metrics["tuskpoint.search.embedded"] == [({}, 16)]
    assert metrics["tuskpoint.search.failures"] == [({"task": "index"}, 1), ({"task": "embed"}, 1)]
    assert metrics["tuskpoint.memwal.calls"] == [({"operation": "recall", "outcome": "limited"}, 1)]
