"""A journal stays with the kind of blob store that holds its blobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.archive_kit import TENANT, open_kit
from tests.integration.quilt_store import QuiltStore
from tuskpoint_server.archive.archive import StoreChangedError


async def test_store_may_change_until_something_is_stored(tmp_path: Path) -> None:
    async with open_kit(tmp_path) as kit:
        await kit.save("1")
    store = QuiltStore()
    async with open_kit(tmp_path, store=store) as kit:
        await kit.archive.certify_all(TENANT)
        assert store.puts == [3]


async def test_another_store_is_refused_once_something_is_stored(tmp_path: Path) -> None:
    async with open_kit(tmp_path) as kit:
        await kit.save("1")
        await kit.archive.certify_all(TENANT)
    with pytest.raises(StoreChangedError, match="directory"):
        async with open_kit(tmp_path, store=QuiltStore()):
            pass
    async with open_kit(tmp_path) as kit:
        assert (await kit.stored("1")).state is not None
