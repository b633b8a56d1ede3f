"""Every status and every reason becomes an exception that says what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

from tuskpoint import Client, errors
from tuskpoint._transport.status import from_call_error, from_rpc_error
from tuskpoint.v1.errors_pb2 import CallError, ErrorReason, FieldViolation

TARGET = "127.0.0.1:7390"
REASONS = [name.removeprefix("ERROR_REASON_") for name in dict(ErrorReason.items())]


class Failed(grpc.RpcError):
    """A failed call, as the sync library raises it."""

    def __init__(
        self, code: grpc.StatusCode, message: str = "", details: Sequence[Message] = ()
    ) -> None:
        super().__init__()
        self._code, self._message, self._details = code, message, details

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._message

    def trailing_metadata(self) -> Any:
        if not self._details:
            return ()
        status = status_pb2.Status(code=self._code.value[0], message=self._message)
        for detail in self._details:
            status.details.add().Pack(detail)
        return (("other", "x"), ("grpc-status-details-bin", status.SerializeToString()))


def info(reason: str, **metadata: str) -> Message:
    made: Message = error_details_pb2.ErrorInfo(
        reason=reason, domain="tuskpoint.dev", metadata=metadata
    )
    return made


def test_every_status_has_a_class() -> None:
    assert set(errors.BY_STATUS) == {code.name for code in grpc.StatusCode} - {"OK"}


def test_every_reason_of_the_contract_has_a_class_and_no_other() -> None:
    assert set(errors.BY_REASON) == set(REASONS) - {"UNSPECIFIED"}


@pytest.mark.parametrize("reason", sorted(errors.BY_REASON))
def test_every_reason_has_the_class_of_its_remedy(reason: str) -> None:
    kind = errors.BY_REASON[reason] or errors.NotFound
    sentence = (kind.__doc__ or "").splitlines()[0]
    assert len(sentence) > 20
    assert sentence.endswith(".")
    assert kind is not errors.TuskPointError


def test_an_error_has_its_subject_as_attributes() -> None:
    metadata = {"blob_id": "b", "expected": "aa", "actual": "bb"}
    details = [info("BLOB_HASH_MISMATCH", **metadata)]
    damaged = from_rpc_error(Failed(grpc.StatusCode.DATA_LOSS, "m", details), TARGET)
    assert isinstance(damaged, errors.HashMismatch)
    assert (damaged.blob_id, damaged.expected, damaged.actual) == ("b", "aa", "bb")
    metadata = {"field": "thread_id", "claimed": "t", "found": "u"}
    details = [info("DESCRIPTOR_MISMATCH", **metadata)]
    other = from_rpc_error(Failed(grpc.StatusCode.INVALID_ARGUMENT, "m", details), TARGET)
    assert isinstance(other, errors.DescriptorMismatch)
    assert (other.field, other.claimed, other.found) == ("thread_id", "t", "u")


@pytest.mark.parametrize(
    ("reported", "cursor"), [("AQL/", b"\x01\x02\xff"), ("", b""), ("A-", b"")]
)
def test_a_compacted_cursor_names_the_oldest_one(reported: str, cursor: bytes) -> None:
    details = [info("CURSOR_COMPACTED", oldest_cursor=reported)]
    error = from_rpc_error(Failed(grpc.StatusCode.OUT_OF_RANGE, "m", details), TARGET)
    assert isinstance(error, errors.CursorCompacted)
    assert error.oldest_cursor == cursor


def test_an_error_without_its_metadata_names_nothing() -> None:
    damaged = errors.HashMismatch("m")
    assert (damaged.blob_id, damaged.expected, damaged.actual) == ("", "", "")
    other = errors.DescriptorMismatch("m")
    assert (other.field, other.claimed, other.found) == ("", "", "")


def test_only_reasons_with_two_statuses_leave_the_class_to_the_status() -> None:
    two = [name for name, kind in errors.BY_REASON.items() if kind is None]
    assert two == ["BLOB_NOT_FOUND", "SEARCH_UNAVAILABLE"]
    assert errors.error_class("DATA_LOSS", "BLOB_NOT_FOUND") is errors.DataLoss
    assert errors.error_class("NOT_FOUND", "BLOB_NOT_FOUND") is errors.NotFound
    lacking = errors.error_class("FAILED_PRECONDITION", "SEARCH_UNAVAILABLE")
    assert lacking is errors.PreconditionFailed
    assert errors.error_class("UNAVAILABLE", "SEARCH_UNAVAILABLE") is errors.Unavailable


def test_a_reason_of_a_newer_server_falls_back_on_its_status() -> None:
    assert errors.error_class("ABORTED", "NOT_YET_INVENTED") is errors.Conflict
    assert errors.error_class("NOT_YET_INVENTED", "") is errors.ServerError


def test_every_class_is_exported() -> None:
    import tuskpoint

    kinds = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.TuskPointError)
    }
    assert kinds <= set(tuskpoint.__all__)
    assert all(getattr(tuskpoint, name) is getattr(errors, name) for name in kinds)


@pytest.mark.parametrize("code", [status for status in grpc.StatusCode if status.name != "OK"])
def test_a_bare_status_is_reported_with_its_target(code: grpc.StatusCode) -> None:
    error = from_rpc_error(Failed(code, "the text of the library"), TARGET)
    # The service never sends a bare INTERNAL: the connection was cut.
    status = "UNAVAILABLE" if code is grpc.StatusCode.INTERNAL else code.name
    assert type(error) is errors.BY_STATUS[status]
    assert error.status == status
    assert error.reason == ""
    assert "the text of the library" in str(error)


def test_a_refused_connection_names_the_target_and_the_server() -> None:
    error = from_rpc_error(Failed(grpc.StatusCode.UNAVAILABLE, "Connection refused"), TARGET)
    assert TARGET in error.message
    assert "tuskpoint-server" in error.message
    assert "TUSKPOINT_TARGET" in error.message


def test_a_message_that_is_too_large_is_distinguished_from_a_full_backlog() -> None:
    exhausted = grpc.StatusCode.RESOURCE_EXHAUSTED
    bare = from_rpc_error(Failed(exhausted, "CLIENT: Sent message larger than max"), TARGET)
    assert "larger" in bare.message
    assert bare.retry_after_s is None
    full = from_rpc_error(
        Failed(
            exhausted,
            "wait",
            [
                info("BACKLOG_FULL", backlog_bytes="7"),
                error_details_pb2.RetryInfo(retry_delay=Duration(seconds=5)),
            ],
        ),
        TARGET,
    )
    assert (full.message, full.reason, full.retry_after_s) == ("wait", "BACKLOG_FULL", 5.0)
    assert full.metadata == {"backlog_bytes": "7"}


def test_missing_values_name_their_channels() -> None:
    failure = error_details_pb2.PreconditionFailure()
    failure.violations.add(type="VALUE", subject="a, b", description="not stored")
    failure.violations.add(type="OTHER", subject="x")
    error = from_rpc_error(
        Failed(grpc.StatusCode.FAILED_PRECONDITION, "m", [info("VALUES_MISSING"), failure]), TARGET
    )
    assert isinstance(error, errors.ValuesMissing)
    assert error.channels == ("a, b",)


def test_refused_fields_are_in_the_message_once() -> None:
    refused = error_details_pb2.BadRequest()
    refused.field_violations.add(field="ref.thread_id", description="must not be empty")
    details = [info("INVALID_FIELD", field="ref.thread_id"), refused]
    bare = from_rpc_error(Failed(grpc.StatusCode.INVALID_ARGUMENT, "no", details), TARGET)
    assert bare.message == "no (ref.thread_id: must not be empty)"
    message = "ref.thread_id: must not be empty"
    whole = from_rpc_error(Failed(grpc.StatusCode.INVALID_ARGUMENT, message, details), TARGET)
    assert whole.message == message


def test_every_refused_field_can_be_read_from_the_error() -> None:
    refused = error_details_pb2.BadRequest()
    refused.field_violations.add(field="limit", description="is 0 or more")
    refused.field_violations.add(field="ref.thread_id", description="must not be empty")
    details = [info("INVALID_FIELD", field="limit"), refused]
    error = from_rpc_error(Failed(grpc.StatusCode.INVALID_ARGUMENT, "no", details), TARGET)
    assert error.violations == (("limit", "is 0 or more"), ("ref.thread_id", "must not be empty"))
    assert errors.TuskPointError("m").violations == ()
    with pytest.raises(errors.InvalidRequest) as caught:
        Client(TARGET, token="")
    assert [name for name, _ in caught.value.violations] == ["token"]


@pytest.mark.parametrize(
    ("code", "reason", "hint"),
    [
        (grpc.StatusCode.UNAUTHENTICATED, "CREDENTIAL_INVALID", "TUSKPOINT_TOKEN_FILE"),
        (grpc.StatusCode.UNAUTHENTICATED, "", "TUSKPOINT_TOKEN"),
        (grpc.StatusCode.PERMISSION_DENIED, "SCOPE_MISSING", "a token that has it"),
    ],
)
def test_a_refused_credential_names_the_setting(
    code: grpc.StatusCode, reason: str, hint: str
) -> None:
    details = [info(reason)] if reason else []
    error = from_rpc_error(Failed(code, "the message", details), TARGET)
    assert type(error) in (errors.Unauthenticated, errors.PermissionDenied)
    assert "the message" in error.message
    assert hint in error.message


def test_an_error_inside_a_stream_becomes_the_same_exception() -> None:
    error = from_call_error(
        CallError(
            code=9,
            reason=ErrorReason.ERROR_REASON_VALUES_MISSING,
            message="send them inline",
            metadata={"channels": "a"},
            field_violations=[FieldViolation(field="a", description="content is not stored")],
        )
    )
    assert isinstance(error, errors.ValuesMissing)
    assert (error.channels, error.status) == (("a",), "FAILED_PRECONDITION")
    assert error.violations == (("a", "content is not stored"),)
    full = from_call_error(CallError(code=8, message="wait", retry_after=Duration(seconds=5)))
    assert (type(full), full.retry_after_s) == (errors.ResourceExhausted, 5.0)
    unknown = from_call_error(CallError(code=10, reason=9999, message="m"))  # type: ignore[arg-type]
    assert (type(unknown), unknown.reason) == (errors.Conflict, "")
