"""From the newest catalog to the manifest of a thread, and what it says against the journal."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from ...domain.formats.catalogs import Catalog, decode_catalog
from ...domain.formats.manifests import Manifest, ManifestEntry, fold
from ...domain.model import BlobLocation
from ...journal.archiving.standing import Incarnation, Place, RecordedCheckpoint
from ...journal.archiving.status import KnownCatalog
from ..read.manifest import records_of
from .reading import Damage, VerifiedSegments, damage_at


@dataclass(frozen=True, slots=True)
class Chain:
    """What the newest catalog leads to of a thread.

    Attributes:
        catalog: Hash of the catalog; empty: there is none.
        manifest: The thread's manifest; `None` if the chain does not hold.
        problem: What is wrong with it, for people; else empty.
        mismatch: Hash of what was found to have another hash; else empty.
    """

    catalog: bytes
    manifest: Manifest | None
    problem: str = ""
    mismatch: bytes = b""

    def entry(self, of: Incarnation, place: Place) -> ManifestEntry | None:
        """Return what the manifest says of a checkpoint of an incarnation."""
        manifest = self.manifest
        if manifest is None or manifest.incarnation != of.incarnation:
            return None
        return manifest.entries.get(place)

    def places(self, of: Incarnation) -> set[Place]:
        """Return the checkpoints that the manifest names or says were removed."""
        manifest = self.manifest
        if manifest is None or manifest.incarnation != of.incarnation:
            return set()
        return {*manifest.entries, *manifest.removed}


async def read_chain(
    segments: VerifiedSegments, thread_id: str, of: Incarnation, known: KnownCatalog
) -> Chain:
    """Read a thread's manifest from the blob store.

    Args:
        segments: Reads stored bytes.
        thread_id: The thread.
        of: The incarnation that lives.
        known: The newest catalog by the journal.

    Raises:
        Refusal: `BLOB_UNAVAILABLE`, `JOURNAL_UNAVAILABLE`.
    """
    sha256 = known.location.sha256
    try:
        with damage_at(known.location):
            [data] = await segments.fetch([known.location])
            stored = decode_catalog(data, known.location.blob_id)
            if _leading(stored) != _leading(known.catalog):
                return Chain(sha256, None, "the stored catalog and the one in the journal differ")
            records = await records_of(stored.runs, thread_id, segments.fetch)
    except Damage as damage:
        return Chain(sha256, None, damage.detail, damage.mismatch)
    manifest = await asyncio.to_thread(fold, thread_id, records)
    if manifest.incarnation > of.incarnation:
        problem = (
            f"the manifest is of incarnation {manifest.incarnation} and the journal has "
            f"{of.incarnation}"
        )
        return Chain(sha256, None, problem)
    return Chain(sha256, manifest)


def _leading(catalog: Catalog) -> tuple[object, ...]:
    """Return what a catalog leads to, by hash: where that lies may have changed."""
    runs = [ref.location.sha256 for ref in catalog.runs.oldest_first()]
    return (catalog.tenant, catalog.generation, catalog.number, runs)


def contradiction(
    recorded: RecordedCheckpoint, entry: ManifestEntry | None, manifest: Manifest
) -> str:
    """Say in what a manifest contradicts the journal, for people; empty if in nothing.

    Args:
        recorded: A checkpoint whose row is certified.
        entry: What the manifest says of it, or `None`.
        manifest: The manifest.
    """
    if entry is None:
        return "it is certified and missing from the manifest"
    record = entry.record
    saved = recorded.entry
    if record.seq != recorded.seq:
        return f"the manifest has change {record.seq} of it and the journal {recorded.seq}"
    first = record.segment
    if first != saved.segments[0].sha256:
        return f"the manifest names {first.hex()} where {_spelled(saved.segments)} was recorded"
    different = [
        name
        for name in ("parent_id", "label", "summary", "lineage", "created_us")
        if getattr(record, name) != getattr(saved, name)
    ]
    if record.state_sha256 != recorded.content.state:
        different.append("state_sha256")
    if different:
        return f"manifest and journal differ in {', '.join(different)}"
    for sha256 in named_by(entry):
        if (lacking := _lacking(manifest, sha256)) is not None:
            return f"the manifest does not say where {lacking.hex()} lies"
    return ""


def named_by(entry: ManifestEntry) -> list[bytes]:
    """Return the segments that a manifest names for a checkpoint, that of its state first."""
    return list(dict.fromkeys([entry.record.segment, *(writes.segment for writes in entry.writes)]))


def _lacking(manifest: Manifest, segment: bytes) -> bytes | None:
    member = manifest.members.get(segment)
    if member is None:
        return segment
    return next((one for one in member.needs if manifest.location(one) is None), None)


def _spelled(places: Iterable[BlobLocation]) -> str:
    return " + ".join(place.sha256.hex() for place in places)
