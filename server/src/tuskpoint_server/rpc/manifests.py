"""Manifests in messages."""

from __future__ import annotations

from tuskpoint.v1 import checkpoint_pb2, manifest_pb2
from tuskpoint.v1 import thread_service_pb2 as pb

from ..domain.formats.folding import Manifest, ManifestEntry
from ..domain.formats.records import NO_LINEAGE
from ..domain.model import BlobLocation
from ..service.manifests import ManifestPage
from . import convert


def manifest_response(page: ManifestPage) -> pb.GetManifestResponse:
    """Return the answer with a page of a manifest."""
    message = pb.GetManifestResponse(incarnation=page.incarnation, next_page_token=page.next_token)
    if page.manifest is None or page.catalog is None:
        return message
    message.generation = page.manifest.generation
    message.seq = page.manifest.seq
    message.catalog.CopyFrom(convert.location(page.catalog.location))
    message.certify_time.CopyFrom(convert.timestamp(page.catalog.certified_us))
    if page.stored is not None:
        message.manifest.CopyFrom(convert.location(page.stored))
    message.entries.extend(_entry(page.manifest, entry) for _, entry in page.entries)
    return message


def _entry(manifest: Manifest, entry: ManifestEntry) -> manifest_pb2.ManifestEntry:
    record = entry.record
    message = manifest_pb2.ManifestEntry(
        checkpoint_ns=record.checkpoint_ns,
        checkpoint_id=record.checkpoint_id,
        parent_checkpoint_id=record.parent_id,
        seq=max(record.seq, *(writes.seq for writes in entry.writes), 0),
        segment=_segment(manifest, record.segment),
        state_sha256=record.state_sha256,
        writes=[_segment(manifest, writes.segment) for writes in entry.writes],
        summary=record.summary,
        label=record.label,
        create_time=convert.timestamp(record.created_us),
    )
    if record.lineage != NO_LINEAGE:
        message.lineage.CopyFrom(convert.lineage(record.lineage))
    return message


def _segment(manifest: Manifest, sha256: bytes) -> checkpoint_pb2.BlobLocation:
    """Return where a segment lies, or only its hash if no record says so."""
    return convert.location(manifest.location(sha256) or BlobLocation(sha256, 0))
