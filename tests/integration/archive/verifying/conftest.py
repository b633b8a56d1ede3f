"""A journal with an archive over a blob directory, for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.kit.archives import House, house
from tuskpoint_server.blobs.directory.store import DirectoryStore


@pytest.fixture
def blobs(tmp_path: Path) -> Path:
    return tmp_path / "blobs"


@pytest.fixture
async def home(tmp_path: Path, blobs: Path) -> AsyncIterator[House]:
    store = DirectoryStore(blobs)
    async with house(tmp_path, store) as opened:
        yield opened
    await store.close()
