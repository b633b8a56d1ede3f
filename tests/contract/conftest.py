"""A journal for each test, or a journal with an archive over a blob store in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.kit.archives import House, house
from tests.kit.blobs.stores import MemoryStore
from tests.kit.journal import Clock, Journal, JournalWorld, opened
from tuskpoint_server.features.lineage.lineage import LineageRows
from tuskpoint_server.features.removal.removal_rows import RemovalRows


@pytest.fixture(scope="module", autouse=True)
def journals(database: str) -> None:
    """Open the journals of all tests in the tested database."""


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def journal(tmp_path: Path, clock: Clock) -> AsyncIterator[Journal]:
    async with opened(tmp_path, clock) as journal:
        yield journal


@pytest.fixture
def removal(journal: Journal) -> RemovalRows:
    return journal.removal


@pytest.fixture
def lineage(journal: Journal) -> LineageRows:
    return journal.lineage


@pytest.fixture(scope="module")
def world(database: str) -> Iterator[JournalWorld]:
    opened = JournalWorld()
    yield opened
    opened.close()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
async def home(tmp_path: Path, store: MemoryStore) -> AsyncIterator[House]:
    async with house(tmp_path, store) as opened:
        yield opened
