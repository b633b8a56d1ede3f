"""Keeping the journal within its bound."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from ...domain.errors import Refusal
from ...domain.failpoints import failpoint
from ...domain.limits import MIB
from ..database.database import Database
from ..database.schema import threads
from ..database.statements import Statement
from ..removal.passes import Passes, Taken
from .evict import evict_family

_log = logging.getLogger(__name__)

FULL_LOOK = 20
"""Every so many looks, families that had nothing to give are asked again."""

_ALL = 2**62
_FAMILIES = Statement(
    select(
        threads.c.family,
        func.sum(threads.c.seq),
        func.sum(threads.c.certified_seq),
        func.max(threads.c.updated_us),
    )
    .group_by(threads.c.family)
    .order_by(func.max(threads.c.updated_us))
)

_Progress = tuple[int, int, int]
"""How far the logs of a family have come, how far they are certified, and the last change."""


@dataclass(frozen=True, slots=True)
class EvictionSettings:
    """Settings of eviction.

    Attributes:
        journal_bytes: Bytes that the journal may use before values leave it; 0: whatever
            may leave it does.
        interval_s: Time between two looks.
        grace_s: Age below which a change keeps its values.
    """

    journal_bytes: int = 1024 * MIB
    interval_s: float = 30.0
    grace_s: float = 60.0


class Evictor:
    """Keeps the journal within its bound, of all tenants together.

    Families give up what they can spare, those first that nobody changed for longest. One
    that gave all it could is left alone until its logs go on.

    Args:
        database: The journal's database; its commits are noted by `passes`.
        passes: The open passes.
        settings: Settings.
    """

    def __init__(self, database: Database, passes: Passes, settings: EvictionSettings) -> None:
        self._database = database
        self._passes = passes
        self._settings = settings
        self._spent: dict[int, _Progress] = {}
        self._looks = 0
        self._turn = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look from time to time."""
        self._task = asyncio.create_task(self._run(), name="eviction")

    async def stop(self) -> None:
        """Stop looking; a transaction under way is finished by the journal."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def evict_now(self) -> Taken:
        """Evict all that has to go and may.

        Raises:
            Refusal: `JOURNAL_UNAVAILABLE`.
        """
        async with self._turn:
            self._spent.clear()
            return await self._evict()

    async def _run(self) -> None:
        while True:
            try:
                async with self._turn:
                    self._looks += 1
                    if self._looks % FULL_LOOK == 0:
                        self._spent.clear()  # what was read back may go again
                    gone = await self._evict()
            except Refusal as refusal:
                _log.warning("eviction waits: %s", refusal)
            except Exception:  # noqa: BLE001 - a defect must not end eviction for good
                _log.exception("eviction failed")
            else:
                if gone.size_bytes:
                    _log.info("%d bytes left the journal for the blob store", gone.size_bytes)
            await asyncio.sleep(self._settings.interval_s)

    async def _evict(self) -> Taken:
        """Evict until the journal is within its bound or no family has anything to give."""
        gone = Taken()
        wanted = await self._excess()
        if wanted <= 0:
            return gone
        before_us = self._database.now_us() - int(self._settings.grace_s * 1e6)
        families = await self._database.query(_families)
        self._spent = {
            family: progress
            for family, progress in self._spent.items()
            if families.get(family) == progress
        }
        for family, progress in families.items():
            more = family not in self._spent
            while more and wanted > 0:
                failpoint("archive.before_evict")
                freed = await evict_family(self._database, self._passes, family, before_us, wanted)
                failpoint("archive.after_evict")
                gone += freed
                more = freed.size_bytes >= wanted
                wanted = await self._excess()
            if wanted <= 0:
                break
            if progress[2] < before_us:
                self._spent[family] = progress
        return gone

    async def _excess(self) -> int:
        """Return the bytes that the journal uses beyond its bound."""
        if self._settings.journal_bytes == 0:
            return _ALL
        return await self._database.used_bytes() - self._settings.journal_bytes


def _families(connection: Connection) -> dict[int, _Progress]:
    """Return all families, those first that nobody changed for longest."""
    rows = _FAMILIES.run(connection).fetchall()
    return {int(family): (int(seq), int(done), int(last)) for family, seq, done, last in rows}
