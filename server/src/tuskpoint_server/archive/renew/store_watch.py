"""Checks at intervals whether the blob store still has what was stored in it.

Otherwise, a disk that is unmounted while a server runs, or a bucket that is emptied, would be
noticed only by the next flush or the next load from the store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from ...blobs.api import BlobStore, StoreLostError
from ...core.errors import Refusal
from ...core.model import BlobLocation
from ...journal.database.database import Database
from ..flush.catalog_repair import require_catalog
from ..flush.flusher import FlushTrouble
from ..rows import status

_log = logging.getLogger(__name__)

OnCatalog = Callable[[str, BlobLocation], Awaitable[None]]
"""Called with a tenant and its newest catalog when the store has that catalog."""


class StoreWatch:
    """Reads the newest catalog of each tenant from the blob store.

    Args:
        database: The journal.
        blobs: The store itself, without a cache.
        interval_s: Seconds between two checks; `None`: no checks.
        clock_us: Microseconds since the Unix epoch.
        seen: Called for each catalog that the store has.
        lost: Called for each tenant whose newest catalog is missing.
    """

    def __init__(
        self,
        database: Database,
        blobs: BlobStore,
        interval_s: float | None,
        clock_us: Callable[[], int],
        seen: OnCatalog,
        lost: Callable[[str, StoreLostError], None],
    ) -> None:
        self._database = database
        self._blobs = blobs
        self._interval_s = interval_s
        self._clock_us = clock_us
        self._seen = seen
        self._lost = lost
        self._troubles: dict[str, FlushTrouble] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start to check."""
        if self._interval_s is not None:
            self._task = asyncio.create_task(self._run(self._interval_s), name="store-watch")

    async def stop(self) -> None:
        """Stop the checks."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def trouble(self, tenant: str) -> FlushTrouble | None:
        """Return the problem that the last check of a tenant's newest catalog found."""
        return self._troubles.get(tenant)

    async def _run(self, interval_s: float) -> None:
        while True:
            await asyncio.sleep(interval_s)
            try:
                for tenant in await self._database.query(status.catalog_tenants):
                    await self._look(tenant)
            except Refusal as refusal:
                _log.warning("the blob store is not looked at: %s", refusal)
            except Exception:  # noqa: BLE001 - a defect must not end the looking
                _log.exception("a look at the blob store failed")

    async def _look(self, tenant: str) -> None:
        catalog = await self._database.query(partial(status.catalog, tenant=tenant))
        if catalog is None:
            return
        try:
            await require_catalog(self._blobs, tenant, catalog.location)
        except Refusal as refusal:
            newest = await self._database.query(partial(status.catalog, tenant=tenant))
            if newest is None or newest.location != catalog.location:
                # a newer catalog was certified meanwhile, and `collect` may have removed this one
                return
            trouble = self._troubles.get(tenant)
            if trouble is None or trouble.message != refusal.message:
                _log.error("tenant %s: %s", tenant, refusal)
                self._troubles[tenant] = FlushTrouble(refusal.message, self._clock_us())
            if isinstance(refusal, StoreLostError):
                self._lost(tenant, refusal)
            return
        if self._troubles.pop(tenant, None) is not None:
            _log.info("tenant %s: the blob store has the newest catalog again", tenant)
        await self._seen(tenant, catalog.location)
