"""`tuskpoint-server collect` removes unneeded blobs from a blob directory, and nothing else."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from tests.kit.archives import check_certified, house
from tests.kit.drafts import TENANT, draft
from tests.kit.journal import Clock
from tuskpoint_server.__main__ import main as tuskpoint_server
from tuskpoint_server.blobs.directory import DirectoryStore
from tuskpoint_server.core import process
from tuskpoint_server.core.process import DataDirLock
from tuskpoint_server.features.removal.removal_rows import RemovalRows
from tuskpoint_server.journal.removal.forgetting import KEPT_DAYS


async def fill(data_dir: Path, blobs: Path, flushes: int = 20) -> None:
    """Let a server store a thread with every flush, and delete all threads but the last."""
    store = DirectoryStore(blobs)
    await asyncio.to_thread(data_dir.mkdir, exist_ok=True)
    async with house(data_dir, store, Clock()) as home:
        removal = RemovalRows(home.journal.database)
        for number in range(flushes):
            await home.journal.save_checkpoint(
                TENANT, draft("1", "", {"x": b"%d" % number * 50}, thread_id=f"t{number:02}")
            )
            await home.flush()
        for number in range(flushes - 1):
            await removal.delete_thread(TENANT, f"t{number:02}")
        await home.flush()
    await store.close()


async def collect(data_dir: Path, blobs: Path, *flags: str) -> int:
    arguments = ["collect", "--data-dir", str(data_dir), "--blob-dir", str(blobs), *flags]
    return await asyncio.to_thread(tuskpoint_server, arguments)


def files(blobs: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in blobs.glob("??/*")}


def age(blobs: Path) -> None:
    """Let all blobs be two hours old."""
    for path in blobs.glob("??/*"):
        os.utime(path, (time.time() - 7200, time.time() - 7200))


async def check(data_dir: Path, blobs: Path) -> None:
    """Check that saved checkpoints can be read from the directory, and that new saves succeed."""
    store = DirectoryStore(blobs)
    async with house(data_dir, store, Clock()) as home:
        assert await check_certified(home) == 1
        await home.journal.save_checkpoint(TENANT, draft("9", "", {"x": b"9"}, thread_id="new"))
        await home.flush()
        assert await check_certified(home) == 2
    await store.close()


async def test_only_unneeded_blobs_are_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data_dir, blobs = tmp_path / "data", tmp_path / "blobs"
    await fill(data_dir, blobs)
    await asyncio.to_thread(age, blobs)
    before = files(blobs)
    assert await collect(data_dir, blobs, "--dry-run") == 0
    listed = dict(line.split() for line in capsys.readouterr().out.splitlines())
    assert listed
    assert files(blobs) == before
    assert await collect(data_dir, blobs) == 0
    said = capsys.readouterr()
    gone = dict(line.split() for line in said.out.splitlines())
    assert f"{len(gone)} blobs" in said.err
    after = files(blobs)
    # Rewriting packs supersedes catalogs: the catalog of the last flush and some of its own.
    assert listed.items() <= gone.items()
    assert listed.keys() <= before.keys() - after.keys() <= gone.keys()
    assert {name: str(before[name]) for name in listed} == listed
    await check(data_dir, blobs)


async def test_young_blobs_of_others_stay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine, other, blobs = tmp_path / "mine", tmp_path / "other", tmp_path / "blobs"
    await fill(other, blobs)
    theirs = files(blobs)
    await fill(mine, blobs)
    before = files(blobs)
    assert await collect(mine, blobs, "--all") == 0
    assert capsys.readouterr().out
    assert len(before.keys() - files(blobs).keys()) >= 19
    assert files(blobs).keys() >= theirs.keys()
    await check(mine, blobs)
    await check(other, blobs)


async def test_blobs_of_another_server_stay_unless_all_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine, other, blobs = tmp_path / "mine", tmp_path / "other", tmp_path / "blobs"
    await fill(other, blobs)
    theirs = files(blobs)
    await fill(mine, blobs, 3)
    await asyncio.to_thread(age, blobs)
    assert await collect(mine, blobs) == 0
    assert files(blobs).keys() >= theirs.keys()
    assert "others may have stored" in capsys.readouterr().err
    await check(other, blobs)
    await asyncio.to_thread(age, blobs)
    assert await collect(mine, blobs, "--all") == 0
    assert not files(blobs).keys() & theirs.keys()
    await check(mine, blobs)


async def test_refusals_name_the_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data_dir, blobs = tmp_path / "data", tmp_path / "blobs"
    assert await collect(data_dir, blobs) == process.EXIT_JOURNAL
    assert "give the --data-dir of a server" in capsys.readouterr().err
    await fill(data_dir, blobs)
    lock = DataDirLock(data_dir)
    assert await collect(data_dir, blobs) == process.EXIT_DATA_DIR_TAKEN
    assert "stop it" in capsys.readouterr().err
    lock.release()
    url = "http://127.0.0.1:1"
    flags = ["--walrus-aggregator-url", url, "--walrus-publisher-url", url, "--public"]
    walrus = ["collect", "--data-dir", str(data_dir), *flags]
    assert await asyncio.to_thread(tuskpoint_server, walrus) == process.EXIT_CONFIG
    assert "unneeded blobs expire there" in capsys.readouterr().err
    for path in await asyncio.to_thread(lambda: list(blobs.glob("??/*"))):
        path.unlink()
    assert await collect(data_dir, blobs) == process.EXIT_DAMAGED


async def test_bytes_of_a_deleted_thread_go_also_once_its_row_is_gone(tmp_path: Path) -> None:
    data_dir, blobs = tmp_path / "data", tmp_path / "blobs"
    await asyncio.to_thread(data_dir.mkdir)
    store, secret = DirectoryStore(blobs), os.urandom(3000)
    async with house(data_dir, store, Clock()) as home:
        # Both threads are in one pack; more than half of the pack is still needed.
        kept = {"x": os.urandom(9000)}
        await home.journal.save_checkpoint(TENANT, draft("1", "", {"x": secret}, thread_id="gone"))
        await home.journal.save_checkpoint(TENANT, draft("1", "", kept, thread_id="stays"))
        await home.flush()
        await home.journal.removal.delete_thread(TENANT, "gone")
        await home.flush()
        for _ in range(2):
            home.clock.advance((KEPT_DAYS + 1) * 86_400)
            await home.journal.removal.sweep(early_write_ttl_s=1, indexing=False)
        assert await home.ask("SELECT 1 FROM threads WHERE thread_id = ?", "gone") == []
    await store.close()
    assert any(secret in path.read_bytes() for path in blobs.glob("??/*"))
    assert await collect(data_dir, blobs) == 0
    assert not any(secret in path.read_bytes() for path in blobs.glob("??/*"))
    store = DirectoryStore(blobs)
    async with house(data_dir, store, Clock()) as home:
        assert await check_certified(home) == 1
        [[count]] = await home.ask(
            "SELECT count(*) FROM members WHERE thread NOT IN (SELECT number FROM threads)"
        )
        assert count == 0
    await store.close()
