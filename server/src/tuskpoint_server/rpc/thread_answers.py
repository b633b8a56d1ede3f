"""Answers of `ThreadService`: manifests, lineage, comparisons, verdicts."""

from __future__ import annotations

from tuskpoint.v1 import checkpoint_pb2, manifest_pb2
from tuskpoint.v1 import thread_service_pb2 as pb

from ..domain.formats.manifests import Manifest, ManifestEntry
from ..domain.formats.records import NO_LINEAGE
from ..domain.json_view.differences import Change, ChangeKind, Diff
from ..domain.lineage import Descent, LineageStep, LineageTree
from ..domain.model import BlobLocation
from ..domain.threads import Verdict, VerdictKind, VerificationTotal
from ..service.manifests import ManifestPage
from . import convert

_VERDICTS = {
    VerdictKind.PASS: pb.VERDICT_PASS,
    VerdictKind.FAIL: pb.VERDICT_FAIL,
    VerdictKind.UNVERIFIED: pb.VERDICT_UNVERIFIED,
    VerdictKind.RETRACTED: pb.VERDICT_RETRACTED,
}
_DESCENTS = {
    Descent.FORK: pb.LINEAGE_KIND_FORK,
    Descent.ADOPTION: pb.LINEAGE_KIND_ADOPTION,
    Descent.ROLLBACK: pb.LINEAGE_KIND_ROLLBACK,
}
_CHANGES = {
    ChangeKind.ADDED: pb.CHANGE_KIND_ADDED,
    ChangeKind.REMOVED: pb.CHANGE_KIND_REMOVED,
    ChangeKind.CHANGED: pb.CHANGE_KIND_CHANGED,
}


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


def lineage_response(tree: LineageTree) -> pb.GetLineageResponse:
    """Return the message for a lineage."""
    return pb.GetLineageResponse(
        ancestors=map(_step, tree.ancestors),
        descendants=map(_step, tree.descendants),
        truncated=tree.truncated,
    )


def _step(step: LineageStep) -> pb.LineageStep:
    # The field's name is a keyword of Python.
    return pb.LineageStep(
        kind=_DESCENTS[step.descent],
        to=convert.ref(step.key),
        create_time=convert.timestamp(step.created_us),
        **{"from": convert.ref(step.origin)},
    )


def from_side(request: pb.DiffCheckpointsRequest) -> checkpoint_pb2.CheckpointRef:
    """Return the side of a comparison whose name is a keyword of Python."""
    side: checkpoint_pb2.CheckpointRef = getattr(request, "from")
    return side


def diff_response(found: Diff) -> pb.DiffCheckpointsResponse:
    """Return the answer to a comparison."""
    return pb.DiffCheckpointsResponse(
        changes=[_change(change) for change in found.changes], truncated=found.truncated
    )


def _change(change: Change) -> pb.Change:
    return pb.Change(
        kind=_CHANGES[change.kind],
        channel=change.channel,
        path=change.path,
        from_json=change.before,
        to_json=change.after,
    )


def verification_frame(found: Verdict | VerificationTotal) -> pb.VerifyThreadResponse:
    """Return the frame of a verdict, or of the total."""
    if isinstance(found, Verdict):
        return pb.VerifyThreadResponse(verdict=_verdict(found))
    return pb.VerifyThreadResponse(total=_total(found))


def _verdict(found: Verdict) -> pb.CheckpointVerdict:
    message = pb.CheckpointVerdict(
        ref=convert.ref(found.key),
        verdict=_VERDICTS[found.kind],
        actual_sha256=found.actual_sha256,
        detail=found.detail,
    )
    if found.location is not None:
        message.location.CopyFrom(convert.location(found.location))
    return message


def _total(found: VerificationTotal) -> pb.VerificationTotal:
    return pb.VerificationTotal(
        ok=found.ok,
        passed=found.counts[VerdictKind.PASS],
        failed=found.counts[VerdictKind.FAIL],
        unverified=found.counts[VerdictKind.UNVERIFIED],
        retracted=found.counts[VerdictKind.RETRACTED],
        chain_detail=found.chain_problem,
    )
