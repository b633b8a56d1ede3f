"""Eviction goes on for as long as the server does, and stops when it does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tuskpoint_server.archive.eviction import EvictionSettings, Evictor
from tuskpoint_server.domain.errors import Reason, Refusal


class FailingJournal:
    """A journal that cannot be used, fails, and then is empty; tells after so many looks."""

    def __init__(self, looks: int) -> None:
        self._failures: list[Exception] = [
            Refusal(Reason.JOURNAL_UNAVAILABLE, problem="no"),
            RuntimeError("a defect"),
        ]
        self._left = looks
        self.seen = asyncio.Event()

    async def query(self, work: Any) -> Any:
        """Answer that the journal is empty."""
        del work
        self._left -= 1
        if self._left == 0:
            self.seen.set()
        if self._failures:
            raise self._failures.pop(0)
        return 0

    async def transact(self, work: Any) -> Any:
        del work
        raise AssertionError("there is nothing to evict")


async def test_failures_do_not_end_it(caplog: pytest.LogCaptureFixture) -> None:
    journal = FailingJournal(looks=5)
    evictor = Evictor(journal, EvictionSettings(interval_s=0.001), clock_us=lambda: 0)
    evictor.start()
    await asyncio.wait_for(journal.seen.wait(), 30)
    await evictor.stop()
    told = [record.message for record in caplog.records if record.name.endswith("eviction")]
    assert len(told) == 2
    assert told[0].startswith("eviction waits: ")
    assert told[1] == "eviction failed"


async def test_it_can_be_stopped_before_it_began() -> None:
    evictor = Evictor(FailingJournal(looks=1), EvictionSettings(), clock_us=lambda: 0)
    await evictor.stop()
    with pytest.raises(Refusal):
        await evictor.evict_now()
