"""Values leave the journal once they are certified and it has grown past its bound."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ..domain.errors import Refusal
from ..domain.failpoints import failpoint
from ..domain.limits import MIB
from ..journal import evicting
from ..journal.evicting import ContentKey, Evicted, Position
from .ports import ArchiveJournal

_log = logging.getLogger(__name__)

_FIRST_CONTENT: ContentKey = ("", b"")


@dataclass(frozen=True, slots=True)
class EvictionSettings:
    """Settings of eviction.

    Attributes:
        journal_bytes: Bytes that the journal may use before values leave it; 0: whatever
            may leave it does.
        interval_s: Time between two looks.
        grace_s: Age below which a checkpoint keeps its values.
    """

    journal_bytes: int = 1024 * MIB
    interval_s: float = 30.0
    grace_s: float = 60.0


class Evictor:
    """Keeps the journal within its bound, of all tenants together.

    Checkpoints give their values up oldest first, in short transactions. When none is
    left that may, contents follow that stayed behind (`journal.evicting.left_behind`): of
    those, one stretch at each look, so that what can never go costs little.

    Args:
        journal: The journal.
        settings: Settings.
        clock_us: Microseconds since the epoch.
    """

    def __init__(
        self, journal: ArchiveJournal, settings: EvictionSettings, clock_us: Callable[[], int]
    ) -> None:
        self._journal = journal
        self._settings = settings
        self._clock_us = clock_us
        self._left_from = _FIRST_CONTENT
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

    async def evict_now(self) -> Evicted:
        """Evict all that has to go and may, contents left behind included.

        Raises:
            Refusal: `JOURNAL_UNAVAILABLE`.
        """
        async with self._turn:
            self._left_from = _FIRST_CONTENT
            gone = await self._evict()
            while self._left_from != _FIRST_CONTENT:
                gone += await self._evict_left()
        return gone

    async def _run(self) -> None:
        while True:
            try:
                async with self._turn:
                    gone = await self._evict()
            except Refusal as refusal:
                _log.warning("eviction waits: %s", refusal)
            except Exception:  # noqa: BLE001 - a defect must not end eviction for good
                _log.exception("eviction failed")
            else:
                if gone.size_bytes:
                    _log.info("%d bytes left the journal for the blob store", gone.size_bytes)
            await asyncio.sleep(self._settings.interval_s)

    async def _evict(self) -> Evicted:
        """Evict until the journal is within its bound or no checkpoint is left that may."""
        gone = Evicted()
        position = Position()
        before_us = self._clock_us() - int(self._settings.grace_s * 1e6)
        while await self._over():
            find = partial(evicting.evictable, after=position, before_us=before_us)
            batch = await self._journal.query(find)
            if not batch:
                return gone + await self._evict_left()
            failpoint("archive.before_evict")
            give_up = partial(evicting.evict, batch=batch, before_us=before_us)
            gone += await self._journal.transact(give_up)
            failpoint("archive.after_evict")
            position = batch[-1]
        return gone

    async def _evict_left(self) -> Evicted:
        """Evict contents that stayed behind, of the next stretch."""
        if not await self._over():
            self._left_from = _FIRST_CONTENT
            return Evicted()
        found, end = await self._journal.query(partial(evicting.left_behind, after=self._left_from))
        self._left_from = end or _FIRST_CONTENT
        if not found:
            return Evicted()
        return await self._journal.transact(partial(evicting.evict_contents, found=found))

    async def _over(self) -> bool:
        """Tell whether the journal uses more than it may."""
        used = await self._journal.query(evicting.used_bytes)
        return used > self._settings.journal_bytes
