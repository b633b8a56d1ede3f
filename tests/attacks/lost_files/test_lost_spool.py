"""Spool files are removed while their packs wait for upload: the server builds the packs again."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.kit.archives import check_certified, grow, house
from tests.kit.blobs.stores import MemoryStore
from tests.kit.drafts import TENANT, refused
from tuskpoint_server.core.errors import Reason


async def test_a_spool_directory_that_was_removed_is_made_again(tmp_path: Path) -> None:
    async with house(tmp_path, MemoryStore()) as home:
        await grow(home, 2)
        shutil.rmtree(tmp_path / "spool")
        assert (await home.archive.status(TENANT)).spool_bytes == 0
        await home.flush()
        assert await check_certified(home) == 2
        assert (tmp_path / "spool").stat().st_mode & 0o777 == 0o700


async def test_a_pack_whose_spool_file_was_removed_is_certified(tmp_path: Path) -> None:
    store = MemoryStore()
    store.verdict = lambda members: Reason.BLOB_UNAVAILABLE
    async with house(tmp_path, store) as home:
        await grow(home, 2)
        await refused(home.archive.certify_all(TENANT), Reason.BLOB_UNAVAILABLE)
        shutil.rmtree(tmp_path / "spool")
    store.verdict = lambda members: None
    async with house(tmp_path, store) as home:
        await home.flush()
        assert await check_certified(home) == 2
