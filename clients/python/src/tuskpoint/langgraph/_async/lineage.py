"""Methods that LangGraph does not have: hand-off, fork, rollback, verification, differences."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import asdict
from typing import Any

from ..._messages.lineage import branches, differences, verification
from ..._messages.lineage import handoffs as handoffs
from ..._messages.lineage.handoffs import DescriptorLike
from ..._transport import methods
from ...v1.thread_service_pb2 import VerifyThreadRequest
from .._base import SaverBase
from .._encode import thread_text


class AsyncLineage(SaverBase):
    """Methods for hand-off, fork, rollback, verification, differences; all return dictionaries."""

    async def ahandoff_checkpoint(
        self,
        thread_id: str,
        checkpoint_id: str | None = None,
        to_agent: str | None = None,
        *,
        include_key: bool = False,
        recipient: str | None = None,
    ) -> dict[str, str]:
        """Store a checkpoint and all that it needs as one blob; return the descriptor of the blob.

        An agent with the descriptor and access to the same blob store can adopt the checkpoint,
        with its interrupts.

        Args:
            thread_id: The thread.
            checkpoint_id: The checkpoint; `None` for the latest checkpoint.
            to_agent: Name of the receiving agent; `None` for no name.
            include_key: Whether the descriptor contains the key of a sealed blob, for a receiver
                whose server has other keys. Whoever has such a descriptor can read the checkpoint.
            recipient: Public key of age (`age1...`) to which the key of the blob is sealed, so that
                only the receiver's server opens the blob. The receiver's server lists its public
                keys. `None` for no recipient.

        Returns:
            `source`, `thread_id`, `checkpoint_id`, `blob_id`, `blob_sha256`, `to_agent`,
            `summary`, `signer`, `signature`, and `key` or `sealed_key` if requested.

        Raises:
            NotFound: There is no such checkpoint.
            Unavailable: The blob store is not available.
            PreconditionFailed: `recipient` is given, and the server does not seal blobs.
        """
        request = handoffs.handing_off(
            *(thread_text(thread_id), checkpoint_id, "", to_agent),
            include_key=include_key,
            recipient=recipient,
        )
        answer = await self._async_calls.unary(methods.CREATE_HANDOFF, request)
        return handoffs.read_descriptor(answer.descriptor).as_dict()

    async def aadopt_checkpoint(
        self,
        descriptor: DescriptorLike | None = None,
        new_thread_id: str | None = None,
        *,
        handoff_json: DescriptorLike | None = None,
    ) -> dict[str, Any]:
        """Create a thread whose first checkpoint is a hand-off, after its hash was checked.

        Continue with `graph.ainvoke(..., {"configurable": {"thread_id": new_thread_id}})`. The call
        waits until the new checkpoint is certified.

        Args:
            descriptor: The descriptor that `ahandoff_checkpoint` returned, or its JSON text.
            new_thread_id: Name of the new thread; `None` lets the server generate one.
            handoff_json: Another name for `descriptor`; give one of the two.

        Returns:
            `adopted_from`, `new_thread_id`, `checkpoint_id`, `blob_id`, `verified` and `signer`.

        Raises:
            InvalidDescriptor: The descriptor is malformed.
            DescriptorMismatch: The blob contains another checkpoint than the descriptor names.
            HashMismatch: The bytes of the blob do not match the hash in the descriptor. Nothing was
                written.
            NotFound: The blob store has no such blob.
            AlreadyExists: The new thread has checkpoints.
        """
        adopting = handoffs.AdoptionCollector()
        handoff = handoffs.given_descriptor(descriptor, handoff_json)
        request = handoffs.adopting(handoff, _named(new_thread_id), "certified")
        async with aclosing(self._async_calls.adopt_handoff(request)) as frames:
            async for frame in frames:
                adopting.add(frame)
        return asdict(adopting.end())

    async def afork(
        self, thread_id: str, checkpoint_id: str | None = None, new_thread_id: str | None = None
    ) -> dict[str, Any]:
        """Create a thread that starts with a checkpoint of another thread and its interrupts.

        Args:
            thread_id: The thread.
            checkpoint_id: The checkpoint; `None` for the latest checkpoint.
            new_thread_id: Name of the new thread; `None` lets the server generate one.

        Returns:
            `new_thread_id`, `checkpoint_id` and `forked_from`.

        Raises:
            NotFound: There is no such checkpoint.
            AlreadyExists: The new thread has checkpoints.
        """
        request = branches.forking(
            thread_text(thread_id), checkpoint_id, _named(new_thread_id), "", self._waits_for
        )
        answer = await self._async_calls.unary(methods.FORK_THREAD, request)
        return asdict(branches.fork_of(answer))

    async def arollback_to(
        self, thread_id: str, checkpoint_id: str, *, expected_head: str | None = None
    ) -> dict[str, Any]:
        """Append a checkpoint that has the state of an earlier one. Nothing is removed.

        Continue with `graph.ainvoke(None, config)` and the new checkpoint's ID in `config`: tasks
        run again and interrupts raise again. Without the ID, LangGraph resumes instead, and skips
        a subgraph that keeps its own state and has finished a run.

        Args:
            thread_id: The thread.
            checkpoint_id: The checkpoint whose state the thread gets.
            expected_head: ID that the latest checkpoint must have; otherwise nothing is appended.

        Returns:
            `thread_id`, `checkpoint_id` and `rolled_back_from`.

        Raises:
            NotFound: There is no such checkpoint.
            Conflict: The latest checkpoint is not `expected_head`.
        """
        request = branches.rolling_back(
            thread_text(thread_id), checkpoint_id, expected_head, "", self._waits_for
        )
        answer = await self._async_calls.rollback_thread(request)
        return asdict(branches.rollback_of(answer))

    async def averify_trail(self, thread_id: str) -> dict[str, Any]:
        """Read all stored checkpoints of a thread back from the blob store and check them.

        Returns:
            `ok`, the counts `passed`, `failed`, `unverified` (not certified: `flush` first) and
            `retracted` (deleted), `chain_detail` (the problem of the manifest), `failures`, a list
            of the failed checkpoints, and `journal_details`, the problems in the server's journal.

        Raises:
            NotFound: The thread does not exist.
        """
        verifying = verification.VerificationCollector()
        request = VerifyThreadRequest(thread_id=thread_text(thread_id))
        async with aclosing(self._async_calls.verify_thread(request)) as frames:
            async for frame in frames:
                verifying.add(frame)
        return _plain(verifying.end())

    async def adiff(
        self,
        thread_id: str,
        from_checkpoint_id: str,
        to_checkpoint_id: str | None = None,
        *,
        to_thread_id: str | None = None,
    ) -> dict[str, Any]:
        """Compare the states of two checkpoints, in the JSON view.

        Args:
            thread_id: The thread.
            from_checkpoint_id: The first checkpoint.
            to_checkpoint_id: The second checkpoint; `None` for the latest checkpoint.
            to_thread_id: Thread of the second checkpoint; `None` for the same thread.

        Returns:
            `changes`, each with `kind` ("added", "removed" or "changed"), `channel`, `path` (a JSON
            Pointer), `from_json` and `to_json`; and `truncated`, whether there are more changes.

        Raises:
            NotFound: There is no such checkpoint.
        """
        request = differences.comparing(
            thread_text(thread_id),
            from_checkpoint_id,
            to_checkpoint_id,
            _named(to_thread_id),
            "",
            0,
        )
        answer = await self._async_calls.unary(methods.DIFF_CHECKPOINTS, request)
        return _plain(differences.diff_of(answer))


def _named(thread_id: object) -> str:
    """Return a thread ID as text; empty for `None`."""
    return "" if thread_id is None else str(thread_id)


def _plain(record: verification.Verification | differences.Diff) -> dict[str, Any]:
    """Return a record as dictionaries and lists."""
    members = asdict(record)
    return {
        key: list(value) if isinstance(value, tuple) else value for key, value in members.items()
    }
