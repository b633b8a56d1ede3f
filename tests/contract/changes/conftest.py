"""A journal for each test, with what removes from it and what copies."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.kit.journal import Clock, Journal, opened
from tuskpoint_server.journal.lineage.lineage import Lineage
from tuskpoint_server.journal.removal.removal import Removal


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def journal(tmp_path: Path, clock: Clock) -> AsyncIterator[Journal]:
    async with opened(tmp_path, clock) as journal:
        yield journal


@pytest.fixture
def removal(journal: Journal) -> Removal:
    return Removal(journal.database)


@pytest.fixture
def lineage(journal: Journal) -> Lineage:
    return Lineage(journal.database)
