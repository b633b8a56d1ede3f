"""Exceptions of `tuskpoint.errors`, from gRPC errors and `CallError` messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

from ..errors import InvalidRequest, TlsMismatch, TuskPointError, ValuesMissing, error_class
from ..v1.errors_pb2 import CallError, ErrorReason
from .settings.target import DEFAULT_PORT, host_and_port, is_loopback, is_several

_STATUS_DETAILS = "grpc-status-details-bin"
_STATUS_NAMES = {code.value[0]: code.name for code in grpc.StatusCode}


@dataclass(slots=True)
class _Details:
    """The details of `google.rpc.Status` beyond code and message."""

    reason: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    retry_after_s: float | None = None
    channels: Sequence[str] = ()
    fields: Sequence[tuple[str, str]] = ()


def from_rpc_error(error: grpc.RpcError, target: str, *, tls: bool = False) -> TuskPointError:
    """Return the exception for a failed call, sync or aio.

    Args:
        error: The exception of the gRPC library.
        target: The target of the call, for the message.
        tls: Whether the call used TLS, for the message.
    """
    status = error.code().name
    details = _details_of(error)
    text = error.details() or ""
    if status == "INTERNAL" and not details.reason:
        # The service gives a reason with every error. gRPC's core gives no reason when a server
        # that drains ends a stream while the client still sends.
        status = "UNAVAILABLE"
    if details.reason:
        return _error(status, advise(details.reason, text), details)
    message = explain(status, text, target, tls=tls)
    # With several servers, another server may have the right certificate.
    if tls and status == "UNAVAILABLE" and _is_mismatch(text) and not is_several(target):
        return TlsMismatch(message, status=status)
    return _error(status, message, details)


def from_call_error(error: CallError) -> TuskPointError:
    """Return the exception for an error inside a stream that continues."""
    fields = [(violation.field, violation.description) for violation in error.field_violations]
    reason = ErrorReason.Name(error.reason) if error.reason in ErrorReason.values() else ""
    details = _Details(
        reason=reason.removeprefix("ERROR_REASON_"),
        metadata=dict(error.metadata),
        retry_after_s=_seconds(error.retry_after) if error.HasField("retry_after") else None,
        channels=[name for name, _ in fields],
        fields=fields,
    )
    message = advise(details.reason, error.message)
    return _error(_STATUS_NAMES.get(error.code, "UNKNOWN"), message, details)


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
        problems = "; ".join(f"{name}: {problem}" for name, problem in details.fields)
        message = message if problems in message else f"{message} ({problems})"
    return kind(
        message,
        status=status,
        reason=details.reason,
        metadata=details.metadata,
        retry_after_s=details.retry_after_s,
        violations=details.fields,
    )


def _details_of(error: grpc.RpcError) -> _Details:
    """Return the details in the trailers of a failed call; empty if they cannot be read."""
    details = _Details()
    # The stubs know the sync library's named pairs; pairs of both libraries unpack.
    trailers = cast(Iterable[tuple[str, str | bytes]], error.trailing_metadata() or ())
    for key, value in trailers:
        if key == _STATUS_DETAILS:
            try:
                for detail in status_pb2.Status.FromString(value).details:
                    _read_detail(detail, details)
            except DecodeError:  # the status of the call still counts
                return _Details()
    return details


def _read_detail(detail: AnyMessage, details: _Details) -> None:
    info = error_details_pb2.ErrorInfo()
    retry = error_details_pb2.RetryInfo()
    precondition = error_details_pb2.PreconditionFailure()
    request = error_details_pb2.BadRequest()
    if detail.Unpack(info):
        details.reason = info.reason
        details.metadata = dict(info.metadata)
    elif detail.Unpack(retry):
        details.retry_after_s = _seconds(retry.retry_delay)
    elif detail.Unpack(precondition):
        details.channels = [
            violation.subject for violation in precondition.violations if violation.type == "VALUE"
        ]
    elif detail.Unpack(request):
        details.fields = [
            (violation.field, violation.description) for violation in request.field_violations
        ]


def _seconds(duration: Duration) -> float:
    """Return the seconds of a duration, even of a duration that no `timedelta` can express."""
    return duration.seconds + duration.nanos / 1e9


_OTHER_NAMES = (
    "has a certificate for other names: use one of them as the target, or give the server a "
    "certificate that names this one"
)
# Texts of gRPC's core; the first match wins. Some differ between releases.
_MISMATCHES = (
    (
        "CERTIFICATE_VERIFY_FAILED",
        "has a certificate that is not trusted: set the CA that signed it with `ca_file` or "
        "TUSKPOINT_CA_FILE",
    ),
    ("Hostname Verification Check failed", _OTHER_NAMES),
    ("is not in peer certificate", _OTHER_NAMES),
    (
        "WRONG_VERSION_NUMBER",
        "does not speak TLS: start it with --tls-cert and --tls-key, or switch TLS off in the "
        "client with `tls=False` or TUSKPOINT_TLS=0",
    ),
)
_SIGNS_WITH_TLS = (
    *_MISMATCHES,
    # A server that stops also closes connections.
    (
        "Socket closed",
        "closed the connection: if it requires a client certificate, set one that it trusts, with "
        "`cert_file` and `key_file` or TUSKPOINT_CERT_FILE and TUSKPOINT_KEY_FILE",
    ),
)
_SIGNS_IN_PLAINTEXT = (
    (
        "Socket closed",
        "closed the connection: if it speaks TLS, set the CA that signed its certificate with "
        "`ca_file` or TUSKPOINT_CA_FILE, or set TUSKPOINT_TLS=1",
    ),
)


_ADVICE = {
    "CREDENTIAL_INVALID": (
        "the client's token is its argument `token`, the value of TUSKPOINT_TOKEN, or the content "
        "of the file that TUSKPOINT_TOKEN_FILE names"
    ),
    "SCOPE_MISSING": "give the client a token that has it",
}


def advise(reason: str, text: str) -> str:
    """Return the message of the service, with advice from the client if there is any.

    Args:
        reason: Name of the reason.
        text: The message of the service.
    """
    advice = _ADVICE.get(reason)
    return f"{text} ({advice})" if advice else text


def explain(status: str, text: str, target: str, *, tls: bool = False) -> str:
    """Return the message for an error that did not come from the service.

    Only the text of gRPC's core distinguishes a wrong certificate from a missing server.

    Args:
        status: Name of the canonical status.
        text: Text of the gRPC library.
        target: The target of the call.
        tls: Whether the call used TLS.
    """
    if status == "UNAVAILABLE":
        return f"{_unavailable(text, target, tls=tls)} ({text})"
    if status == "UNAUTHENTICATED":
        return (
            f"{target} requires a valid credential: give the client a token, as `token` or "
            f"in TUSKPOINT_TOKEN ({text})"
        )
    if status == "RESOURCE_EXHAUSTED":
        return (
            "a message is larger than the sender or the receiver allows: save less in metadata "
            "and identifiers, or put fewer items at once; values of channels are sent in chunks "
            f"({text})"
        )
    if status == "DEADLINE_EXCEEDED":
        return (
            f"{target} did not answer in time; what it journaled by then stays, and the same "
            f"call may be repeated ({text})"
        )
    if status == "UNIMPLEMENTED":
        return f"{target} is not a TuskPoint server, or lacks this call ({text})"
    if status == "CANCELLED":
        return f"the call to {target} was cancelled before it was answered ({text})"
    return f"{target} answered {status}: {text}" if text else f"{target} answered {status}"


def _is_mismatch(text: str) -> bool:
    """Return whether a handshake failed for a reason that only other settings can change."""
    return any(sign in text for sign, _ in _MISMATCHES)


def _unavailable(text: str, target: str, *, tls: bool) -> str:
    for sign, hint in _SIGNS_WITH_TLS if tls else _SIGNS_IN_PLAINTEXT:
        if sign in text:
            return f"{target} {hint}"
    # For a name with several addresses gRPC reports the problem of one of them.
    certified = (
        "; if it runs, check that it speaks TLS, that `ca_file` is right, and that the client has "
        "a certificate if the server requires one"
        if tls
        else ""
    )
    start = "start one with `tuskpoint-server dev`"
    _, port = host_and_port(target)
    if not is_loopback(target):
        start = "check that it runs and can be reached from here"
    elif port not in (None, DEFAULT_PORT):
        start = f"start one with `tuskpoint-server dev --port {port}`"
    return (
        f"no TuskPoint server answers at {target}: {start}, or set the right target in the "
        f"argument or in TUSKPOINT_TARGET{certified}"
    )
