"""Flushes into Walrus store quilts at a known cost, in concurrent puts if necessary."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.kit.archives import check_certified, house
from tests.kit.drafts import TENANT, data_of, draft, key
from tuskpoint_emulators.walrus.server import WalrusEmulator
from tuskpoint_emulators.walrus.settings import EmulatorSettings
from tuskpoint_server.blobs.walrus.settings import WalrusSettings
from tuskpoint_server.blobs.walrus.store import MAX_MEMBERS, WalrusStore


@pytest.fixture
async def walrus() -> AsyncIterator[WalrusEmulator]:
    emulator = WalrusEmulator(EmulatorSettings())
    await emulator.start()
    yield emulator
    await emulator.stop()


def store_on(emulator: WalrusEmulator, **settings: object) -> WalrusStore:
    urls = (emulator.url,)
    return WalrusStore(WalrusSettings(publishers=urls, aggregators=urls, **settings))  # type: ignore[arg-type]


async def test_a_flush_is_one_quilt(tmp_path: Path, walrus: WalrusEmulator) -> None:
    store = store_on(walrus)
    async with house(tmp_path, store) as home:
        for number in range(40):
            await home.journal.save_checkpoint(
                TENANT, draft("a", "", {"x": b"%d" % number}, thread_id=f"t{number}")
            )
        assert await home.flush() == 40
        status = await home.archive.status(TENANT)
        assert status.stored_blobs == 1
        assert status.billed_bytes > 0
        assert status.cost > 0
        assert status.catalog is not None
        assert (tmp_path / "catalog").read_text().strip() == status.catalog.blob_id
        await home.journal.save_checkpoint(TENANT, draft("b", "a", {"x": b"2"}, thread_id="t1"))
        await home.flush()
        assert await check_certified(home) == 41
    await store.close()


async def test_more_than_a_quilt_holds_is_stored_in_puts_beside_one_another(
    tmp_path: Path, walrus: WalrusEmulator
) -> None:
    store = store_on(walrus)
    rng = random.Random(1)
    async with house(tmp_path, store) as home:
        for number in range(MAX_MEMBERS + 10):
            await home.journal.save_checkpoint(
                TENANT, draft("a", "", {"x": b"%d" % number}, thread_id=f"t{number}")
            )
        large = rng.randbytes(9 << 20)
        await home.journal.save_checkpoint(TENANT, draft("a", "", {"x": large}, thread_id="large"))
        assert await home.flush() == MAX_MEMBERS + 11
        assert (await home.archive.status(TENANT)).stored_blobs >= 3
        assert data_of(await home.from_blobs(key("a", "large")))["x"] == large
        assert (await home.manifest("t7")).needed()
    await store.close()
