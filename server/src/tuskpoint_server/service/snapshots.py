"""What the calls on snapshots mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from ..archive.archive import Archive
from ..domain.errors import Reason, Refusal
from ..domain.model import CheckpointKey, Durability
from ..domain.snapshots import Snapshot, member_threads_of, thread_of
from ..journal.lineage.snapshots import SnapshotDraft, SnapshotQuery
from ..journal.lineage.snapshots import Snapshots as SnapshotRows
from .commits import Commits
from .page_tokens import PageTokens, page_size


@dataclass(frozen=True, slots=True)
class SnapshotPage:
    """Snapshots, newest first; `next_token` is empty on the last page."""

    snapshots: Sequence[Snapshot]
    next_token: str


class Snapshots:
    """Snapshots of all tenants."""

    def __init__(
        self, journal: SnapshotRows, archive: Archive, commits: Commits, tokens: PageTokens
    ) -> None:
        self._journal = journal
        self._archive = archive
        self._commits = commits
        self._tokens = tokens

    # --- reads -------------------------------------------------------------------------

    async def get(self, tenant: str, snapshot_id: str) -> Snapshot:
        """Return a snapshot.

        Raises:
            Refusal: `SNAPSHOT_NOT_FOUND`.
        """
        found = await self._journal.snapshot(tenant, snapshot_id)
        if found is None:
            raise Refusal(Reason.SNAPSHOT_NOT_FOUND, snapshot_id=snapshot_id)
        return found

    async def latest(self, tenant: str, query: SnapshotQuery) -> Snapshot:
        """Return the newest snapshot that matches.

        Raises:
            Refusal: `SNAPSHOT_NOT_FOUND`.
        """
        found = await self._journal.list_snapshots(tenant, query, "", 1)
        if not found:
            raise Refusal(Reason.SNAPSHOT_NOT_FOUND, snapshot_id="latest")
        return found[0]

    async def list(self, tenant: str, query: SnapshotQuery, size: int, token: str) -> SnapshotPage:
        """Return a page of snapshots; a size of 0 means the default.

        Raises:
            Refusal: `PAGE_TOKEN_INVALID`.
        """
        asked = (query.session_id, query.hostname, query.working_directory)
        listing = ("snapshots", tenant, *asked)
        below = self._tokens.open(listing, token, 1)[0] if token else ""
        size = page_size(size)
        found = await self._journal.list_snapshots(tenant, query, below, size + 1)
        page = found[:size]
        more = len(found) > size
        return SnapshotPage(
            page, self._tokens.seal(listing, [page[-1].snapshot_id]) if more else ""
        )

    # --- changes -----------------------------------------------------------------------

    async def create(
        self, tenant: str, draft: SnapshotDraft, request_id: str, wanted: Durability
    ) -> Snapshot:
        """Capture the heads of threads at one instant.

        Raises:
            Refusal: `THREAD_NOT_FOUND`, `REQUEST_ID_REUSED`, `BACKLOG_FULL`; what
                `Archive.certify_all` raises, and then the snapshot stays journaled.
        """
        self._archive.admit(tenant)
        created = await self._commits.run_supplied(
            tenant, partial(self._journal.create_snapshot, tenant, draft, request_id)
        )
        await self._commits.reach(tenant, _threads_of(created.snapshot_id), wanted)
        return created

    async def restore(
        self, tenant: str, snapshot_id: str, *, rollback: bool, request_id: str, wanted: Durability
    ) -> tuple[CheckpointKey, ...]:
        """Restore all members, or none; return the restored checkpoints, in their order.

        Raises:
            Refusal: `SNAPSHOT_NOT_FOUND`, `THREAD_NOT_FOUND`, `REQUEST_ID_REUSED`,
                `BACKLOG_FULL`; of `Archive.read` if values were evicted; what
                `Archive.certify_all` raises, and then what was restored stays journaled.
        """
        self._archive.admit(tenant)
        restored = await self._commits.run_supplied(
            tenant,
            lambda supplied: self._journal.restore_snapshot(
                tenant,
                snapshot_id,
                rollback=rollback,
                request_id=request_id,
                supplied=supplied,
            ),
        )
        targets = {saved.key.thread_id for saved in restored}
        await self._commits.reach(tenant, lambda name: name in targets, wanted)
        return tuple(saved.key for saved in restored)

    async def delete(self, tenant: str, snapshot_id: str, wanted: Durability) -> bool:
        """Delete a snapshot; tell whether there was one.

        Raises:
            Refusal: What `Archive.certify_all` raises; the deletion stays journaled.
        """
        deleted = await self._commits.run(
            tenant, self._journal.delete_snapshot(tenant, snapshot_id)
        )
        await self._commits.reach(tenant, _threads_of(snapshot_id), wanted)
        return deleted


def _threads_of(snapshot_id: str) -> Callable[[str], bool]:
    """Return what tells whether a thread keeps a snapshot, or a member of it."""
    describing, members = thread_of(snapshot_id), member_threads_of(snapshot_id)
    return lambda name: name == describing or name.startswith(members)
