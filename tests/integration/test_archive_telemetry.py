from __future__ import annotations

from pathlib import Path

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from tests.integration.archive_kit import TENANT, open_kit
from tests.integration.test_archive import fail
from tuskpoint_server.archive.telemetry import BacklogReading, Instruments
from tuskpoint_server.domain.errors import Refusal


def readings(reader: InMemoryMetricReader) -> dict[str, list[tuple[dict[str, object], object]]]:
    """Return the points of every instrument: attributes, and a sum, value or count."""
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


async def test_flushes_and_failures_are_measured(tmp_path: Path) -> None:
    reader = InMemoryMetricReader()
    async with open_kit(tmp_path, meters=MeterProvider([reader])) as kit:
        kit.blobs.before_put = fail
        await kit.save("1", content=b"x" * 1000)
        with pytest.raises(Refusal):
            await kit.archive.certify_all(TENANT)
        found = readings(reader)
        [(attributes, retries)] = found["tuskpoint.archive.retries"]
        assert attributes == {"reason": "BLOB_UNAVAILABLE"}
        assert isinstance(retries, int)
        assert retries >= 1
        [(_, size)] = found["tuskpoint.archive.backlog.size"]
        assert isinstance(size, int)
        assert size >= 1000
        kit.blobs.before_put = lambda: None
        await kit.archive.certify_all(TENANT)
        kit.blobs.change_read = lambda _, data: data[:-1]
        await kit.save("2")
        with pytest.raises(Refusal):
            await kit.archive.certify_all(TENANT)
        found = readings(reader)
        assert found["tuskpoint.archive.certified"] == [({"tenant": TENANT}, 1)]
        [(_, mismatches)] = found["tuskpoint.archive.hash_mismatches"]
        assert isinstance(mismatches, int)
        assert mismatches >= 1
        kit.blobs.change_read = lambda _, data: data


def test_age_and_size_are_told_by_tenant() -> None:
    reader = InMemoryMetricReader()
    Instruments(lambda: [BacklogReading("a", 5, 1.5)], MeterProvider([reader]))
    found = readings(reader)
    assert found["tuskpoint.archive.backlog.size"] == [({"tenant": "a"}, 5)]
    assert found["tuskpoint.archive.backlog.age"] == [({"tenant": "a"}, 1.5)]
