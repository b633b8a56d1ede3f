"""Conversion of the core's types to messages of `ThreadService`."""

from __future__ import annotations

from tuskpoint.v1 import checkpoint_pb2, manifest_pb2, thread_pb2, thread_service_pb2

from ...archive.formats.manifests import Manifest, ManifestEntry
from ...core import model
from ...core.lineage import LineageStep
from ...core.threads import Thread, ThreadDetail, Verdict, VerdictKind, VerificationTotal
from ...features.checkpoints.threads import ManifestPage
from ...features.removal.retention import RetentionPreview
from ...features.removal.rules import RetentionRule
from ..messages.convert import (
    failure,
    fill_fields,
    lease,
    lineage,
    location,
    number,
    question,
    ref,
    timestamp,
)

MAX_HEADS = 1000  # most namespace heads in a `Thread` message


def thread(stored: Thread, *more: object) -> thread_pb2.Thread:
    """Return the message for a thread."""
    message = thread_pb2.Thread(head_checkpoint_id=stored.head_id)
    if stored.retention_s:
        message.retention.seconds = stored.retention_s
    if stored.question is not None:
        message.question.CopyFrom(question(stored.question))
    if stored.lease is not None:
        message.lease.CopyFrom(lease(stored.thread_id, stored.lease, with_id=False))
    if stored.failure is not None:
        message.failure.CopyFrom(failure(stored.failure))
    return fill_fields(message, stored, *more)


def thread_detail(detail: ThreadDetail) -> thread_pb2.Thread:
    """Return the message for a thread with its counts and heads."""
    message = thread(detail.thread, detail)
    for checkpoint_ns, checkpoint_id in sorted(detail.heads.items())[:MAX_HEADS]:
        message.heads.add(checkpoint_ns=checkpoint_ns, checkpoint_id=checkpoint_id)
    return message


def lineage_step(step: LineageStep) -> thread_service_pb2.LineageStep:
    """Return the message for a step of a lineage."""
    return thread_service_pb2.LineageStep(
        kind=number(step.descent),
        to=ref(step.key),
        create_time=timestamp(step.created_us),
        **{"from": ref(step.origin)},  # `from` is a keyword of Python
    )


def manifest_response(page: ManifestPage) -> thread_service_pb2.GetManifestResponse:
    """Return the answer with a page of a manifest."""
    manifest, catalog = page.manifest, page.catalog
    if manifest is None or catalog is None:
        return thread_service_pb2.GetManifestResponse(incarnation=page.incarnation)
    message = thread_service_pb2.GetManifestResponse(
        next_page_token=page.next_token,
        catalog=location(catalog.location),
        certify_time=timestamp(catalog.certified_us),
        manifest=location(page.stored) if page.stored is not None else None,
        entries=[_manifest_entry(manifest, entry) for _, entry in page.entries],
    )
    return fill_fields(message, manifest)


def _manifest_entry(manifest: Manifest, entry: ManifestEntry) -> manifest_pb2.ManifestEntry:
    def segment(sha256: bytes) -> checkpoint_pb2.BlobLocation:
        """Return the location of a segment; only its hash if no record has the location."""
        return location(manifest.location(sha256) or model.BlobLocation(sha256, 0))

    record = entry.record
    message = manifest_pb2.ManifestEntry(
        parent_checkpoint_id=record.parent_id,
        segment=segment(record.segment),
        writes=[segment(writes.segment) for writes in entry.writes],
        lineage=lineage(record.lineage),
    )
    fill_fields(message, record)
    message.seq = max(record.seq, *(writes.seq for writes in entry.writes), 0)
    return message


def retention_rule(message: thread_service_pb2.RetentionRule) -> RetentionRule:
    """Return the retention rule of a message."""
    return RetentionRule(
        agent_id=message.agent_id,
        thread_id=message.thread_id,
        delete_after_s=message.delete_after.seconds,
        keep_last=message.keep_last,
        keep_for_s=message.keep_for.seconds,
    )


def preview_response(found: RetentionPreview) -> thread_service_pb2.PreviewRetentionResponse:
    """Return the answer with the threads and checkpoints that rules delete."""
    message = fill_fields(thread_service_pb2.PreviewRetentionResponse(), found)
    for rule in found.rules:
        message_rule = fill_fields(message.rules.add(), rule)
        for time, seconds in (
            (message_rule.delete_after, rule.delete_after_s),
            (message_rule.keep_for, rule.keep_for_s),
        ):
            if seconds:
                time.seconds = seconds
    for effect in found.effects:
        fill_fields(message.effects.add(), effect)
    fill_fields(message.total, found)
    return message


def verification_frame(
    found: Verdict | VerificationTotal,
) -> thread_service_pb2.VerifyThreadResponse:
    """Return the frame of a verdict, or of the total."""
    if isinstance(found, Verdict):
        verdict = thread_service_pb2.CheckpointVerdict(
            ref=ref(found.key),
            verdict=number(found.kind),
            location=location(found.location) if found.location is not None else None,
        )
        return thread_service_pb2.VerifyThreadResponse(verdict=fill_fields(verdict, found))
    total = thread_service_pb2.VerificationTotal(
        ok=found.ok,
        passed=found.counts[VerdictKind.PASS],
        failed=found.counts[VerdictKind.FAIL],
        unverified=found.counts[VerdictKind.UNVERIFIED],
        retracted=found.counts[VerdictKind.RETRACTED],
        chain_detail=found.chain_problem,
        journal_details=found.journal_problems,
    )
    return thread_service_pb2.VerifyThreadResponse(total=total)
