"""Methods that fork, roll back, compare and verify threads, and list their ancestry."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing

from ..._messages.arguments import check_texts
from ..._messages.lineage import branches, differences, verification
from ..._messages.lineage.branches import Fork, Rollback, ThreadLineage
from ..._messages.lineage.differences import Diff
from ..._messages.lineage.verification import CheckpointVerdict, Verification
from ..._messages.records import DurabilityName
from ..._transport import methods
from ...v1.thread_service_pb2 import GetLineageRequest, VerifyThreadRequest
from .part import AsyncPart


class AsyncLineage(AsyncPart):
    """Methods that fork, roll back, compare and verify threads, and list their ancestry."""

    async def fork(
        self,
        thread_id: str,
        checkpoint_id: str | None = None,
        new_thread_id: str | None = None,
        *,
        checkpoint_ns: str = "",
        durability: DurabilityName = "journaled",
        effects: branches.EffectsModeName = "copy",
    ) -> Fork:
        """Create a thread that starts with a checkpoint of another thread.

        The fork keeps the checkpoint's ID, pending writes and label, and what its subgraphs and
        delta channels need. The call is idempotent: a retry gets the first answer.

        Args:
            thread_id: The thread.
            checkpoint_id: The checkpoint. Default: the latest checkpoint.
            new_thread_id: Name of the new thread. Default: the server generates one.
            checkpoint_ns: The namespace.
            durability: "journaled", or "certified" to wait for the blob store.
            effects: "copy": the new thread has the effects of the checkpoint. "answer": it has all
                effects of the source and begins none, to test changed code against them.

        Raises:
            NotFound: There is no such checkpoint.
            AlreadyExists: The new thread has checkpoints.
        """
        request = branches.forking(
            thread_id, checkpoint_id, new_thread_id, checkpoint_ns, durability, effects
        )
        answer = await self._calls.unary(methods.FORK_THREAD, request)
        return branches.fork_of(answer)

    async def rollback(
        self,
        thread_id: str,
        checkpoint_id: str,
        *,
        expected_head: str | None = None,
        checkpoint_ns: str = "",
        durability: DurabilityName = "journaled",
    ) -> Rollback:
        """Append a checkpoint that has the state of an earlier one. Nothing is removed.

        The new checkpoint has no pending writes, so tasks run again and interrupts raise again. The
        call is
        idempotent: a retry gets the first answer.

        Args:
            thread_id: The thread.
            checkpoint_id: The checkpoint whose state the thread gets.
            expected_head: ID that the latest checkpoint must have; otherwise nothing is appended.
            checkpoint_ns: The namespace.
            durability: "journaled", or "certified" to wait for the blob store.

        Raises:
            NotFound: There is no such checkpoint.
            Conflict: The latest checkpoint is not `expected_head`.
        """
        request = branches.rolling_back(
            thread_id, checkpoint_id, expected_head, checkpoint_ns, durability
        )
        answer = await self._calls.rollback_thread(request)
        self._memory.forget(thread_id)
        return branches.rollback_of(answer)

    async def lineage(self, thread_id: str) -> ThreadLineage:
        """Return the ancestors and the descendants of a thread.

        Raises:
            NotFound: The thread does not exist.
        """
        check_texts(thread_id=thread_id)
        request = GetLineageRequest(thread_id=thread_id)
        return branches.lineage_tree(await self._calls.unary(methods.GET_LINEAGE, request))

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
        """Compare the states of two checkpoints, in the JSON view.

        Args:
            thread_id: The thread.
            from_checkpoint_id: The first checkpoint.
            to_checkpoint_id: The second checkpoint. Default: the latest checkpoint.
            to_thread_id: Thread of the second checkpoint. Default: the same thread.
            checkpoint_ns: The namespace.
            max_changes: Most changes to return. Default: 1,000.

        Raises:
            NotFound: There is no such checkpoint.
        """
        request = differences.comparing(
            thread_id,
            from_checkpoint_id,
            to_checkpoint_id,
            to_thread_id,
            checkpoint_ns,
            max_changes,
        )
        answer = await self._calls.unary(methods.DIFF_CHECKPOINTS, request)
        return differences.diff_of(answer)

    async def verify(
        self,
        thread_id: str,
        on_verdict: Callable[[CheckpointVerdict], object] | None = None,
    ) -> Verification:
        """Read all stored checkpoints of a thread back from the blob store and check them.

        Args:
            thread_id: The thread.
            on_verdict: Called with the verdict on each checkpoint. An exception in `on_verdict`
                ends the verification.

        Raises:
            NotFound: The thread does not exist.
            Unavailable: The connection to the server was lost; verify again.
        """
        verifying = verification.VerificationCollector(on_verdict)
        check_texts(thread_id=thread_id)
        request = VerifyThreadRequest(thread_id=thread_id)
        async with aclosing(self._calls.verify_thread(request)) as frames:
            async for frame in frames:
                verifying.add(frame)
        return verifying.end()
