"""Blobs on Walrus that are intact, expired, damaged or out of reach get the right verdicts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from tests.kit.archives import House, house
from tests.kit.drafts import TENANT, draft, key, refused, write
from tests.kit.verdicts import FAIL, PASS, verify
from tuskpoint_emulators.walrus.faults import Fault, FaultKind, Operation
from tuskpoint_emulators.walrus.server import WalrusEmulator
from tuskpoint_server.blobs.walrus.settings import WalrusSettings
from tuskpoint_server.blobs.walrus.store import WalrusStore
from tuskpoint_server.core.errors import Reason


@pytest.fixture
async def emulator() -> AsyncIterator[WalrusEmulator]:
    async with WalrusEmulator() as running:
        yield running


@pytest.fixture
async def walrus(emulator: WalrusEmulator) -> AsyncIterator[WalrusStore]:
    async def no_pause(_: float) -> None:
        pass

    urls = (emulator.url,)
    opened = WalrusStore(WalrusSettings(publishers=urls, aggregators=urls), sleep=no_pause)
    yield opened
    await opened.close()


async def grow(home: House, count: int) -> None:
    for number in range(count):
        await home.journal.save_checkpoint(
            TENANT, draft(f"{number}", f"{number - 1}" if number else "", {"x": b"%d" % number})
        )
        await home.flush()


@pytest.mark.parametrize("standalone", [False, True])
async def test_a_thread_passes_until_its_blobs_expire(
    tmp_path: Path, walrus: WalrusStore, emulator: WalrusEmulator, standalone: bool
) -> None:
    async with house(tmp_path, walrus, standalone=standalone) as home:
        await grow(home, 4)
        await home.journal.save_writes(TENANT, key("2"), [write("late", b"x")])
        await home.flush()
        verification = await verify(home)
        assert (verification.counts, verification.chain_problem) == ({PASS: 4}, "")
        emulator.ledger.advance(60)
        verification = await verify(home)
        assert verification.counts == {FAIL: 4}
        assert verification.chain_problem != ""
        assert {verdict.actual_sha256 for verdict in verification.verdicts} == {b""}


async def test_wrong_bytes_fail_and_silence_gives_no_verdict(
    tmp_path: Path, walrus: WalrusStore, emulator: WalrusEmulator
) -> None:
    async with house(tmp_path, walrus) as home:
        await grow(home, 1)
        emulator.faults.add_chance(Operation.GET_PATCH, Fault(kind=FaultKind.CORRUPT), 1.0)
        verification = await verify(home)
        [verdict] = verification.verdicts
        assert verdict.location is not None
        assert verdict.kind is FAIL
        assert verdict.actual_sha256 not in (b"", verdict.location.sha256)
        assert verification.chain_problem != ""
        emulator.faults.clear()
        assert (await verify(home)).counts == {PASS: 1}
        emulator.faults.add_chance(Operation.GET_PATCH, Fault(kind=FaultKind.DROP), 1.0)
        await refused(verify(home), Reason.BLOB_UNAVAILABLE)


async def test_wrong_bytes_are_counted(
    tmp_path: Path, walrus: WalrusStore, emulator: WalrusEmulator
) -> None:
    reader = InMemoryMetricReader()
    async with house(tmp_path, walrus, meters=MeterProvider([reader])) as home:
        await grow(home, 1)
        emulator.faults.add_chance(Operation.GET_PATCH, Fault(kind=FaultKind.CORRUPT), 1.0)
        verification = await home.archive.verification(TENANT, "t")
        assert verification is not None
        assert len([verdict async for verdict in verification.verdicts()]) == 1
        data = reader.get_metrics_data()
        assert data is not None
        counted = [
            point.value  # type: ignore[union-attr]
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == "tuskpoint.archive.hash_mismatches"
            for point in metric.data.data_points
        ]
        assert counted == [2], "the catalog and the segment"
