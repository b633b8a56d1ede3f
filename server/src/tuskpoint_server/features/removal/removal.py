"""Calls to delete and prune threads and checkpoints, and to set their retention."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from ...archive.archive import Archive
from ...core.effects.records import and_effects
from ...core.errors import Reason, Refusal
from ...core.model import Durability
from ...core.threads import (
    PruneStrategy,
)
from ..checkpoints.completing import reach
from .removal_rows import RemovalRows

_log = logging.getLogger(__name__)

_SWEPT_AT_ONCE = 100  # expired threads that are looked up together


@dataclass(frozen=True, slots=True)
class Removal:
    """Deletes and prunes threads of all tenants; changes wait like the changes of `Branches`."""

    _journal: RemovalRows
    _archive: Archive

    async def delete(self, tenant: str, thread_id: str, wanted: Durability) -> int:
        """Delete a thread."""
        count = await self._journal.delete_thread(tenant, thread_id)
        await reach(self._archive, tenant, wanted, and_effects([thread_id]))
        return count

    async def set_retention(
        self, tenant: str, thread_id: str, retention_s: int, wanted: Durability
    ) -> None:
        """Set the seconds without a change after which a thread is deleted; 0: never."""
        await self._journal.set_retention(tenant, thread_id, retention_s)
        await reach(self._archive, tenant, wanted, {thread_id}.__contains__)

    async def set_searchable(
        self, tenant: str, thread_id: str, searchable: bool, wanted: Durability
    ) -> None:
        """Set whether search finds the checkpoints of a thread."""
        await self._journal.set_searchable(tenant, thread_id, searchable)
        await reach(self._archive, tenant, wanted, {thread_id}.__contains__)

    async def delete_past_retention(self) -> int:
        """Delete the expired threads of all tenants; return their number.

        Each thread is deleted in a transaction of its own, which checks its expiry again. Damaged
        threads stay.
        """
        count = damaged = 0
        while threads := await self._journal.past_retention(_SWEPT_AT_ONCE, damaged):
            counts = count, damaged
            for tenant, thread_id in threads:
                try:
                    count += await self._journal.delete_if_past(tenant, thread_id) is not None
                except Refusal as refusal:
                    if refusal.reason is not Reason.JOURNAL_DAMAGED:
                        raise
                    damaged += 1
                    _log.error("not deleted past its retention: %s", refusal)
            if (count, damaged) == counts:
                break
        return count

    async def prune(
        self,
        tenant: str,
        thread_ids: Sequence[str],
        strategy: PruneStrategy,
        wanted: Durability,
    ) -> int:
        """Prune threads, each in its own transaction; return the number of deleted checkpoints."""
        count = 0
        pruned = dict.fromkeys(thread_ids)
        for thread_id in pruned:
            count += await self._journal.prune_thread(tenant, thread_id, strategy)
        await reach(self._archive, tenant, wanted, and_effects(pruned))
        return count

    async def delete_runs(self, tenant: str, run_ids: Sequence[str], wanted: Durability) -> int:
        """Delete the checkpoints of runs."""
        count = await self._journal.delete_runs(tenant, tuple(dict.fromkeys(run_ids)))
        await reach(self._archive, tenant, wanted, lambda thread_id: True)
        return count
