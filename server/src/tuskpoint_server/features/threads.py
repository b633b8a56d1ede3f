"""Calls on whole threads, and on snapshots of them."""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import astuple, dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any

from ..archive.archive import Archive
from ..archive.formats.manifests import Key, Manifest, ManifestEntry
from ..archive.read.read import page_of
from ..archive.rows.status import KnownCatalog
from ..core.errors import Reason, Refusal, no_snapshot, snapshot_not_found
from ..core.limits import LIMITS
from ..core.lineage import LineageTree
from ..core.model import BlobLocation, CheckpointKey, Durability
from ..core.threads import (
    PruneStrategy,
    Thread,
    ThreadDetail,
    Verdict,
    VerdictKind,
    VerificationTotal,
)
from .checkpoints.checkpoint_rows import CheckpointRows
from .checkpoints.completing import Completer, reach
from .checkpoints.listed_threads import ThreadQuery
from .lineage.lineage import LineageRows
from .lineage.snapshot_state import Snapshot, member_threads_of, thread_of
from .lineage.snapshots import SnapshotDraft, SnapshotQuery, SnapshotRows
from .positions import page, page_size, seal, unseal
from .removal.removal import Removal

_log = logging.getLogger(__name__)

_SWEPT_AT_ONCE = 100  # threads past their retention that are looked up together
_MANIFESTS_KEPT = 4  # manifests that are kept for the next page of their listing


@dataclass(frozen=True, slots=True)
class ManifestPage:
    """A part of a manifest: stored checkpoints by (namespace, ID)."""

    incarnation: int  # of the thread
    entries: Sequence[tuple[Key, ManifestEntry]] = ()
    manifest: Manifest | None = None  # `None` if nothing of the incarnation is stored
    catalog: KnownCatalog | None = None  # the catalog that leads to it
    stored: BlobLocation | None = None  # where the whole was stored, if that was asked for
    next_token: str = ""


