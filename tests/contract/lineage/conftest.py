"""A journal for each test, and what makes checkpoints of others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract.lineage.kit import LineageJournal, open_journal
from tests.kit.journal import Clock
from tuskpoint_server.journal.lineage.lineage import Lineage


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def journal(tmp_path: Path, clock: Clock) -> AsyncIterator[LineageJournal]:
    opened = await open_journal(tmp_path, clock)
    yield opened
    await opened.close()


@pytest.fixture
def lineage(journal: LineageJournal) -> Lineage:
    return journal.lineage
