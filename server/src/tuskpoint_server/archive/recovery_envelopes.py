"""Recovering checkpoints: their envelopes, read where they lie together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..blobs.api import BlobStore
from ..domain.digests import blob_digest
from ..domain.envelope import MAX_ENVELOPE_BYTES, Envelope, decode_envelope, merge
from ..domain.errors import Refusal
from ..domain.manifest import ManifestEntry
from ..domain.metadata import parse_metadata
from ..domain.model import BlobLocation, CheckpointKey, Metadata
from ..domain.parts import decode_parts, is_part_list, join
from ..domain.snapshots import own_namespace
from ..domain.stored_json import malformed
from ..journal.recovering import StoredCheckpoint

BATCH_ENVELOPES = 600
BATCH_BYTES = 32 * 1024 * 1024
_THREAD_ABOVE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Wanted:
    """A checkpoint of which a manifest tells; fields as in `StoredCheckpoint`."""

    key: CheckpointKey
    incarnation: int
    seq: int
    entry: ManifestEntry


Found = Mapping[bytes, bytes | Refusal]
"""Hash to stored bytes, or to why they could not be had."""


def batches(wanted: Iterable[Wanted]) -> Iterator[list[Wanted]]:
    """Cut checkpoints into batches of bounded size, those of a blob together."""
    batch: list[Wanted] = []
    count = size = 0
    for one in sorted(wanted, key=lambda one: one.entry.envelope.blob_id):
        count += len(one.entry.envelopes)
        size += sum(at.size for at in one.entry.envelopes)
        if batch and (count > BATCH_ENVELOPES or size > BATCH_BYTES):
            yield batch
            batch = []
            count = len(one.entry.envelopes)
            size = sum(at.size for at in one.entry.envelopes)
        batch.append(one)
    if batch:
        yield batch


async def read_all(blobs: BlobStore, batch: Sequence[Wanted]) -> dict[bytes, bytes]:
    """Return the stored bytes of all envelopes of a batch, by hash.

    Raises:
        Refusal: Of the blob store, for one that could not be read.
    """
    locations = _locations(batch)
    stored = await blobs.get_many(list(locations.values()))
    return dict(zip(locations, stored, strict=True))


async def read_each(blobs: BlobStore, batch: Sequence[Wanted]) -> dict[bytes, bytes | Refusal]:
    """Return as `read_all`, one after another, and for some why they could not be read."""
    found: dict[bytes, bytes | Refusal] = {}
    for sha256, at in _locations(batch).items():
        try:
            found[sha256] = await blobs.get(at)
        except Refusal as refusal:
            found[sha256] = refusal
    return found


async def rebuild(blobs: BlobStore, wanted: Wanted, found: Found) -> StoredCheckpoint:
    """Return a checkpoint from its envelopes, after joining those that lie in parts.

    Args:
        blobs: Where parts are read.
        wanted: What the manifest says.
        found: At least its envelopes.

    Raises:
        Refusal: Of one of the envelopes; `BLOB_MALFORMED`.
    """
    parts: list[tuple[bytes, BlobLocation]] = []
    whole: list[bytes] = []
    for at in wanted.entry.envelopes:
        data = found[at.sha256]
        if isinstance(data, Refusal):
            raise data
        if is_part_list(data):
            listed = decode_parts(data, at, MAX_ENVELOPE_BYTES)
            parts.extend((at.sha256, part) for part in listed.parts)
            data = join(listed, await blobs.get_many(listed.parts), at.blob_id)
        whole.append(data)
    if sum(map(len, whole)) > _THREAD_ABOVE_BYTES:
        content, metadata = await asyncio.to_thread(_decode, wanted, whole)
    else:
        content, metadata = _decode(wanted, whole)
    return StoredCheckpoint(
        wanted.key, wanted.incarnation, wanted.seq, wanted.entry, content, metadata, tuple(parts)
    )


def _locations(batch: Sequence[Wanted]) -> dict[bytes, BlobLocation]:
    return {at.sha256: at for one in batch for at in one.entry.envelopes}


def _decode(wanted: Wanted, whole: Sequence[bytes]) -> tuple[Envelope, Metadata]:
    at = wanted.entry.envelope
    full, *addenda = (
        decode_envelope(data, location.blob_id)
        for data, location in zip(whole, wanted.entry.envelopes, strict=True)
    )
    content = merge(full, addenda, blob_digest(whole[0]), at.blob_id, listed_as=at.sha256)
    key = wanted.key
    if (own_namespace(content.key), content.key.checkpoint_id) != (
        own_namespace(key),
        key.checkpoint_id,
    ):
        raise malformed(at.blob_id, f"it holds checkpoint '{content.key.checkpoint_id}'")
    try:
        metadata = parse_metadata(content.metadata, "metadata")
    except Refusal as refusal:
        raise malformed(at.blob_id, str(refusal)) from None
    return replace(content, metadata=metadata.raw), metadata
