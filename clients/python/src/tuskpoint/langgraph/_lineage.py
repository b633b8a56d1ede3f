"""What the checkpointer offers beyond LangGraph: hand-offs, forks, rollbacks, proofs, replays."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, closing
from dataclasses import asdict
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple

from .. import _handoff as handoffs
from .. import _lineage as lineages
from .._calls import AsyncCalls, SyncCalls
from .._handoff import DescriptorLike
from .._history import replaying
from .._records import DurabilityName
from .._saving import invalid_field
from ..v1.checkpoint_pb2 import Checkpoint
from ..v1.thread_service_pb2 import VerifyThreadRequest


class LineageMethods:
    """Methods of `TuskPointSaver` that LangGraph does not ask for.

    They return plain dictionaries. Each has a twin to be awaited, whose name begins with "a".
    """

    _calls: SyncCalls
    _async_calls: AsyncCalls
    _waits_for: DurabilityName

    def _decode(self, message: Checkpoint) -> CheckpointTuple:
        raise NotImplementedError

    async def _adecode(self, message: Checkpoint) -> CheckpointTuple:
        raise NotImplementedError

    # --- hand-offs -------------------------------------------------------------------

    def handoff_checkpoint(
        self, thread_id: str, checkpoint_id: str | None, to_agent: str | None = None
    ) -> dict[str, str]:
        """Store everything needed to go on from a checkpoint as one blob; return its descriptor.

        Whoever has the descriptor and the same blob store can adopt it, interrupts included.

        Args:
            thread_id: The thread.
            checkpoint_id: The checkpoint; `None` for the latest.
            to_agent: Name of the agent it is meant for.

        Returns:
            `source`, `thread_id`, `checkpoint_id`, `blob_id`, `blob_sha256`, `to_agent` and
            `summary`.

        Raises:
            NotFound: There is no such checkpoint.
            Unavailable: The blob store cannot be used now.
        """
        request = handoffs.handing_off(_thread(thread_id), checkpoint_id, "", to_agent or "")
        answer = self._calls.create_handoff(request)
        return handoffs.read_descriptor(answer.descriptor).as_dict()

    async def ahandoff_checkpoint(
        self, thread_id: str, checkpoint_id: str | None, to_agent: str | None = None
    ) -> dict[str, str]:
        """Async twin of `handoff_checkpoint`."""
        request = handoffs.handing_off(_thread(thread_id), checkpoint_id, "", to_agent or "")
        answer = await self._async_calls.create_handoff(request)
        return handoffs.read_descriptor(answer.descriptor).as_dict()

    def adopt_checkpoint(self, descriptor: DescriptorLike, new_thread_id: str) -> dict[str, Any]:
        """Make a hand-off the first checkpoint of a new thread, once its hash is checked.

        Go on with `graph.invoke(..., {"configurable": {"thread_id": new_thread_id}})`. It waits
        until the new checkpoint has a blob of its own.

        Args:
            descriptor: What `handoff_checkpoint` returned, or its JSON text.
            new_thread_id: The thread to make.

        Returns:
            `adopted_from`, `new_thread_id`, `checkpoint_id`, `blob_id` and `verified`.

        Raises:
            InvalidDescriptor: The descriptor is none.
            DescriptorMismatch: The blob holds another checkpoint than the descriptor names.
            HashMismatch: The blob does not have the hash. Nothing was written.
            NotFound: The blob store has no such blob.
            AlreadyExists: The new thread has checkpoints.
        """
        adopting = handoffs.Adopting()
        request = handoffs.adopting(descriptor, _named(new_thread_id), "certified")
        with closing(self._calls.adopt_handoff(request)) as frames:
            for frame in frames:
                adopting.add(frame)
        return asdict(adopting.end())

    async def aadopt_checkpoint(
        self, descriptor: DescriptorLike, new_thread_id: str
    ) -> dict[str, Any]:
        """Async twin of `adopt_checkpoint`."""
        adopting = handoffs.Adopting()
        request = handoffs.adopting(descriptor, _named(new_thread_id), "certified")
        async with aclosing(self._async_calls.adopt_handoff(request)) as frames:
            async for frame in frames:
                adopting.add(frame)
        return asdict(adopting.end())

    # --- forks and rollbacks ---------------------------------------------------------

    def fork(
        self, thread_id: str, checkpoint_id: str | None = None, new_thread_id: str | None = None
    ) -> dict[str, Any]:
        """Make a new thread that begins with a checkpoint of another, interrupts included.

        Args:
            thread_id: The thread.
            checkpoint_id: The checkpoint; `None` for the latest.
            new_thread_id: The thread to make; `None` lets the server make a name.

        Returns:
            `new_thread_id`, `checkpoint_id` and `forked_from`.

        Raises:
            NotFound: There is no such checkpoint.
            AlreadyExists: The new thread has checkpoints.
        """
        request = lineages.forking(
            _thread(thread_id), checkpoint_id, _named(new_thread_id), "", self._waits_for
        )
        return asdict(lineages.fork_of(self._calls.fork_thread(request)))

    async def afork(
        self, thread_id: str, checkpoint_id: str | None = None, new_thread_id: str | None = None
    ) -> dict[str, Any]:
        """Async twin of `fork`."""
        request = lineages.forking(
            _thread(thread_id), checkpoint_id, _named(new_thread_id), "", self._waits_for
        )
        return asdict(lineages.fork_of(await self._async_calls.fork_thread(request)))

    def rollback_to(
        self, thread_id: str, checkpoint_id: str, *, expected_head: str | None = None
    ) -> dict[str, Any]:
        """Append a checkpoint that has the state of an earlier one. Nothing is removed.

        Go on with `graph.invoke(None, config)` where `config` names the new checkpoint: tasks
        run, and interrupts raise, again. Without its ID LangGraph resumes, and does not run a
        subgraph again that keeps a state of its own and had finished a run.

        Args:
            thread_id: The thread.
            checkpoint_id: The checkpoint to go back to.
            expected_head: The ID that the latest must have; otherwise nothing is appended.

        Returns:
            `thread_id`, `checkpoint_id` and `rolled_back_from`.

        Raises:
            NotFound: There is no such checkpoint.
            Conflict: The latest is not `expected_head`.
        """
        request = lineages.rolling_back(
            _thread(thread_id), checkpoint_id, expected_head, "", self._waits_for
        )
        return asdict(lineages.rollback_of(self._calls.rollback_thread(request)))

    async def arollback_to(
        self, thread_id: str, checkpoint_id: str, *, expected_head: str | None = None
    ) -> dict[str, Any]:
        """Async twin of `rollback_to`."""
        request = lineages.rolling_back(
            _thread(thread_id), checkpoint_id, expected_head, "", self._waits_for
        )
        return asdict(lineages.rollback_of(await self._async_calls.rollback_thread(request)))

    # --- proofs, differences, replays ------------------------------------------------

    def verify_trail(self, thread_id: str) -> dict[str, Any]:
        """Read every stored checkpoint of a thread back from the blob store, and judge it.

        Returns:
            `ok`, the counts `passed`, `failed`, `unverified` (not certified: `flush` first) and
            `retracted` (deleted), `chain_detail` (what is wrong with the manifest), and
            `failures`, a list of what failed.

        Raises:
            NotFound: There is no such thread.
        """
        verifying = lineages.Verifying()
        request = VerifyThreadRequest(thread_id=_thread(thread_id))
        with closing(self._calls.verify_thread(request)) as frames:
            for frame in frames:
                verifying.add(frame)
        return _plain(verifying.end())

    async def averify_trail(self, thread_id: str) -> dict[str, Any]:
        """Async twin of `verify_trail`."""
        verifying = lineages.Verifying()
        request = VerifyThreadRequest(thread_id=_thread(thread_id))
        async with aclosing(self._async_calls.verify_thread(request)) as frames:
            async for frame in frames:
                verifying.add(frame)
        return _plain(verifying.end())

    def diff(
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
            from_checkpoint_id: The one side.
            to_checkpoint_id: The other side; `None` for the latest.
            to_thread_id: Thread of the other side; `None` for the same.

        Returns:
            `changes`, each with `kind` ("added", "removed" or "changed"), `channel`, `path` (a
            JSON Pointer), `from_json` and `to_json`; and `truncated`, whether there are more.

        Raises:
            NotFound: There is no such checkpoint.
        """
        request = lineages.comparing(
            _thread(thread_id), from_checkpoint_id, to_checkpoint_id, _named(to_thread_id), "", 0
        )
        return _plain(lineages.diff_of(self._calls.diff_checkpoints(request)))

    async def adiff(
        self,
        thread_id: str,
        from_checkpoint_id: str,
        to_checkpoint_id: str | None = None,
        *,
        to_thread_id: str | None = None,
    ) -> dict[str, Any]:
        """Async twin of `diff`."""
        request = lineages.comparing(
            _thread(thread_id), from_checkpoint_id, to_checkpoint_id, _named(to_thread_id), "", 0
        )
        return _plain(lineages.diff_of(await self._async_calls.diff_checkpoints(request)))

    def replay(self, thread_id: str) -> Generator[CheckpointTuple, None, None]:
        """Yield the checkpoints of a thread, oldest first, those of its subgraphs among them.

        They come as a stream that survives a lost connection and a restarted server.

        Raises:
            NotFound: There is no such thread.
        """
        request = replaying(_thread(thread_id), None, "", "", "full", "any")
        with closing(self._calls.replay_thread(request)) as messages:
            for message in messages:
                yield self._decode(message)

    async def areplay(self, thread_id: str) -> AsyncGenerator[CheckpointTuple, None]:
        """Async twin of `replay`."""
        request = replaying(_thread(thread_id), None, "", "", "full", "any")
        async with aclosing(self._async_calls.replay_thread(request)) as messages:
            async for message in messages:
                yield await self._adecode(message)


def _thread(thread_id: object) -> str:
    """Return a thread ID as text, which LangGraph's users need not give.

    Raises:
        InvalidRequest: There is none.
    """
    if thread_id is None:
        raise invalid_field("thread_id", "it names no thread")
    return str(thread_id)


def _named(thread_id: object) -> str:
    """Return a thread ID as text; empty for none."""
    return "" if thread_id is None else str(thread_id)


def _plain(record: lineages.Verification | lineages.Diff) -> dict[str, Any]:
    """Return a record as dictionaries and lists."""
    named = asdict(record)
    return {key: list(one) if isinstance(one, tuple) else one for key, one in named.items()}
