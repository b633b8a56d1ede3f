"""Errors over HTTP, in the form of the Connect protocol and in the plain form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import grpc
from connectrpc.code import Code
from connectrpc.errors import ConnectError, ErrorDetail
from google.protobuf import any_pb2, json_format
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]
from protobuf import message_from_json_value
from protobuf.wkt import Any as PackedDetail
from protobuf.wkt import Struct

from ...core.errors import Refusal
from ..middleware.errors import to_status

_CODES = {
    status.value[0]: Code("canceled" if status.name == "CANCELLED" else status.name.lower())
    for status in grpc.StatusCode
    if status is not grpc.StatusCode.OK
}
_HTTP_STATUS = {
    "canceled": 499,
    "invalid_argument": 400,
    "failed_precondition": 400,
    "out_of_range": 400,
    "unauthenticated": 401,
    "permission_denied": 403,
    "not_found": 404,
    "aborted": 409,
    "already_exists": 409,
    "resource_exhausted": 429,
    "unimplemented": 501,
    "unavailable": 503,
    "deadline_exceeded": 504,
}
"""HTTP statuses of the Connect protocol's codes; 500 for every other code."""


class _Detail(ErrorDetail):
    """A detail of an error that JSON also shows as text, in `debug`."""

    def __init__(self, packed: any_pb2.Any) -> None:
        super().__init__(PackedDetail(type_url=packed.type_url, value=packed.value))
        self._shown = message_from_json_value(Struct, _in_words(packed))

    def value(self, *_: object) -> Any:
        return self._shown


def _in_words(packed: any_pb2.Any) -> dict[str, Any]:
    message = getattr(error_details_pb2, packed.TypeName().rpartition(".")[2])()
    packed.Unpack(message)
    return json_format.MessageToDict(message)


def refusal_error(refusal: Refusal) -> ConnectError:
    """Return the error of connectrpc for a refusal."""
    return status_error(to_status(refusal))


def status_error(status: status_pb2.Status) -> ConnectError:
    """Return the error of connectrpc for a `google.rpc.Status`."""
    details = [_Detail(detail) for detail in status.details]
    return ConnectError(_CODES[status.code], status.message, details)


def connect_form(refusal: Refusal) -> dict[str, Any]:
    """Return a refusal in the Connect protocol's form, without the bytes of its details."""
    status = to_status(refusal)
    details = [{"type": detail.TypeName(), "debug": _in_words(detail)} for detail in status.details]
    return {"code": _CODES[status.code].value, "message": status.message, "details": details}


def http_status(error: Mapping[str, Any]) -> int:
    """Return the HTTP status of an error of the Connect protocol."""
    return _HTTP_STATUS.get(error["code"], 500)


def plain_error(error: Mapping[str, Any]) -> dict[str, Any]:
    """Return an error of the Connect protocol in the plain form, which repeats nothing.

    The form has `code` and `message` and, if the error has them, `reason`, `metadata`, `further`
    (the other refused fields) and `retryAfter`.
    """
    plain = {"code": error["code"], "message": error.get("message", "")}
    shown = {
        detail["type"].rpartition(".")[2]: detail.get("debug", {})
        for detail in error.get("details", ())
    }
    info = shown.get("ErrorInfo", {})
    if info:
        plain["reason"] = info["reason"]
    if info.get("metadata"):
        plain["metadata"] = dict(sorted(info["metadata"].items()))  # a map has no order
    violations = shown.get("BadRequest", {}).get("fieldViolations", ())
    if len(violations) > 1:
        plain["further"] = [
            {"field": violation["field"], "problem": violation["description"]}
            for violation in violations[1:]  # the message is about the first
        ]
    if "RetryInfo" in shown:
        plain["retryAfter"] = shown["RetryInfo"]["retryDelay"]
    return plain


def error_body(error: Mapping[str, Any]) -> bytes:
    """Return an error of the Connect protocol as a body in the plain form."""
    return json.dumps(plain_error(error), ensure_ascii=False).encode()
