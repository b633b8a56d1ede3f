"""A journal and its archive over a store in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.kit.archives import KEYS, House, house
from tests.kit.blobs.stores import MemoryStore


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
async def home(tmp_path: Path, store: MemoryStore) -> AsyncIterator[House]:
    async with house(tmp_path, store, keys=KEYS) as opened:
        yield opened
