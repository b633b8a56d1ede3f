"""Every journal that must keep the contract; a new one joins `JOURNALS`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tuskpoint_server.journal.journal import SqlJournal


class Clock:
    """A time that stands still until a test moves it."""

    def __init__(self) -> None:
        self.now_us = 1_700_000_000_000_000

    def __call__(self) -> int:
        return self.now_us

    def advance(self, seconds: float) -> None:
        self.now_us += int(seconds * 1e6)


OpenJournal = Callable[[Path, Clock], Coroutine[Any, Any, SqlJournal]]


async def open_sqlite(directory: Path, clock: Clock) -> SqlJournal:
    return await SqlJournal.open(
        directory / "journal.db", clock_us=clock, entropy=lambda: 0x1234567890
    )


JOURNALS: dict[str, OpenJournal] = {"sqlite": open_sqlite}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=JOURNALS)
async def journal(
    request: pytest.FixtureRequest, tmp_path: Path, clock: Clock
) -> AsyncIterator[SqlJournal]:
    opened = await JOURNALS[request.param](tmp_path, clock)
    yield opened
    await opened.close()
