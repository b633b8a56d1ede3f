"""Calls to hand checkpoints off, and to adopt them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import partial
from typing import Any

from ...archive.archive import Archive
from ...archive.formats.bundles import Closure
from ...core import model
from ...core.effects.records import and_effects
from ...core.errors import Reason, Refusal, Status, checkpoint_not_found
from ...core.limits import MIB
from ...core.lineage import Descriptor, decode_offered, encode_descriptor, entry_summary
from ...keys import signing
from ...keys.identities import Identities, Seal, sealing_to
from ...keys.signing import Signer
from ..call_memory import Holder
from ..checkpoints.checkpoint_rows import CheckpointRows
from ..checkpoints.completing import Completer, reach
from ..inbox.offer_rows import Claim
from ..inbox.offers import inbox_of
from .first_answers import request
from .handoff_rows import HandoffRows, OfferDraft
from .lineage import LineageRows

PROGRESS_BYTES = MIB  # bytes between two frames of progress


class Stage(IntEnum):
    """Stage of an adoption. The contract defines the numbers."""

    FETCHING = 1
    FETCHED = 2
    VERIFIED = 3
    ADOPTED = 4


@dataclass(frozen=True, slots=True)
class Step:
    """A step of an adoption; the last step has the adopted checkpoint."""

    stage: Stage
    fetched_bytes: int
    adopted: model.CheckpointKey | None = None  # the new thread's first checkpoint
    blob_id: str = ""  # blob with the adopted checkpoint; empty until it is certified
    adopted_from: str = ""  # source of the adopted checkpoint
    signer: str = ""  # public key whose signature was checked; empty: none


@dataclass(frozen=True, slots=True)
class Handoffs:
    """Hand-offs of all tenants."""

    _journal: CheckpointRows
    _lineage: LineageRows
    _handoffs: HandoffRows
    _archive: Archive
    _completer: Completer
    _signer: Signer
    _identities: Identities

    async def create(
        self,
        tenant: str,
        key: model.CheckpointKey,
        to_agent: str,
        request_id: str,
        *,
        include_key: bool,
        recipient: str,
        ttl_us: int = 0,
    ) -> tuple[Descriptor, str]:
        """Store what a run needs to continue from a checkpoint; an empty ID means the latest.

        The descriptor includes the key of the bundle, sealed to the recipient if there is one.
        With the descriptor comes the ID of the offer, which expires after `ttl_us` microseconds,
        0: never; no ID if servers that do not know offers use the journal.
        """
        names = (key.thread_id, key.checkpoint_ns, key.checkpoint_id)
        opened_by = (recipient,) if recipient else ("with its key",) if include_key else ()
        expiry = (f"expires in {ttl_us}",) if ttl_us else ()
        arguments = (*names, to_agent, *opened_by, *expiry)
        creation = request(tenant, request_id, "CreateHandoff", *arguments)
        answered = await self._handoffs.first_answer(creation)
        if answered is not None:
            return decode_offered(answered)
        seal = self._sealing_to(recipient) if recipient else None
        loaded = await self._journal.load(tenant, key, model.View.ENTRY)
        if loaded is None:
            raise checkpoint_not_found(key.thread_id, key.checkpoint_ns, key.checkpoint_id)
        key = loaded.entry.key
        location, parts, content_seq = await self._bundle(tenant, key, sealed=seal is not None)
        descriptor = Descriptor(
            source=str(key),
            thread_id=key.thread_id,
            checkpoint_id=key.checkpoint_id,
            blob_id=location.blob_id,
            blob_sha256=location.sha256.hex(),
            to_agent=to_agent,
            summary=entry_summary(loaded.entry),
            key=location.key.hex() if include_key else "",
            sealed_key=seal(location.key) if seal is not None else "",
        )
        signed = self._signer.sign(descriptor)
        kept_answer = await self._handoffs.keep_handoff(
            *(creation, key, location, parts, encode_descriptor(signed)),
            content_seq=content_seq,
            draft=OfferDraft(replace(signed, key=""), ttl_us),
        )
        return decode_offered(kept_answer)

    async def _bundle(
        self, tenant: str, key: model.CheckpointKey, *, sealed: bool
    ) -> tuple[model.BlobLocation, tuple[model.BlobLocation, ...] | None, int]:
        """Return the bundle of a checkpoint for `keep_handoff`; store the bundle if necessary."""
        unchanged = await self._handoffs.unchanged(tenant, key)
        # A bundle from before the key provider is not sealed.
        if unchanged is not None and (unchanged[0].key or not sealed):
            return unchanged[0], None, unchanged[1]
        closure = await self._completer.supplied(
            tenant, partial(self._lineage.closure, tenant, key)
        )
        if closure is None:
            raise checkpoint_not_found(key.thread_id, key.checkpoint_ns, key.checkpoint_id)
        bundle = await self._archive.standalone.store_bundle(tenant, closure)
        return bundle.location, bundle.parts, closure.seq

    def _sealing_to(self, recipient: str) -> Seal:
        """Return the function that seals a bundle's key; refuse for an unsealed bundle."""
        if self._archive.standalone.seals:
            return sealing_to(recipient)
        problem = "this server has no key provider, so everything that it stores can be read"
        advice = "start it with --key-file, or hand off without a recipient"
        raise Refusal(Reason.SEALING_UNAVAILABLE, advice=advice, problem=problem)

    async def adopt(
        self,
        tenant: str,
        descriptor: Descriptor,
        target: str,
        request_id: str,
        wanted: model.Durability,
        holder: Holder,
        required_signers: Collection[str] = (),
    ) -> AsyncGenerator[Step, None]:
        """Create a thread from the bundle of a valid descriptor; yield the progress.

        A retry of a finished adoption yields only the last step. For an empty target the journal
        generates a name. `holder` holds the memory of the bundle until it is journaled.
        """
        signing.check(descriptor, required_signers)
        source = model.CheckpointKey(descriptor.thread_id, "", descriptor.checkpoint_id)
        sha256, to_agent = descriptor.blob_sha256, descriptor.to_agent
        saved = await self._lineage.adopted(tenant, source, sha256, target, to_agent, request_id)
        if saved is not None:
            yield await self._adopted(tenant, saved, wanted, descriptor=descriptor)
            return
        claim = Claim(descriptor, request_id)
        async with aclosing(self._make(tenant, claim, target, wanted, holder)) as steps:
            async for step in steps:
                yield step

    async def adopt_offer(
        self,
        tenant: str,
        handoff_id: str,
        target: str,
        request_id: str,
        wanted: model.Durability,
        holder: Holder,
        required_signers: Collection[str] = (),
    ) -> AsyncGenerator[Step, None]:
        """Create a thread from an open offer, as `adopt` does from a descriptor."""
        offer, saved, signer = await self._lineage.offered(tenant, handoff_id, target, request_id)
        descriptor = offer.descriptor if offer is not None else None
        if descriptor is not None:
            signing.check(descriptor, required_signers)
        if saved is not None:
            yield await self._adopted(tenant, saved, wanted, descriptor=descriptor, signer=signer)
        elif descriptor is not None:
            claim = Claim(descriptor, request_id, offer)
            async with aclosing(self._make(tenant, claim, target, wanted, holder)) as steps:
                async for step in steps:
                    yield step

    async def _make(
        self, tenant: str, claim: Claim, target: str, wanted: model.Durability, holder: Holder
    ) -> AsyncGenerator[Step, None]:
        """Create a thread from the bundle of a claim; yield the progress."""
        descriptor, sha256 = claim.descriptor, claim.descriptor.blob_sha256
        opener = self._opener(tenant, descriptor)
        self._archive.backlog(tenant).admit()
        location = model.BlobLocation(bytes.fromhex(sha256), 0, descriptor.blob_id, key=opener)
        held_bytes = holder.held_bytes
        bundle: list[bytes] = []
        try:
            async with aclosing(self._fetched(location, holder, bundle)) as steps:
                async for step in steps:
                    yield step
            size = len(bundle[0])
            yield Step(Stage.VERIFIED, size)
            closure = await self._opened(tenant, descriptor, location, holder, bundle)
            saved = await self._lineage.adopt(
                *(tenant, closure, sha256, target, descriptor.to_agent, claim.request_id, claim)
            )
            del closure
        finally:
            holder.give(holder.held_bytes - held_bytes)
        yield await self._adopted(tenant, saved, wanted, size, descriptor=descriptor)

    async def _fetched(
        self, location: model.BlobLocation, holder: Holder, bundle: list[bytes]
    ) -> AsyncGenerator[Step, None]:
        """Fetch a bundle into `bundle`, and yield the progress."""
        counts: asyncio.Queue[int | None] = asyncio.Queue()
        blobs = self._archive.standalone
        fetch = asyncio.create_task(blobs.fetch(location, counts.put_nowait, holder))
        fetch.add_done_callback(lambda _: counts.put_nowait(None))
        try:
            yield Step(Stage.FETCHING, reported := 0)
            while (count := await counts.get()) is not None:
                # A repeated read is reported when it is further than the previous read.
                if count >= reported + PROGRESS_BYTES:
                    yield Step(Stage.FETCHING, reported := count)
            bundle.append(await fetch)
        except Refusal as refusal:
            raise _explain(refusal, location.blob_id, blobs.backend) from refusal
        finally:
            fetch.cancel()
            await asyncio.gather(fetch, return_exceptions=True)
        yield Step(Stage.FETCHED, len(bundle[0]))

    async def _opened(
        self,
        tenant: str,
        descriptor: Descriptor,
        location: model.BlobLocation,
        holder: Holder,
        bundle: list[bytes],
    ) -> Closure:
        """Return the content of a bundle, if the descriptor names it; empty `bundle`."""
        blobs = self._archive.standalone
        try:
            closure = await blobs.open(tenant, bundle.pop(), location, holder)
        except Refusal as refusal:
            raise _explain(refusal, location.blob_id, blobs.backend) from refusal
        for field in ("thread_id", "checkpoint_id"):
            claimed, actual = getattr(descriptor, field), getattr(closure.key, field)
            if claimed != actual:
                raise Refusal(
                    Reason.DESCRIPTOR_MISMATCH, field=field, claimed=claimed, found=actual
                )
        return closure

    def _opener(self, tenant: str, descriptor: Descriptor) -> bytes:
        """Return the descriptor's key for this tenant; empty without a key."""
        if not descriptor.sealed_key:
            return bytes.fromhex(descriptor.key)
        return self._identities.open(tenant, descriptor.sealed_key, descriptor.blob_id)

    async def _adopted(
        self,
        tenant: str,
        saved: model.SaveOutcome,
        durability: model.Durability,
        size: int = 0,
        *,
        descriptor: Descriptor | None = None,
        signer: str = "",
    ) -> Step:
        """Wait for the durability of an adoption; return the last step.

        Without a `descriptor` the offer was removed: the new checkpoint names its source, and
        `signer` is the signer that the first call checked.
        """
        await reach(self._archive, tenant, durability, saved)
        # The close of the offer and the effects must not be lost alone.
        inboxes = {inbox_of(descriptor.to_agent)} if descriptor is not None else set()
        has_effects = and_effects([saved.key.thread_id])
        await reach(
            self._archive, tenant, durability, lambda name: name in inboxes or has_effects(name)
        )
        loaded = await self._journal.load(tenant, saved.key, model.View.ENTRY)
        certified = loaded is not None and loaded.entry.certified
        blob_id = loaded.entry.segments[0].blob_id if loaded and certified else ""
        source = loaded.entry.lineage.adopted_from if loaded is not None else ""
        return Step(
            *(Stage.ADOPTED, size, saved.key, blob_id),
            adopted_from=descriptor.source if descriptor is not None else source,
            signer=descriptor.signer if descriptor is not None else signer,
        )


def _explain(refusal: Refusal, blob_id: str, backend: str) -> Refusal:
    """Return the refusal of a bundle with advice for its adopter."""
    metadata: dict[str, Any] = {**refusal.metadata}
    if refusal.reason is Reason.BLOB_NOT_FOUND and metadata["blob_id"] == blob_id:
        metadata["backend"] = backend
        advice = (
            f"this server has a store of kind '{backend}'; check that both sides use the same "
            "store: kind, directory, Walrus network"
        )
        return Refusal(refusal.reason, status=Status.NOT_FOUND, advice=advice, **metadata)
    if refusal.reason in (Reason.KEY_MISSING, Reason.KEY_WRONG):
        problem = "the descriptor has no key, and this server none for it"
        advice = "ask the sender for a descriptor with the key"
        subject = f"bundle {blob_id}"
        return Refusal(Reason.KEY_MISSING, advice=advice, what=subject, problem=problem)
    if refusal.reason is Reason.BLOB_HASH_MISMATCH:
        advice = "do not trust the blob, and ask for another hand-off"
        return Refusal(refusal.reason, advice=advice, **metadata)
    return refusal
