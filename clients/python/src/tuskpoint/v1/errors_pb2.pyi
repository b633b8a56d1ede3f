import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ErrorReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ERROR_REASON_UNSPECIFIED: _ClassVar[ErrorReason]
    ERROR_REASON_INVALID_FIELD: _ClassVar[ErrorReason]
    ERROR_REASON_METADATA_NOT_JSON: _ClassVar[ErrorReason]
    ERROR_REASON_DIGEST_MISMATCH: _ClassVar[ErrorReason]
    ERROR_REASON_VERSION_TYPE_CHANGED: _ClassVar[ErrorReason]
    ERROR_REASON_CHUNK_OUT_OF_ORDER: _ClassVar[ErrorReason]
    ERROR_REASON_STREAM_TRUNCATED: _ClassVar[ErrorReason]
    ERROR_REASON_LIMIT_EXCEEDED: _ClassVar[ErrorReason]
    ERROR_REASON_CHECKPOINT_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_THREAD_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_THREAD_DELETED: _ClassVar[ErrorReason]
    ERROR_REASON_THREAD_EXISTS: _ClassVar[ErrorReason]
    ERROR_REASON_VALUES_MISSING: _ClassVar[ErrorReason]
    ERROR_REASON_HEAD_MOVED: _ClassVar[ErrorReason]
    ERROR_REASON_CHECKPOINT_MISSING: _ClassVar[ErrorReason]
    ERROR_REASON_CHECKPOINT_TOO_LARGE: _ClassVar[ErrorReason]
    ERROR_REASON_NOT_CERTIFIED: _ClassVar[ErrorReason]
    ERROR_REASON_BLOB_HASH_MISMATCH: _ClassVar[ErrorReason]
    ERROR_REASON_BLOB_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_BLOB_UNAVAILABLE: _ClassVar[ErrorReason]
    ERROR_REASON_BLOB_MALFORMED: _ClassVar[ErrorReason]
    ERROR_REASON_JOURNAL_UNAVAILABLE: _ClassVar[ErrorReason]
    ERROR_REASON_BACKLOG_FULL: _ClassVar[ErrorReason]
    ERROR_REASON_DRAINING: _ClassVar[ErrorReason]
    ERROR_REASON_NOT_IMPLEMENTED: _ClassVar[ErrorReason]
    ERROR_REASON_INTERNAL_ERROR: _ClassVar[ErrorReason]
    ERROR_REASON_PAGE_TOKEN_INVALID: _ClassVar[ErrorReason]
    ERROR_REASON_REQUEST_ID_REUSED: _ClassVar[ErrorReason]
    ERROR_REASON_CURSOR_COMPACTED: _ClassVar[ErrorReason]
    ERROR_REASON_CREDENTIAL_INVALID: _ClassVar[ErrorReason]
    ERROR_REASON_SCOPE_MISSING: _ClassVar[ErrorReason]
    ERROR_REASON_SNAPSHOT_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_DEADLINE_EXCEEDED: _ClassVar[ErrorReason]
    ERROR_REASON_CERTIFICATION_FAILED: _ClassVar[ErrorReason]
    ERROR_REASON_BLOB_REJECTED: _ClassVar[ErrorReason]
    ERROR_REASON_DESCRIPTOR_MISMATCH: _ClassVar[ErrorReason]
    ERROR_REASON_SEARCH_UNAVAILABLE: _ClassVar[ErrorReason]
    ERROR_REASON_SESSION_RESUMED: _ClassVar[ErrorReason]
    ERROR_REASON_KEY_MISSING: _ClassVar[ErrorReason]
    ERROR_REASON_KEY_WRONG: _ClassVar[ErrorReason]
    ERROR_REASON_KEY_PROVIDER_UNAVAILABLE: _ClassVar[ErrorReason]
    ERROR_REASON_MEMORY_FULL: _ClassVar[ErrorReason]
    ERROR_REASON_READER_TOO_SLOW: _ClassVar[ErrorReason]
    ERROR_REASON_QUOTA_EXCEEDED: _ClassVar[ErrorReason]
    ERROR_REASON_SIGNATURE_REFUSED: _ClassVar[ErrorReason]
    ERROR_REASON_SEALING_UNAVAILABLE: _ClassVar[ErrorReason]
    ERROR_REASON_JOURNAL_DAMAGED: _ClassVar[ErrorReason]
    ERROR_REASON_OUTCOME_UNKNOWN: _ClassVar[ErrorReason]
    ERROR_REASON_OLDER_SERVERS: _ClassVar[ErrorReason]
    ERROR_REASON_EFFECT_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_EFFECT_INPUT_CHANGED: _ClassVar[ErrorReason]
    ERROR_REASON_EFFECT_NOT_UNKNOWN: _ClassVar[ErrorReason]
    ERROR_REASON_EFFECT_NOT_RECORDED: _ClassVar[ErrorReason]
    ERROR_REASON_THREAD_BUSY: _ClassVar[ErrorReason]
    ERROR_REASON_LEASE_LOST: _ClassVar[ErrorReason]
    ERROR_REASON_HANDOFF_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_HANDOFF_CLOSED: _ClassVar[ErrorReason]
    ERROR_REASON_WEBHOOK_NOT_FOUND: _ClassVar[ErrorReason]

class WarningKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WARNING_KIND_UNSPECIFIED: _ClassVar[WarningKind]
    WARNING_KIND_BACKLOG: _ClassVar[WarningKind]
    WARNING_KIND_SEARCH_FELL_BACK: _ClassVar[WarningKind]
    WARNING_KIND_MEMORIES_DROPPED: _ClassVar[WarningKind]
    WARNING_KIND_NO_VECTORS: _ClassVar[WarningKind]
    WARNING_KIND_VALUES_SEALED: _ClassVar[WarningKind]
    WARNING_KIND_BELOW_LATEST: _ClassVar[WarningKind]
    WARNING_KIND_DAMAGED: _ClassVar[WarningKind]
    WARNING_KIND_TEXT_TRUNCATED: _ClassVar[WarningKind]
    WARNING_KIND_NOT_OFFERED: _ClassVar[WarningKind]
ERROR_REASON_UNSPECIFIED: ErrorReason
ERROR_REASON_INVALID_FIELD: ErrorReason
ERROR_REASON_METADATA_NOT_JSON: ErrorReason
ERROR_REASON_DIGEST_MISMATCH: ErrorReason
ERROR_REASON_VERSION_TYPE_CHANGED: ErrorReason
ERROR_REASON_CHUNK_OUT_OF_ORDER: ErrorReason
ERROR_REASON_STREAM_TRUNCATED: ErrorReason
ERROR_REASON_LIMIT_EXCEEDED: ErrorReason
ERROR_REASON_CHECKPOINT_NOT_FOUND: ErrorReason
ERROR_REASON_THREAD_NOT_FOUND: ErrorReason
ERROR_REASON_THREAD_DELETED: ErrorReason
ERROR_REASON_THREAD_EXISTS: ErrorReason
ERROR_REASON_VALUES_MISSING: ErrorReason
ERROR_REASON_HEAD_MOVED: ErrorReason
ERROR_REASON_CHECKPOINT_MISSING: ErrorReason
ERROR_REASON_CHECKPOINT_TOO_LARGE: ErrorReason
ERROR_REASON_NOT_CERTIFIED: ErrorReason
ERROR_REASON_BLOB_HASH_MISMATCH: ErrorReason
ERROR_REASON_BLOB_NOT_FOUND: ErrorReason
ERROR_REASON_BLOB_UNAVAILABLE: ErrorReason
ERROR_REASON_BLOB_MALFORMED: ErrorReason
ERROR_REASON_JOURNAL_UNAVAILABLE: ErrorReason
ERROR_REASON_BACKLOG_FULL: ErrorReason
ERROR_REASON_DRAINING: ErrorReason
ERROR_REASON_NOT_IMPLEMENTED: ErrorReason
ERROR_REASON_INTERNAL_ERROR: ErrorReason
ERROR_REASON_PAGE_TOKEN_INVALID: ErrorReason
ERROR_REASON_REQUEST_ID_REUSED: ErrorReason
ERROR_REASON_CURSOR_COMPACTED: ErrorReason
ERROR_REASON_CREDENTIAL_INVALID: ErrorReason
ERROR_REASON_SCOPE_MISSING: ErrorReason
ERROR_REASON_SNAPSHOT_NOT_FOUND: ErrorReason
ERROR_REASON_DEADLINE_EXCEEDED: ErrorReason
ERROR_REASON_CERTIFICATION_FAILED: ErrorReason
ERROR_REASON_BLOB_REJECTED: ErrorReason
ERROR_REASON_DESCRIPTOR_MISMATCH: ErrorReason
ERROR_REASON_SEARCH_UNAVAILABLE: ErrorReason
ERROR_REASON_SESSION_RESUMED: ErrorReason
ERROR_REASON_KEY_MISSING: ErrorReason
ERROR_REASON_KEY_WRONG: ErrorReason
ERROR_REASON_KEY_PROVIDER_UNAVAILABLE: ErrorReason
ERROR_REASON_MEMORY_FULL: ErrorReason
ERROR_REASON_READER_TOO_SLOW: ErrorReason
ERROR_REASON_QUOTA_EXCEEDED: ErrorReason
ERROR_REASON_SIGNATURE_REFUSED: ErrorReason
ERROR_REASON_SEALING_UNAVAILABLE: ErrorReason
ERROR_REASON_JOURNAL_DAMAGED: ErrorReason
ERROR_REASON_OUTCOME_UNKNOWN: ErrorReason
ERROR_REASON_OLDER_SERVERS: ErrorReason
ERROR_REASON_EFFECT_NOT_FOUND: ErrorReason
ERROR_REASON_EFFECT_INPUT_CHANGED: ErrorReason
ERROR_REASON_EFFECT_NOT_UNKNOWN: ErrorReason
ERROR_REASON_EFFECT_NOT_RECORDED: ErrorReason
ERROR_REASON_THREAD_BUSY: ErrorReason
ERROR_REASON_LEASE_LOST: ErrorReason
ERROR_REASON_HANDOFF_NOT_FOUND: ErrorReason
ERROR_REASON_HANDOFF_CLOSED: ErrorReason
ERROR_REASON_WEBHOOK_NOT_FOUND: ErrorReason
WARNING_KIND_UNSPECIFIED: WarningKind
WARNING_KIND_BACKLOG: WarningKind
WARNING_KIND_SEARCH_FELL_BACK: WarningKind
WARNING_KIND_MEMORIES_DROPPED: WarningKind
WARNING_KIND_NO_VECTORS: WarningKind
WARNING_KIND_VALUES_SEALED: WarningKind
WARNING_KIND_BELOW_LATEST: WarningKind
WARNING_KIND_DAMAGED: WarningKind
WARNING_KIND_TEXT_TRUNCATED: WarningKind
WARNING_KIND_NOT_OFFERED: WarningKind

class FieldViolation(_message.Message):
    __slots__ = ("field", "description")
    FIELD_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    field: str
    description: str
    def __init__(self, field: _Optional[str] = ..., description: _Optional[str] = ...) -> None: ...

class CallError(_message.Message):
    __slots__ = ("code", "reason", "message", "metadata", "field_violations", "retry_after")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    FIELD_VIOLATIONS_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_FIELD_NUMBER: _ClassVar[int]
    code: int
    reason: ErrorReason
    message: str
    metadata: _containers.ScalarMap[str, str]
    field_violations: _containers.RepeatedCompositeFieldContainer[FieldViolation]
    retry_after: _duration_pb2.Duration
    def __init__(self, code: _Optional[int] = ..., reason: _Optional[_Union[ErrorReason, str]] = ..., message: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ..., field_violations: _Optional[_Iterable[_Union[FieldViolation, _Mapping]]] = ..., retry_after: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class Warning(_message.Message):
    __slots__ = ("kind", "message")
    KIND_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    kind: WarningKind
    message: str
    def __init__(self, kind: _Optional[_Union[WarningKind, str]] = ..., message: _Optional[str] = ...) -> None: ...
