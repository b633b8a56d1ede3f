"""What the calls on whole threads mean."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial

from ..archive.archive import Archive
from ..domain.errors import Reason, Refusal
from ..domain.limits import LIMITS
from ..domain.lineage import LineageTree
from ..domain.model import CheckpointKey, Durability
from ..domain.threads import (
    PruneStrategy,
    Removed,
    Thread,
    ThreadDetail,
    Verdict,
    VerdictKind,
    VerificationTotal,
)
from ..journal.checkpoints.store import Checkpoints
from ..journal.checkpoints.threads import ThreadQuery
from ..journal.lineage.lineage import Lineage
from ..journal.removal.removal import Removal
from .commits import Commits
from .page_tokens import PageTokens, page_size

_SWEPT_AT_ONCE = 100
"""Threads past their retention that are looked up together."""


@dataclass(frozen=True, slots=True)
class ThreadPage:
    """Threads by ID; `next_token` is empty on the last page."""

    threads: Sequence[Thread]
    next_token: str


class Threads:
    """Threads of all tenants."""

    def __init__(
        self,
        checkpoints: Checkpoints,
        removal: Removal,
        lineage: Lineage,
        archive: Archive,
        commits: Commits,
        tokens: PageTokens,
    ) -> None:
        self._journal = checkpoints
        self._removal = removal
        self._lineage = lineage
        self._archive = archive
        self._commits = commits
        self._tokens = tokens

    async def get(self, tenant: str, thread_id: str) -> ThreadDetail:
        """Describe a thread.

        Raises:
            Refusal: `THREAD_NOT_FOUND`.
        """
        detail = await self._journal.thread(tenant, thread_id)
        if detail is None:
            raise Refusal(Reason.THREAD_NOT_FOUND, thread_id=thread_id)
        return detail

    async def list(self, tenant: str, query: ThreadQuery, size: int, token: str) -> ThreadPage:
        """Return a page of threads; a size of 0 means the default.

        Raises:
            Refusal: `PAGE_TOKEN_INVALID`.
        """
        listing = ("threads", tenant, query.agent_id, query.label, query.state or 0)
        after = self._tokens.open(listing, token, 1)[0] if token else ""
        size = page_size(size)
        found = await self._journal.list_threads(tenant, query, after, size + 1)
        threads = found[:size]
        more = len(found) > size
        return ThreadPage(
            threads, self._tokens.seal(listing, [threads[-1].thread_id]) if more else ""
        )

    async def verify(
        self, tenant: str, thread_id: str
    ) -> AsyncGenerator[Verdict | VerificationTotal, None]:
        """Yield a verdict on each checkpoint of a thread, then the total.

        Raises:
            Refusal: `THREAD_NOT_FOUND`, for a deleted thread too; `BLOB_UNAVAILABLE`,
                `JOURNAL_UNAVAILABLE` if no verdict can be had now.
        """
        verification = await self._archive.verification(tenant, thread_id)
        if verification is None:
            raise Refusal(Reason.THREAD_NOT_FOUND, thread_id=thread_id)
        counts: Counter[VerdictKind] = Counter()
        async with aclosing(verification.verdicts()) as verdicts:
            async for verdict in verdicts:
                counts[verdict.kind] += 1
                yield verdict
        yield VerificationTotal(counts, verification.chain_problem)

    async def lineage(self, tenant: str, thread_id: str) -> LineageTree:
        """Return the steps that lead to a thread and from it.

        Raises:
            Refusal: `THREAD_NOT_FOUND`.
        """
        tree = await self._lineage.lineage(tenant, thread_id, LIMITS.max_lineage_steps)
        if tree is None:
            raise Refusal(Reason.THREAD_NOT_FOUND, thread_id=thread_id)
        return tree

    # --- changes -----------------------------------------------------------------------

    async def delete(self, tenant: str, thread_id: str, wanted: Durability) -> Removed:
        """Delete a thread.

        Raises:
            Refusal: What `Archive.certify_all` raises; the deletion stays journaled.
        """
        removed = await self._commits.run(tenant, self._removal.delete_thread(tenant, thread_id))
        await self._commits.reach(tenant, lambda name: name == thread_id, wanted)
        return removed

    async def set_retention(
        self, tenant: str, thread_id: str, retention_s: int, wanted: Durability
    ) -> None:
        """Set the seconds without a change after which a thread is deleted; 0: never.

        Raises:
            Refusal: `THREAD_NOT_FOUND`; what `Archive.certify_all` raises, and then the
                setting stays journaled.
        """
        await self._commits.run(tenant, self._removal.set_retention(tenant, thread_id, retention_s))
        await self._commits.reach(tenant, lambda name: name == thread_id, wanted)

    async def set_searchable(
        self, tenant: str, thread_id: str, searchable: bool, wanted: Durability
    ) -> None:
        """Set whether search finds the checkpoints of a thread.

        Raises:
            Refusal: `THREAD_NOT_FOUND`; what `Archive.certify_all` raises, and then the
                setting stays journaled.
        """
        await self._commits.run(tenant, self._removal.set_searchable(tenant, thread_id, searchable))
        await self._commits.reach(tenant, lambda name: name == thread_id, wanted)

    async def delete_past_retention(self) -> int:
        """Delete the threads of all tenants that are past their retention; return how many.

        Each goes in a transaction of its own, which looks again whether it is past.

        Raises:
            Refusal: `JOURNAL_UNAVAILABLE`; the rest is left for the next call.
        """
        count = 0
        while found := await self._removal.past_retention(_SWEPT_AT_ONCE):
            deleted = 0
            for tenant, thread_id in found:
                removed = await self._commits.run(
                    tenant, self._removal.delete_if_past(tenant, thread_id)
                )
                deleted += removed is not None
            count += deleted
            if not deleted:
                break
        return count

    async def copy(
        self, tenant: str, source: str, target: str, request_id: str, wanted: Durability
    ) -> int:
        """Copy a thread; return the number of checkpoints copied.

        Raises:
            Refusal: `THREAD_NOT_FOUND`, `THREAD_EXISTS`, `REQUEST_ID_REUSED`; what
                `Archive.certify_all` raises.
        """
        copied = await self._commits.run_supplied(
            tenant, partial(self._lineage.copy_thread, tenant, source, target, request_id)
        )
        self._journal.keyframes.share(tenant, source, target)
        await self._commits.reach(tenant, lambda name: name == target, wanted)
        return copied

    async def fork(
        self, tenant: str, key: CheckpointKey, target: str, request_id: str, wanted: Durability
    ) -> CheckpointKey:
        """Make a thread that begins with a checkpoint and its ID; an empty ID means the latest.

        Raises:
            Refusal: `CHECKPOINT_NOT_FOUND`, `THREAD_EXISTS`, `REQUEST_ID_REUSED`,
                `BACKLOG_FULL`; of `Archive.read` if values were evicted; what
                `Archive.certify` raises, and then the fork stays journaled.
        """
        self._archive.admit(tenant)
        saved = await self._commits.run_supplied(
            tenant, partial(self._lineage.fork, tenant, key, target, request_id)
        )
        self._journal.keyframes.share(tenant, key.thread_id, saved.key.thread_id)
        await self._commits.reach_change(tenant, saved, wanted)
        return saved.key

    async def rollback(
        self,
        tenant: str,
        key: CheckpointKey,
        request_id: str,
        expected_head: str | None,
        wanted: Durability,
    ) -> CheckpointKey:
        """Append a checkpoint that has the state of an earlier one.

        Raises:
            Refusal: `CHECKPOINT_NOT_FOUND`, `HEAD_MOVED`, `REQUEST_ID_REUSED`,
                `BACKLOG_FULL`; of `Archive.read` if values were evicted; what
                `Archive.certify` raises, and then the rollback stays journaled.
        """
        self._archive.admit(tenant)
        saved = await self._commits.run_supplied(
            tenant, partial(self._lineage.rollback, tenant, key, request_id, expected_head)
        )
        await self._commits.reach_change(tenant, saved, wanted)
        return saved.key

    async def prune(
        self,
        tenant: str,
        thread_ids: Sequence[str],
        strategy: PruneStrategy,
        wanted: Durability,
    ) -> Removed:
        """Prune threads, each in a transaction of its own; return what went in total.

        Raises:
            Refusal: What `Archive.certify_all` raises.
        """
        deleted = 0
        pruned = dict.fromkeys(thread_ids)
        for thread_id in pruned:
            removed = await self._commits.run(
                tenant, self._removal.prune_thread(tenant, thread_id, strategy)
            )
            deleted += removed.deleted
        await self._commits.reach(tenant, lambda name: name in pruned, wanted)
        return Removed(deleted)

    async def delete_runs(self, tenant: str, run_ids: Sequence[str], wanted: Durability) -> Removed:
        """Delete the checkpoints of runs.

        Raises:
            Refusal: What `Archive.certify_all` raises.
        """
        unique = tuple(dict.fromkeys(run_ids))
        removed = await self._commits.run(tenant, self._removal.delete_runs(tenant, unique))
        await self._commits.reach(tenant, lambda name: True, wanted)
        return removed
