"""gRPC errors and `CallError` messages as the exceptions of `tuskpoint.errors`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

from ._explanations import advise, explain
from .errors import InvalidRequest, TuskPointError, ValuesMissing, error_class
from .v1.errors_pb2 import CallError, ErrorReason

_STATUS_DETAILS = "grpc-status-details-bin"
_STATUS_NAMES = {code.value[0]: code.name for code in grpc.StatusCode}


@dataclass(slots=True)
class _Details:
    """What `google.rpc.Status` details say beyond code and message."""

    reason: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    retry_after_s: float | None = None
    channels: Sequence[str] = ()
    fields: Sequence[tuple[str, str]] = ()


def from_rpc_error(error: grpc.RpcError, target: str, *, tls: bool = False) -> TuskPointError:
    """Return the exception for a failed call, sync or aio.

    Args:
        error: What the gRPC library raised.
        target: The target of the call, for the message.
        tls: Whether the call went over TLS, for the message.
    """
    status = error.code().name
    details = _details_of(error)
    said = error.details() or ""
    if status == "INTERNAL" and not details.reason:
        # The service gives a reason with every error. gRPC's core has none when a stream is ended
        # under a client that still sends, as a server that drains does.
        status = "UNAVAILABLE"
    if details.reason:
        message = advise(details.reason, said)
    else:
        message = explain(status, said, target, tls=tls)
    return _error(status, message, details)


def from_call_error(error: CallError) -> TuskPointError:
    """Return the exception for an error inside a stream that goes on."""
    fields = [(violation.field, violation.description) for violation in error.field_violations]
    reason = ErrorReason.Name(error.reason) if error.reason in ErrorReason.values() else ""
    details = _Details(
        reason=reason.removeprefix("ERROR_REASON_"),
        metadata=dict(error.metadata),
        retry_after_s=(
            error.retry_after.ToTimedelta().total_seconds()
            if error.HasField("retry_after")
            else None
        ),
        channels=[name for name, _ in fields],
        fields=fields,
    )
    return _error(_STATUS_NAMES.get(error.code, "UNKNOWN"), error.message, details)


def _error(status: str, message: str, details: _Details) -> TuskPointError:
    kind = error_class(status, details.reason)
    if kind is ValuesMissing:
        return ValuesMissing(
            message,
            channels=details.channels,
            status=status,
            reason=details.reason,
            metadata=details.metadata,
            violations=details.fields,
        )
    if kind is InvalidRequest and details.fields:
        named = "; ".join(f"{name}: {problem}" for name, problem in details.fields)
        message = message if named in message else f"{message} ({named})"
    return kind(
        message,
        status=status,
        reason=details.reason,
        metadata=details.metadata,
        retry_after_s=details.retry_after_s,
        violations=details.fields,
    )


def _details_of(error: grpc.RpcError) -> _Details:
    details = _Details()
    # The stubs know the sync library's named pairs; both libraries' pairs unpack.
    trailers = cast(Iterable[tuple[str, str | bytes]], error.trailing_metadata() or ())
    for key, value in trailers:
        if key == _STATUS_DETAILS:
            for packed in status_pb2.Status.FromString(value).details:
                _read_detail(packed, details)
    return details


def _read_detail(packed: AnyMessage, details: _Details) -> None:
    info = error_details_pb2.ErrorInfo()
    retry = error_details_pb2.RetryInfo()
    precondition = error_details_pb2.PreconditionFailure()
    request = error_details_pb2.BadRequest()
    if packed.Unpack(info):
        details.reason = info.reason
        details.metadata = dict(info.metadata)
    elif packed.Unpack(retry):
        details.retry_after_s = retry.retry_delay.ToTimedelta().total_seconds()
    elif packed.Unpack(precondition):
        details.channels = [one.subject for one in precondition.violations if one.type == "VALUE"]
    elif packed.Unpack(request):
        details.fields = [(one.field, one.description) for one in request.field_violations]
