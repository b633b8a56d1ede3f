"""Error answers of the publisher and the aggregator.

Two kinds: JSON in the manner of https://google.aip.dev/193, written by Walrus itself
(`crates/walrus-storage-node-client/src/api/errors.rs` of MystenLabs/walrus), and plain
text, written by its web framework before Walrus sees the request.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus

DAEMON = "daemon.walrus.space"
AUTH = "auth.publisher.walrus.space"
GLOBAL = "global"

_INTERNAL_MESSAGE = "an internal server error has occurred, report it if the problem persists"

TEXT = "text/plain; charset=utf-8"
JSON = "application/json"
HTML = "text/html"


class Reason(StrEnum):
    """Why Walrus refuses; the word in `details[0].reason`."""

    BLOB_NOT_FOUND = "BLOB_NOT_FOUND"
    BLOB_READ_FAILED = "BLOB_READ_FAILED"
    BLOB_TOO_LARGE = "BLOB_TOO_LARGE"
    BLOB_UNAVAILABLE = "BLOB_UNAVAILABLE"
    FORBIDDEN_BLOB = "FORBIDDEN_BLOB"
    INSUFFICIENT_CONFIRMATIONS = "INSUFFICIENT_CONFIRMATIONS"
    INTERNAL_ERROR = "INTERNAL_ERROR"
    INVALID_BLOB_PERSISTENCE = "INVALID_BLOB_PERSISTENCE"
    INVALID_BYTE_RANGE = "INVALID_BYTE_RANGE"
    INVALID_CONSISTENCY_CHECK = "INVALID_CONSISTENCY_CHECK"
    INVALID_ID_FORMAT = "INVALID_ID_FORMAT"
    MALFORMED_REQUEST = "MALFORMED_REQUEST"
    OBJECT_ID_RESOLUTION_FAILED = "OBJECT_ID_RESOLUTION_FAILED"
    QUILT_PATCH_NOT_FOUND = "QUILT_PATCH_NOT_FOUND"
    RANGE_NOT_SATISFIABLE = "RANGE_NOT_SATISFIABLE"
    SLIVER_RETRIEVAL_FAILED = "SLIVER_RETRIEVAL_FAILED"

    EXPIRED_SIGNATURE = "EXPIRED_SIGNATURE"
    INCONSISTENT_TOKEN = "INCONSISTENT_TOKEN"  # noqa: S105 - a reason, not a secret
    INVALID_EPOCHS = "INVALID_EPOCHS"
    INVALID_EXPIRATION = "INVALID_EXPIRATION"
    INVALID_SEND_OBJECT_TO = "INVALID_SEND_OBJECT_TO"
    INVALID_SIGNATURE = "INVALID_SIGNATURE"
    INVALID_SIZE = "INVALID_SIZE"
    INVALID_TIMESTAMP = "INVALID_TIMESTAMP"
    INVALID_TOKEN = "INVALID_TOKEN"  # noqa: S105 - a reason, not a secret
    TOKEN_ALREADY_USED = "TOKEN_ALREADY_USED"  # noqa: S105 - a reason, not a secret


@dataclass(frozen=True, slots=True)
class _Kind:
    """The answer for a reason: HTTP status, gRPC-style status, domain, message."""

    code: int
    status: str
    domain: str
    message: str
    reason: str = ""


_AUTH_400 = (400, "FAILED_PRECONDITION", AUTH)

_KINDS: Mapping[Reason, _Kind] = {
    Reason.BLOB_NOT_FOUND: _Kind(404, "NOT_FOUND", DAEMON, "no such blob ID on Walrus"),
    Reason.BLOB_READ_FAILED: _Kind(500, "INTERNAL", DAEMON, "failed to read a blob"),
    Reason.BLOB_TOO_LARGE: _Kind(
        403, "SIZE_EXCEEDED", DAEMON, "the blob is larger than this aggregator serves"
    ),
    Reason.BLOB_UNAVAILABLE: _Kind(
        503, "UNAVAILABLE", DAEMON, "the blob cannot be read at the moment"
    ),
    Reason.FORBIDDEN_BLOB: _Kind(
        451, "UNAVAILABLE_FOR_LEGAL_REASONS", DAEMON, "the blob is blocked"
    ),
    Reason.INSUFFICIENT_CONFIRMATIONS: _Kind(
        504, "DEADLINE_EXCEEDED", DAEMON, "timed out while waiting for confirmations"
    ),
    Reason.INTERNAL_ERROR: _Kind(500, "INTERNAL", GLOBAL, _INTERNAL_MESSAGE),
    Reason.INVALID_BLOB_PERSISTENCE: _Kind(
        400, "INVALID_ARGUMENT", DAEMON, "a blob cannot be both deletable and permanent"
    ),
    Reason.INVALID_BYTE_RANGE: _Kind(
        400, "INVALID_ARGUMENT", DAEMON, "invalid byte range parameters"
    ),
    Reason.INVALID_CONSISTENCY_CHECK: _Kind(
        400, "INVALID_ARGUMENT", DAEMON, "strict and skipped consistency checks exclude each other"
    ),
    Reason.INVALID_ID_FORMAT: _Kind(400, "INVALID_ARGUMENT", DAEMON, "invalid ID format"),
    Reason.MALFORMED_REQUEST: _Kind(400, "INVALID_ARGUMENT", DAEMON, "the request is malformed"),
    Reason.OBJECT_ID_RESOLUTION_FAILED: _Kind(
        404, "NOT_FOUND", DAEMON, "the object ID leads to no blob"
    ),
    Reason.QUILT_PATCH_NOT_FOUND: _Kind(404, "NOT_FOUND", DAEMON, "no such patch in the quilt"),
    Reason.RANGE_NOT_SATISFIABLE: _Kind(
        416,
        "RANGE_NOT_SATISFIABLE",
        DAEMON,
        "invalid byte range parameters",
        reason="INVALID_BYTE_RANGE",
    ),
    Reason.SLIVER_RETRIEVAL_FAILED: _Kind(500, "INTERNAL", DAEMON, "failed to retrieve slivers"),
    Reason.EXPIRED_SIGNATURE: _Kind(504, "DEADLINE_EXCEEDED", AUTH, "the token has expired"),
    Reason.INVALID_SIGNATURE: _Kind(
        401, "UNAUTHENTICATED", AUTH, "the signature of the token is invalid"
    ),
    Reason.TOKEN_ALREADY_USED: _Kind(429, "RESOURCE_EXHAUSTED", AUTH, "the token was already used"),
    Reason.INVALID_TOKEN: _Kind(*_AUTH_400, "the token is invalid"),
    Reason.INVALID_EXPIRATION: _Kind(*_AUTH_400, "the lifetime of the token is not the agreed one"),
    Reason.INVALID_EPOCHS: _Kind(*_AUTH_400, "the epochs asked for are not the token's"),
    Reason.INVALID_SIZE: _Kind(*_AUTH_400, "the size of the content is not the token's"),
    Reason.INVALID_SEND_OBJECT_TO: _Kind(*_AUTH_400, "the address asked for is not the token's"),
    Reason.INCONSISTENT_TOKEN: _Kind(*_AUTH_400, "claims of the token contradict one another"),
    Reason.INVALID_TIMESTAMP: _Kind(*_AUTH_400, "a timestamp of the token is invalid"),
}


class Failure(Exception):
    """An error answer; handlers raise it, and the server sends it unchanged.

    Attributes:
        code: HTTP status.
        body: The body.
        content_type: Its type.
    """

    def __init__(self, code: int, body: bytes, content_type: str = TEXT) -> None:
        super().__init__(code)
        self.code = code
        self.body = body
        self.content_type = content_type


def refused(reason: Reason, message: str = "") -> Failure:
    """Return the JSON answer for a reason, with its details."""
    kind = _KINDS[reason]
    details: list[dict[str, object]] = [
        {
            "@type": "ErrorInfo",
            "reason": kind.reason or reason.value,
            "domain": kind.domain,
            "metadata": {},
        }
    ]
    if kind.code == HTTPStatus.INTERNAL_SERVER_ERROR:
        details.append({"@type": "DebugInfo", "stackEntries": [], "detail": secrets.token_hex(16)})
    error = {
        "status": kind.status,
        "code": kind.code,
        "message": f"{kind.message}: {message}" if message else kind.message,
        "details": details,
    }
    return Failure(kind.code, json.dumps({"error": error}).encode(), JSON)


def text(code: int, message: str) -> Failure:
    """Return a plain text answer, as the web framework writes it."""
    return Failure(code, message.encode())


def gateway_page(code: int) -> Failure:
    """Return the HTML page of a proxy in front of the service."""
    try:
        title = f"{code} {HTTPStatus(code).phrase}"
    except ValueError:  # proxies use codes such as 520, which no standard defines
        title = f"{code} Web server is returning an unknown error"
    page = (
        f"<html>\r\n<head><title>{title}</title></head>\r\n<body>\r\n"
        f"<center><h1>{title}</h1></center>\r\n<hr><center>nginx</center>\r\n</body>\r\n</html>\r\n"
    )
    return Failure(code, page.encode(), HTML)


def overloaded() -> Failure:
    """Return the answer to a request above the limits of admission."""
    return text(429, "the service is overloaded, please try again later")
