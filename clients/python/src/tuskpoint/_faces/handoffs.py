"""Handing checkpoints off and adopting them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing, closing

from .. import _handoff as handoffs
from .._handoff import Adoption, AdoptProgress, Descriptor, DescriptorLike
from .._records import DurabilityName
from .base import AsyncFace, SyncFace, twin_of


class SyncHandoffs(SyncFace):
    """Handing checkpoints off and adopting them."""

    def handoff(
        self,
        thread_id: str,
        checkpoint_id: str | None = None,
        *,
        to_agent: str = "",
        checkpoint_ns: str = "",
    ) -> Descriptor:
        """Store everything needed to go on from a checkpoint as one blob; return its descriptor.

        Whoever has the descriptor and the same blob store can adopt it. Safe to be sent again: a
        retry gets the first answer.

        Args:
            thread_id: The thread.
            checkpoint_id: The checkpoint. Default: the latest.
            to_agent: Name of the agent it is meant for.
            checkpoint_ns: The namespace.

        Raises:
            NotFound: There is no such checkpoint.
            Unavailable: The blob store cannot be used now.
        """
        request = handoffs.handing_off(thread_id, checkpoint_id, checkpoint_ns, to_agent)
        answer = self._calls.create_handoff(request)
        return handoffs.read_descriptor(answer.descriptor)

    def adopt(
        self,
        descriptor: DescriptorLike,
        new_thread_id: str = "",
        *,
        on_progress: Callable[[AdoptProgress], object] | None = None,
        durability: DurabilityName = "certified",
    ) -> Adoption:
        """Make a hand-off the first checkpoint of a new thread, once its hash is checked.

        The blob is fetched from the blob store itself. Safe to be sent again: a retry gets the
        first answer.

        Args:
            descriptor: What `handoff` returned, or its mapping, JSON text or message.
            new_thread_id: The thread to make. Default: the server makes a name.
            on_progress: Is told of each stage. What it raises ends the wait, not the adoption.
            durability: "certified", or "journaled" not to wait until the new checkpoint has a
                blob of its own.

        Raises:
            InvalidDescriptor: The descriptor is none.
            DescriptorMismatch: The blob holds another checkpoint than the descriptor names.
            HashMismatch: The blob does not have the hash. Nothing was written.
            NotFound: The blob store has no such blob.
            AlreadyExists: The new thread has checkpoints.
        """
        adopting = handoffs.Adopting(on_progress)
        request = handoffs.adopting(descriptor, new_thread_id, durability)
        with closing(self._calls.adopt_handoff(request)) as frames:
            for frame in frames:
                adopting.add(frame)
        return adopting.end()


class AsyncHandoffs(AsyncFace):
    """Handing checkpoints off and adopting them."""

    @twin_of(SyncHandoffs.handoff)
    async def handoff(
        self,
        thread_id: str,
        checkpoint_id: str | None = None,
        *,
        to_agent: str = "",
        checkpoint_ns: str = "",
    ) -> Descriptor:
        request = handoffs.handing_off(thread_id, checkpoint_id, checkpoint_ns, to_agent)
        answer = await self._calls.create_handoff(request)
        return handoffs.read_descriptor(answer.descriptor)

    @twin_of(SyncHandoffs.adopt)
    async def adopt(
        self,
        descriptor: DescriptorLike,
        new_thread_id: str = "",
        *,
        on_progress: Callable[[AdoptProgress], object] | None = None,
        durability: DurabilityName = "certified",
    ) -> Adoption:
        adopting = handoffs.Adopting(on_progress)
        request = handoffs.adopting(descriptor, new_thread_id, durability)
        async with aclosing(self._calls.adopt_handoff(request)) as frames:
            async for frame in frames:
                adopting.add(frame)
        return adopting.end()
