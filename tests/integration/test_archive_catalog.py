"""The catalog over many flushes: real SQL, real bytes, a dictionary as blob store."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, create_engine, event, insert

from tuskpoint_server.archive import building
from tuskpoint_server.archive.building import BuiltPack, build
from tuskpoint_server.domain import catalog as catalogs
from tuskpoint_server.domain.catalog import FAN_OUT, decode_catalog, read_heads
from tuskpoint_server.domain.digests import blob_digest
from tuskpoint_server.domain.model import BlobLocation
from tuskpoint_server.journal import archive_certify, archive_collect, archive_merges, archive_packs
from tuskpoint_server.journal.archive_dirty import Bounds
from tuskpoint_server.journal.archive_plan import PackKind
from tuskpoint_server.journal.schema import metadata, tombstones

TENANT = "default"


class Flushes:
    """Flushes ended threads, which are the smallest change a catalog knows."""

    def __init__(self, connection: Connection, *, quilt: bool) -> None:
        self.connection = connection
        self.quilt = quilt
        self.blobs: dict[tuple[str, str], bytes] = {}
        self.model: dict[str, int] = {}
        self.newest: BlobLocation | None = None
        self.count = 0

    def predict(self, sha256: bytes, size: int) -> BlobLocation:
        if self.quilt:
            return BlobLocation(sha256, size, "", sha256.hex())
        return BlobLocation(sha256, size, sha256.hex())

    def end(self, names: list[str]) -> BuiltPack:
        """End the next incarnation of each of these threads, in one flush."""
        for name in names:
            self.model[name] = self.model.get(name, 0) + 1
        self.connection.execute(
            insert(tombstones),
            [
                {
                    "tenant": TENANT,
                    "thread_id": name,
                    "incarnation": self.model[name],
                    "created_us": 1,
                }
                for name in names
            ],
        )
        collected = archive_collect.collect(self.connection, TENANT, Bounds(1000, 1 << 20))
        built = build(collected, [], self.predict, 1)
        pack = archive_packs.record_spooled(
            self.connection, TENANT, PackKind.FINAL, "spool", built.plan, 1
        )
        locations = [self.store(member.data) for member in built.members]
        archive_packs.record_stored(self.connection, TENANT, pack, locations)
        members = {
            member.sha256: (location, member.data)
            for member, location in zip(built.members, locations, strict=True)
        }
        archive_certify.certify(self.connection, TENANT, pack, built.plan, members, 1)
        assert built.plan.catalog is not None
        self.newest = members[built.plan.catalog.sha256][0]
        self.count += 1
        return built

    def store(self, data: bytes) -> BlobLocation:
        predicted = self.predict(blob_digest(data), len(data))
        blob_id = f"quilt-{self.count}" if self.quilt else predicted.blob_id
        self.blobs[blob_id, predicted.identifier] = data
        return BlobLocation(predicted.sha256, predicted.size, blob_id, predicted.identifier)

    async def fetch(self, location: BlobLocation) -> bytes:
        data = self.blobs[location.blob_id, location.identifier]
        assert blob_digest(data) == location.sha256
        return data

    async def read(self) -> dict[str, int]:
        assert self.newest is not None
        found: dict[str, int] = {}
        async for head in read_heads(self.newest, self.fetch):
            assert head.thread_id not in found
            found[head.thread_id] = head.incarnation
        return found


@pytest.fixture
def connection() -> Iterator[Connection]:
    engine = create_engine("sqlite://")
    event.listen(engine, "connect", lambda driver, _: driver.execute("PRAGMA synchronous = OFF"))
    metadata.create_all(engine)
    with engine.begin() as opened:
        yield opened
    engine.dispose()


async def test_ten_thousand_changes(connection: Connection) -> None:
    flushes = Flushes(connection, quilt=False)
    choice = random.Random(1)
    names = [f"thread-{number:04}" for number in range(1000)]
    largest = 0
    for number in range(500):
        built = flushes.end(choice.sample(names, 20))
        largest = max(largest, sum(len(member.data) for member in built.members))
        if number % 50 == 0:
            assert await flushes.read() == flushes.model
    assert await flushes.read() == flushes.model
    assert len(flushes.model) == 1000
    assert flushes.newest is not None
    catalog = decode_catalog(await flushes.fetch(flushes.newest), flushes.newest)
    assert catalog.seq == 500
    assert len(catalog.runs) == 3
    assert all(len(level) <= FAN_OUT for level in catalog.runs)
    # All heads at once take about 110 KB; a flush of 20 changes may write them all only
    # because they are few.
    assert largest < 300_000


async def test_merges_go_on_over_many_flushes(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_merges, "_MERGE_HEADS", 5)
    monkeypatch.setattr(building, "PAGE_HEADS", 3)
    monkeypatch.setattr(catalogs, "INDEX_PAGES", 4)
    flushes = Flushes(connection, quilt=True)
    choice = random.Random(2)
    names = [f"thread-{number:04}" for number in range(500)]
    most = 0
    for number in range(600):
        built = flushes.end(choice.sample(names, 4))
        assert built.plan.catalog is not None
        most = max(most, len(built.plan.catalog.moved))
        if number % 20 == 0:
            assert await flushes.read() == flushes.model
        assert flushes.newest is not None
        catalog = decode_catalog(await flushes.fetch(flushes.newest), flushes.newest)
        assert all(len(level) <= 2 * FAN_OUT for level in catalog.runs)
    assert await flushes.read() == flushes.model
    assert len(catalog.runs) == 3
    assert any(b'"kind":"index"' in data for data in flushes.blobs.values())
    assert most <= 5 + 4 * 4


async def test_flush_costs_the_same_with_many_threads(connection: Connection) -> None:
    flushes = Flushes(connection, quilt=False)
    sizes = []
    for number in range(160):
        built = flushes.end([f"{number:03}-{one:03}" for one in range(100)])
        sizes.append(sum(len(member.data) for member in built.members))
    page = 1000 * 150
    assert max(sizes[80:]) <= max(sizes[:80]) + page
    assert await flushes.read() == flushes.model
