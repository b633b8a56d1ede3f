"""What forking, rolling back and asking for lineage mean."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from ..archive.flush.archive import Archive
from ..domain.errors import Reason, Refusal
from ..domain.limits import LIMITS
from ..domain.lineage import LineageTree
from ..domain.model import CheckpointKey, Durability, Saved
from ..domain.value_groups import Keyframes
from ..journal.lineage.lineage import Lineage
from .commits import Commits


@dataclass(frozen=True, slots=True)
class Made:
    """A checkpoint that was made of another.

    Attributes:
        key: It.
        origin: What it was made of, "thread:checkpoint".
        durability: Durability reached.
    """

    key: CheckpointKey
    origin: str
    durability: Durability


class Lineages:
    """Forks, rollbacks and lineage of all tenants."""

    def __init__(
        self, journal: Lineage, keyframes: Keyframes, archive: Archive, commits: Commits
    ) -> None:
        self._journal = journal
        self._keyframes = keyframes
        self._archive = archive
        self._commits = commits

    async def fork(
        self, tenant: str, key: CheckpointKey, target: str, request_id: str, wanted: Durability
    ) -> Made:
        """Make a thread that begins with a checkpoint; an empty ID means the latest.

        Raises:
            Refusal: `CHECKPOINT_NOT_FOUND`, `THREAD_EXISTS`, `REQUEST_ID_REUSED`,
                `BACKLOG_FULL`; what `Archive.certify` and `Archive.certify_all` raise, and
                then the fork stays journaled.
        """
        self._archive.admit(tenant)
        saved = await self._commits.run_supplied(
            tenant, partial(self._journal.fork, tenant, key, target, request_id)
        )
        self._keyframes.share(tenant, key.thread_id, saved.key.thread_id)
        # A fork keeps the checkpoint's ID.
        origin = f"{key.thread_id}:{saved.key.checkpoint_id}"
        return Made(saved.key, origin, await self._reach(tenant, saved, wanted))

    async def rollback(
        self,
        tenant: str,
        key: CheckpointKey,
        request_id: str,
        expected_head: str | None,
        wanted: Durability,
    ) -> Made:
        """Append a checkpoint that has the state of an earlier one.

        Raises:
            Refusal: `CHECKPOINT_NOT_FOUND`, `HEAD_MOVED`, `REQUEST_ID_REUSED`,
                `BACKLOG_FULL`; of `Archive.read` if values were evicted; what
                `Archive.certify` and `Archive.certify_all` raise, and then the rollback
                stays journaled.
        """
        self._archive.admit(tenant)
        saved = await self._commits.run_supplied(
            tenant, partial(self._journal.rollback, tenant, key, request_id, expected_head)
        )
        return Made(saved.key, str(key), await self._reach(tenant, saved, wanted))

    async def lineage(self, tenant: str, thread_id: str) -> LineageTree:
        """Return the steps that lead to a thread and from it.

        Raises:
            Refusal: `THREAD_NOT_FOUND`.
        """
        tree = await self._journal.lineage(tenant, thread_id, LIMITS.max_lineage_steps)
        if tree is None:
            raise Refusal(Reason.THREAD_NOT_FOUND, thread_id=thread_id)
        return tree

    async def _reach(self, tenant: str, saved: Saved, wanted: Durability) -> Durability:
        if wanted is Durability.CERTIFIED:
            await self._archive.certify(
                tenant, CheckpointKey(saved.key.thread_id, "", ""), saved.seq
            )
        return wanted
