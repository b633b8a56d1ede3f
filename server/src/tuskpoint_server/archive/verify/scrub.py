"""The scrub: checks all threads of the journal, also content that nobody reads.

Damage that is found only when a state is needed is found late: the backup with the row may be gone
by then. Only the leader scrubs. It reads in the readers' connections, a part of a thread in each
transaction, and pauses after each part as the rate demands.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from ...core.errors import Reason, Refusal
from ...core.limits import KIB
from ...core.model import CheckpointKey
from ...journal.database.database import Database
from ...journal.values.integrity import Problem, check_some
from ..telemetry import FlushInstruments
from . import scrub_progress
from .repair_values import Mender
from .scrub_progress import NumberedThread, Progress

# least bytes that a part counts: its statements take time even if it has few rows
PART_BYTES = 16 * KIB
PASS_SECONDS = 3600.0  # least time from the start of a pass to the start of the next pass
RECORD_SECONDS = 30.0  # between two records of the scrub's progress
RETRY_SECONDS = 10.0  # pause after the journal could not be used

_SOUND_VALUES = 100_000  # digests that are remembered while a thread is checked

_log = logging.getLogger(__name__)


class Scrubber:
    """Checks all threads, a few bytes at a time.

    Args:
        database: The journal.
        mender: Repairs damaged values from the blob store.
        instruments: Count the bytes read and the damages found.
        bytes_per_second: Rate of reading rows and values.
        sleep: Pauses for a number of seconds.
    """

    def __init__(
        self,
        database: Database,
        mender: Mender,
        instruments: FlushInstruments,
        bytes_per_second: int,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._database = database
        self._mender = mender
        self._instruments = instruments
        self._rate = bytes_per_second
        self._sleep = sleep
        self._sound: set[bytes] = set()
        self._recorded_us = 0

    async def run(self) -> None:
        """Make passes one after the other, until cancelled."""
        while True:
            try:
                await self._continue()
            except Refusal as refusal:
                _log.warning("the scrub of the journal is delayed: %s", refusal)
                await self._sleep(RETRY_SECONDS)

    async def _continue(self) -> None:
        """Continue an unfinished pass, or wait for the next pass and make it."""
        progress = await self._database.query(scrub_progress.read)
        now_us = self._database.now_us()
        if not progress.number:
            next_us = progress.began_us + int(PASS_SECONDS * 1e6)
            # The clock may have been set back.
            await self._sleep(min(max(0, next_us - now_us) / 1e6, PASS_SECONDS))
            progress.began_us = self._database.now_us()
        self._recorded_us = self._database.now_us()
        while True:
            look = partial(scrub_progress.thread_from, number=progress.number)
            thread = await self._database.query(look)
            if thread is None:
                progress.end(self._database.now_us())
                await self._record(progress)
                return
            if thread.number != progress.number:
                progress.number, progress.at = thread.number, None
            try:
                await self._check(thread, progress)
            except Refusal as refusal:
                if refusal.reason is not Reason.JOURNAL_DAMAGED:
                    raise
                await self._repaired(thread, Problem(str(refusal)))
                progress.note(thread)
            except Exception:  # noqa: BLE001 - a defect must not keep the other threads from it
                _log.exception("thread '%s' is not scrubbed", thread.thread_id)
            progress.number, progress.at = thread.number + 1, None

    async def _check(self, thread: NumberedThread, progress: Progress) -> None:
        """Check the rest of a thread."""
        self._sound.clear()
        while True:
            look = partial(
                check_some,
                tenant=thread.tenant,
                thread_id=thread.thread_id,
                at=progress.at,
                sound=self._sound,
            )
            checked = await self._database.query(look)
            is_new = False
            for problem in checked.problems:
                if not await self._repaired(thread, problem):
                    is_new = progress.note(thread) or is_new
            progress.at = checked.next
            if len(self._sound) > _SOUND_VALUES:
                self._sound.clear()
            size_bytes = max(checked.size_bytes, PART_BYTES)
            self._instruments.scrubbed.add(checked.size_bytes)
            if is_new or self._database.now_us() - self._recorded_us > RECORD_SECONDS * 1e6:
                await self._record(progress)
            await self._sleep(size_bytes / self._rate)
            if progress.at is None:
                return

    async def _repaired(self, thread: NumberedThread, problem: Problem) -> bool:
        """Repair a value if the blob store has it; else log the problem."""
        outcome = "found"
        if problem.damage is not None and problem.place is not None:
            key = CheckpointKey(thread.thread_id, *problem.place)
            try:
                if await self._mender.mend(thread.tenant, key, [problem.damage]):
                    outcome = "repaired"
            except Refusal as refusal:
                _log.warning("thread '%s' is not repaired now: %s", thread.thread_id, refusal)
        self._instruments.scrub_problems.add(1, {"tenant": thread.tenant, "outcome": outcome})
        if outcome == "repaired":
            return True
        _log.error(
            "thread '%s' of tenant %s is damaged in the journal: %s",
            *(thread.thread_id, thread.tenant, problem),
        )
        return False

    async def _record(self, progress: Progress) -> None:
        self._recorded_us = self._database.now_us()
        await self._database.transact(partial(scrub_progress.record, progress=progress))
