"""Blobs expire and are renewed on Walrus as the emulator counts epochs and payments."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.kit.archives import check_certified, shown
from tests.kit.drafts import TENANT, key
from tests.kit.epochs import EPOCH_S, Years, years
from tuskpoint import AsyncClient
from tuskpoint_emulators.walrus.faults import Fault, FaultKind, Operation
from tuskpoint_emulators.walrus.server import WalrusEmulator
from tuskpoint_server.blobs.walrus.settings import WalrusSettings
from tuskpoint_server.blobs.walrus.store import WalrusStore
from tuskpoint_server.commands import serve
from tuskpoint_server.config.settings import Config
from tuskpoint_server.core.errors import Refusal
from tuskpoint_server.core.model import View

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
    async with years(tmp_path, epochs=EPOCHS, blobs=store) as time:
        await time.save("1", question=b"asked")
        await time.save("2", "1")
        await time.flush()
        saved = await loaded(time, "1")
        assert await time.evict() > 0
        for _ in range(9):
            emulator.ledger.advance()
            time.advance(1)
            await time.look()
            status = await time.home.archive.status(TENANT)
            assert status.earliest_expire_us is not None
            assert status.earliest_expire_us > time.home.clock.now_us
            assert shown(await time.home.from_blobs(key("1"))) == saved
            assert len((await time.home.manifest()).entries) == 2
        assert status.failing_renewals == 0
        assert status.cost > 0
        assert status.billed_bytes % 66_034_000 == 0
        assert status.billed_bytes >= 3 * 66_034_000


async def test_unrenewed_blob_is_stored_again_once_the_publisher_answers(
    tmp_path: Path, emulator: WalrusEmulator, store: WalrusStore
) -> None:
    async with years(tmp_path, epochs=EPOCHS, blobs=store) as time:
        await time.save("1", content=b"x" * 1000)
        await time.save("2", "1")
        await time.flush()
        saved = await loaded(time, "1")
        await time.evict()
        first = await time.blob_of("1")
        emulator.faults.add_chance(
            Operation.PUT_QUILT, Fault(kind=FaultKind.REFUSE, status=503), 1.0
        )
        time.advance(1.6)
        emulator.ledger.advance()
        done = await time.look()
        assert (done.failed, done.stored_again, done.lost) == (1, 2, 0)
        emulator.ledger.advance(2)
        time.advance(2)
        emulator.faults.clear()
        await time.look()
        await time.flush()
        assert await time.blob_of("1") != first
        assert shown(await time.home.from_blobs(key("1"))) == saved
        assert await check_certified(time.home) == 2


async def test_saves_certify_on_a_network_that_was_wiped(
    tmp_path: Path, emulator: WalrusEmulator, store: WalrusStore
) -> None:
    async with years(tmp_path, epochs=EPOCHS, blobs=store) as time:
        for number in range(3):
            await time.save("1", thread_id=f"t{number}")
            await time.flush()
        emulator.ledger.advance(EPOCHS + 1)  # nothing was renewed: all blobs are gone
        time.advance(0.1)
        await time.save("2", "1", thread_id="t1")
        with suppress(Refusal):
            await time.flush()
        time.advance(EPOCHS)
        for _ in range(3):
            await time.look()
            await time.flush()
        assert await check_certified(time.home) == 4
        assert (await time.home.archive.status(TENANT)).failing_renewals == 0


async def loaded(time: Years, checkpoint_id: str) -> object:
    checkpoint = await time.home.journal.load(TENANT, key(checkpoint_id), View.FULL)
    assert checkpoint is not None
    return shown(checkpoint)


async def test_server_reports_when_blobs_expire(tmp_path: Path, emulator: WalrusEmulator) -> None:
    config = Config(
        listen="127.0.0.1:0",
        data_dir=tmp_path,
        flush_interval=3600,
        walrus_publisher_url=(emulator.url,),
        public=True,
        walrus_aggregator_url=(emulator.url,),
        walrus_epochs=EPOCHS,
        walrus_epoch_seconds=EPOCH_S,
    )
    begin = datetime.now(UTC)
    async with (
        serve.running_server(config) as server,
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
