"""From stored envelopes back to a checkpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from ..blobs.api import BlobStore
from ..domain.envelope import Envelope, decode_envelope, merge
from ..domain.errors import Reason, Refusal
from ..domain.manifest import ChainCheck, ManifestHead
from ..domain.model import BlobLocation, Checkpoint, Entry

_THREAD_ABOVE_BYTES = 64 * 1024


async def read_checkpoint(blobs: BlobStore, entry: Entry) -> Checkpoint:
    """Return a checkpoint whose state, writes and metadata come from its envelopes.

    Args:
        blobs: Where they are read.
        entry: What the journal knows of it; its other fields are taken over.

    Raises:
        Refusal: `NOT_CERTIFIED` if it has no envelopes; `BLOB_HASH_MISMATCH`,
            `BLOB_NOT_FOUND`, `BLOB_UNAVAILABLE`, `BLOB_MALFORMED`.
    """
    if not entry.envelopes:
        raise Refusal(
            Reason.NOT_CERTIFIED,
            revision=entry.revision,
            checkpoint_id=entry.key.checkpoint_id,
            certified_revision=entry.certified_revision,
        )
    stored = await asyncio.gather(*(blobs.get(location) for location in entry.envelopes))
    if sum(map(len, stored)) > _THREAD_ABOVE_BYTES:
        envelope = await asyncio.to_thread(_merged, stored, entry.envelopes)
    else:
        envelope = _merged(stored, entry.envelopes)
    if envelope.key.checkpoint_id != entry.key.checkpoint_id:
        raise Refusal(
            Reason.BLOB_MALFORMED,
            blob_id=entry.envelopes[0].blob_id,
            problem=f"it holds checkpoint '{envelope.key.checkpoint_id}'",
        )
    return Checkpoint(
        entry=replace(entry, metadata=envelope.metadata),
        state=envelope.state,
        writes=envelope.writes,
    )


def _merged(stored: Sequence[bytes], locations: Sequence[BlobLocation]) -> Envelope:
    full, *addenda = (
        decode_envelope(data, location.blob_id)
        for data, location in zip(stored, locations, strict=True)
    )
    return merge(full, addenda, locations[0].sha256, locations[0].blob_id)


async def chain_problem(
    blobs: BlobStore, head: ManifestHead, thread_id: str, incarnation: int
) -> str:
    """Read a manifest from its head to its first segment and say what is wrong with it.

    Returns:
        A sentence for people; empty if the chain holds.

    Raises:
        Refusal: `BLOB_UNAVAILABLE`.
    """
    check = ChainCheck(head, thread_id, incarnation)
    while check.wanted is not None:
        try:
            problem = check.accept(await blobs.get(check.wanted))
        except Refusal as refusal:
            if refusal.reason is Reason.BLOB_UNAVAILABLE:
                raise
            return refusal.message
        if problem:
            return problem
    return ""
