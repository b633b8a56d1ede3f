"""Expiry and renewal on Walrus, as the emulator keeps its epochs and its books."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.integration.archive_kit import TENANT, write
from tests.integration.epoch_kit import EPOCH_S, EPOCH_US, open_epochs
from tuskpoint import AsyncClient
from tuskpoint_emulators.walrus.faults import Fault, FaultKind, Operation
from tuskpoint_emulators.walrus.server import WalrusEmulator
from tuskpoint_server import app
from tuskpoint_server.blobs.walrus.settings import WalrusSettings
from tuskpoint_server.blobs.walrus.store import WalrusStore
from tuskpoint_server.config import Config

EPOCHS = 3


@pytest.fixture
async def emulator() -> AsyncIterator[WalrusEmulator]:
    async with WalrusEmulator() as running:
        yield running


@pytest.fixture
async def store(emulator: WalrusEmulator) -> AsyncIterator[WalrusStore]:
    async def no_pause(_: float) -> None:
        pass

    settings = WalrusSettings(
        publishers=(emulator.url,), aggregators=(emulator.url,), epochs=EPOCHS, epoch_s=EPOCH_S
    )
    opened = WalrusStore(settings, sleep=no_pause)
    yield opened
    await opened.close()


async def test_live_thread_outlasts_many_epochs(
    tmp_path: Path, emulator: WalrusEmulator, store: WalrusStore
) -> None:
    async with open_epochs(tmp_path, epochs=EPOCHS, blobs=store) as kit:
        await kit.save("1", writes=(write(b"asked"),))
        await kit.save("2", "1")
        await kit.certify()
        saved = await kit.journaled("1")
        assert await kit.evict_all() > 0
        for _ in range(9):
            emulator.ledger.advance()
            kit.clock.now_us += EPOCH_US
            await kit.archive.renewer.renew_now()
            status = await kit.archive.status(TENANT)
            assert status.earliest_expire_us is not None
            assert status.earliest_expire_us > kit.clock.now_us
            found = await kit.stored("1")
            assert (found.state, found.writes) == (saved.state, saved.writes)
            assert set(await kit.manifest()) == {"1", "2"}
        assert status.failing_renewals == 0
        assert status.cost > 0
        assert status.billed_bytes % 66_034_000 == 0
        assert status.billed_bytes >= 3 * 66_034_000


async def test_unrenewed_blob_is_stored_anew_once_the_publisher_answers(
    tmp_path: Path, emulator: WalrusEmulator, store: WalrusStore
) -> None:
    async with open_epochs(tmp_path, epochs=EPOCHS, blobs=store) as kit:
        await kit.save("1", content=b"x" * 1000)
        await kit.save("2", "1")
        await kit.certify()
        saved = await kit.journaled("1")
        await kit.evict_all()
        first = await kit.blob_of("1")
        emulator.faults.add_chance(
            Operation.PUT_QUILT, Fault(kind=FaultKind.REFUSE, status=503), 1.0
        )
        kit.clock.now_us += round(1.6 * EPOCH_US)
        emulator.ledger.advance()
        done = await kit.archive.renewer.renew_now()
        assert (done.failed, done.rehydrated, done.lost) == (1, 2, 0)
        emulator.ledger.advance(2)
        kit.clock.now_us += 2 * EPOCH_US
        emulator.faults.clear()
        await kit.certify()
        assert await kit.blob_of("1") != first
        found = await kit.stored("1")
        assert (found.state, found.writes) == (saved.state, saved.writes)
        assert set(await kit.manifest()) == {"1", "2"}


async def test_server_tells_what_expires_when(tmp_path: Path, emulator: WalrusEmulator) -> None:
    config = Config(
        listen="127.0.0.1:0",
        data_dir=tmp_path,
        flush_interval=3600,
        walrus_publisher_url=(emulator.url,),
        walrus_aggregator_url=(emulator.url,),
        walrus_epochs=EPOCHS,
        walrus_epoch_seconds=EPOCH_S,
    )
    begin = datetime.now(UTC)
    async with (
        app.running(config) as server,
        AsyncClient(f"127.0.0.1:{server.port}") as client,
    ):
        await client.save("t", {"n": 1})
        assert (await client.thread("t")).expires is None
        await client.flush()
        expires = (await client.thread("t")).expires
        assert expires is not None
        assert timedelta(0) <= expires - begin - timedelta(seconds=2 * EPOCH_S) < timedelta(hours=1)
        status = await client.status()
        assert status.earliest_expiry == expires
        assert (status.stored_blobs, status.billed_bytes) == (1, 66_034_000)
        assert status.cost > 0
        assert (status.failing_renewals, status.evicted_bytes) == (0, 0)
