"""The one table of errors: reason -> status -> message.

Every refusal of the service is a `Refusal` with a `Reason`. The table says which
canonical status a reason travels as and how its message reads; the wire layer
adds nothing. Reasons and their example metadata are documented in
`proto/tuskpoint/v1/errors.proto`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum


class Status(Enum):
    """Canonical status codes, with the numbers of gRPC."""

    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class Reason(StrEnum):
    """Why a call failed; the names of `tuskpoint.v1.ErrorReason`, less its prefix."""

    INVALID_FIELD = "INVALID_FIELD"
    METADATA_NOT_JSON = "METADATA_NOT_JSON"
    DIGEST_MISMATCH = "DIGEST_MISMATCH"
    VERSION_TYPE_CHANGED = "VERSION_TYPE_CHANGED"
    CHUNK_OUT_OF_ORDER = "CHUNK_OUT_OF_ORDER"
    STREAM_TRUNCATED = "STREAM_TRUNCATED"
    LIMIT_EXCEEDED = "LIMIT_EXCEEDED"
    CHECKPOINT_NOT_FOUND = "CHECKPOINT_NOT_FOUND"
    THREAD_NOT_FOUND = "THREAD_NOT_FOUND"
    THREAD_DELETED = "THREAD_DELETED"
    THREAD_EXISTS = "THREAD_EXISTS"
    VALUES_MISSING = "VALUES_MISSING"
    HEAD_MOVED = "HEAD_MOVED"
    CHECKPOINT_MISSING = "CHECKPOINT_MISSING"
    CHECKPOINT_TOO_LARGE = "CHECKPOINT_TOO_LARGE"
    NOT_CERTIFIED = "NOT_CERTIFIED"
    BLOB_HASH_MISMATCH = "BLOB_HASH_MISMATCH"
    BLOB_NOT_FOUND = "BLOB_NOT_FOUND"
    BLOB_UNAVAILABLE = "BLOB_UNAVAILABLE"
    BLOB_MALFORMED = "BLOB_MALFORMED"
    JOURNAL_UNAVAILABLE = "JOURNAL_UNAVAILABLE"
    BACKLOG_FULL = "BACKLOG_FULL"
    DRAINING = "DRAINING"
    NOT_IMPLEMENTED = "NOT_IMPLEMENTED"
    INTERNAL_ERROR = "INTERNAL_ERROR"
    PAGE_TOKEN_INVALID = "PAGE_TOKEN_INVALID"  # noqa: S105 - the name of a reason, no secret
    REQUEST_ID_REUSED = "REQUEST_ID_REUSED"
    CURSOR_COMPACTED = "CURSOR_COMPACTED"
    CREDENTIAL_INVALID = "CREDENTIAL_INVALID"
    SCOPE_MISSING = "SCOPE_MISSING"
    SNAPSHOT_NOT_FOUND = "SNAPSHOT_NOT_FOUND"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    CERTIFICATION_FAILED = "CERTIFICATION_FAILED"
    BLOB_REJECTED = "BLOB_REJECTED"
    DESCRIPTOR_MISMATCH = "DESCRIPTOR_MISMATCH"
    SEARCH_UNAVAILABLE = "SEARCH_UNAVAILABLE"


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """How one reason is told."""

    status: Status  # the canonical status it travels as
    message: str  # text for people; `{name}` is filled from the refusal's metadata
    # seconds after which a retry makes sense; `None` if the same call can never succeed by waiting
    retry_after_s: float | None = None


CATALOG: dict[Reason, CatalogEntry] = {
    Reason.INVALID_FIELD: CatalogEntry(Status.INVALID_ARGUMENT, "{field}: {problem}"),
    Reason.METADATA_NOT_JSON: CatalogEntry(
        Status.INVALID_ARGUMENT, "{field} must be a JSON object in UTF-8: {problem}"
    ),
    Reason.DIGEST_MISMATCH: CatalogEntry(
        Status.INVALID_ARGUMENT,
        "the digest of {channel} is {computed}, not {claimed} as sent; digest the type, a zero "
        "byte and the data with SHA-256",
    ),
    Reason.VERSION_TYPE_CHANGED: CatalogEntry(
        Status.INVALID_ARGUMENT,
        "channel {channel} has {parent} versions in the parent checkpoint and {sent} here; "
        "continue the thread with the versioning it began with",
    ),
    Reason.CHUNK_OUT_OF_ORDER: CatalogEntry(
        Status.INVALID_ARGUMENT,
        "save {save_id}: expected the chunk of value {expected_value} at offset "
        "{expected_offset}, got value {value} at {offset}",
    ),
    Reason.STREAM_TRUNCATED: CatalogEntry(
        Status.INVALID_ARGUMENT,
        "the stream ended in the middle of save {save_id}; nothing of it is stored",
    ),
    Reason.LIMIT_EXCEEDED: CatalogEntry(
        Status.RESOURCE_EXHAUSTED, "{what} exceeds {limit} = {maximum}"
    ),
    Reason.CHECKPOINT_NOT_FOUND: CatalogEntry(
        Status.NOT_FOUND,
        "no {what} in namespace '{checkpoint_ns}' of thread '{thread_id}'",
    ),
    Reason.THREAD_NOT_FOUND: CatalogEntry(Status.NOT_FOUND, "no thread '{thread_id}'"),
    Reason.THREAD_DELETED: CatalogEntry(
        Status.FAILED_PRECONDITION,
        "thread '{thread_id}' was deleted and this change belongs to its incarnation "
        "{incarnation}; begin again with a checkpoint that has no parent",
    ),
    Reason.THREAD_EXISTS: CatalogEntry(
        Status.ALREADY_EXISTS,
        "thread '{thread_id}' has checkpoints already; choose another name or delete it first",
    ),
    Reason.VALUES_MISSING: CatalogEntry(
        Status.FAILED_PRECONDITION,
        "the content of these channels is not stored: {channels}; send them inline",
    ),
    Reason.HEAD_MOVED: CatalogEntry(
        Status.ABORTED,
        "the head of namespace '{checkpoint_ns}' of thread '{thread_id}' is '{head}', not "
        "'{expected}': another agent drives this thread; load the head and decide again",
    ),
    Reason.CHECKPOINT_MISSING: CatalogEntry(
        Status.FAILED_PRECONDITION,
        "checkpoint '{checkpoint_id}' of thread '{thread_id}' does not exist, so nothing of it "
        "can be certified; save it first or ask for JOURNALED",
    ),
    Reason.CHECKPOINT_TOO_LARGE: CatalogEntry(
        Status.FAILED_PRECONDITION,
        "the checkpoint takes {size_bytes} bytes and a unary answer at most {maximum}; "
        "use LoadCheckpoint",
    ),
    Reason.NOT_CERTIFIED: CatalogEntry(
        Status.FAILED_PRECONDITION,
        "change {seq} of checkpoint '{checkpoint_id}' is not certified; flush first, or read "
        "with SOURCE_ANY",
    ),
    Reason.BLOB_HASH_MISMATCH: CatalogEntry(
        Status.DATA_LOSS,
        "blob {blob_id} has SHA-256 {actual} where {expected} was recorded; it is not used",
    ),
    Reason.BLOB_NOT_FOUND: CatalogEntry(
        Status.DATA_LOSS,
        "the blob store has no blob {blob_id}; check that this is the store it was written to",
    ),
    Reason.BLOB_UNAVAILABLE: CatalogEntry(
        Status.UNAVAILABLE, "the blob store ({backend}) cannot be used now: {problem}", 1.0
    ),
    Reason.BLOB_MALFORMED: CatalogEntry(
        Status.DATA_LOSS, "blob {blob_id} has the recorded hash and is malformed: {problem}"
    ),
    Reason.JOURNAL_UNAVAILABLE: CatalogEntry(
        Status.UNAVAILABLE,
        "the journal cannot be used ({problem}); what was not acknowledged is not stored",
        1.0,
    ),
    Reason.BACKLOG_FULL: CatalogEntry(
        Status.RESOURCE_EXHAUSTED,
        "{backlog_bytes} bytes wait for certification and the limit is {maximum}; "
        "wait until the blob store has caught up",
        5.0,
    ),
    Reason.DRAINING: CatalogEntry(
        Status.UNAVAILABLE, "the server is shutting down; resume elsewhere or later", 1.0
    ),
    Reason.NOT_IMPLEMENTED: CatalogEntry(
        Status.UNIMPLEMENTED, "{method} is declared and not built in this server"
    ),
    Reason.INTERNAL_ERROR: CatalogEntry(
        Status.INTERNAL, "a defect of the server; its log tells more under incident {incident}"
    ),
    Reason.PAGE_TOKEN_INVALID: CatalogEntry(
        Status.INVALID_ARGUMENT,
        "the page token does not belong to this listing; begin again without one",
    ),
    Reason.REQUEST_ID_REUSED: CatalogEntry(
        Status.ALREADY_EXISTS,
        "request_id '{request_id}' was used for another request; make a new one",
    ),
    Reason.CURSOR_COMPACTED: CatalogEntry(
        Status.OUT_OF_RANGE,
        "the cursor is older than what is kept of thread '{thread_id}'; replay the thread, then "
        "watch on from {oldest_cursor}",
    ),
    Reason.CREDENTIAL_INVALID: CatalogEntry(
        Status.UNAUTHENTICATED, "the credential does not count"
    ),
    Reason.SCOPE_MISSING: CatalogEntry(
        Status.PERMISSION_DENIED, "the credential lacks the scope '{scope}', which {method} needs"
    ),
    Reason.SNAPSHOT_NOT_FOUND: CatalogEntry(
        Status.NOT_FOUND,
        "no snapshot '{snapshot_id}'; ListSnapshots without filters has all of them",
    ),
    Reason.DEADLINE_EXCEEDED: CatalogEntry(
        Status.DEADLINE_EXCEEDED, "the deadline passed; what was journaled stays"
    ),
    Reason.CERTIFICATION_FAILED: CatalogEntry(
        Status.UNAVAILABLE,
        "the change is journaled and could not be certified: {problem}; it will be tried again",
        5.0,
    ),
    Reason.BLOB_REJECTED: CatalogEntry(
        Status.FAILED_PRECONDITION,
        "the blob store ({backend}) refuses to store this: {problem}; what was journaled stays",
    ),
    Reason.DESCRIPTOR_MISMATCH: CatalogEntry(
        Status.INVALID_ARGUMENT,
        "the descriptor says {field} is '{claimed}' and the blob holds '{found}'; ask whoever "
        "handed it off for the descriptor as it was made",
    ),
    Reason.SEARCH_UNAVAILABLE: CatalogEntry(Status.FAILED_PRECONDITION, "{problem}"),
}


@dataclass(frozen=True, slots=True)
class Violation:
    """One field that was refused."""

    # path in the request, such as `checkpoint.ref.thread_id`; for `VALUES_MISSING` the channel
    field: str
    description: str  # what is wrong and what is accepted


class Refusal(Exception):
    """A call that is answered with a documented reason.

    Attributes:
        reason: key into `CATALOG`
        metadata: dynamic parts of the message; every value is a string and safe to show
        violations: refused fields, for `INVALID_FIELD` and `VALUES_MISSING`
        status: canonical status; the catalog's unless the raiser knows better
        retry_after_s: seconds after which a retry makes sense, or `None`; the catalog's unless the
            raiser knows better

    Args:
        advice: What else to tell people, where the raiser knows more than the catalog.
    """

    def __init__(
        self,
        reason: Reason,
        /,
        *,
        violations: Sequence[Violation] = (),
        status: Status | None = None,
        retry_after_s: float | None = None,
        advice: str = "",
        **metadata: object,
    ) -> None:
        self.reason = reason
        self.metadata = {name: str(value) for name, value in metadata.items()}
        self.violations = tuple(violations)
        self.status = status or CATALOG[reason].status
        self.retry_after_s = (
            CATALOG[reason].retry_after_s if retry_after_s is None else retry_after_s
        )
        message = CATALOG[reason].message.format_map(self.metadata)
        super().__init__(f"{message}; {advice}" if advice else message)

    @property
    def message(self) -> str:
        """The catalog's message with its blanks filled, and the advice."""
        return str(self)


