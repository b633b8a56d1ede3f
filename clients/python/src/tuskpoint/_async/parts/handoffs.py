"""Methods that hand checkpoints off and adopt them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import aclosing

from ..._messages.lineage import handoffs as handoffs
from ..._messages.lineage.handoffs import Adoption, AdoptProgress, Descriptor, DescriptorLike
from ..._messages.records import DurabilityName
from ..._transport import methods
from ..._transport.warnings import WARNINGS
from .part import AsyncPart


class AsyncHandoffs(AsyncPart):
    """Methods that hand checkpoints off and adopt them."""

    async def handoff(
        self,
        thread_id: str,
        checkpoint_id: str | None = None,
        to_agent: str | None = None,
        *,
        checkpoint_ns: str = "",
        include_key: bool = False,
        recipient: str | None = None,
        expires_in_s: float | None = None,
    ) -> Descriptor:
        """Store a checkpoint and all that it needs as one blob; return the descriptor of the blob.

        An agent with the descriptor and access to the same blob store can adopt the checkpoint. The
        hand-off is also offered in the inbox of `to_agent`, where `watch_handoffs` finds it. The
        call is idempotent: a retry gets the first answer.

        Args:
            thread_id: The thread.
            checkpoint_id: The checkpoint. Default: the latest checkpoint.
            to_agent: Name of the receiving agent. Default: no name.
            checkpoint_ns: The namespace.
            include_key: Whether the descriptor contains the key of a sealed blob, for a receiver
                whose server has other keys. Whoever has such a descriptor can read the checkpoint.
            recipient: Public key of age to which the key of the blob is sealed, so that only the
                receiver's server opens the blob: one of the `recipients` in the `info()` of that
                server. The sender's server must seal its blobs. Default: no recipient.
            expires_in_s: Seconds after which the offer in the inbox expires; the descriptor does
                not expire. Default: never.

        Raises:
            NotFound: There is no such checkpoint.
            Unavailable: The blob store is not available.
            PreconditionFailed: `recipient` is given, and the server does not seal blobs.
        """
        request = handoffs.handing_off(
            *(thread_id, checkpoint_id, checkpoint_ns, to_agent),
            include_key=include_key,
            recipient=recipient,
            expires_in_s=expires_in_s,
        )
        answer = await self._calls.unary(methods.CREATE_HANDOFF, request)
        WARNINGS.log(self._calls.options.target, answer.warnings)
        return handoffs.handed_off(answer)

    async def adopt(
        self,
        descriptor: DescriptorLike | None = None,
        new_thread_id: str | None = None,
        *,
        handoff_json: DescriptorLike | None = None,
        on_progress: Callable[[AdoptProgress], object] | None = None,
        durability: DurabilityName = "certified",
        require_signers: Sequence[str] = (),
    ) -> Adoption:
        """Create a thread whose first checkpoint is a hand-off, after its hash was checked.

        The server fetches the blob from the blob store itself. The call is
        idempotent: a retry gets the first answer.

        Args:
            descriptor: The descriptor that `handoff` returned, or its mapping, JSON text or
                message.
            new_thread_id: Name of the new thread. Default: the server generates one.
            handoff_json: Another name for `descriptor`; give one of the two.
            on_progress: Called with each stage. An exception in `on_progress` ends the wait, not
                the adoption.
            durability: "certified" waits until the new checkpoint has a blob of its own;
                "journaled" does not.
            require_signers: Public keys of the servers whose hand-offs are accepted, as in
                `info().signers` of the server that handed off. Default: any server, signed or not.

        Raises:
            InvalidDescriptor: The descriptor is malformed.
            DescriptorMismatch: The blob contains another checkpoint than the descriptor names.
            HashMismatch: The bytes of the blob do not match the hash in the descriptor. Nothing was
                written.
            NotFound: The blob store has no such blob.
            PreconditionFailed: The blob is sealed, and neither the descriptor nor the server has
                its key, or the descriptor has the key for another recipient. Or the signature is
                wrong, or none of the required signers made it.
            AlreadyExists: The new thread has checkpoints.
        """
        adopting = handoffs.AdoptionCollector(on_progress)
        handoff = handoffs.given_descriptor(descriptor, handoff_json)
        request = handoffs.adopting(handoff, new_thread_id, durability, require_signers)
        async with aclosing(self._calls.adopt_handoff(request)) as frames:
            async for frame in frames:
                adopting.add(frame)
        return adopting.end()
