"""The errors of the clients: one class for each reaction of a caller.

The reason decides the class. The canonical status decides if there is no reason or if the reason
leaves the choice open. Message text decides about `TlsMismatch` only: gRPC reports this error in
no other way.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any


class TuskPointError(Exception):
    """A call that failed or could not be started.

    Attributes:
        message: Text for people: what happened and what to do.
        status: Name of the canonical gRPC status, such as "NOT_FOUND".
        reason: Name of the `tuskpoint.v1.ErrorReason` without its prefix, such as
            "CHECKPOINT_NOT_FOUND"; empty if the service gave none.
        metadata: The dynamic parts of the message.
        retry_after_s: Seconds after which the service asks to try again, or `None`.
        violations: Pairs of a refused field and its problem; for `VALUES_MISSING` inside a stream,
            the channels.
    """

    def __init__(
        self,
        message: str,
        *,
        status: str = "UNKNOWN",
        reason: str = "",
        metadata: Mapping[str, str] | None = None,
        retry_after_s: float | None = None,
        violations: Sequence[tuple[str, str]] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.reason = reason
        self.metadata = dict(metadata or {})
        self.retry_after_s = retry_after_s
        self.violations = tuple(violations)


class InvalidRequest(TuskPointError):
    """The request can never succeed unchanged: change it."""


class InvalidType(InvalidRequest, TypeError):
    """An argument has the wrong type: the message has the right one."""


class InvalidDescriptor(InvalidRequest, ValueError):
    """The descriptor of a hand-off is malformed: pass it unchanged."""


class DescriptorMismatch(InvalidRequest):
    """The descriptor names another checkpoint than its blob has: get the original descriptor."""

    @property
    def field(self) -> str:
        """The key that differs."""
        return self.metadata.get("field", "")

    @property
    def claimed(self) -> str:
        """Value in the descriptor."""
        return self.metadata.get("claimed", "")

    @property
    def found(self) -> str:
        """Value in the blob."""
        return self.metadata.get("found", "")


class CursorCompacted(InvalidRequest):
    """Events after the cursor were compacted: replay, then watch from `oldest_cursor`."""

    @property
    def oldest_cursor(self) -> bytes:
        """Oldest cursor with which a watch may start; empty if the service named none."""
        try:
            return base64.b64decode(self.metadata.get("oldest_cursor", ""), validate=True)
        except (binascii.Error, ValueError):
            return b""


class NotFound(TuskPointError):
    """The thread, checkpoint, snapshot or blob that was named does not exist."""


class AlreadyExists(TuskPointError):
    """The object exists already: choose another name, or a new `request_id`."""


class Conflict(TuskPointError):
    """Another agent saved to the thread: load its head and decide again."""


class ThreadBusy(Conflict):
    """Another driver has the lease of the thread: wait for its end, or take the thread over."""

    @property
    def owner(self) -> str:
        """Name of the driver; empty if the service named none."""
        return self.metadata.get("owner", "")

    @property
    def until(self) -> str:
        """Time at which the lease ends unless it is extended, as ISO 8601; may be empty."""
        return self.metadata.get("until", "")


class ThreadDeleted(TuskPointError):
    """The thread was deleted: start again with a checkpoint that has no parent."""


class PreconditionFailed(TuskPointError):
    """The service is not in the state that the call requires; see the reason."""


class LeaseLost(PreconditionFailed):
    """The lease of the thread has ended: stop this run, because another driver may have begun."""

    @property
    def lease_id(self) -> str:
        """The lease that has ended."""
        return self.metadata.get("lease_id", "")

    @property
    def owner(self) -> str:
        """Name of the driver that has the thread now; empty if no lease holds."""
        return self.metadata.get("owner", "")


class EffectError(PreconditionFailed):
    """An effect that must not be done now.

    Attributes:
        effect: The recorded `Effect`; `None` if the service refused the call.
    """

    def __init__(
        self,
        message: str,
        *,
        effect: Any = None,
        status: str = "FAILED_PRECONDITION",
        reason: str = "",
        metadata: Mapping[str, str] | None = None,
        retry_after_s: float | None = None,
        violations: Sequence[tuple[str, str]] = (),
    ) -> None:
        super().__init__(
            message,
            status=status,
            reason=reason,
            metadata=metadata,
            retry_after_s=retry_after_s,
            violations=violations,
        )
        self.effect = effect


class EffectUnknown(EffectError):
    """An attempt began and did not report: find out whether the work was done, then decide."""


class EffectRunning(EffectError):
    """Another attempt runs and did not report in the time to wait: wait longer."""


class EffectNotDone(EffectError):
    """The attempt reported that the work was not done: try again."""


class EffectRefused(EffectError):
    """The attempt reported that the work was refused: another attempt makes no sense."""


class EffectInputChanged(EffectError):
    """The effect was begun with another input: use another key for other work."""


class EffectNotUnknown(EffectError):
    """The effect is not unknown, or a later attempt has begun: read the effect again."""


class EffectNotRecorded(EffectError):
    """The thread only answers recorded effects, and none matches: do not do the work."""


class ValuesMissing(TuskPointError):
    """The service does not have values that the request refers to: send them inline.

    Attributes:
        channels: The channels whose values are missing.
    """

    def __init__(
        self,
        message: str,
        *,
        channels: Sequence[str] = (),
        status: str = "FAILED_PRECONDITION",
        reason: str = "VALUES_MISSING",
        metadata: Mapping[str, str] | None = None,
        retry_after_s: float | None = None,
        violations: Sequence[tuple[str, str]] = (),
    ) -> None:
        super().__init__(
            message,
            status=status,
            reason=reason,
            metadata=metadata,
            retry_after_s=retry_after_s,
            violations=violations,
        )
        self.channels = tuple(channels)


class DataLoss(TuskPointError):
    """Stored bytes are lost or differ from what was recorded. Nothing was read or written."""


class HashMismatch(DataLoss):
    """The stored bytes do not match the recorded hash: do not use them."""

    @property
    def blob_id(self) -> str:
        """ID of the blob."""
        return self.metadata.get("blob_id", "")

    @property
    def expected(self) -> str:
        """Recorded SHA-256, as lowercase hex."""
        return self.metadata.get("expected", "")

    @property
    def actual(self) -> str:
        """SHA-256 of the stored bytes, as lowercase hex."""
        return self.metadata.get("actual", "")


class ResourceExhausted(TuskPointError):
    """The request or the server's load is too large: send less, or wait for `retry_after_s`."""


