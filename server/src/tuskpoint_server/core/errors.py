"""The one table of errors: reason -> status -> message.

Every refusal of the service is a `Refusal` with a `Reason`; the wire layer adds nothing. Reasons
and their example metadata are documented in `proto/tuskpoint/v1/errors.proto`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

_Row = tuple["Status", str, float | None]

_URL_CREDENTIALS = re.compile(r"//[^/\s@]*@")
_FOREIGN_CHARS = 160


class Status(Enum):
    """Canonical status codes, with the numbers of gRPC."""

    INVALID_ARGUMENT, DEADLINE_EXCEEDED, NOT_FOUND, ALREADY_EXISTS = 3, 4, 5, 6
    PERMISSION_DENIED, RESOURCE_EXHAUSTED, FAILED_PRECONDITION, ABORTED = 7, 8, 9, 10
    OUT_OF_RANGE, UNIMPLEMENTED, INTERNAL, UNAVAILABLE = 11, 12, 13, 14
    DATA_LOSS, UNAUTHENTICATED = 15, 16

    def says(self, message: str, retry_after_s: float | None = None) -> _Row:
        """Return a row of the table of reasons."""
        return (self, message, retry_after_s)


class Reason(Enum):
    """Why a call failed: the names of `tuskpoint.v1.ErrorReason` without its prefix.

    Each has a canonical status, a message, in which `{name}` is filled from the refusal's metadata,
    and the seconds after which a retry makes sense; `None` if waiting never helps.
    """

    def __init__(self, status: Status, message: str, retry_after_s: float | None) -> None:
        self.status = status
        self.message = message
        self.retry_after_s = retry_after_s

    INVALID_FIELD = Status.INVALID_ARGUMENT.says("{field}: {problem}")
    METADATA_NOT_JSON = Status.INVALID_ARGUMENT.says(
        "{field} must be a JSON object in UTF-8: {problem}"
    )
    DIGEST_MISMATCH = Status.INVALID_ARGUMENT.says(
        "the digest of {channel} is {computed}, not {claimed} as sent; digest the type, a zero "
        "byte and the data with SHA-256"
    )
    VERSION_TYPE_CHANGED = Status.INVALID_ARGUMENT.says(
        "channel {channel} has {parent} versions in the parent checkpoint and {sent} here; "
        "continue the thread with the versioning it began with"
    )
    CHUNK_OUT_OF_ORDER = Status.INVALID_ARGUMENT.says(
        "save {save_id}: expected the chunk of value {expected_value} at offset "
        "{expected_offset}, got value {value} at {offset}"
    )
    STREAM_TRUNCATED = Status.INVALID_ARGUMENT.says(
        "the stream ended in the middle of save {save_id}; nothing of it is stored"
    )
    LIMIT_EXCEEDED = Status.RESOURCE_EXHAUSTED.says("{what} exceeds {limit} = {maximum}")
    CHECKPOINT_NOT_FOUND = Status.NOT_FOUND.says(
        "no {what} in namespace '{checkpoint_ns}' of thread '{thread_id}'"
    )
    THREAD_NOT_FOUND = Status.NOT_FOUND.says("no thread '{thread_id}'")
    THREAD_DELETED = Status.FAILED_PRECONDITION.says(
        "thread '{thread_id}' was deleted and this change belongs to its incarnation "
        "{incarnation}; to start the thread again, save a checkpoint without a parent, under an ID "
        "that the thread did not have"
    )
    THREAD_EXISTS = Status.ALREADY_EXISTS.says(
        "thread '{thread_id}' already has checkpoints; choose another name or delete it first"
    )
    VALUES_MISSING = Status.FAILED_PRECONDITION.says(
        "the content of these channels is not stored: {channels}; send them inline"
    )
    HEAD_MOVED = Status.ABORTED.says(
        "the head of namespace '{checkpoint_ns}' of thread '{thread_id}' is '{head}', not "
        "'{expected}': another agent drives this thread; load the head and decide again"
    )
    CHECKPOINT_MISSING = Status.FAILED_PRECONDITION.says(
        "checkpoint '{checkpoint_id}' of thread '{thread_id}' does not exist, so it cannot be "
        "certified; save it first or ask for JOURNALED"
    )
    CHECKPOINT_TOO_LARGE = Status.FAILED_PRECONDITION.says(
        "the checkpoint takes {size_bytes} bytes and a unary answer at most {maximum}; "
        "use LoadCheckpoint"
    )
    NOT_CERTIFIED = Status.FAILED_PRECONDITION.says(
        "change {seq} of checkpoint '{checkpoint_id}' is not certified; flush first, or read "
        "with SOURCE_ANY"
    )
    BLOB_HASH_MISMATCH = Status.DATA_LOSS.says(
        "blob {blob_id} has SHA-256 {actual} where {expected} was recorded; it is not used"
    )
    BLOB_NOT_FOUND = Status.DATA_LOSS.says(
        "the blob store has no blob {blob_id}; check that this is the store it was written to"
    )
    BLOB_UNAVAILABLE = Status.UNAVAILABLE.says(
        "the blob store ({backend}) cannot be used now: {problem}", 1.0
    )
    BLOB_MALFORMED = Status.DATA_LOSS.says(
        "blob {blob_id} has the recorded hash, but is malformed: {problem}"
    )
    JOURNAL_DAMAGED = Status.DATA_LOSS.says(
        "{what} is damaged in the journal: {problem}; nothing of it is used; find out who else "
        "writes to the database, then restore a backup or recover from the blob store"
    )
    JOURNAL_UNAVAILABLE = Status.UNAVAILABLE.says(
        "the journal cannot be used ({problem}); what was not acknowledged is not stored", 1.0
    )
    OUTCOME_UNKNOWN = Status.UNAVAILABLE.says(
        "the change is stored or not ({problem}); send it again if a repeat does no harm, or look "
        "for it first",
        1.0,
    )
    BACKLOG_FULL = Status.RESOURCE_EXHAUSTED.says(
        "{backlog_bytes} bytes wait for certification and the limit is {maximum}; "
        "wait until the blob store has caught up",
        5.0,
    )
    MEMORY_FULL = Status.RESOURCE_EXHAUSTED.says(
        "calls hold all of the {maximum} bytes of memory that they may hold; try again, and read "
        "answers without a pause",
        1.0,
    )
    READER_TOO_SLOW = Status.RESOURCE_EXHAUSTED.says(
        "the call was ended because its client did not read its answers while it held "
        "{held_bytes} bytes of memory that others waited for; read faster, or ask for less at once",
        5.0,
    )
    QUOTA_EXCEEDED = Status.RESOURCE_EXHAUSTED.says(
        "tenant {tenant} has reached its quota {quota} of {limit}"
    )
    SIGNATURE_REFUSED = Status.FAILED_PRECONDITION.says("the descriptor is not accepted: {problem}")
    SEALING_UNAVAILABLE = Status.FAILED_PRECONDITION.says(
        "the hand-off cannot be sealed to its recipient: {problem}"
    )
    DRAINING = Status.UNAVAILABLE.says(
        "the server is shutting down; resume elsewhere or later", 1.0
    )
    NOT_IMPLEMENTED = Status.UNIMPLEMENTED.says("this server does not implement {method}")
    INTERNAL_ERROR = Status.INTERNAL.says(
        "internal error; see incident {incident} in the server's log"
    )
    PAGE_TOKEN_INVALID = Status.INVALID_ARGUMENT.says(
        "the page token does not belong to this listing; start again without one"
    )
    REQUEST_ID_REUSED = Status.ALREADY_EXISTS.says(
        "request_id '{request_id}' was used for another request; use a new one"
    )
    CURSOR_COMPACTED = Status.OUT_OF_RANGE.says(
        "the cursor is older than what is kept of thread '{thread_id}'; replay the thread, then "
        "continue the watch from {oldest_cursor}"
    )
    CREDENTIAL_INVALID = Status.UNAUTHENTICATED.says("the credential is not valid")
    SCOPE_MISSING = Status.PERMISSION_DENIED.says(
        "the credential lacks the scope '{scope}', which {method} needs"
    )
    SNAPSHOT_NOT_FOUND = Status.NOT_FOUND.says(
        "no {what}; ListSnapshots without filters has all of them"
    )
    DEADLINE_EXCEEDED = Status.DEADLINE_EXCEEDED.says(
        "the deadline passed; what was journaled stays"
    )
    CERTIFICATION_FAILED = Status.UNAVAILABLE.says(
        "the change is journaled and could not be certified: {problem}; it will be retried", 5.0
    )
    BLOB_REJECTED = Status.FAILED_PRECONDITION.says(
        "the blob store ({backend}) refuses to store this: {problem}; what was journaled stays"
    )
    DESCRIPTOR_MISMATCH = Status.INVALID_ARGUMENT.says(
        "the descriptor says {field} is '{claimed}' and the blob holds '{found}'; ask its "
        "sender for the unchanged descriptor"
    )
    SEARCH_UNAVAILABLE = Status.FAILED_PRECONDITION.says("{problem}")
    KEY_MISSING = Status.FAILED_PRECONDITION.says("{what} is sealed, and {problem}")
    KEY_WRONG = Status.DATA_LOSS.says(
        "the wrapped key of something of tenant '{tenant}' does not open: {problem}"
    )
    KEY_PROVIDER_UNAVAILABLE = Status.UNAVAILABLE.says(
        "the key provider ({provider}) cannot be used now: {problem}", 1.0
    )
    SESSION_RESUMED = Status.ABORTED.says(
        "attempt {attempt} of the session replaced this stream; send what has no answer again there"
    )


@dataclass(frozen=True, slots=True)
class Violation:
    """One field that was refused."""

    field: str  # path in the request, or for `VALUES_MISSING` the channel
    description: str


class Refusal(Exception):
    """A call that is answered with a documented reason.

    `status`, `message`, `retry_after_s` and `advice` are for raisers that know better than the
    reason, and `violations` for `INVALID_FIELD` and `VALUES_MISSING`. The dynamic parts of the
    message, which are the metadata, are all safe to show.
    """

    def __init__(
        self,
        reason: Reason,
        /,
        *,
        violations: Sequence[Violation] = (),
        status: Status | None = None,
        message: str = "",
        retry_after_s: float | None = None,
        advice: str = "",
        **metadata: object,
    ) -> None:
        self.reason = reason
        self.metadata = {name: str(value) for name, value in metadata.items()}
        self.violations = tuple(violations)
        self.status = status or reason.status
        self.retry_after_s = reason.retry_after_s if retry_after_s is None else retry_after_s
        message = message or reason.message.format_map(self.metadata)
        self.message = f"{message}; {advice}" if advice else message
        super().__init__(self.message)


def invalid_field(field: str, problem: str) -> Refusal:
    """Return the refusal of one field, with its `Violation`."""
    violation = Violation(field, problem)
    return Refusal(Reason.INVALID_FIELD, violations=(violation,), field=field, problem=problem)


def checkpoint_not_found(thread_id: str, checkpoint_ns: str, checkpoint_id: str) -> Refusal:
    """Return the refusal of a checkpoint that is not there; an empty ID means the latest."""
    return Refusal(
        Reason.CHECKPOINT_NOT_FOUND,
        what=f"checkpoint '{checkpoint_id}'" if checkpoint_id else "checkpoint",
        thread_id=thread_id,
        checkpoint_ns=checkpoint_ns,
        checkpoint_id=checkpoint_id,
    )


def snapshot_not_found(snapshot_id: str) -> Refusal:
    """Return the refusal of a snapshot that is not there."""
    return Refusal(
        Reason.SNAPSHOT_NOT_FOUND, what=f"snapshot '{snapshot_id}'", snapshot_id=snapshot_id
    )


def no_snapshot(session_id: str, hostname: str, working_directory: str) -> Refusal:
    """Return the refusal to return the newest snapshot of these, of which "" means any."""
    values = {
        "session": session_id,
        "host": hostname,
        "working directory": working_directory,
    }
    conditions = [f"{name} '{value}'" for name, value in values.items() if value]
    return Refusal(
        Reason.SNAPSHOT_NOT_FOUND,
        what=f"snapshot of {' and '.join(conditions)}" if conditions else "snapshot",
        snapshot_id="",
        session_id=session_id,
        hostname=hostname,
        working_directory=working_directory,
    )


def values_missing(channels: Sequence[str]) -> Refusal:
    """Return the refusal that names the channels whose content is not stored."""
    return Refusal(
        Reason.VALUES_MISSING,
        violations=tuple(Violation(name, "content is not stored") for name in channels),
        channels=json.dumps(list(channels), ensure_ascii=False),
    )


def malformed_bytes(name: str, problem: str) -> Refusal:
    """Return the refusal of stored bytes that cannot be understood; `name` is their blob ID."""
    return Refusal(Reason.BLOB_MALFORMED, blob_id=name, problem=problem)


def checkpoint_missing(thread_id: str, checkpoint_ns: str, checkpoint_id: str) -> Refusal:
    """Return the refusal to certify something of a checkpoint that is not there."""
    return Refusal(
        Reason.CHECKPOINT_MISSING,
        thread_id=thread_id,
        checkpoint_ns=checkpoint_ns,
        checkpoint_id=checkpoint_id,
    )


def journal_damaged(
    thread_id: str,
    checkpoint_ns: str = "",
    checkpoint_id: str = "",
    *,
    problem: str = "its row was changed behind the server's back",
    **digests: Any,
) -> Refusal:
    """Return the refusal to use a damaged checkpoint, or thread if there is no ID.

    `digests`: of a value `expected` and `actual`, in hex.
    """
    subject = f"thread '{thread_id}'"
    if checkpoint_id:
        subject = f"checkpoint '{checkpoint_id}' in namespace '{checkpoint_ns}' of {subject}"
    return Refusal(
        Reason.JOURNAL_DAMAGED,
        what=subject,
        thread_id=thread_id,
        checkpoint_ns=checkpoint_ns,
        checkpoint_id=checkpoint_id,
        problem=problem,
        **digests,
    )


def quota_exceeded(
    tenant: str, quota: str, limit: int, advice: str, retry_after_s: float | None = None
) -> Refusal:
    """Return the refusal of what a quota of a tenant does not allow."""
    return Refusal(
        Reason.QUOTA_EXCEEDED,
        advice=advice,
        retry_after_s=retry_after_s,
        tenant=tenant,
        quota=quota,
        limit=limit,
    )


def foreign_text(text: str, secret: re.Pattern[str]) -> str:
    """Return another program's text as one short printable line for a message.

    Matches of `secret` and the credentials of URLs are hidden.
    """
    line = " ".join("".join(c if c.isprintable() else " " for c in text[:2000]).split())
    line = _URL_CREDENTIALS.sub("//", secret.sub("(hidden)", line))
    return line if len(line) <= _FOREIGN_CHARS else line[: _FOREIGN_CHARS - 3] + "..."
