import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from tuskpoint.v1 import checkpoint_pb2 as _checkpoint_pb2
from tuskpoint.v1 import search_service_pb2 as _search_service_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ClockJump(_message.Message):
    __slots__ = ("expected_time", "clock_time")
    EXPECTED_TIME_FIELD_NUMBER: _ClassVar[int]
    CLOCK_TIME_FIELD_NUMBER: _ClassVar[int]
    expected_time: _timestamp_pb2.Timestamp
    clock_time: _timestamp_pb2.Timestamp
    def __init__(self, expected_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., clock_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class AcceptClockRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AcceptClockResponse(_message.Message):
    __slots__ = ("accepted",)
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    accepted: ClockJump
    def __init__(self, accepted: _Optional[_Union[ClockJump, _Mapping]] = ...) -> None: ...

class ServerLimits(_message.Message):
    __slots__ = ("max_message_bytes", "max_unary_bytes", "max_chunk_bytes", "max_value_bytes", "max_checkpoint_bytes", "max_metadata_bytes", "max_channels", "max_writes", "max_thread_id_bytes", "max_checkpoint_ns_bytes", "max_checkpoint_id_bytes", "early_write_ttl", "request_id_ttl", "max_state_bytes", "max_write_names_bytes", "event_ttl", "max_bundle_bytes", "max_search_text_bytes", "max_query_bytes", "max_search_results", "max_vector_dimension", "max_item_value_bytes", "max_item_key_bytes", "max_item_labels", "max_item_namespace_bytes", "max_effect_result_bytes", "max_thread_effects", "max_effect_key_bytes")
    MAX_MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_UNARY_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_CHUNK_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_VALUE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_CHECKPOINT_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_METADATA_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_CHANNELS_FIELD_NUMBER: _ClassVar[int]
    MAX_WRITES_FIELD_NUMBER: _ClassVar[int]
    MAX_THREAD_ID_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_CHECKPOINT_NS_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_CHECKPOINT_ID_BYTES_FIELD_NUMBER: _ClassVar[int]
    EARLY_WRITE_TTL_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_TTL_FIELD_NUMBER: _ClassVar[int]
    MAX_STATE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_WRITE_NAMES_BYTES_FIELD_NUMBER: _ClassVar[int]
    EVENT_TTL_FIELD_NUMBER: _ClassVar[int]
    MAX_BUNDLE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_SEARCH_TEXT_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_QUERY_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_SEARCH_RESULTS_FIELD_NUMBER: _ClassVar[int]
    MAX_VECTOR_DIMENSION_FIELD_NUMBER: _ClassVar[int]
    MAX_ITEM_VALUE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_ITEM_KEY_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_ITEM_LABELS_FIELD_NUMBER: _ClassVar[int]
    MAX_ITEM_NAMESPACE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_EFFECT_RESULT_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_THREAD_EFFECTS_FIELD_NUMBER: _ClassVar[int]
    MAX_EFFECT_KEY_BYTES_FIELD_NUMBER: _ClassVar[int]
    max_message_bytes: int
    max_unary_bytes: int
    max_chunk_bytes: int
    max_value_bytes: int
    max_checkpoint_bytes: int
    max_metadata_bytes: int
    max_channels: int
    max_writes: int
    max_thread_id_bytes: int
    max_checkpoint_ns_bytes: int
    max_checkpoint_id_bytes: int
    early_write_ttl: _duration_pb2.Duration
    request_id_ttl: _duration_pb2.Duration
    max_state_bytes: int
    max_write_names_bytes: int
    event_ttl: _duration_pb2.Duration
    max_bundle_bytes: int
    max_search_text_bytes: int
    max_query_bytes: int
    max_search_results: int
    max_vector_dimension: int
    max_item_value_bytes: int
    max_item_key_bytes: int
    max_item_labels: int
    max_item_namespace_bytes: int
    max_effect_result_bytes: int
    max_thread_effects: int
    max_effect_key_bytes: int
    def __init__(self, max_message_bytes: _Optional[int] = ..., max_unary_bytes: _Optional[int] = ..., max_chunk_bytes: _Optional[int] = ..., max_value_bytes: _Optional[int] = ..., max_checkpoint_bytes: _Optional[int] = ..., max_metadata_bytes: _Optional[int] = ..., max_channels: _Optional[int] = ..., max_writes: _Optional[int] = ..., max_thread_id_bytes: _Optional[int] = ..., max_checkpoint_ns_bytes: _Optional[int] = ..., max_checkpoint_id_bytes: _Optional[int] = ..., early_write_ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., request_id_ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., max_state_bytes: _Optional[int] = ..., max_write_names_bytes: _Optional[int] = ..., event_ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., max_bundle_bytes: _Optional[int] = ..., max_search_text_bytes: _Optional[int] = ..., max_query_bytes: _Optional[int] = ..., max_search_results: _Optional[int] = ..., max_vector_dimension: _Optional[int] = ..., max_item_value_bytes: _Optional[int] = ..., max_item_key_bytes: _Optional[int] = ..., max_item_labels: _Optional[int] = ..., max_item_namespace_bytes: _Optional[int] = ..., max_effect_result_bytes: _Optional[int] = ..., max_thread_effects: _Optional[int] = ..., max_effect_key_bytes: _Optional[int] = ...) -> None: ...

class GetServerInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetServerInfoResponse(_message.Message):
    __slots__ = ("version", "limits", "methods", "journal_backend", "blob_backend", "journal_id", "start_time", "search_modes", "embedder", "signers", "recipients", "clock_jump", "grpc_port")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    METHODS_FIELD_NUMBER: _ClassVar[int]
    JOURNAL_BACKEND_FIELD_NUMBER: _ClassVar[int]
    BLOB_BACKEND_FIELD_NUMBER: _ClassVar[int]
    JOURNAL_ID_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    SEARCH_MODES_FIELD_NUMBER: _ClassVar[int]
    EMBEDDER_FIELD_NUMBER: _ClassVar[int]
    SIGNERS_FIELD_NUMBER: _ClassVar[int]
    RECIPIENTS_FIELD_NUMBER: _ClassVar[int]
    CLOCK_JUMP_FIELD_NUMBER: _ClassVar[int]
    GRPC_PORT_FIELD_NUMBER: _ClassVar[int]
    version: str
    limits: ServerLimits
    methods: _containers.RepeatedScalarFieldContainer[str]
    journal_backend: str
    blob_backend: str
    journal_id: str
    start_time: _timestamp_pb2.Timestamp
    search_modes: _containers.RepeatedScalarFieldContainer[_search_service_pb2.SearchMode]
    embedder: str
    signers: _containers.RepeatedScalarFieldContainer[str]
    recipients: _containers.RepeatedScalarFieldContainer[str]
    clock_jump: ClockJump
    grpc_port: int
    def __init__(self, version: _Optional[str] = ..., limits: _Optional[_Union[ServerLimits, _Mapping]] = ..., methods: _Optional[_Iterable[str]] = ..., journal_backend: _Optional[str] = ..., blob_backend: _Optional[str] = ..., journal_id: _Optional[str] = ..., start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., search_modes: _Optional[_Iterable[_Union[_search_service_pb2.SearchMode, str]]] = ..., embedder: _Optional[str] = ..., signers: _Optional[_Iterable[str]] = ..., recipients: _Optional[_Iterable[str]] = ..., clock_jump: _Optional[_Union[ClockJump, _Mapping]] = ..., grpc_port: _Optional[int] = ...) -> None: ...

class GetArchiveStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetArchiveStatusResponse(_message.Message):
    __slots__ = ("backlog_checkpoints", "backlog_bytes", "oldest_uncertified_time", "last_error", "last_error_time", "last_flush_time", "catalog", "catalog_seq", "journal_bytes", "spool_bytes", "cache_bytes", "certified_checkpoints", "earliest_expire_time", "evicted_bytes", "stored_blobs", "billed_bytes", "cost", "failing_renewals", "search", "gaps", "first_gaps", "scrub_time", "damaged_thread_ids")
    BACKLOG_CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_BYTES_FIELD_NUMBER: _ClassVar[int]
    OLDEST_UNCERTIFIED_TIME_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_TIME_FIELD_NUMBER: _ClassVar[int]
    LAST_FLUSH_TIME_FIELD_NUMBER: _ClassVar[int]
    CATALOG_FIELD_NUMBER: _ClassVar[int]
    CATALOG_SEQ_FIELD_NUMBER: _ClassVar[int]
    JOURNAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    SPOOL_BYTES_FIELD_NUMBER: _ClassVar[int]
    CACHE_BYTES_FIELD_NUMBER: _ClassVar[int]
    CERTIFIED_CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    EARLIEST_EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    EVICTED_BYTES_FIELD_NUMBER: _ClassVar[int]
    STORED_BLOBS_FIELD_NUMBER: _ClassVar[int]
    BILLED_BYTES_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    FAILING_RENEWALS_FIELD_NUMBER: _ClassVar[int]
    SEARCH_FIELD_NUMBER: _ClassVar[int]
    GAPS_FIELD_NUMBER: _ClassVar[int]
    FIRST_GAPS_FIELD_NUMBER: _ClassVar[int]
    SCRUB_TIME_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_THREAD_IDS_FIELD_NUMBER: _ClassVar[int]
    backlog_checkpoints: int
    backlog_bytes: int
    oldest_uncertified_time: _timestamp_pb2.Timestamp
    last_error: str
    last_error_time: _timestamp_pb2.Timestamp
    last_flush_time: _timestamp_pb2.Timestamp
    catalog: _checkpoint_pb2.BlobLocation
    catalog_seq: int
    journal_bytes: int
    spool_bytes: int
    cache_bytes: int
    certified_checkpoints: int
    earliest_expire_time: _timestamp_pb2.Timestamp
    evicted_bytes: int
    stored_blobs: int
    billed_bytes: int
    cost: int
    failing_renewals: int
    search: SearchStatus
    gaps: int
    first_gaps: _containers.RepeatedCompositeFieldContainer[Gap]
    scrub_time: _timestamp_pb2.Timestamp
    damaged_thread_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, backlog_checkpoints: _Optional[int] = ..., backlog_bytes: _Optional[int] = ..., oldest_uncertified_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., last_error: _Optional[str] = ..., last_error_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., last_flush_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., catalog: _Optional[_Union[_checkpoint_pb2.BlobLocation, _Mapping]] = ..., catalog_seq: _Optional[int] = ..., journal_bytes: _Optional[int] = ..., spool_bytes: _Optional[int] = ..., cache_bytes: _Optional[int] = ..., certified_checkpoints: _Optional[int] = ..., earliest_expire_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., evicted_bytes: _Optional[int] = ..., stored_blobs: _Optional[int] = ..., billed_bytes: _Optional[int] = ..., cost: _Optional[int] = ..., failing_renewals: _Optional[int] = ..., search: _Optional[_Union[SearchStatus, _Mapping]] = ..., gaps: _Optional[int] = ..., first_gaps: _Optional[_Iterable[_Union[Gap, _Mapping]]] = ..., scrub_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., damaged_thread_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class Gap(_message.Message):
    __slots__ = ("thread_id", "checkpoint_ns", "checkpoint_id", "segment_sha256", "reason", "retry_time")
    THREAD_ID_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_NS_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_SHA256_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    RETRY_TIME_FIELD_NUMBER: _ClassVar[int]
    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str
    segment_sha256: bytes
    reason: str
    retry_time: _timestamp_pb2.Timestamp
    def __init__(self, thread_id: _Optional[str] = ..., checkpoint_ns: _Optional[str] = ..., checkpoint_id: _Optional[str] = ..., segment_sha256: _Optional[bytes] = ..., reason: _Optional[str] = ..., retry_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class SearchStatus(_message.Message):
    __slots__ = ("unindexed_checkpoints", "oldest_unindexed_time", "indexed_checkpoints", "vectors", "last_error", "memwal", "truncated_checkpoints")
    UNINDEXED_CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    OLDEST_UNINDEXED_TIME_FIELD_NUMBER: _ClassVar[int]
    INDEXED_CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    VECTORS_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    MEMWAL_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    unindexed_checkpoints: int
    oldest_unindexed_time: _timestamp_pb2.Timestamp
    indexed_checkpoints: int
    vectors: int
    last_error: str
    memwal: MemWalStatus
    truncated_checkpoints: int
    def __init__(self, unindexed_checkpoints: _Optional[int] = ..., oldest_unindexed_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., indexed_checkpoints: _Optional[int] = ..., vectors: _Optional[int] = ..., last_error: _Optional[str] = ..., memwal: _Optional[_Union[MemWalStatus, _Mapping]] = ..., truncated_checkpoints: _Optional[int] = ...) -> None: ...

class MemWalStatus(_message.Message):
    __slots__ = ("healthy", "waiting", "underway", "delivered", "oldest_waiting_time", "last_error", "last_error_time", "last_recall_time")
    HEALTHY_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    UNDERWAY_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_FIELD_NUMBER: _ClassVar[int]
    OLDEST_WAITING_TIME_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_TIME_FIELD_NUMBER: _ClassVar[int]
    LAST_RECALL_TIME_FIELD_NUMBER: _ClassVar[int]
    healthy: bool
    waiting: int
    underway: int
    delivered: int
    oldest_waiting_time: _timestamp_pb2.Timestamp
    last_error: str
    last_error_time: _timestamp_pb2.Timestamp
    last_recall_time: _timestamp_pb2.Timestamp
    def __init__(self, healthy: bool = ..., waiting: _Optional[int] = ..., underway: _Optional[int] = ..., delivered: _Optional[int] = ..., oldest_waiting_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., last_error: _Optional[str] = ..., last_error_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., last_recall_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class FlushRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FlushResponse(_message.Message):
    __slots__ = ("certified_checkpoints", "catalog")
    CERTIFIED_CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    CATALOG_FIELD_NUMBER: _ClassVar[int]
    certified_checkpoints: int
    catalog: _checkpoint_pb2.BlobLocation
    def __init__(self, certified_checkpoints: _Optional[int] = ..., catalog: _Optional[_Union[_checkpoint_pb2.BlobLocation, _Mapping]] = ...) -> None: ...

class ListTrailRequest(_message.Message):
    __slots__ = ("after_batch_id", "page_size")
    AFTER_BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    after_batch_id: str
    page_size: int
    def __init__(self, after_batch_id: _Optional[str] = ..., page_size: _Optional[int] = ...) -> None: ...

class TrailBatch(_message.Message):
    __slots__ = ("batch_id", "content", "create_time", "certified")
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    CERTIFIED_FIELD_NUMBER: _ClassVar[int]
    batch_id: str
    content: bytes
    create_time: _timestamp_pb2.Timestamp
    certified: bool
    def __init__(self, batch_id: _Optional[str] = ..., content: _Optional[bytes] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., certified: bool = ...) -> None: ...

class ListTrailResponse(_message.Message):
    __slots__ = ("batches",)
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    batches: _containers.RepeatedCompositeFieldContainer[TrailBatch]
    def __init__(self, batches: _Optional[_Iterable[_Union[TrailBatch, _Mapping]]] = ...) -> None: ...