class Unavailable(TuskPointError):
    """The service, or its blob store, does not answer: try again later."""


class TlsMismatch(Unavailable):
    """The TLS settings of client and server do not match: correct them; a retry cannot help.

    The server's certificate is not trusted or has other names, or the server does not speak TLS.
    """


class DeadlineExceeded(TuskPointError):
    """The deadline of the call passed. It is unknown whether a change was applied."""


class Unauthenticated(TuskPointError):
    """The token is missing or not valid: set a valid one."""


class PermissionDenied(TuskPointError):
    """The token does not allow the call: use one that has the scope."""

    @property
    def scope(self) -> str:
        """Scope that the token lacks; empty if the service named none."""
        return self.metadata.get("scope", "")


class Unimplemented(TuskPointError):
    """The server does not implement the call: use a newer one."""


class ServerError(TuskPointError):
    """A defect of the server, or an answer that breaks the contract: report it."""


class UnreadableValue(TuskPointError):
    """The value has an encoding that only the framework which saved it can read."""


BY_STATUS: Mapping[str, type[TuskPointError]] = {
    "CANCELLED": Unavailable,
    "UNKNOWN": ServerError,
    "INVALID_ARGUMENT": InvalidRequest,
    "DEADLINE_EXCEEDED": DeadlineExceeded,
    "NOT_FOUND": NotFound,
    "ALREADY_EXISTS": AlreadyExists,
    "PERMISSION_DENIED": PermissionDenied,
    "RESOURCE_EXHAUSTED": ResourceExhausted,
    "FAILED_PRECONDITION": PreconditionFailed,
    "ABORTED": Conflict,
    "OUT_OF_RANGE": InvalidRequest,
    "UNIMPLEMENTED": Unimplemented,
    "INTERNAL": ServerError,
    "UNAVAILABLE": Unavailable,
    "DATA_LOSS": DataLoss,
    "UNAUTHENTICATED": Unauthenticated,
}
"""Error class of each canonical status but `OK`."""

