"""From stored envelopes back to a checkpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from ..blobs.api import BlobStore
from ..domain.digests import blob_digest
from ..domain.envelope import MAX_ENVELOPE_BYTES, Envelope, decode_envelope, merge
from ..domain.errors import Reason, Refusal
from ..domain.manifest import ChainCheck, ManifestHead
from ..domain.model import BlobLocation, Checkpoint, Entry
from ..domain.parts import decode_parts, is_part_list, join

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
    stored = await read_envelopes(blobs, entry.envelopes)
    if sum(map(len, stored)) > _THREAD_ABOVE_BYTES:
        envelope = await asyncio.to_thread(merged, stored, entry.envelopes)
    else:
        envelope = merged(stored, entry.envelopes)
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


async def read_envelopes(blobs: BlobStore, locations: Sequence[BlobLocation]) -> list[bytes]:
    """Return the bytes of envelopes, those stored in parts joined.

    Raises:
        Refusal: `BLOB_HASH_MISMATCH`, `BLOB_NOT_FOUND`, `BLOB_UNAVAILABLE`,
            `BLOB_MALFORMED`.
    """
    if len(locations) == 1:
        stored = [await blobs.get(locations[0])]
    else:
        stored = await blobs.get_many(locations)
    return [
        await _joined(blobs, data, location) if is_part_list(data) else data
        for data, location in zip(stored, locations, strict=True)
    ]


async def _joined(blobs: BlobStore, data: bytes, location: BlobLocation) -> bytes:
    listed = decode_parts(data, location, MAX_ENVELOPE_BYTES)
    parts = await blobs.get_many(listed.parts)
    return await asyncio.to_thread(join, listed, parts, location.blob_id)


def merged(stored: Sequence[bytes], locations: Sequence[BlobLocation]) -> Envelope:
    """Return what the envelopes of a checkpoint hold together.

    Args:
        stored: Their bytes, the full one first; those stored in parts joined.
        locations: Where they lie.

    Raises:
        Refusal: `BLOB_MALFORMED`.
    """
    full, *addenda = (
        decode_envelope(data, location.blob_id)
        for data, location in zip(stored, locations, strict=True)
    )
    own, name = blob_digest(stored[0]), locations[0].blob_id
    return merge(full, addenda, own, name, listed_as=locations[0].sha256)


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
