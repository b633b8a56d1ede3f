"""Copies, forks and rollbacks on this server, and the lineage of threads."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from ...archive.archive import Archive
from ...core.effects.records import EffectsMode, and_effects
from ...core.errors import Reason, Refusal
from ...core.limits import LIMITS
from ...core.lineage import LineageTree
from ...core.model import CheckpointKey, Durability
from ..checkpoints.checkpoint_rows import CheckpointRows
from ..checkpoints.completing import Completer, reach
from .lineage import LineageRows


@dataclass(frozen=True, slots=True)
class Branches:
    """Copies, forks and rollbacks of all tenants.

    A change of durability `CERTIFIED` waits for all changes so far of its threads. If
    `Archive.certify_all` raises, the change stays journaled.
    """

    _lineage: LineageRows
    _checkpoints: CheckpointRows
    _archive: Archive
    _completer: Completer

    async def lineage(self, tenant: str, thread_id: str) -> LineageTree:
        """Return the steps of lineage that lead to a thread and from it."""
        tree = await self._lineage.lineage(tenant, thread_id, LIMITS.max_lineage_steps)
        if tree is None:
            raise Refusal(Reason.THREAD_NOT_FOUND, thread_id=thread_id)
        return tree

    async def copy(
        self, tenant: str, source: str, target: str, request_id: str, wanted: Durability
    ) -> int:
        """Copy a thread; return the number of checkpoints copied."""
        copy = partial(self._lineage.copy_thread, tenant, source, target, request_id)
        copied = await self._completer.supplied(tenant, copy)
        self._checkpoints.keyframes.share(tenant, source, target)
        await reach(self._archive, tenant, wanted, and_effects([target]))
        return copied

    async def fork(
        self,
        tenant: str,
        key: CheckpointKey,
        target: str,
        request_id: str,
        wanted: Durability,
        mode: EffectsMode = EffectsMode.COPY,
    ) -> CheckpointKey:
        """Create a thread that starts with a checkpoint; an empty ID means the latest."""
        self._archive.backlog(tenant).admit()
        fork = partial(self._lineage.fork, tenant, key, target, request_id, mode=mode)
        saved = await self._completer.supplied(tenant, fork)
        self._checkpoints.keyframes.share(tenant, key.thread_id, saved.key.thread_id)
        await reach(self._archive, tenant, wanted, saved)
        await reach(self._archive, tenant, wanted, and_effects([saved.key.thread_id]))
        return saved.key

    async def rollback(
        self,
        tenant: str,
        key: CheckpointKey,
        request_id: str,
        expected_head: str | None,
        lease_id: str,
        wanted: Durability,
    ) -> CheckpointKey:
        """Append a checkpoint with the state of an earlier checkpoint."""
        self._archive.backlog(tenant).admit()
        rollback = partial(
            self._lineage.rollback, tenant, key, request_id, expected_head, lease_id=lease_id
        )
        saved = await self._completer.supplied(tenant, rollback)
        await reach(self._archive, tenant, wanted, saved)
        return saved.key
