"""The one table of errors: reason -> status, event, remedy.

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

_Row = tuple["Status", str, str, float | None]

_URL_CREDENTIALS = re.compile(r"//[^/\s@]*@")
_FOREIGN_CHARS = 160


class Status(Enum):
    """Canonical status codes, with the numbers of gRPC."""

    INVALID_ARGUMENT, DEADLINE_EXCEEDED, NOT_FOUND, ALREADY_EXISTS = 3, 4, 5, 6
    PERMISSION_DENIED, RESOURCE_EXHAUSTED, FAILED_PRECONDITION, ABORTED = 7, 8, 9, 10
    OUT_OF_RANGE, UNIMPLEMENTED, INTERNAL, UNAVAILABLE = 11, 12, 13, 14
    DATA_LOSS, UNAUTHENTICATED = 15, 16

    def says(self, event: str, remedy: str, retry_after_s: float | None = None) -> _Row:
        """Return an entry of the table of reasons."""
        return (self, event, remedy, retry_after_s)


class Reason(Enum):
    """Why a call failed: the names of `tuskpoint.v1.ErrorReason` without its prefix.

    Each has a canonical status; an event, which says what happened to which thing; a remedy, which
    says what to do now; and the seconds after which a retry makes sense, `None` if waiting never
    helps. `{name}` is filled from the refusal's metadata.
    """

    def __init__(
        self, status: Status, event: str, remedy: str, retry_after_s: float | None
    ) -> None:
        self.status = status
        self.event = event
        self.remedy = remedy
        self.retry_after_s = retry_after_s

    INVALID_FIELD = Status.INVALID_ARGUMENT.says(
        "{field}: {problem}",
        "",  # the metadata `problem` names the accepted values
    )
    METADATA_NOT_JSON = Status.INVALID_ARGUMENT.says(
        "{field} is not a JSON object in UTF-8: {problem}", "send a JSON object"
    )
    DIGEST_MISMATCH = Status.INVALID_ARGUMENT.says(
        "the value of channel '{channel}' has digest {computed}, not {claimed}",
        "send the SHA-256 of the type, a zero byte and the data",
    )
    VERSION_TYPE_CHANGED = Status.INVALID_ARGUMENT.says(
        "channel '{channel}' has {parent} versions in the parent checkpoint and a {sent} version "
        "in the save",
        "use {parent} versions in this thread",
    )
    CHUNK_OUT_OF_ORDER = Status.INVALID_ARGUMENT.says(
        "save {save_id} has a chunk of value {value} at offset {offset} instead of value "
        "{expected_value} at offset {expected_offset}",
        "open another stream and send the chunks of the save in order",
    )
    STREAM_TRUNCATED = Status.INVALID_ARGUMENT.says(
        "the stream ended within save {save_id}, and nothing of the save is stored",
        "send the whole save again",
    )
    LIMIT_EXCEEDED = Status.RESOURCE_EXHAUSTED.says(
        "{what} exceeds {limit} = {maximum}", "send or request less; GetServerInfo has the limits"
    )
    CHECKPOINT_NOT_FOUND = Status.NOT_FOUND.says(
        "{what} not found in namespace '{checkpoint_ns}' of thread '{thread_id}'",
        "check the IDs, or list the threads and their checkpoints",
    )
    THREAD_NOT_FOUND = Status.NOT_FOUND.says(
        "thread '{thread_id}' not found or deleted", "check the ID, or list the threads"
    )
    THREAD_DELETED = Status.FAILED_PRECONDITION.says(
        "thread '{thread_id}' was deleted, and the change belongs to its incarnation {incarnation}",
        "to start the thread again, save a checkpoint without a parent under a new ID",
    )
    THREAD_EXISTS = Status.ALREADY_EXISTS.says(
        "thread '{thread_id}' already has checkpoints",
        "choose another thread ID, or delete the thread first",
    )
    VALUES_MISSING = Status.FAILED_PRECONDITION.says(
        "the values of these channels are not stored: {channels}",
        "save again with the values of these channels",
    )
    HEAD_MOVED = Status.ABORTED.says(
        "the latest checkpoint of namespace '{checkpoint_ns}' of thread '{thread_id}' is '{head}', "
        "not '{expected}'",
        "load the latest checkpoint and decide again",
    )
    CHECKPOINT_MISSING = Status.FAILED_PRECONDITION.says(
        "checkpoint '{checkpoint_id}' of thread '{thread_id}' does not exist, so its change cannot "
        "be certified",
        "save the checkpoint first, or ask for DURABILITY_JOURNALED",
    )
    CHECKPOINT_TOO_LARGE = Status.FAILED_PRECONDITION.says(
        "the checkpoint has {size_bytes} bytes, and a unary response at most {maximum}",
        "use LoadCheckpoint",
    )
    NOT_CERTIFIED = Status.FAILED_PRECONDITION.says(
        "change {seq} of checkpoint '{checkpoint_id}' is not certified",
        "call Flush first, or read with SOURCE_ANY",
    )
    BLOB_HASH_MISMATCH = Status.DATA_LOSS.says(
        "blob {blob_id} has SHA-256 {actual} instead of the recorded {expected}, and is not used",
        "verify the threads, and find out what writes to the blob store",
    )
    BLOB_NOT_FOUND = Status.DATA_LOSS.says(
        "the blob store does not have blob {blob_id}",
        "check that the server uses the blob store that has the blob",
    )
    BLOB_UNAVAILABLE = Status.UNAVAILABLE.says(
        "the blob store ({backend}) cannot be used now: {problem}",
        "retry later, and check the blob store if the error stays",
        1.0,
    )
    BLOB_MALFORMED = Status.DATA_LOSS.says(
        "blob {blob_id} has the recorded hash and is malformed: {problem}",
        "use a server of the version that wrote the blob",
    )
    JOURNAL_DAMAGED = Status.DATA_LOSS.says(
        "{what} is damaged in the journal: {problem}",
        "find out what else writes to the database, then restore a backup or recover from the blob "
        "store",
    )
    JOURNAL_UNAVAILABLE = Status.UNAVAILABLE.says(
        "the journal cannot be used ({problem}), and unacknowledged changes are not stored",
        "retry later, and check the disk or the database if the error stays",
        1.0,
    )
    OUTCOME_UNKNOWN = Status.UNAVAILABLE.says(
        "the database did not confirm whether the change is stored ({problem})",
        "repeat the call only if a repeat does no harm; otherwise look for the change first",
        1.0,
    )
    WEBHOOK_NOT_FOUND = Status.NOT_FOUND.says(
        "the server has no webhook '{webhook}' for this tenant",
        "check the name, or list the webhooks",
    )
    OLDER_SERVERS = Status.UNAVAILABLE.says(
        "a server of an older version uses the journal, too, and does not know {what}",
        "upgrade the other servers, then retry",
        5.0,
    )
    THREAD_BUSY = Status.ABORTED.says(
        "'{owner}' drives thread '{thread_id}' with a lease until {until}",
        "wait until the lease ends, or acquire the lease of the thread with ON_BUSY_TAKE_OVER",
        0.0,
    )
    LEASE_LOST = Status.FAILED_PRECONDITION.says(
        "lease '{lease_id}' of thread '{thread_id}' has ended",
        "stop this run, or acquire the lease of the thread again and continue from its latest "
        "checkpoint",
    )
    EFFECT_NOT_FOUND = Status.NOT_FOUND.says(
        "effect '{key}' of thread '{thread_id}' not found: {problem}",
        "list the effects of the thread, and call BeginEffect before the work",
    )
    EFFECT_INPUT_CHANGED = Status.FAILED_PRECONDITION.says(
        "effect '{key}' of thread '{thread_id}' was begun with another input: digest {recorded}, "
        "not {sent}",
        "use another key for other work, or send the recorded input",
    )
    EFFECT_NOT_UNKNOWN = Status.FAILED_PRECONDITION.says(
        "effect '{key}' of thread '{thread_id}' cannot be decided: its attempt {attempt} is "
        "{state}",
        "read the effect, and decide its last attempt while the attempt is UNKNOWN",
    )
    EFFECT_NOT_RECORDED = Status.FAILED_PRECONDITION.says(
        "thread '{thread_id}' only answers recorded effects and cannot answer effect '{key}' with "
        "the name '{name}': {problem}",
        "leave the work undone, or call ForkThread with EFFECTS_MODE_COPY to do the work",
    )
    BACKLOG_FULL = Status.RESOURCE_EXHAUSTED.says(
        "{backlog_bytes} bytes wait for certification, and the limit is {maximum}",
        "retry once the blob store has caught up",
        5.0,
    )
    MEMORY_FULL = Status.RESOURCE_EXHAUSTED.says(
        "running calls hold all {maximum} bytes of memory that calls may hold",
        "retry, and read answers without a pause",
        1.0,
    )
    READER_TOO_SLOW = Status.RESOURCE_EXHAUSTED.says(
        "the client read no answer while its call held {held_bytes} bytes of memory that other "
        "calls waited for",
        "read faster, or request less at once",
        5.0,
    )
    QUOTA_EXCEEDED = Status.RESOURCE_EXHAUSTED.says(
        "tenant {tenant} has reached its quota {quota} of {limit}",
        "use less, or ask the operator for a larger quota",
    )
    SIGNATURE_REFUSED = Status.FAILED_PRECONDITION.says(
        "the descriptor is not accepted: {problem}", "ask the sender for the unchanged descriptor"
    )
    SEALING_UNAVAILABLE = Status.FAILED_PRECONDITION.says(
        "the hand-off cannot be sealed to its recipient: {problem}",
        "hand off without a recipient",
    )
    HANDOFF_NOT_FOUND = Status.NOT_FOUND.says(
        "hand-off '{handoff_id}' not found, or removed with its thread",
        "check the ID, or list the hand-offs",
    )
    HANDOFF_CLOSED = Status.FAILED_PRECONDITION.says(
        "hand-off '{handoff_id}' is closed, in the state {state}",
        "list the open hand-offs, and take another one",
    )
    DRAINING = Status.UNAVAILABLE.says(
        "the server is shutting down", "retry on another server, or later", 1.0
    )
    NOT_IMPLEMENTED = Status.UNIMPLEMENTED.says(
        "this server does not implement {method}", "call a method that GetServerInfo lists"
    )
    INTERNAL_ERROR = Status.INTERNAL.says(
        "the server has a defect (incident {incident})",
        "ask the operator for the log lines of the incident",
    )
    PAGE_TOKEN_INVALID = Status.INVALID_ARGUMENT.says(
        "the page token does not belong to this listing", "list again without a page token"
    )
    REQUEST_ID_REUSED = Status.ALREADY_EXISTS.says(
        "request_id '{request_id}' was used for another request",
        "use a new request_id for each request",
    )
    CURSOR_COMPACTED = Status.OUT_OF_RANGE.says(
        "the cursor is older than the events that are kept of thread '{thread_id}'",
        "replay the thread, then continue the watch from {oldest_cursor}",
    )
    CREDENTIAL_INVALID = Status.UNAUTHENTICATED.says(
        "the credential is not valid", "send a valid token or client certificate"
    )
    SCOPE_MISSING = Status.PERMISSION_DENIED.says(
        "the credential lacks the scope '{scope}', which {method} needs",
        "use a credential that has the scope",
    )
    SNAPSHOT_NOT_FOUND = Status.NOT_FOUND.says(
        "{what} not found", "list the snapshots without filters"
    )
    DEADLINE_EXCEEDED = Status.DEADLINE_EXCEEDED.says(
        "the deadline of the call passed, and journaled changes stay",
        "retry with a longer deadline",
    )
    CERTIFICATION_FAILED = Status.UNAVAILABLE.says(
        "the change is journaled and could not be certified: {problem}",
        "wait for the server to retry",
        5.0,
    )
    BLOB_REJECTED = Status.FAILED_PRECONDITION.says(
        "the blob store ({backend}) refuses the bytes, and journaled changes stay: {problem}",
        "check the limits of the blob store",
    )
    DESCRIPTOR_MISMATCH = Status.INVALID_ARGUMENT.says(
        "the descriptor has {field} '{claimed}', and the blob has '{found}'",
        "ask the sender for the unchanged descriptor",
    )
    SEARCH_UNAVAILABLE = Status.FAILED_PRECONDITION.says(
        "{problem}", "leave the mode unset, or use a mode that GetServerInfo lists"
    )
    KEY_MISSING = Status.FAILED_PRECONDITION.says(
        "{what} is sealed, and {problem}", "give the server the key provider that sealed it"
    )
    KEY_WRONG = Status.DATA_LOSS.says(
        "a wrapped key of tenant '{tenant}' does not open: {problem}",
        "check that the blob, the tenant and the key provider belong together",
    )
    KEY_PROVIDER_UNAVAILABLE = Status.UNAVAILABLE.says(
        "the key provider ({provider}) cannot be used now: {problem}",
        "retry later, and check the key provider if the error stays",
        1.0,
    )
    SESSION_RESUMED = Status.ABORTED.says(
        "attempt {attempt} of the session replaced this stream",
        "send unanswered frames again on that stream",
    )


@dataclass(frozen=True, slots=True)
class Violation:
    """One field that was refused."""

    field: str  # path in the request, or for `VALUES_MISSING` the channel
    description: str


class Refusal(Exception):
    """An error with a documented reason.

    The message has the event of the reason, its `cause` if the raiser names one, and the remedy.
    `status`, `event`, `advice` (a remedy) and `retry_after_s` replace the reason's own;
    `violations` belong to `INVALID_FIELD` and `VALUES_MISSING`. All dynamic parts of the message
    are metadata and safe to show.
    """

    def __init__(
        self,
        reason: Reason,
        /,
        *,
        violations: Sequence[Violation] = (),
        status: Status | None = None,
        event: str = "",
        cause: str = "",
        advice: str = "",
        retry_after_s: float | None = None,
        **metadata: object,
    ) -> None:
        self.reason = reason
        self.metadata = {name: str(value) for name, value in metadata.items()}
        self.violations = tuple(violations)
        self.status = status or reason.status
        self.retry_after_s = reason.retry_after_s if retry_after_s is None else retry_after_s
        event = event or reason.event.format_map(self.metadata)
        happened = f"{event}: {cause}" if cause else event
        remedy = advice or reason.remedy.format_map(self.metadata)
        self.message = f"{happened}; {remedy}" if remedy else happened
        super().__init__(self.message)


def invalid_field(field: str, problem: str) -> Refusal:
    """Return the refusal of one field, with its `Violation`."""
    violation = Violation(field, problem)
    return Refusal(Reason.INVALID_FIELD, violations=(violation,), field=field, problem=problem)


def checkpoint_not_found(thread_id: str, checkpoint_ns: str, checkpoint_id: str) -> Refusal:
    """Return the refusal for a missing checkpoint; an empty ID means the latest checkpoint."""
    return Refusal(
        Reason.CHECKPOINT_NOT_FOUND,
        what=f"checkpoint '{checkpoint_id}'" if checkpoint_id else "latest checkpoint",
        thread_id=thread_id,
        checkpoint_ns=checkpoint_ns,
        checkpoint_id=checkpoint_id,
    )


def snapshot_not_found(snapshot_id: str) -> Refusal:
    """Return the refusal for a missing snapshot."""
    return Refusal(
        Reason.SNAPSHOT_NOT_FOUND, what=f"snapshot '{snapshot_id}'", snapshot_id=snapshot_id
    )


def no_snapshot(session_id: str, hostname: str, working_directory: str) -> Refusal:
    """Return the refusal for a missing newest snapshot of these values; "" means any value."""
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


def handoff_closed(handoff_id: str, state: str, adopted_thread_id: str = "") -> Refusal:
    """Return the refusal of a closed offer of a hand-off; `state` as in the contract."""
    ends = {
        "ADOPTED": f"was adopted as thread '{adopted_thread_id}'",
        "WITHDRAWN": "was withdrawn",
        "EXPIRED": "has expired",
    }
    return Refusal(
        Reason.HANDOFF_CLOSED,
        event=f"hand-off '{handoff_id}' {ends[state]}",
        handoff_id=handoff_id,
        state=state,
        adopted_thread_id=adopted_thread_id,
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
    """Return the refusal to certify a missing checkpoint."""
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
    """Return the refusal to use a damaged checkpoint; without an ID, a damaged thread.

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
    """Return the refusal of a call above a tenant's quota."""
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
