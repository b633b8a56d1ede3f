"""Deletion and pruning in the journal, and garbage collection of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from sqlalchemy import (
    bindparam,
    select,
)

from ...core.errors import Reason, Refusal
from ...core.limits import LIMITS
from ...core.threads import EventKind, PruneStrategy
from ...journal.database.database import Database
from ...journal.database.thread_rows import Place
from ...journal.database.unit_of_work import UnitOfWork
from ...journal.removal import forgetting, garbage_collection
from ...journal.removal.deletion import SUBGRAPH_CALL, delete_thread, remove_checkpoints
from ...journal.removal.delta_bases import Nodes
from ...journal.sql.schema import (
    checkpoints,
    threads,
)
from ...journal.sql.statements import (
    EMPTY,
    LISTED,
    Statement,
    of_users,
)
from ..checkpoints.listed_threads import live_thread, switch_search
from .sweep import drop_answers, drop_changes, drop_early_writes

_MICROSECONDS = 1_000_000
_OF_RUNS = Statement(
    select(threads.c.thread_id)
    .join(checkpoints, checkpoints.c.thread == threads.c.number)
    .where(
        checkpoints.c.tenant == bindparam("of_tenant"),
        checkpoints.c.run_id.in_(LISTED),
        checkpoints.c.run_id != EMPTY,
        of_users(threads),
    )
    .distinct()
)
_PAST = Statement(
    select(threads.c.tenant, threads.c.thread_id)
    .where(threads.c.expire_us.is_not(None), threads.c.expire_us <= bindparam("now_us"))
    .order_by(threads.c.expire_us, threads.c.number)
    .limit(bindparam("max_rows"))
    .offset(bindparam("skipped"))
)


@dataclass(frozen=True, slots=True)
class SweepCounts:
    """Numbers of removed rows."""

    contents: int = 0
    early_writes: int = 0
    requests: int = 0
    changes: int = 0
    threads: int = 0


class RemovalRows:
    """Removes checkpoints and threads, and unneeded rows.

    All calls are coroutines and safe to use at the same time. A mutation returns after its
    commit is fsynced; cancelling the caller withdraws it only before the writer starts it.
    Every call can refuse with `JOURNAL_UNAVAILABLE`.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def delete_thread(self, tenant: str, thread_id: str) -> int:
        """Delete a thread and end its incarnation; do nothing if it does not exist."""
        return await self._database.transact(
            partial(delete_thread, tenant=tenant, thread_id=thread_id)
        )

    async def prune_thread(self, tenant: str, thread_id: str, strategy: PruneStrategy) -> int:
        """Delete old checkpoints of a thread; do nothing if it does not exist."""
        if strategy is PruneStrategy.DELETE_ALL:
            return await self.delete_thread(tenant, thread_id)
        return await self._database.transact(
            partial(
                remove_checkpoints,
                tenant=tenant,
                thread_id=thread_id,
                choose=superseded_checkpoints,
            )
        )

    async def delete_runs(self, tenant: str, run_ids: Sequence[str]) -> int:
        """Delete the checkpoints of runs, over all threads, each in a transaction of its own.

        A damaged thread does not prevent the deletion of runs in other threads.

        Raises:
            Refusal: `JOURNAL_DAMAGED`: a thread is damaged and was not changed.
        """
        runs = frozenset(run_ids) - {""}  # an empty ID means no run
        thread_ids = await self._database.query(
            lambda connection: {
                row[0] for row in _OF_RUNS.run_listed(connection, runs, of_tenant=tenant)
            }
        )

        def of_runs(nodes: Nodes) -> set[Place]:
            return {place for place, node in nodes.items() if node.run_id in runs}

        remove = partial(remove_checkpoints, tenant=tenant, choose=of_runs)
        count, damaged = 0, list[Refusal]()
        for thread_id in sorted(thread_ids):
            try:
                count += await self._database.transact(partial(remove, thread_id=thread_id))
            except Refusal as refusal:
                if refusal.reason is not Reason.JOURNAL_DAMAGED:
                    raise
                damaged.append(refusal)
        if damaged:
            raise damaged[0]
        return count

    async def set_retention(self, tenant: str, thread_id: str, retention_s: int) -> None:
        """Set the seconds without a change after which a thread is deleted; 0: never.

        The call counts as a change even with an equal setting: the time restarts.

        Raises:
            Refusal: `THREAD_NOT_FOUND`.
        """

        def change(batch: UnitOfWork) -> None:
            log = live_thread(batch, tenant, thread_id)
            log.row.retention_s = retention_s
            log.row.settings_seq = batch.change(log, EventKind.RETENTION_SET)

        await self._database.change(change, thread=(tenant, thread_id))

    async def set_searchable(self, tenant: str, thread_id: str, searchable: bool) -> None:
        """Set whether search finds the checkpoints of a thread; an equal setting is not a change.

        Raises:
            Refusal: `THREAD_NOT_FOUND`.
        """
        await self._database.change(
            lambda batch: switch_search(batch, live_thread(batch, tenant, thread_id), searchable),
            thread=(tenant, thread_id),
        )

    async def past_retention(self, limit: int, skipped: int = 0) -> list[tuple[str, str]]:
        """Return tenant and name of expired threads, the longest expired first.

        `skipped`: number of threads to skip.
        """
        parameters = {"now_us": self._database.now_us(), "max_rows": limit, "skipped": skipped}
        return list(await self._database.rows(_PAST, **parameters))

    async def delete_if_past(self, tenant: str, thread_id: str) -> int | None:
        """Delete a thread if it is expired; `None` if it is not."""

        def delete(batch: UnitOfWork) -> int | None:
            log = batch.find(tenant, thread_id)
            if log is None or log.row.deleted or log.row.expire_us is None:
                return None
            if log.row.expire_us > batch.now_us:
                return None
            return delete_thread(batch, tenant, thread_id)

        return await self._database.transact(delete)

    async def sweep(self, *, early_write_ttl_s: float, indexing: bool = True) -> SweepCounts:
        """Remove values that no checkpoint needs, and expired rows.

        `early_write_ttl_s`: seconds that a write waits for its checkpoint. `indexing`: search is
        switched on, and has to read changes before they go.
        """
        database = self._database
        now_us = database.now_us()
        early_us = now_us - int(early_write_ttl_s * _MICROSECONDS)
        answered_us = now_us - LIMITS.request_id_ttl_s * _MICROSECONDS
        changed_us = now_us - LIMITS.event_ttl_s * _MICROSECONDS
        return SweepCounts(
            early_writes=await drop_early_writes(database, early_us),
            requests=await drop_answers(database, answered_us),
            changes=await drop_changes(database, changed_us, indexing=indexing),
            contents=(await garbage_collection.remove_due(database)).values,
            threads=await forgetting.forget_threads(database, now_us),
        )


def superseded_checkpoints(nodes: Nodes) -> set[Place]:
    """Return checkpoints that are not the latest of their namespace, and finished subgraph calls.

    A call has a namespace of its own, and is deleted with the root checkpoint under which it ran.
    """
    latest: dict[str, str] = {}
    for namespace, checkpoint_id in nodes:
        latest[namespace] = max(latest.get(namespace, ""), checkpoint_id)
    doomed = set(nodes) - set(latest.items())
    return doomed | {
        place
        for place in latest.items()
        if SUBGRAPH_CALL in place[0] and ("", nodes[place].root_id) in doomed
    }
