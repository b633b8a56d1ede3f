"""Converts refusals to statuses, and other exceptions to incidents.

A status is a `google.rpc.Status` with `ErrorInfo` in the domain `tuskpoint.dev` and, if useful,
`BadRequest`, `PreconditionFailure` or `RetryInfo`. Peers bound the trailers with the status to
8 KiB (gRPC's default for metadata), so long parts are cut; the same refusal inside a stream
(`CallError`) has all its violations.

Any other exception becomes `INTERNAL` with an incident ID. The exception's text may quote state, so
nobody gets the text: the log has the ID, the type and the lines of code.
"""

from __future__ import annotations

import logging
import secrets
import traceback
from collections.abc import Iterator, Sequence
from datetime import timedelta

from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

from tuskpoint.v1 import errors_pb2

from ...core.errors import Reason, Refusal, Status, Violation

ERROR_DOMAIN = "tuskpoint.dev"

_MESSAGE_BYTES = 600
_METADATA_VALUE_BYTES = 700
_VIOLATIONS_BYTES = 1500
# bytes in a frame: a save can lack values of 4,096 channels, whose names have up to 512 bytes
_FRAME_TEXT_BYTES = 16 * 1024
_FRAME_FIELD_BYTES = 768

_log = logging.getLogger(__name__)


def to_status(refusal: Refusal) -> status_pb2.Status:
    """Return the status of a call that a refusal ends."""
    message = cut_text(refusal.message, _MESSAGE_BYTES)
    status = status_pb2.Status(code=refusal.status.value, message=message)
    info = error_details_pb2.ErrorInfo(reason=refusal.reason.name, domain=ERROR_DOMAIN)
    for name, value in refusal.metadata.items():
        info.metadata[name] = cut_text(value, _METADATA_VALUE_BYTES)
    status.details.add().Pack(info)
    if refusal.status is Status.INVALID_ARGUMENT and refusal.violations:
        request = error_details_pb2.BadRequest()
        for field, problem in _fitting_violations(refusal.violations):
            request.field_violations.add(field=field, description=problem)
        status.details.add().Pack(request)
    if refusal.status is Status.FAILED_PRECONDITION:
        failure = error_details_pb2.PreconditionFailure()
        for subject, problem in _fitting_violations(refusal.violations):
            failure.violations.add(type="VALUE", subject=subject, description=problem)
        if not refusal.violations:
            failure.violations.add(type=refusal.reason.name, description=message)
        status.details.add().Pack(failure)
    if refusal.retry_after_s is not None:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromNanoseconds(int(refusal.retry_after_s * 1e9))
        status.details.add().Pack(retry)
    return status


def to_call_error(refusal: Refusal) -> errors_pb2.CallError:
    """Return the refusal of one call on a stream; the result fits a message."""
    message = errors_pb2.CallError(
        code=refusal.status.value,
        reason=f"ERROR_REASON_{refusal.reason.name}",
        message=cut_text(refusal.message, _FRAME_TEXT_BYTES),
        metadata={
            name: cut_text(text, _FRAME_TEXT_BYTES) for name, text in refusal.metadata.items()
        },
        field_violations=[
            errors_pb2.FieldViolation(
                field=cut_text(violation.field, _FRAME_FIELD_BYTES),
                description=cut_text(violation.description, _FRAME_FIELD_BYTES),
            )
            for violation in refusal.violations
        ],
    )
    if refusal.retry_after_s is not None:
        message.retry_after.FromTimedelta(timedelta(seconds=refusal.retry_after_s))
    return message


def incident(error: BaseException, method: str) -> Refusal:
    """Log an unexpected exception; return the refusal that hides it."""
    number = secrets.token_hex(6)
    types = []
    chain: BaseException | None = error
    while chain is not None:
        types.append(type(chain).__qualname__)
        chain = chain.__cause__ or chain.__context__
    places = [
        f"{frame.name} ({frame.filename}:{frame.lineno})"
        for frame in reversed(traceback.extract_tb(error.__traceback__))
    ]
    fields = (number, method, " <- ".join(types), " <- ".join(places))
    _log.error("incident %s in %s: %s at %s", *fields)
    _log.debug("incident %s: %s", number, error)
    return Refusal(Reason.INTERNAL_ERROR, incident=number)


def cut_text(text: str, max_bytes: int) -> str:
    """Return text of at most `max_bytes` of UTF-8; a longer text is cut and ends in "..."."""
    raw = text.encode()
    if len(raw) <= max_bytes:
        return text
    return raw[: max_bytes - 3].decode(errors="ignore") + "..."


def _fitting_violations(violations: Sequence[Violation]) -> Iterator[tuple[str, str]]:
    """Yield as many violations as trailers can carry, at least one."""
    room = _VIOLATIONS_BYTES
    for violation in violations:
        field = cut_text(violation.field, _METADATA_VALUE_BYTES)
        description = cut_text(violation.description, _METADATA_VALUE_BYTES)
        yield field, description
        room -= len(field.encode()) + len(description.encode())
        if room <= 0:
            return
