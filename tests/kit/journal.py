"""A journal with all its rooms, opened as the server opens it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ParamSpec, TypeVar

from tuskpoint_server.journal.changes import Events
from tuskpoint_server.journal.checkpoints.store import Checkpoints
from tuskpoint_server.journal.database.database import Database

P = ParamSpec("P")
T = TypeVar("T")


async def made(call: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """Make a call once this is awaited."""
    return await call(*args, **kwargs)


class Clock:
    """A time that stands still until a test moves it."""

    def __init__(self) -> None:
        self.now_us = 1_700_000_000_000_000

    def __call__(self) -> int:
        return self.now_us

    def advance(self, seconds: float) -> None:
        self.now_us += int(seconds * 1e6)


class Journal(Checkpoints):
    """Checkpoints of a database, and its other rooms beside them.

    Attributes:
        added: Bytes of new content of each commit.
    """

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.database = database
        self.events = Events(database)
        self.added: list[int] = []
        database.added.append(lambda _tenant, _count, size: self.added.append(size))


async def open_database(path: Path, clock: Callable[[], int]) -> Database:
    return await Database.open(path, clock_us=clock, entropy=lambda: 0x1234567890)


@asynccontextmanager
async def opened(directory: Path, clock: Callable[[], int]) -> AsyncIterator[Journal]:
    database = await open_database(directory / "journal.db", clock)
    try:
        yield Journal(database)
    finally:
        await database.close()