BY_REASON: Mapping[str, type[TuskPointError] | None] = {
    "INVALID_FIELD": InvalidRequest,
    "METADATA_NOT_JSON": InvalidRequest,
    "DIGEST_MISMATCH": InvalidRequest,
    "VERSION_TYPE_CHANGED": InvalidRequest,
    "CHUNK_OUT_OF_ORDER": InvalidRequest,
    "STREAM_TRUNCATED": InvalidRequest,
    "LIMIT_EXCEEDED": ResourceExhausted,
    "CHECKPOINT_NOT_FOUND": NotFound,
    "THREAD_NOT_FOUND": NotFound,
    "THREAD_DELETED": ThreadDeleted,
    "THREAD_EXISTS": AlreadyExists,
    "VALUES_MISSING": ValuesMissing,
    "HEAD_MOVED": Conflict,
    "SESSION_RESUMED": Unavailable,
    "KEY_MISSING": PreconditionFailed,
    "KEY_WRONG": DataLoss,
    "KEY_PROVIDER_UNAVAILABLE": Unavailable,
    "CHECKPOINT_MISSING": NotFound,
    "CHECKPOINT_TOO_LARGE": PreconditionFailed,
    "NOT_CERTIFIED": PreconditionFailed,
    "BLOB_HASH_MISMATCH": HashMismatch,
    "BLOB_NOT_FOUND": None,
    "BLOB_UNAVAILABLE": Unavailable,
    "BLOB_MALFORMED": DataLoss,
    "JOURNAL_DAMAGED": DataLoss,
    "JOURNAL_UNAVAILABLE": Unavailable,
    "OUTCOME_UNKNOWN": Unavailable,
    "OLDER_SERVERS": Unavailable,
    "THREAD_BUSY": ThreadBusy,
    "LEASE_LOST": LeaseLost,
    "WEBHOOK_NOT_FOUND": NotFound,
    "EFFECT_NOT_FOUND": NotFound,
    "EFFECT_INPUT_CHANGED": EffectInputChanged,
    "EFFECT_NOT_UNKNOWN": EffectNotUnknown,
    "EFFECT_NOT_RECORDED": EffectNotRecorded,
    "BACKLOG_FULL": ResourceExhausted,
    "MEMORY_FULL": ResourceExhausted,
    "READER_TOO_SLOW": ResourceExhausted,
    "QUOTA_EXCEEDED": ResourceExhausted,
    "SIGNATURE_REFUSED": PreconditionFailed,
    "SEALING_UNAVAILABLE": PreconditionFailed,
    "HANDOFF_NOT_FOUND": NotFound,
    "HANDOFF_CLOSED": PreconditionFailed,
    "DRAINING": Unavailable,
    "NOT_IMPLEMENTED": Unimplemented,
    "INTERNAL_ERROR": ServerError,
    "PAGE_TOKEN_INVALID": InvalidRequest,
    "REQUEST_ID_REUSED": AlreadyExists,
    "CURSOR_COMPACTED": CursorCompacted,
    "CREDENTIAL_INVALID": Unauthenticated,
    "SCOPE_MISSING": PermissionDenied,
    "SNAPSHOT_NOT_FOUND": NotFound,
    "DEADLINE_EXCEEDED": DeadlineExceeded,
    "CERTIFICATION_FAILED": Unavailable,
    "BLOB_REJECTED": PreconditionFailed,
    "DESCRIPTOR_MISMATCH": DescriptorMismatch,
    "SEARCH_UNAVAILABLE": None,
}
"""Error class of each `ErrorReason`; `None` if the canonical status decides."""


def error_class(status: str, reason: str) -> type[TuskPointError]:
    """Return the error class for a status and a reason. Both may be unknown."""
    return BY_REASON.get(reason) or BY_STATUS.get(status, ServerError)
