"""Forks, rollbacks, ancestry, differences and verification."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing, closing

from .. import _lineage as lineages
from .._lineage import CheckpointVerdict, Diff, Fork, Rollback, ThreadLineage, Verification
from .._records import DurabilityName
from ..v1.thread_service_pb2 import GetLineageRequest, VerifyThreadRequest
from .base import AsyncFace, SyncFace, twin_of


class SyncLineage(SyncFace):
    """Forks, rollbacks, ancestry, differences and verification."""

    def fork(
        self,
        thread_id: str,
        checkpoint_id: str | None = None,
        *,
        new_thread_id: str = "",
        checkpoint_ns: str = "",
        durability: DurabilityName = "journaled",
    ) -> Fork:
        """Make a new thread that begins with a checkpoint of another.

        The fork keeps the checkpoint's ID, pending writes and label, and what its subgraphs and
        delta channels need. Safe to be sent again: a retry gets the first answer.

        Args:
            thread_id: The thread.
            checkpoint_id: The checkpoint. Default: the latest.
            new_thread_id: The thread to make. Default: the server makes a name.
            checkpoint_ns: The namespace.
            durability: "journaled", or "certified" to wait for the blob store.

        Raises:
            NotFound: There is no such checkpoint.
            AlreadyExists: The new thread has checkpoints.
        """
        request = lineages.forking(
            thread_id, checkpoint_id, new_thread_id, checkpoint_ns, durability
        )
        answer = self._calls.fork_thread(request)
        return lineages.fork_of(answer)

    def rollback(
        self,
        thread_id: str,
        checkpoint_id: str,
        *,
        expected_head: str | None = None,
        checkpoint_ns: str = "",
        durability: DurabilityName = "journaled",
    ) -> Rollback:
        """Append a checkpoint that has the state of an earlier one. Nothing is removed.

        It has no pending writes: tasks run, and interrupts raise, again. Safe to be sent again:
        a retry gets the first answer.

        Args:
            thread_id: The thread.
            checkpoint_id: The checkpoint to go back to.
            expected_head: The ID that the latest must have; otherwise nothing is appended.
            checkpoint_ns: The namespace.
            durability: "journaled", or "certified" to wait for the blob store.

        Raises:
            NotFound: There is no such checkpoint.
            Conflict: The latest is not `expected_head`.
        """
        request = lineages.rolling_back(
            thread_id, checkpoint_id, expected_head, checkpoint_ns, durability
        )
        answer = self._calls.rollback_thread(request)
        self._memory.forget(thread_id)
        return lineages.rollback_of(answer)

    def lineage(self, thread_id: str) -> ThreadLineage:
        """Return the threads that one descends from, and those that descend from it.

        Raises:
            NotFound: There is no such thread.
        """
        answer = self._calls.get_lineage(GetLineageRequest(thread_id=thread_id))
        return lineages.lineage_tree(answer)

    def diff(
        self,
        thread_id: str,
        from_checkpoint_id: str,
        to_checkpoint_id: str | None = None,
        *,
        to_thread_id: str | None = None,
        checkpoint_ns: str = "",
        max_changes: int = 0,
    ) -> Diff:
        """Compare the states of two checkpoints, in the JSON view.

        Args:
            thread_id: The thread.
            from_checkpoint_id: The one side.
            to_checkpoint_id: The other side. Default: the latest.
            to_thread_id: Thread of the other side. Default: the same.
            checkpoint_ns: The namespace.
            max_changes: At most this many. Default: 1,000.

        Raises:
            NotFound: There is no such checkpoint.
        """
        request = lineages.comparing(
            thread_id,
            from_checkpoint_id,
            to_checkpoint_id,
            to_thread_id,
            checkpoint_ns,
            max_changes,
        )
        answer = self._calls.diff_checkpoints(request)
        return lineages.diff_of(answer)

    def verify(
        self,
        thread_id: str,
        on_verdict: Callable[[CheckpointVerdict], object] | None = None,
    ) -> Verification:
        """Read every stored checkpoint of a thread back from the blob store, and judge it.

        Args:
            thread_id: The thread.
            on_verdict: Is told of the verdict on each checkpoint, as it comes. What it raises
                ends the verification.

        Raises:
            NotFound: There is no such thread.
            Unavailable: The server went away meanwhile; verify again.
        """
        verifying = lineages.Verifying(on_verdict)
        request = VerifyThreadRequest(thread_id=thread_id)
        with closing(self._calls.verify_thread(request)) as frames:
            for frame in frames:
                verifying.add(frame)
        return verifying.end()


class AsyncLineage(AsyncFace):
    """Forks, rollbacks, ancestry, differences and verification."""

    @twin_of(SyncLineage.fork)
    async def fork(
        self,
        thread_id: str,
        checkpoint_id: str | None = None,
        *,
        new_thread_id: str = "",
        checkpoint_ns: str = "",
        durability: DurabilityName = "journaled",
    ) -> Fork:
        request = lineages.forking(
            thread_id, checkpoint_id, new_thread_id, checkpoint_ns, durability
        )
        answer = await self._calls.fork_thread(request)
        return lineages.fork_of(answer)

    @twin_of(SyncLineage.rollback)
    async def rollback(
        self,
        thread_id: str,
        checkpoint_id: str,
        *,
        expected_head: str | None = None,
        checkpoint_ns: str = "",
        durability: DurabilityName = "journaled",
    ) -> Rollback:
        request = lineages.rolling_back(
            thread_id, checkpoint_id, expected_head, checkpoint_ns, durability
        )
        answer = await self._calls.rollback_thread(request)
        self._memory.forget(thread_id)
        return lineages.rollback_of(answer)

    @twin_of(SyncLineage.lineage)
    async def lineage(self, thread_id: str) -> ThreadLineage:
        answer = await self._calls.get_lineage(GetLineageRequest(thread_id=thread_id))
        return lineages.lineage_tree(answer)

    @twin_of(SyncLineage.diff)
    async def diff(
        self,
        thread_id: str,
        from_checkpoint_id: str,
        to_checkpoint_id: str | None = None,
        *,
        to_thread_id: str | None = None,
        checkpoint_ns: str = "",
        max_changes: int = 0,
    ) -> Diff:
        request = lineages.comparing(
            thread_id,
            from_checkpoint_id,
            to_checkpoint_id,
            to_thread_id,
            checkpoint_ns,
            max_changes,
        )
        answer = await self._calls.diff_checkpoints(request)
        return lineages.diff_of(answer)

    @twin_of(SyncLineage.verify)
    async def verify(
        self,
        thread_id: str,
        on_verdict: Callable[[CheckpointVerdict], object] | None = None,
    ) -> Verification:
        verifying = lineages.Verifying(on_verdict)
        request = VerifyThreadRequest(thread_id=thread_id)
        async with aclosing(self._calls.verify_thread(request)) as frames:
            async for frame in frames:
                verifying.add(frame)
        return verifying.end()
