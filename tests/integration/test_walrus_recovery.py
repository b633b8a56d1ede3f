"""Recovery from Walrus, as the emulator keeps it: quilts, single blobs, parts."""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.archive_kit import TENANT, Kit, write
from tests.integration.recovery_kit import (
    draft,
    flush,
    new_kit,
    recover_into,
    recovered_kit,
    save,
    seen,
)
from tuskpoint_emulators.walrus.server import WalrusEmulator
from tuskpoint_server.archive.recovery import Recovery
from tuskpoint_server.archive.references import find_catalog, find_segment, parse_reference
from tuskpoint_server.blobs.walrus.settings import WalrusSettings
from tuskpoint_server.blobs.walrus.store import WalrusStore
from tuskpoint_server.domain.errors import Reason, Refusal
from tuskpoint_server.domain.model import PruneStrategy
from tuskpoint_server.journal.journal import SqlJournal


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


async def fill(kit: Kit) -> None:
    """Threads of every sort, over several flushes."""
    for step in range(3):
        for name in range(20):
            await save(
                kit,
                draft(
                    f"{step}",
                    f"{step - 1}" if step else "",
                    {"log": b"seed"} if not step else {"x": b"%d" % step},
                    thread_id=f"t{name}",
                    delta=("log",),
                    writes=(write(b"w%d" % step, channel="log"),),
                    label=f"label {step}",
                ),
            )
        await flush(kit)
    await kit.save_writes("1", write(b"late", task="u"), thread_id="t3")
    await kit.journal.delete_thread(TENANT, "t4")
    await kit.journal.prune_thread(TENANT, "t5", PruneStrategy.KEEP_LATEST)
    await kit.journal.copy_thread(TENANT, "t6", "copy", "")


@pytest.mark.parametrize("apart", [False, True])
async def test_a_blob_id_is_enough(tmp_path: Path, store: WalrusStore, apart: bool) -> None:
    async with new_kit(tmp_path / "old", store=store, apart=apart) as kit:
        await fill(kit)
        catalog = await flush(kit)
        before = await seen(kit.journal)
        found = await find_catalog(store, parse_reference(catalog.blob_id))
        assert (found.sha256, found.blob_id) == (catalog.sha256, catalog.blob_id)
        async with recovered_kit(tmp_path / "new", kit, found) as recovered:
            assert await seen(recovered.journal) == before
            await recovered.archive.renewer.renew_now()
            detail = await recovered.journal.thread(TENANT, "t1")
            assert detail is not None
            assert detail.expire_us is not None, "when it expires was not known before"
            await save(recovered, draft("3", "2", thread_id="t1"), draft("1", thread_id="fresh"))
            newer = await flush(recovered)
            again = await seen(recovered.journal)
            assert await recovered.archive.chain_problem(TENANT, "t1") == ""
            async with recovered_kit(tmp_path / "newer", kit, newer) as once_more:
                assert await seen(once_more.journal) == again


async def test_an_envelope_in_parts_comes_back(tmp_path: Path, store: WalrusStore) -> None:
    limit = store.limits.max_member_bytes
    assert limit is not None
    content = random.Random(1).randbytes(limit + 1000)
    async with new_kit(tmp_path / "old", store=store) as kit:
        await save(kit, draft("1", "", {"x": content}), draft("2", "1"))
        await flush(kit)
        await kit.save_writes("1", write(b"late"))
        catalog = await flush(kit)
        before = await seen(kit.journal)
        async with recovered_kit(tmp_path / "new", kit, catalog) as found:
            assert await seen(found.journal) == before
            stored = await found.stored("1")
            assert stored.state is not None
            assert stored.state.channels[0].value is not None
            assert stored.state.channels[0].value.data == content
            await found.save_writes("1", write(b"later", task="u"))
            newer = await flush(found)
            again = await seen(found.journal)
            async with recovered_kit(tmp_path / "newer", kit, newer) as once_more:
                assert await seen(once_more.journal) == again


async def test_one_thread_of_a_quilt_has_to_be_named(tmp_path: Path, store: WalrusStore) -> None:
    async with new_kit(tmp_path / "old", store=store) as kit:
        await fill(kit)
        await flush(kit)
        head = (await kit.heads())["t7"].manifest
        assert head is not None
        at = head.location
        assert at.identifier == at.sha256.hex()
        named = await find_segment(store, parse_reference(f"{at.blob_id}/{at.identifier}"))
        root = tmp_path / "new"
        root.mkdir()
        journal = await SqlJournal.open(root / "journal.db")
        recovered = await Recovery(TENANT, journal, store, clock_us=lambda: 1).from_manifest(named)
        await journal.close()
        assert (recovered.threads, recovered.checkpoints) == (1, 3)
        async with new_kit(root, store=store) as found:
            await flush(found)
            assert set(await found.heads()) == {"t7"}


async def test_what_expired_is_told_by_its_blob_id(
    tmp_path: Path, emulator: WalrusEmulator, store: WalrusStore
) -> None:
    async with new_kit(tmp_path / "old", store=store) as kit:
        await save(kit, draft("1"))
        catalog = await flush(kit)
        emulator.ledger.advance(60)
        with pytest.raises(Refusal) as refused:
            await recover_into(tmp_path / "new", store, catalog)
        assert refused.value.reason is Reason.BLOB_NOT_FOUND
        assert refused.value.metadata["blob_id"] == catalog.blob_id


async def test_the_program_needs_nothing_but_an_aggregator(
    tmp_path: Path, emulator: WalrusEmulator, store: WalrusStore
) -> None:
    async with new_kit(tmp_path / "old", store=store) as kit:
        await fill(kit)
        catalog = await flush(kit)
        before = await seen(kit.journal)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tuskpoint_server", "recover"),
            *("--data-dir", str(tmp_path / "new"), "--catalog", catalog.blob_id),
            *("--walrus-aggregator-url", emulator.url),
            stderr=asyncio.subprocess.PIPE,
            env={k: v for k, v in os.environ.items() if not k.startswith(("TUSK", "WALRUS"))},
        )
        _, errors = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == 0, errors
        async with new_kit(tmp_path / "new", store=store) as found:
            assert await seen(found.journal) == before
