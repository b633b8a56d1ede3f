"""The server reports its disk and its process as metrics."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from tests.kit.archives import House, house
from tests.kit.blobs.stores import MemoryStore
from tests.kit.drafts import TENANT, draft
from tuskpoint_server.blobs.api import BlobMember
from tuskpoint_server.blobs.cache import CachedStore
from tuskpoint_server.core.values import blob_digest
from tuskpoint_server.features import resource_metrics
from tuskpoint_server.features.resource_metrics import ResourceMetrics

FREE, SIZE = "tuskpoint.disk.free", "tuskpoint.disk.size"
SPOOL, CACHE, JOURNAL = "tuskpoint.spool.size", "tuskpoint.cache.size", "tuskpoint.journal.size"
MEMORY, PROCESSOR, UPTIME = "process.memory.usage", "process.cpu.time", "process.uptime"
DESCRIPTORS = "process.unix.file_descriptor.count"

Points = dict[str, list[float]]


class Reported(NamedTuple):
    """The metrics of a server, and their reader."""

    metrics: ResourceMetrics
    reader: InMemoryMetricReader

    def points(self) -> Points:
        """Return the values of every instrument with a report."""
        data = self.reader.get_metrics_data()
        assert data is not None
        return {
            instrument.name: [
                point.value  # type: ignore[union-attr]
                for point in instrument.data.data_points
            ]
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for instrument in scope.metrics
            if instrument.data.data_points
        }


def reported(home: House, directory: Path) -> Reported:
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader])
    metrics = ResourceMetrics(home.journal.database, home.archive, directory, meters)
    return Reported(metrics, reader)


async def test_sizes_are_those_of_journal_spool_and_cache(tmp_path: Path) -> None:
    store = CachedStore(MemoryStore(), tmp_path / "cache", 1 << 20)
    async with house(tmp_path, store) as home:
        server = reported(home, tmp_path)
        assert JOURNAL not in server.points(), "nobody has measured it"
        await server.metrics.measure_journal()
        before = server.points()
        assert (before[SPOOL], before[CACHE]) == ([0], [0])
        await home.journal.save_checkpoint(TENANT, draft("1", "", {"x": os.urandom(500_000)}))
        await home.flush()
        newest = await home.archive.catalog(TENANT)
        assert newest is not None
        await store.get(newest.location)
        pack = home.archive.spool.write([BlobMember(blob_digest(b"waits"), b"waits", "segment")])
        size_bytes = await server.metrics.measure_journal()
        after = server.points()
        assert after[JOURNAL] == [size_bytes]
        assert after[JOURNAL][0] - before[JOURNAL][0] >= 500_000
        assert after[SPOOL] == [(tmp_path / "spool" / pack).stat().st_size]
        assert after[CACHE] == [newest.location.size]


async def test_the_size_of_a_journal_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    async with house(tmp_path, MemoryStore()) as home:
        server = reported(home, tmp_path)
        await server.metrics.measure_journal()
        assert JOURNAL in server.points()
    assert await server.metrics.measure_journal() is None  # the journal is closed
    assert JOURNAL not in server.points()


async def test_the_disk_is_that_of_the_data_directory(home: House, tmp_path: Path) -> None:
    total = shutil.disk_usage(tmp_path).total
    points = reported(home, tmp_path).points()
    assert points[SIZE] == [total]
    assert 0 < points[FREE][0] < total
    points = reported(home, tmp_path / "lost").points()
    assert {FREE, SIZE}.isdisjoint(points)
    assert SPOOL in points


async def test_the_process_is_this_one(home: House, tmp_path: Path) -> None:
    server = reported(home, tmp_path)
    before = server.points()
    with (tmp_path / "another").open("wb"):
        after = server.points()
    assert after[DESCRIPTORS] == [before[DESCRIPTORS][0] + 1]
    assert after[MEMORY][0] > 10_000_000
    spent = os.times()
    assert len(after[PROCESSOR]) == 2
    assert 0 < sum(after[PROCESSOR]) <= spent.user + spent.system
    assert 0 < before[UPTIME][0] < after[UPTIME][0]


async def test_what_the_system_does_not_tell_is_left_out(
    home: House,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(resource_metrics, "_MEMORY", tmp_path / "no-proc")
    points = reported(home, tmp_path).points()
    assert MEMORY not in points
    assert PROCESSOR in points
    assert not caplog.records, "a traceback with every reading"
