"""A journal is recovered from quilts, single blobs and parts on the Walrus emulator."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.archive.recover.recovered import (
    compare,
    grow,
    newest,
    recover,
    recovered_house,
)
from tests.kit.archives import House, check_certified, house
from tests.kit.drafts import TENANT, draft, key, write
from tests.kit.servers.forking import Forked
from tests.kit.servers.processes import own_environment
from tuskpoint_emulators.walrus.server import WalrusEmulator
from tuskpoint_server.__main__ import main as tuskpoint_server
from tuskpoint_server.archive.formats.stored_json import Kind
from tuskpoint_server.blobs.walrus.settings import WalrusSettings
from tuskpoint_server.blobs.walrus.store import WalrusStore
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.core.threads import PruneStrategy
from tuskpoint_server.features.lineage.lineage import LineageRows
from tuskpoint_server.features.recovery.recovery import find, parse_reference, read_source
from tuskpoint_server.features.removal.removal_rows import RemovalRows


@pytest.fixture
async def emulator() -> AsyncIterator[WalrusEmulator]:
    async with WalrusEmulator() as running:
        yield running


@pytest.fixture
async def store(emulator: WalrusEmulator) -> AsyncIterator[WalrusStore]:
    async def no_pause(_: float) -> None:
        pass

    opened = WalrusStore(
        WalrusSettings(publishers=(emulator.url,), aggregators=(emulator.url,)), sleep=no_pause
    )
    yield opened
    await opened.close()


async def fill(home: House) -> None:
    """Certify threads of every kind, over several flushes."""
    removal, lineage = RemovalRows(home.journal.database), LineageRows(home.journal.database)
    for name in range(6):
        await grow(home, 2, f"t{name}")
    await home.journal.save_writes(TENANT, key("0001", "t3"), [write("late", b"late", task="u")])
    await removal.delete_thread(TENANT, "t4")
    await removal.prune_thread(TENANT, "t5", PruneStrategy.KEEP_LATEST)
    await lineage.copy_thread(TENANT, "t2", "copy", "")
    await home.flush()


@pytest.mark.parametrize("standalone", [False, True])
async def test_a_blob_id_is_enough(tmp_path: Path, store: WalrusStore, standalone: bool) -> None:
    async with house(tmp_path, store, standalone=standalone) as home:
        await fill(home)
        source = await newest(home)
        location = await find(store, parse_reference(source.location.blob_id), Kind.CATALOG)
        assert (location.sha256, location.blob_id) == (
            source.location.sha256,
            source.location.blob_id,
        )
        async with recovered_house(tmp_path / "second", home) as second:
            assert await compare(home, second) == 11
            # The expiry of earlier blobs is unknown, so all needed values are stored again.
            await second.archive.lifetime.check_now()
            unknown = "SELECT kind FROM members WHERE blob_id NOT IN (SELECT blob_id FROM blobs)"
            assert await second.ask(unknown) == []
            await grow(second, 1, "t1", 2)
            await grow(second, 1, "fresh")
            async with recovered_house(tmp_path / "third", second) as third:
                assert await compare(second, third) == 13


async def test_a_segment_in_parts_comes_back(tmp_path: Path, store: WalrusStore) -> None:
    limit = store.limits.max_member_bytes
    assert limit is not None
    content = random.Random(1).randbytes(limit + 1000)
    async with house(tmp_path, store) as home:
        await home.journal.save_checkpoint(TENANT, draft("0000", "", {"x": content}))
        await home.journal.save_checkpoint(TENANT, draft("0001", "0000", {"x": b"small"}))
        await home.flush()
        async with recovered_house(tmp_path / "second", home) as second:
            assert await compare(home, second) == 2
            await grow(second, 1, start=2)
            async with recovered_house(tmp_path / "third", second) as third:
                assert await compare(second, third) == 3


async def test_the_blob_id_of_a_stored_manifest_is_enough_for_a_thread(
    tmp_path: Path, store: WalrusStore
) -> None:
    async with house(tmp_path, store) as home:
        await fill(home)
        stored = await home.archive.store_manifest(TENANT, await home.manifest("t3"))
        location = await find(store, parse_reference(stored.blob_id), Kind.MANIFEST)
        source = await read_source(store, location, Kind.MANIFEST, None, TENANT)
        recovered = await recover(tmp_path / "second", store, source, home.clock)
        assert (recovered.threads, recovered.checkpoints) == (1, 2)
        async with house(tmp_path / "second", store, home.clock) as second:
            await second.flush()
            assert await check_certified(second) == 2


async def test_an_expired_blob_is_named(
    tmp_path: Path, emulator: WalrusEmulator, store: WalrusStore
) -> None:
    async with house(tmp_path, store) as home:
        await grow(home, 1)
        source = await newest(home)
        emulator.ledger.advance(60)
        with pytest.raises(Refusal) as refused:
            await recover(tmp_path / "second", store, source, home.clock)
        assert refused.value.reason is Reason.BLOB_NOT_FOUND
        assert refused.value.metadata["blob_id"] == source.location.blob_id


async def test_the_program_needs_nothing_but_an_aggregator(
    tmp_path: Path, emulator: WalrusEmulator, store: WalrusStore
) -> None:
    async with house(tmp_path, store) as home:
        await fill(home)
        catalog = (await newest(home)).location
        arguments = ["--data-dir", str(tmp_path / "second"), "--catalog", catalog.blob_id]
        aggregator = ["--walrus-aggregator-url", emulator.url]
        log = tmp_path / "log"
        program = Forked(
            tuskpoint_server, ["recover", *arguments, *aggregator], own_environment(), log
        )
        assert await asyncio.to_thread(program.wait, 60) == 0, log.read_text()
        async with house(tmp_path / "second", store, home.clock) as second:
            assert await compare(home, second) == 11
