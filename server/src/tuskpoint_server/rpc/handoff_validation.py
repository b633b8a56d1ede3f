"""What the limits of the contract say about a request that concerns a hand-off."""

from __future__ import annotations

import re

from tuskpoint.v1 import handoff_service_pb2 as pb

from ..domain.descriptor import source_of
from ..domain.limits import LIMITS
from .checks import DURABILITIES, Checks

_MAX_BLOB_ID = 256
"""Bytes; those of the known stores have 43."""

_SHA256 = re.compile(r"[0-9a-f]{64}")


def check_create(request: pb.CreateHandoffRequest) -> None:
    """Check a hand-off.

    Raises:
        Refusal: `INVALID_FIELD`.
    """
    checks = Checks()
    checks.ref("ref", request.ref)
    checks.text("to_agent", request.to_agent, LIMITS.max_agent_id)
    checks.text("request_id", request.request_id, LIMITS.max_request_id)
    checks.finish()


def check_adopt(request: pb.AdoptHandoffRequest) -> None:
    """Check an adoption.

    Raises:
        Refusal: `INVALID_FIELD`.
    """
    checks = Checks()
    _descriptor(checks, request.descriptor)
    checks.thread("new_thread_id", request.new_thread_id, required=False)
    checks.text("request_id", request.request_id, LIMITS.max_request_id)
    checks.member("durability", request.durability, DURABILITIES)
    checks.finish()


def _descriptor(checks: Checks, descriptor: pb.HandoffDescriptor) -> None:
    # First, because of several problems the first is the one that the message tells.
    if not _SHA256.fullmatch(descriptor.blob_sha256):
        checks.fail(
            "descriptor.blob_sha256",
            "must be the SHA-256 of the blob, 64 lowercase hex digits: nothing is adopted "
            "without it",
        )
    checks.text("descriptor.blob_id", descriptor.blob_id, _MAX_BLOB_ID, required=True)
    checks.thread("descriptor.thread_id", descriptor.thread_id)
    checks.text(
        "descriptor.checkpoint_id",
        descriptor.checkpoint_id,
        LIMITS.max_checkpoint_id,
        required=True,
    )
    if descriptor.source != source_of(descriptor.thread_id, descriptor.checkpoint_id):
        checks.fail("descriptor.source", 'must be "thread:checkpoint", as the other fields say')
    checks.text("descriptor.to_agent", descriptor.to_agent, LIMITS.max_agent_id)
    checks.text("descriptor.summary", descriptor.summary, LIMITS.max_summary)
