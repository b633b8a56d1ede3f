import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from tuskpoint.v1 import checkpoint_pb2 as _checkpoint_pb2
from tuskpoint.v1 import manifest_pb2 as _manifest_pb2
from tuskpoint.v1 import thread_pb2 as _thread_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ThreadOrder(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    THREAD_ORDER_UNSPECIFIED: _ClassVar[ThreadOrder]
    THREAD_ORDER_LATEST: _ClassVar[ThreadOrder]

class PruneStrategy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PRUNE_STRATEGY_UNSPECIFIED: _ClassVar[PruneStrategy]
    PRUNE_STRATEGY_KEEP_LATEST: _ClassVar[PruneStrategy]
    PRUNE_STRATEGY_DELETE_ALL: _ClassVar[PruneStrategy]

class EffectsMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EFFECTS_MODE_UNSPECIFIED: _ClassVar[EffectsMode]
    EFFECTS_MODE_COPY: _ClassVar[EffectsMode]
    EFFECTS_MODE_ANSWER: _ClassVar[EffectsMode]

class LineageKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LINEAGE_KIND_UNSPECIFIED: _ClassVar[LineageKind]
    LINEAGE_KIND_FORK: _ClassVar[LineageKind]
    LINEAGE_KIND_ADOPTION: _ClassVar[LineageKind]
    LINEAGE_KIND_ROLLBACK: _ClassVar[LineageKind]

class ChangeKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CHANGE_KIND_UNSPECIFIED: _ClassVar[ChangeKind]
    CHANGE_KIND_ADDED: _ClassVar[ChangeKind]
    CHANGE_KIND_REMOVED: _ClassVar[ChangeKind]
    CHANGE_KIND_CHANGED: _ClassVar[ChangeKind]

class Verdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VERDICT_UNSPECIFIED: _ClassVar[Verdict]
    VERDICT_PASS: _ClassVar[Verdict]
    VERDICT_FAIL: _ClassVar[Verdict]
    VERDICT_UNVERIFIED: _ClassVar[Verdict]
    VERDICT_RETRACTED: _ClassVar[Verdict]
THREAD_ORDER_UNSPECIFIED: ThreadOrder
THREAD_ORDER_LATEST: ThreadOrder
PRUNE_STRATEGY_UNSPECIFIED: PruneStrategy
PRUNE_STRATEGY_KEEP_LATEST: PruneStrategy
PRUNE_STRATEGY_DELETE_ALL: PruneStrategy
EFFECTS_MODE_UNSPECIFIED: EffectsMode
EFFECTS_MODE_COPY: EffectsMode
EFFECTS_MODE_ANSWER: EffectsMode
LINEAGE_KIND_UNSPECIFIED: LineageKind
LINEAGE_KIND_FORK: LineageKind
LINEAGE_KIND_ADOPTION: LineageKind
LINEAGE_KIND_ROLLBACK: LineageKind
CHANGE_KIND_UNSPECIFIED: ChangeKind
CHANGE_KIND_ADDED: ChangeKind
CHANGE_KIND_REMOVED: ChangeKind
CHANGE_KIND_CHANGED: ChangeKind
VERDICT_UNSPECIFIED: Verdict
VERDICT_PASS: Verdict
VERDICT_FAIL: Verdict
VERDICT_UNVERIFIED: Verdict
VERDICT_RETRACTED: Verdict

class GetThreadRequest(_message.Message):
    __slots__ = ("thread_id",)
    THREAD_ID_FIELD_NUMBER: _ClassVar[int]
    thread_id: str
    def __init__(self, thread_id: _Optional[str] = ...) -> None: ...

class GetThreadResponse(_message.Message):
    __slots__ = ("thread",)
    THREAD_FIELD_NUMBER: _ClassVar[int]
    thread: _thread_pb2.Thread
    def __init__(self, thread: _Optional[_Union[_thread_pb2.Thread, _Mapping]] = ...) -> None: ...

class ListThreadsRequest(_message.Message):
    __slots__ = ("agent_id", "label", "state", "page_size", "page_token", "changed_after", "changed_before", "order")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    CHANGED_AFTER_FIELD_NUMBER: _ClassVar[int]
    CHANGED_BEFORE_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    label: str
    state: _thread_pb2.ThreadState
    page_size: int
    page_token: str
    changed_after: _timestamp_pb2.Timestamp
    changed_before: _timestamp_pb2.Timestamp
    order: ThreadOrder
    def __init__(self, agent_id: _Optional[str] = ..., label: _Optional[str] = ..., state: _Optional[_Union[_thread_pb2.ThreadState, str]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., changed_after: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., changed_before: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., order: _Optional[_Union[ThreadOrder, str]] = ...) -> None: ...

class ListThreadsResponse(_message.Message):
    __slots__ = ("threads", "next_page_token")
    THREADS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    threads: _containers.RepeatedCompositeFieldContainer[_thread_pb2.Thread]
    next_page_token: str
    def __init__(self, threads: _Optional[_Iterable[_Union[_thread_pb2.Thread, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class DeleteThreadRequest(_message.Message):
    __slots__ = ("thread_id", "durability")
    THREAD_ID_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    thread_id: str
    durability: _checkpoint_pb2.Durability
    def __init__(self, thread_id: _Optional[str] = ..., durability: _Optional[_Union[_checkpoint_pb2.Durability, str]] = ...) -> None: ...

class DeleteThreadResponse(_message.Message):
    __slots__ = ("deleted_checkpoints", "durability")
    DELETED_CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    deleted_checkpoints: int
    durability: _checkpoint_pb2.Durability
    def __init__(self, deleted_checkpoints: _Optional[int] = ..., durability: _Optional[_Union[_checkpoint_pb2.Durability, str]] = ...) -> None: ...

class SetRetentionRequest(_message.Message):
    __slots__ = ("thread_id", "retention", "durability")
    THREAD_ID_FIELD_NUMBER: _ClassVar[int]
    RETENTION_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    thread_id: str
    retention: _duration_pb2.Duration
    durability: _checkpoint_pb2.Durability
    def __init__(self, thread_id: _Optional[str] = ..., retention: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., durability: _Optional[_Union[_checkpoint_pb2.Durability, str]] = ...) -> None: ...

class SetRetentionResponse(_message.Message):
    __slots__ = ("durability",)
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    durability: _checkpoint_pb2.Durability
    def __init__(self, durability: _Optional[_Union[_checkpoint_pb2.Durability, str]] = ...) -> None: ...

class SetSearchableRequest(_message.Message):
    __slots__ = ("thread_id", "searchable", "durability")
    THREAD_ID_FIELD_NUMBER: _ClassVar[int]
    SEARCHABLE_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    thread_id: str
    searchable: bool
    durability: _checkpoint_pb2.Durability
    def __init__(self, thread_id: _Optional[str] = ..., searchable: bool = ..., durability: _Optional[_Union[_checkpoint_pb2.Durability, str]] = ...) -> None: ...

class SetSearchableResponse(_message.Message):
    __slots__ = ("durability",)
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    durability: _checkpoint_pb2.Durability
    def __init__(self, durability: _Optional[_Union[_checkpoint_pb2.Durability, str]] = ...) -> None: ...

class CopyThreadRequest(_message.Message):
    __slots__ = ("source_thread_id", "target_thread_id", "request_id", "durability")
    SOURCE_THREAD_ID_FIELD_NUMBER: _ClassVar[int]
    TARGET_THREAD_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    source_thread_id: str
    target_thread_id: str
    request_id: str
    durability: _checkpoint_pb2.Durability
    def __init__(self, source_thread_id: _Optional[str] = ..., target_thread_id: _Optional[str] = ..., request_id: _Optional[str] = ..., durability: _Optional[_Union[_checkpoint_pb2.Durability, str]] = ...) -> None: ...

class CopyThreadResponse(_message.Message):
    __slots__ = ("copied_checkpoints", "durability")
    COPIED_CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    copied_checkpoints: int
    durability: _checkpoint_pb2.Durability
    def __init__(self, copied_checkpoints: _Optional[int] = ..., durability: _Optional[_Union[_checkpoint_pb2.Durability, str]] = ...) -> None: ...

class PruneThreadsRequest(_message.Message):
    __slots__ = ("thread_ids", "strategy", "durability")
    THREAD_IDS_FIELD_NUMBER: _ClassVar[int]
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    thread_ids: _containers.RepeatedScalarFieldContainer[str]
    strategy: PruneStrategy
    durability: _checkpoint_pb2.Durability
    def __init__(self, thread_ids: _Optional[_Iterable[str]] = ..., strategy: _Optional[_Union[PruneStrategy, str]] = ..., durability: _Optional[_Union[_checkpoint_pb2.Durability, str]] = ...) -> None: ...

class PruneThreadsResponse(_message.Message):
    __slots__ = ("deleted_checkpoints", "durability")
    DELETED_CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    deleted_checkpoints: int
    durability: _checkpoint_pb2.Durability
    def __init__(self, deleted_checkpoints: _Optional[int] = ..., durability: _Optional[_Union[_checkpoint_pb2.Durability, str]] = ...) -> None: ...

class DeleteRunsRequest(_message.Message):
    __slots__ = ("run_ids", "durability")
    RUN_IDS_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    run_ids: _containers.RepeatedScalarFieldContainer[str]
    durability: _checkpoint_pb2.Durability
    def __init__(self, run_ids: _Optional[_Iterable[str]] = ..., durability: _Optional[_Union[_checkpoint_pb2.Durability, str]] = ...) -> None: ...

class DeleteRunsResponse(_message.Message):
    __slots__ = ("deleted_checkpoints", "durability")
    DELETED_CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    deleted_checkpoints: int
    durability: _checkpoint_pb2.Durability
    def __init__(self, deleted_checkpoints: _Optional[int] = ..., durability: _Optional[_Union[_checkpoint_pb2.Durability, str]] = ...) -> None: ...

class RetentionRule(_message.Message):
    __slots__ = ("agent_id", "thread_id", "delete_after", "keep_last", "keep_for")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    THREAD_ID_FIELD_NUMBER: _ClassVar[int]
    DELETE_AFTER_FIELD_NUMBER: _ClassVar[int]
    KEEP_LAST_FIELD_NUMBER: _ClassVar[int]
    KEEP_FOR_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    thread_id: str
    delete_after: _duration_pb2.Duration
    keep_last: int
    keep_for: _duration_pb2.Duration
    def __init__(self, agent_id: _Optional[str] = ..., thread_id: _Optional[str] = ..., delete_after: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., keep_last: _Optional[int] = ..., keep_for: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class PreviewRetentionRequest(_message.Message):
    __slots__ = ("rules",)
    RULES_FIELD_NUMBER: _ClassVar[int]
    rules: _containers.RepeatedCompositeFieldContainer[RetentionRule]
    def __init__(self, rules: _Optional[_Iterable[_Union[RetentionRule, _Mapping]]] = ...) -> None: ...

class RetentionEffect(_message.Message):
    __slots__ = ("thread_id", "thread_deleted", "checkpoints", "journal_bytes", "stored_bytes")
    THREAD_ID_FIELD_NUMBER: _ClassVar[int]
    THREAD_DELETED_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    JOURNAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    STORED_BYTES_FIELD_NUMBER: _ClassVar[int]
    thread_id: str
    thread_deleted: bool
    checkpoints: int
    journal_bytes: int
    stored_bytes: int
    def __init__(self, thread_id: _Optional[str] = ..., thread_deleted: bool = ..., checkpoints: _Optional[int] = ..., journal_bytes: _Optional[int] = ..., stored_bytes: _Optional[int] = ...) -> None: ...

class PreviewRetentionResponse(_message.Message):
    __slots__ = ("rules", "effects", "total", "threads", "threads_deleted")
    RULES_FIELD_NUMBER: _ClassVar[int]
    EFFECTS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    THREADS_FIELD_NUMBER: _ClassVar[int]
    THREADS_DELETED_FIELD_NUMBER: _ClassVar[int]
    rules: _containers.RepeatedCompositeFieldContainer[RetentionRule]
    effects: _containers.RepeatedCompositeFieldContainer[RetentionEffect]
    total: RetentionEffect
    threads: int
    threads_deleted: int
    def __init__(self, rules: _Optional[_Iterable[_Union[RetentionRule, _Mapping]]] = ..., effects: _Optional[_Iterable[_Union[RetentionEffect, _Mapping]]] = ..., total: _Optional[_Union[RetentionEffect, _Mapping]] = ..., threads: _Optional[int] = ..., threads_deleted: _Optional[int] = ...) -> None: ...

class EraseThreadsRequest(_message.Message):
    __slots__ = ("thread_ids",)
    THREAD_IDS_FIELD_NUMBER: _ClassVar[int]
    thread_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, thread_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class EraseThreadsResponse(_message.Message):
    __slots__ = ("receipt", "signer", "signature")
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    SIGNER_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    receipt: bytes
    signer: str
    signature: str
    def __init__(self, receipt: _Optional[bytes] = ..., signer: _Optional[str] = ..., signature: _Optional[str] = ...) -> None: ...

class ForkThreadRequest(_message.Message):
    __slots__ = ("ref", "new_thread_id", "request_id", "durability", "effects")
    REF_FIELD_NUMBER: _ClassVar[int]
    NEW_THREAD_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    EFFECTS_FIELD_NUMBER: _ClassVar[int]
    ref: _checkpoint_pb2.CheckpointRef
    new_thread_id: str
    request_id: str
    durability: _checkpoint_pb2.Durability
    effects: EffectsMode
    def __init__(self, ref: _Optional[_Union[_checkpoint_pb2.CheckpointRef, _Mapping]] = ..., new_thread_id: _Optional[str] = ..., request_id: _Optional[str] = ..., durability: _Optional[_Union[_checkpoint_pb2.Durability, str]] = ..., effects: _Optional[_Union[EffectsMode, str]] = ...) -> None: ...

class ForkThreadResponse(_message.Message):
    __slots__ = ("ref", "forked_from", "durability")
    REF_FIELD_NUMBER: _ClassVar[int]
    FORKED_FROM_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    ref: _checkpoint_pb2.CheckpointRef
    forked_from: str
    durability: _checkpoint_pb2.Durability
    def __init__(self, ref: _Optional[_Union[_checkpoint_pb2.CheckpointRef, _Mapping]] = ..., forked_from: _Optional[str] = ..., durability: _Optional[_Union[_checkpoint_pb2.Durability, str]] = ...) -> None: ...

class RollbackThreadRequest(_message.Message):
    __slots__ = ("ref", "request_id", "expected_head", "durability", "lease_id")
    REF_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_HEAD_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    ref: _checkpoint_pb2.CheckpointRef
    request_id: str
    expected_head: str
    durability: _checkpoint_pb2.Durability
    lease_id: str
    def __init__(self, ref: _Optional[_Union[_checkpoint_pb2.CheckpointRef, _Mapping]] = ..., request_id: _Optional[str] = ..., expected_head: _Optional[str] = ..., durability: _Optional[_Union[_checkpoint_pb2.Durability, str]] = ..., lease_id: _Optional[str] = ...) -> None: ...

class RollbackThreadResponse(_message.Message):
    __slots__ = ("ref", "rolled_back_from", "durability")
    REF_FIELD_NUMBER: _ClassVar[int]
    ROLLED_BACK_FROM_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    ref: _checkpoint_pb2.CheckpointRef
    rolled_back_from: str
    durability: _checkpoint_pb2.Durability
    def __init__(self, ref: _Optional[_Union[_checkpoint_pb2.CheckpointRef, _Mapping]] = ..., rolled_back_from: _Optional[str] = ..., durability: _Optional[_Union[_checkpoint_pb2.Durability, str]] = ...) -> None: ...

class GetLineageRequest(_message.Message):
    __slots__ = ("thread_id",)
    THREAD_ID_FIELD_NUMBER: _ClassVar[int]
    thread_id: str
    def __init__(self, thread_id: _Optional[str] = ...) -> None: ...

class LineageStep(_message.Message):
    __slots__ = ("kind", "to", "create_time")
    KIND_FIELD_NUMBER: _ClassVar[int]
    FROM_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    kind: LineageKind
    to: _checkpoint_pb2.CheckpointRef
    create_time: _timestamp_pb2.Timestamp
    def __init__(self, kind: _Optional[_Union[LineageKind, str]] = ..., to: _Optional[_Union[_checkpoint_pb2.CheckpointRef, _Mapping]] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., **kwargs) -> None: ...

class GetLineageResponse(_message.Message):
    __slots__ = ("ancestors", "descendants", "truncated")
    ANCESTORS_FIELD_NUMBER: _ClassVar[int]
    DESCENDANTS_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    ancestors: _containers.RepeatedCompositeFieldContainer[LineageStep]
    descendants: _containers.RepeatedCompositeFieldContainer[LineageStep]
    truncated: bool
    def __init__(self, ancestors: _Optional[_Iterable[_Union[LineageStep, _Mapping]]] = ..., descendants: _Optional[_Iterable[_Union[LineageStep, _Mapping]]] = ..., truncated: bool = ...) -> None: ...

class DiffCheckpointsRequest(_message.Message):
    __slots__ = ("to", "max_changes")
    FROM_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    MAX_CHANGES_FIELD_NUMBER: _ClassVar[int]
    to: _checkpoint_pb2.CheckpointRef
    max_changes: int
    def __init__(self, to: _Optional[_Union[_checkpoint_pb2.CheckpointRef, _Mapping]] = ..., max_changes: _Optional[int] = ..., **kwargs) -> None: ...

class Change(_message.Message):
    __slots__ = ("kind", "channel", "path", "from_json", "to_json")
    KIND_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    FROM_JSON_FIELD_NUMBER: _ClassVar[int]
    TO_JSON_FIELD_NUMBER: _ClassVar[int]
    kind: ChangeKind
    channel: str
    path: str
    from_json: str
    to_json: str
    def __init__(self, kind: _Optional[_Union[ChangeKind, str]] = ..., channel: _Optional[str] = ..., path: _Optional[str] = ..., from_json: _Optional[str] = ..., to_json: _Optional[str] = ...) -> None: ...

class DiffCheckpointsResponse(_message.Message):
    __slots__ = ("changes", "truncated")
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    changes: _containers.RepeatedCompositeFieldContainer[Change]
    truncated: bool
    def __init__(self, changes: _Optional[_Iterable[_Union[Change, _Mapping]]] = ..., truncated: bool = ...) -> None: ...

class VerifyThreadRequest(_message.Message):
    __slots__ = ("thread_id",)
    THREAD_ID_FIELD_NUMBER: _ClassVar[int]
    thread_id: str
    def __init__(self, thread_id: _Optional[str] = ...) -> None: ...

class CheckpointVerdict(_message.Message):
    __slots__ = ("ref", "verdict", "location", "actual_sha256", "detail")
    REF_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    LOCATION_FIELD_NUMBER: _ClassVar[int]
    ACTUAL_SHA256_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    ref: _checkpoint_pb2.CheckpointRef
    verdict: Verdict
    location: _checkpoint_pb2.BlobLocation
    actual_sha256: bytes
    detail: str
    def __init__(self, ref: _Optional[_Union[_checkpoint_pb2.CheckpointRef, _Mapping]] = ..., verdict: _Optional[_Union[Verdict, str]] = ..., location: _Optional[_Union[_checkpoint_pb2.BlobLocation, _Mapping]] = ..., actual_sha256: _Optional[bytes] = ..., detail: _Optional[str] = ...) -> None: ...

class VerificationTotal(_message.Message):
    __slots__ = ("ok", "passed", "failed", "unverified", "retracted", "chain_detail", "journal_details")
    OK_FIELD_NUMBER: _ClassVar[int]
    PASSED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    UNVERIFIED_FIELD_NUMBER: _ClassVar[int]
    RETRACTED_FIELD_NUMBER: _ClassVar[int]
    CHAIN_DETAIL_FIELD_NUMBER: _ClassVar[int]
    JOURNAL_DETAILS_FIELD_NUMBER: _ClassVar[int]
    ok: bool
    passed: int
    failed: int
    unverified: int
    retracted: int
    chain_detail: str
    journal_details: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, ok: bool = ..., passed: _Optional[int] = ..., failed: _Optional[int] = ..., unverified: _Optional[int] = ..., retracted: _Optional[int] = ..., chain_detail: _Optional[str] = ..., journal_details: _Optional[_Iterable[str]] = ...) -> None: ...

class VerifyThreadResponse(_message.Message):
    __slots__ = ("verdict", "total")
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    verdict: CheckpointVerdict
    total: VerificationTotal
    def __init__(self, verdict: _Optional[_Union[CheckpointVerdict, _Mapping]] = ..., total: _Optional[_Union[VerificationTotal, _Mapping]] = ...) -> None: ...

class GetManifestRequest(_message.Message):
    __slots__ = ("thread_id", "page_size", "page_token", "store")
    THREAD_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    thread_id: str
    page_size: int
    page_token: str
    store: bool
    def __init__(self, thread_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., store: bool = ...) -> None: ...

class GetManifestResponse(_message.Message):
    __slots__ = ("entries", "incarnation", "generation", "seq", "catalog", "certify_time", "manifest", "next_page_token")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    CATALOG_FIELD_NUMBER: _ClassVar[int]
    CERTIFY_TIME_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[_manifest_pb2.ManifestEntry]
    incarnation: int
    generation: int
    seq: int
    catalog: _checkpoint_pb2.BlobLocation
    certify_time: _timestamp_pb2.Timestamp
    manifest: _checkpoint_pb2.BlobLocation
    next_page_token: str
    def __init__(self, entries: _Optional[_Iterable[_Union[_manifest_pb2.ManifestEntry, _Mapping]]] = ..., incarnation: _Optional[int] = ..., generation: _Optional[int] = ..., seq: _Optional[int] = ..., catalog: _Optional[_Union[_checkpoint_pb2.BlobLocation, _Mapping]] = ..., certify_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., manifest: _Optional[_Union[_checkpoint_pb2.BlobLocation, _Mapping]] = ..., next_page_token: _Optional[str] = ...) -> None: ...
