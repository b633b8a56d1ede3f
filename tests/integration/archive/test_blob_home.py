"""A journal stays with the kind of blob store that contains its blobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.archives import check_certified, house
from tests.kit.blobs.stores import MemoryStore
from tests.kit.drafts import TENANT, draft
from tuskpoint_server.archive.archive import StoreChangedError


class OtherStore(MemoryStore):
    """A store of another kind."""

    backend = "other"


async def test_a_store_may_change_until_something_is_stored(tmp_path: Path) -> None:
    async with house(tmp_path, MemoryStore()) as home:
        await home.journal.save_checkpoint(TENANT, draft("1", "", {"x": b"1"}))
    async with house(tmp_path, OtherStore()) as home:
        await home.flush()
        assert await check_certified(home) == 1


async def test_another_store_is_refused_once_something_is_stored(tmp_path: Path) -> None:
    store = MemoryStore()
    async with house(tmp_path, store) as home:
        await home.journal.save_checkpoint(TENANT, draft("1", "", {"x": b"1"}))
        await home.flush()
    with pytest.raises(StoreChangedError, match="memory"):
        async with house(tmp_path, OtherStore()):
            pass
    async with house(tmp_path, store) as home:
        assert await check_certified(home) == 1