@dataclass(frozen=True, slots=True)
class Threads:
    """Threads of all tenants.

    A change of durability `CERTIFIED` waits for all changes so far of the threads concerned. If
    `Archive.certify_all` raises, the change stays journaled.
    """

    _journal: CheckpointRows
    _removal: Removal
    _lineage: LineageRows
    _archive: Archive
    _completer: Completer
    _journal_id: str
    _kept: OrderedDict[tuple[str, str, str], tuple[Manifest, KnownCatalog]] = field(
        default_factory=OrderedDict
    )

    async def get(self, tenant: str, thread_id: str) -> ThreadDetail:
        """Describe a thread."""
        detail = await self._journal.thread(tenant, thread_id)
        if detail is None:
            raise Refusal(Reason.THREAD_NOT_FOUND, thread_id=thread_id)
        return detail

    async def list(
        self, tenant: str, query: ThreadQuery, size: int, token: str
    ) -> tuple[Sequence[Thread], str]:
        """Return a page of threads, and the token of the next."""
        asked = (query.agent_id, query.label, query.state or 0)
        # As text, in which no time differs from the time 0.
        times = (str(query.since_us), str(query.until_us))
        listing = ("threads", self._journal_id, tenant, *asked, *times, query.latest_first)
        read = partial(self._journal.list_threads, tenant, query)
        if query.latest_first:
            place = attrgetter("updated_us", "thread_id")
            return await page(listing, size, token, read, place, int, str)
        return await page(listing, size, token, read, lambda one: (one.thread_id,))

    async def lineage(self, tenant: str, thread_id: str) -> LineageTree:
        """Return the steps that lead to a thread and from it."""
        tree = await self._lineage.lineage(tenant, thread_id, LIMITS.max_lineage_steps)
        if tree is None:
            raise Refusal(Reason.THREAD_NOT_FOUND, thread_id=thread_id)
        return tree

    async def verify(
        self, tenant: str, thread_id: str
    ) -> AsyncGenerator[Verdict | VerificationTotal, None]:
        """Yield a verdict on each checkpoint of a thread, then the total."""
        verification = await self._archive.verification(tenant, thread_id)
        if verification is None:
            raise Refusal(Reason.THREAD_NOT_FOUND, thread_id=thread_id)
        counts: Counter[VerdictKind] = Counter()
        async with aclosing(verification.verdicts()) as verdicts:
            async for verdict in verdicts:
                counts[verdict.kind] += 1
                yield verdict
        journal = await verification.journal_problems()
        yield VerificationTotal(counts, verification.chain_problem, journal)

    async def manifest(
        self, tenant: str, thread_id: str, size: int, token: str, *, store: bool
    ) -> ManifestPage:
        """Return a page of a thread's manifest; the first may store the whole as a blob.

        The manifest that was folded for one page is kept for the next. So a page costs no more
        than its entries, and all pages are of the same catalog, unless others ask for many
        manifests meanwhile.
        """
        incarnation = (await self.get(tenant, thread_id)).thread.incarnation
        listing = ("manifest", self._journal_id, tenant, thread_id, incarnation)
        after: Key | None = None
        known = None
        if token:
            catalog, *last = unseal(listing, token, str, str, str)
            after = (last[0], last[1])
            known = self._kept.pop((tenant, thread_id, catalog), None)
        if known is None:
            known = await self._archive.manifest(tenant, thread_id)
        if known is None or known[0].ended or known[0].incarnation != incarnation:
            return ManifestPage(incarnation)
        stored = await self._archive.store_manifest(tenant, known[0]) if store else None
        entries, more = page_of(known[0], after, page_size(size))
        next_token = ""
        if more:
            catalog = known[1].location.sha256.hex()
            next_token = seal(listing, [catalog, *entries[-1][0]])
            self._kept[(tenant, thread_id, catalog)] = known
            if len(self._kept) > _MANIFESTS_KEPT:
                self._kept.popitem(last=False)
        return ManifestPage(incarnation, entries, *known, stored, next_token)

    async def delete(self, tenant: str, thread_id: str, wanted: Durability) -> int:
        """Delete a thread."""
        removed = await self._removal.delete_thread(tenant, thread_id)
        await reach(self._archive, tenant, wanted, {thread_id}.__contains__)
        return removed

    async def set_retention(
        self, tenant: str, thread_id: str, retention_s: int, wanted: Durability
    ) -> None:
        """Set the seconds without a change after which a thread is deleted; 0: never."""
        await self._removal.set_retention(tenant, thread_id, retention_s)
        await reach(self._archive, tenant, wanted, {thread_id}.__contains__)

    async def set_searchable(
        self, tenant: str, thread_id: str, searchable: bool, wanted: Durability
    ) -> None:
        """Set whether search finds the checkpoints of a thread."""
        await self._removal.set_searchable(tenant, thread_id, searchable)
        await reach(self._archive, tenant, wanted, {thread_id}.__contains__)

    async def delete_past_retention(self) -> int:
        """Delete the threads of all tenants that are past their retention; return how many.

        Each goes in a transaction of its own, which looks again whether it is past. Damaged ones
        stay as they are.
        """
        count = damaged = 0
        while found := await self._removal.past_retention(_SWEPT_AT_ONCE, damaged):
            before = count, damaged
            for tenant, thread_id in found:
                try:
                    count += await self._removal.delete_if_past(tenant, thread_id) is not None
                except Refusal as refusal:
                    if refusal.reason is not Reason.JOURNAL_DAMAGED:
                        raise
                    damaged += 1
                    _log.error("not deleted past its retention: %s", refusal)
            if (count, damaged) == before:
                break
        return count

    async def copy(
        self, tenant: str, source: str, target: str, request_id: str, wanted: Durability
    ) -> int:
        """Copy a thread; return the number of checkpoints copied."""
        copy = partial(self._lineage.copy_thread, tenant, source, target, request_id)
        copied = await self._completer.supplied(tenant, copy)
        self._journal.keyframes.share(tenant, source, target)
        await reach(self._archive, tenant, wanted, {target}.__contains__)
        return copied

    async def fork(
        self, tenant: str, key: CheckpointKey, target: str, request_id: str, wanted: Durability
    ) -> CheckpointKey:
        """Make a thread that begins with a checkpoint and its ID; an empty ID means the latest."""
        self._archive.backlog(tenant).admit()
        fork = partial(self._lineage.fork, tenant, key, target, request_id)
        saved = await self._completer.supplied(tenant, fork)
        self._journal.keyframes.share(tenant, key.thread_id, saved.key.thread_id)
        await reach(self._archive, tenant, wanted, saved)
        return saved.key

    async def rollback(
        self,
        tenant: str,
        key: CheckpointKey,
        request_id: str,
        expected_head: str | None,
        wanted: Durability,
    ) -> CheckpointKey:
        """Append a checkpoint that has the state of an earlier one."""
        self._archive.backlog(tenant).admit()
        rollback = partial(self._lineage.rollback, tenant, key, request_id, expected_head)
        saved = await self._completer.supplied(tenant, rollback)
        await reach(self._archive, tenant, wanted, saved)
        return saved.key

    async def prune(
        self,
        tenant: str,
        thread_ids: Sequence[str],
        strategy: PruneStrategy,
        wanted: Durability,
    ) -> int:
        """Prune threads, each in a transaction of its own; return how many checkpoints went."""
        deleted = 0
        pruned = dict.fromkeys(thread_ids)
        for thread_id in pruned:
            deleted += await self._removal.prune_thread(tenant, thread_id, strategy)
        await reach(self._archive, tenant, wanted, pruned.__contains__)
        return deleted

    async def delete_runs(self, tenant: str, run_ids: Sequence[str], wanted: Durability) -> int:
        """Delete the checkpoints of runs."""
        deleted = await self._removal.delete_runs(tenant, tuple(dict.fromkeys(run_ids)))
        await reach(self._archive, tenant, wanted, lambda thread_id: True)
        return deleted


