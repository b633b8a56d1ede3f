"""What the calls on snapshots mean."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ..archive.archive import Archive
from ..domain.errors import Reason, Refusal
from ..domain.model import CheckpointKey, Durability
from ..domain.snapshots import Snapshot, member_threads_of, thread_of
from ..journal.lineage.snapshots import SnapshotDraft, SnapshotQuery
from ..journal.lineage.snapshots import Snapshots as SnapshotRows
from .completing import Commits
from .threads import Page, PageTokens


@dataclass(frozen=True, slots=True)
class Snapshots:
    """Snapshots of all tenants.

    A change of durability `CERTIFIED` raises what `Archive.certify_all` raises, and then stays
    journaled.
    """

    _journal: SnapshotRows
    _archive: Archive
    _commits: Commits
    _tokens: PageTokens

    async def get(self, tenant: str, snapshot_id: str) -> Snapshot:
        """Return a snapshot."""
        found = await self._journal.snapshot(tenant, snapshot_id)
        if found is None:
            raise Refusal(Reason.SNAPSHOT_NOT_FOUND, snapshot_id=snapshot_id)
        return found

    async def latest(self, tenant: str, query: SnapshotQuery) -> Snapshot:
        """Return the newest snapshot that matches."""
        found = await self._journal.list_snapshots(tenant, query, "", 1)
        if not found:
            raise Refusal(Reason.SNAPSHOT_NOT_FOUND, snapshot_id="latest")
        return found[0]

    async def list(
        self, tenant: str, query: SnapshotQuery, size: int, token: str
    ) -> Page[Snapshot]:
        """Return a page of snapshots, newest first."""
        asked = (query.session_id, query.hostname, query.working_directory)
        read = partial(self._journal.list_snapshots, tenant, query)
        listing = ("snapshots", tenant, *asked)
        return await self._tokens.page(listing, size, token, read, lambda one: one.snapshot_id)

    async def create(
        self, tenant: str, draft: SnapshotDraft, request_id: str, wanted: Durability
    ) -> Snapshot:
        """Capture the heads of threads at one instant."""
        self._archive.admit(tenant)
        create = partial(self._journal.create_snapshot, tenant, draft, request_id)
        created = await self._commits.run(tenant, self._commits.supplied(tenant, create))
        await self._commits.reach(tenant, wanted, _threads_of(created.snapshot_id))
        return created

    async def restore(
        self, tenant: str, snapshot_id: str, *, rollback: bool, request_id: str, wanted: Durability
    ) -> tuple[CheckpointKey, ...]:
        """Restore all members, or none; return the restored checkpoints, in their order."""
        self._archive.admit(tenant)
        change = self._commits.supplied(
            tenant,
            lambda supplied: self._journal.restore_snapshot(
                tenant, snapshot_id, rollback=rollback, request_id=request_id, supplied=supplied
            ),
        )
        restored = tuple(saved.key for saved in await self._commits.run(tenant, change))
        targets = {key.thread_id for key in restored}
        await self._commits.reach(tenant, wanted, targets.__contains__)
        return restored

    async def delete(self, tenant: str, snapshot_id: str, wanted: Durability) -> bool:
        """Delete a snapshot; tell whether there was one."""
        change = self._journal.delete_snapshot(tenant, snapshot_id)
        return await self._commits.run(tenant, change, wanted, _threads_of(snapshot_id))


def _threads_of(snapshot_id: str) -> Callable[[str], bool]:
    """Return what tells whether a thread keeps a snapshot, or a member of it."""
    describing, members = thread_of(snapshot_id), member_threads_of(snapshot_id)
    return lambda name: name == describing or name.startswith(members)
