"""Helpers for tests of the writer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from tests.kit.drafts import (
    TENANT,
    draft,
)
from tests.kit.journal import Journal, made
from tuskpoint_server.core.model import SaveOutcome
from tuskpoint_server.core.threads import EventKind
from tuskpoint_server.journal.database.unit_of_work import UnitOfWork

Call = Coroutine[Any, Any, Any]


class Gate:
    """A change that blocks its batch until the test releases it."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self._released = threading.Event()
        self._loop = asyncio.get_running_loop()

    def __call__(self, _batch: UnitOfWork) -> None:
        self._loop.call_soon_threadsafe(self.entered.set)
        assert self._released.wait(30)

    def release(self) -> None:
        self._released.set()


async def together(journal: Journal, *calls: Call) -> list[Any]:
    """Make calls whose changes go into one batch; return results and errors."""
    gate = Gate()
    held = journal.database.change(gate)
    await gate.entered.wait()
    tasks = [asyncio.ensure_future(call) for call in calls]
    await asyncio.sleep(0)
    gate.release()
    await held
    return await asyncio.gather(*tasks, return_exceptions=True)


def save(journal: Journal, *args: Any, **more: Any) -> Coroutine[Any, Any, SaveOutcome]:
    return made(journal.save_checkpoint, TENANT, draft(*args, **more))


async def change(journal: Journal, work: Callable[[UnitOfWork], Any], size_bytes: int = 0) -> Any:
    return await journal.database.change(work, size_bytes)


def half_done(batch: UnitOfWork) -> None:
    """Change the batch, and then fail."""
    log = batch.find(TENANT, "t")
    assert log is not None
    batch.change(log, EventKind.RETENTION_SET)
    log.row.retention_s = 60
    raise ValueError("changed my mind")


def bad_statement(batch: UnitOfWork) -> None:
    batch.connection.exec_driver_sql("SELECT nonsense")