def invalid_field(field: str, problem: str) -> Refusal:
    """Return the refusal of one field, with its `Violation`."""
    return Refusal(
        Reason.INVALID_FIELD,
        violations=(Violation(field, problem),),
        field=field,
        problem=problem,
    )


def checkpoint_not_found(thread_id: str, checkpoint_ns: str, checkpoint_id: str) -> Refusal:
    """Return the refusal of a checkpoint that is not there; an empty ID means the latest."""
    return Refusal(
        Reason.CHECKPOINT_NOT_FOUND,
        what=f"checkpoint '{checkpoint_id}'" if checkpoint_id else "checkpoint",
        thread_id=thread_id,
        checkpoint_ns=checkpoint_ns,
        checkpoint_id=checkpoint_id,
    )


def values_missing(channels: Sequence[str]) -> Refusal:
    """Return the refusal that names the channels whose content is not stored."""
    return Refusal(
        Reason.VALUES_MISSING,
        violations=tuple(Violation(name, "content is not stored") for name in channels),
        channels=json.dumps(list(channels), ensure_ascii=False),
    )


def malformed(name: str, problem: str) -> Refusal:
    """Return the refusal of stored bytes that cannot be understood; `name` is their blob ID."""
    return Refusal(Reason.BLOB_MALFORMED, blob_id=name, problem=problem)
