"""A journal for each test, with all that search does in it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract.search.kit import Rooms, open_rooms
from tests.kit.journal import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def journal(tmp_path: Path, clock: Clock) -> AsyncIterator[Rooms]:
    opened = await open_rooms(tmp_path, clock)
    yield opened
    await opened.database.close()
