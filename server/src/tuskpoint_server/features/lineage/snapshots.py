"""Calls on snapshots: several threads captured at one instant, and restored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from typing import Any

from ...archive.archive import Archive
from ...core.effects.records import and_effects, effects_of
from ...core.errors import no_snapshot, snapshot_not_found
from ...core.model import CheckpointKey, Durability
from ..checkpoints.completing import Completer, reach
from ..cursors import page
from .snapshot_rows import SnapshotDraft, SnapshotQuery, SnapshotRows
from .snapshot_state import Snapshot, member_threads_of, thread_of


@dataclass(frozen=True, slots=True)
class Snapshots:
    """Snapshots of all tenants; changes wait like the changes of `Branches`."""

    _journal: SnapshotRows
    _archive: Archive
    _completer: Completer
    _journal_id: str

    async def get(self, tenant: str, snapshot_id: str) -> Snapshot:
        """Return a snapshot."""
        read = partial(self._journal.snapshot, tenant, snapshot_id)
        snapshot = await self._completer.mended(tenant, read)
        if snapshot is None:
            raise snapshot_not_found(snapshot_id)
        return snapshot

    async def latest(self, tenant: str, query: SnapshotQuery) -> Snapshot:
        """Return the newest snapshot that matches."""
        read = partial(self._journal.list_snapshots, tenant, query, "", 1)
        snapshots = await self._completer.mended(tenant, read)
        if not snapshots:
            raise no_snapshot(*astuple(query))
        return snapshots[0]

    async def list(
        self, tenant: str, query: SnapshotQuery, size: int, token: str
    ) -> tuple[Sequence[Snapshot], str]:
        """Return a page of snapshots, newest first, and the token of the next."""
        filters = (query.session_id, query.hostname, query.working_directory)

        async def read(after: str, limit: int) -> list[Snapshot]:
            look = partial(self._journal.list_snapshots, tenant, query, after, limit)
            return await self._completer.mended(tenant, look)

        listing = ("snapshots", self._journal_id, tenant, *filters)
        return await page(listing, size, token, read, lambda snapshot: (snapshot.snapshot_id,))

    async def create(
        self, tenant: str, draft: SnapshotDraft, request_id: str, wanted: Durability
    ) -> Snapshot:
        """Capture the heads of threads at one instant."""
        self._archive.backlog(tenant).admit()
        create = partial(self._journal.create_snapshot, tenant, draft, request_id)
        snapshot = await self._completer.supplied(tenant, create)
        await reach(self._archive, tenant, wanted, _threads_of(snapshot.snapshot_id))
        return snapshot

    async def restore(
        self,
        tenant: str,
        snapshot_id: str,
        *,
        rollback: bool,
        skip_deleted: bool,
        request_id: str,
        wanted: Durability,
    ) -> tuple[CheckpointKey, ...]:
        """Restore all members, or none; return the restored checkpoints in order."""
        self._archive.backlog(tenant).admit()
        options: dict[str, Any] = {
            "rollback": rollback,
            "skip_deleted": skip_deleted,
            "request_id": request_id,
        }
        restore = partial(self._journal.restore_snapshot, tenant, snapshot_id, **options)
        saved = await self._completer.supplied(tenant, restore)
        restored = tuple(outcome.key for outcome in saved)
        targets = {key.thread_id for key in restored}
        await reach(self._archive, tenant, wanted, and_effects(targets))
        return restored

    async def delete(self, tenant: str, snapshot_id: str, wanted: Durability) -> bool:
        """Delete a snapshot; return whether it existed."""
        deleted = await self._journal.delete_snapshot(tenant, snapshot_id)
        await reach(self._archive, tenant, wanted, _threads_of(snapshot_id))
        return deleted


def _threads_of(snapshot_id: str) -> Callable[[str], bool]:
    """Return a predicate of threads that belong to a snapshot."""
    describing, members = thread_of(snapshot_id), member_threads_of(snapshot_id)
    captured = effects_of(members)
    return lambda name: name == describing or name.startswith((members, captured))
