"""Verdicts of a verification, as the contract's frames."""

from __future__ import annotations

from tuskpoint.v1 import thread_service_pb2 as pb

from ..domain.verification import Verdict, VerdictKind, VerificationTotal
from . import convert

_VERDICTS = {
    VerdictKind.PASS: pb.VERDICT_PASS,
    VerdictKind.FAIL: pb.VERDICT_FAIL,
    VerdictKind.UNVERIFIED: pb.VERDICT_UNVERIFIED,
    VerdictKind.RETRACTED: pb.VERDICT_RETRACTED,
}


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
