"""Removing, as the service calls it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from ...domain.limits import LIMITS
from ...domain.threads import PruneStrategy, Removed
from ..checkpoints import threads
from ..database.database import Database
from . import delete, marking, prune, retention, sweep
from .passes import Passes

_MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True)
class Swept:
    """Numbers of what a sweep removed."""

    contents: int = 0
    early_writes: int = 0
    requests: int = 0
    changes: int = 0


class Removal:
    """Removes checkpoints and threads, and what nothing needs any more.

    All calls are coroutines and safe to use at the same time. A mutation returns after its
    commit is fsynced; cancelling the caller does not undo it. `JOURNAL_UNAVAILABLE` can come
    from every call.

    Attributes:
        passes: The open passes over families; every commit is noted there.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.passes = Passes()
        database.noted.append(self.passes.note)

    async def delete_thread(self, tenant: str, thread_id: str) -> Removed:
        """Delete a thread and end its incarnation; nothing if there is none."""
        return await self._database.transact(
            partial(delete.delete_thread, tenant=tenant, thread_id=thread_id)
        )

    async def prune_thread(self, tenant: str, thread_id: str, strategy: PruneStrategy) -> Removed:
        """Delete old checkpoints of a thread; nothing if there is none."""
        if strategy is PruneStrategy.DELETE_ALL:
            return await self.delete_thread(tenant, thread_id)
        return await self._database.transact(
            partial(prune.keep_latest, tenant=tenant, thread_id=thread_id)
        )

    async def delete_runs(self, tenant: str, run_ids: Sequence[str]) -> Removed:
        """Delete the checkpoints of runs, over all threads, each in a transaction of its own."""
        found = await self._database.query(
            partial(prune.threads_of_runs, tenant=tenant, run_ids=run_ids)
        )
        count = 0
        for thread_id in found:
            removed = await self._database.transact(
                partial(prune.delete_runs, tenant=tenant, thread_id=thread_id, run_ids=run_ids)
            )
            count += removed.deleted
        return Removed(count)

    async def set_retention(self, tenant: str, thread_id: str, retention_s: int) -> None:
        """Set the seconds without a change after which a thread is deleted; 0: never.

        It counts as a change of the thread.

        Raises:
            Refusal: `THREAD_NOT_FOUND`.
        """
        await self._database.change(
            partial(
                threads.set_retention, tenant=tenant, thread_id=thread_id, retention_s=retention_s
            )
        )

    async def set_searchable(self, tenant: str, thread_id: str, searchable: bool) -> None:
        """Set whether search finds the checkpoints of a thread.

        It counts as a change of the thread if it is one.

        Raises:
            Refusal: `THREAD_NOT_FOUND`.
        """
        await self._database.change(
            partial(
                threads.set_searchable, tenant=tenant, thread_id=thread_id, searchable=searchable
            )
        )

    async def past_retention(self, limit: int) -> list[tuple[str, str]]:
        """Return tenant and name of threads that are past their retention."""
        now_us = self._database.now_us()
        return await self._database.query(partial(retention.past, now_us=now_us, limit=limit))

    async def delete_if_past(self, tenant: str, thread_id: str) -> Removed | None:
        """Delete a thread that is past its retention; `None` if it is not (any more)."""
        return await self._database.transact(
            partial(retention.delete_if_past, tenant=tenant, thread_id=thread_id)
        )

    async def sweep(self, *, early_write_ttl_s: float, indexing: bool = True) -> Swept:
        """Remove values that no checkpoint needs, and what has expired.

        Args:
            early_write_ttl_s: Seconds that a write waits for its checkpoint.
            indexing: Search is switched on, and has to read changes before they go.
        """
        now_us = self._database.now_us()
        return Swept(
            early_writes=await sweep.drop_early_writes(
                self._database, now_us - int(early_write_ttl_s * _MICROSECONDS)
            ),
            requests=await sweep.drop_answers(
                self._database, now_us - LIMITS.request_id_ttl_s * _MICROSECONDS
            ),
            changes=await sweep.drop_changes(
                self._database,
                now_us - LIMITS.event_ttl_s * _MICROSECONDS,
                indexing=indexing,
            ),
            contents=await self._remove_contents(),
        )

    async def _remove_contents(self) -> int:
        """Remove values that nothing needs, and all of families of which no thread lives."""
        removed = await marking.remove_due(self._database, self.passes)
        after, ended = 0, False
        while not ended:
            found, after = await self._database.query(partial(marking.abandoned, after=after))
            for family in found:
                removed += await marking.remove_unneeded(self._database, self.passes, family)
            ended = after == 0
        return removed.values