@dataclass(frozen=True, slots=True)
class Snapshots:
    """Snapshots of all tenants; changes wait as those of `Threads` do."""

    _journal: SnapshotRows
    _archive: Archive
    _completer: Completer
    _journal_id: str

    async def get(self, tenant: str, snapshot_id: str) -> Snapshot:
        """Return a snapshot."""
        read = partial(self._journal.snapshot, tenant, snapshot_id)
        found = await self._completer.mended(tenant, read)
        if found is None:
            raise snapshot_not_found(snapshot_id)
        return found

    async def latest(self, tenant: str, query: SnapshotQuery) -> Snapshot:
        """Return the newest snapshot that matches."""
        read = partial(self._journal.list_snapshots, tenant, query, "", 1)
        found = await self._completer.mended(tenant, read)
        if not found:
            raise no_snapshot(*astuple(query))
        return found[0]

    async def list(
        self, tenant: str, query: SnapshotQuery, size: int, token: str
    ) -> tuple[Sequence[Snapshot], str]:
        """Return a page of snapshots, newest first, and the token of the next."""
        asked = (query.session_id, query.hostname, query.working_directory)

        async def read(after: str, limit: int) -> list[Snapshot]:
            look = partial(self._journal.list_snapshots, tenant, query, after, limit)
            return await self._completer.mended(tenant, look)

        listing = ("snapshots", self._journal_id, tenant, *asked)
        return await page(listing, size, token, read, lambda one: (one.snapshot_id,))

    async def create(
        self, tenant: str, draft: SnapshotDraft, request_id: str, wanted: Durability
    ) -> Snapshot:
        """Capture the heads of threads at one instant."""
        self._archive.backlog(tenant).admit()
        create = partial(self._journal.create_snapshot, tenant, draft, request_id)
        created = await self._completer.supplied(tenant, create)
        await reach(self._archive, tenant, wanted, _threads_of(created.snapshot_id))
        return created

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
        """Restore all members, or none; return the restored checkpoints, in their order."""
        self._archive.backlog(tenant).admit()
        asked: dict[str, Any] = {
            "rollback": rollback,
            "skip_deleted": skip_deleted,
            "request_id": request_id,
        }
        restore = partial(self._journal.restore_snapshot, tenant, snapshot_id, **asked)
        saved = await self._completer.supplied(tenant, restore)
        restored = tuple(one.key for one in saved)
        targets = {key.thread_id for key in restored}
        await reach(self._archive, tenant, wanted, targets.__contains__)
        return restored

    async def delete(self, tenant: str, snapshot_id: str, wanted: Durability) -> bool:
        """Delete a snapshot; return whether there was one."""
        deleted = await self._journal.delete_snapshot(tenant, snapshot_id)
        await reach(self._archive, tenant, wanted, _threads_of(snapshot_id))
        return deleted


def _threads_of(snapshot_id: str) -> Callable[[str], bool]:
    """Return the condition that a thread keeps a snapshot, or a member of it."""
    describing, members = thread_of(snapshot_id), member_threads_of(snapshot_id)
    return lambda name: name == describing or name.startswith(members)
