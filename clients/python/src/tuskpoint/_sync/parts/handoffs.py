# Written by `make sync` from _async/parts/handoffs.py; do not edit.
"""Handing checkpoints off and adopting them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing

from ..._messages.lineage import handoffs as handoffs
from ..._messages.lineage.handoffs import Adoption, AdoptProgress, Descriptor, DescriptorLike
from ..._messages.records import DurabilityName
from ..._transport import methods
from .part import SyncPart


class SyncHandoffs(SyncPart):
    """Handing checkpoints off and adopting them."""

    def handoff(
        self,
        thread_id: str,
        checkpoint_id: str | None = None,
        to_agent: str | None = None,
        *,
        checkpoint_ns: str = "",
        include_key: bool = False,
        recipient: str | None = None,
    ) -> Descriptor:
        """Store a checkpoint and all that it needs as one blob; return the blob's descriptor.

        An agent with the descriptor and the same blob store can adopt it. The call is idempotent: a
        retry gets the first answer.

        Args:
            thread_id: The thread.
            checkpoint_id: The checkpoint. Default: the latest.
            to_agent: Name of the receiving agent. Default: none.
            checkpoint_ns: The namespace.
            include_key: Put the key of a sealed blob into the descriptor, for a receiver whose
                server has other keys. Whoever has the descriptor can read the checkpoint then.
            recipient: Seal the key to this public key of age, one of the `recipients` in the
                `info()` of the receiver's server; only that server opens the blob then. The
                sender's server must seal what it stores. Default: nobody.

        Raises:
            NotFound: There is no such checkpoint.
            Unavailable: The blob store is not available.
            PreconditionFailed: There is a recipient, and the server does not seal.
        """
        request = handoffs.handing_off(
            *(thread_id, checkpoint_id, checkpoint_ns, to_agent),
            include_key=include_key,
            recipient=recipient,
        )
        answer = self._calls.unary(methods.CREATE_HANDOFF, request)
        return handoffs.read_descriptor(answer.descriptor)

    def adopt(
        self,
        descriptor: DescriptorLike | None = None,
        new_thread_id: str | None = None,
        *,
        handoff_json: DescriptorLike | None = None,
        on_progress: Callable[[AdoptProgress], object] | None = None,
        durability: DurabilityName = "certified",
        require_signers: Sequence[str] = (),
    ) -> Adoption:
        """Make a hand-off the first checkpoint of a new thread, once its hash is checked.

        The blob is fetched from the blob store itself. The call is idempotent: a retry gets the
        first answer.

        Args:
            descriptor: What `handoff` returned, or its mapping, JSON text or message.
            new_thread_id: Name of the new thread. Default: the server generates one.
            handoff_json: Another name for `descriptor`; give one of the two.
            on_progress: Called with each stage. An exception that it raises ends the wait, not the
                adoption.
            durability: "certified", or "journaled" not to wait until the new checkpoint has a
                blob of its own.
            require_signers: Adopt only what one of these servers signed: public keys, as in
                `info().signers` of the server that handed off.

        Raises:
            InvalidDescriptor: The descriptor is malformed.
            DescriptorMismatch: The blob holds another checkpoint than the descriptor names.
            HashMismatch: The blob does not have the hash. Nothing was written.
            NotFound: The blob store has no such blob.
            PreconditionFailed: The blob is sealed, and neither the descriptor nor the server has
                its key, or the descriptor has it for another recipient; or the signature is wrong,
                or not that of a required signer.
            AlreadyExists: The new thread has checkpoints.
        """
        adopting = handoffs.AdoptionCollector(on_progress)
        handoff = handoffs.given_descriptor(descriptor, handoff_json)
        request = handoffs.adopting(handoff, new_thread_id, durability, require_signers)
        with closing(self._calls.adopt_handoff(request)) as frames:
            for frame in frames:
                adopting.add(frame)
        return adopting.end()
