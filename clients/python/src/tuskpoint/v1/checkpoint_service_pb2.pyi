import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from tuskpoint.v1 import checkpoint_pb2 as _checkpoint_pb2
from tuskpoint.v1 import errors_pb2 as _errors_pb2
from tuskpoint.v1 import value_pb2 as _value_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SaveCheckpointRequest(_message.Message):
    __slots__ = ("checkpoint", "writes", "durability", "expected_head", "agent_id", "vector", "searchable", "continue_latest", "raise_id", "restart_deleted", "lease_id")
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    WRITES_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_HEAD_FIELD_NUMBER: _ClassVar[int]
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    VECTOR_FIELD_NUMBER: _ClassVar[int]
    SEARCHABLE_FIELD_NUMBER: _ClassVar[int]
    CONTINUE_LATEST_FIELD_NUMBER: _ClassVar[int]
    RAISE_ID_FIELD_NUMBER: _ClassVar[int]
    RESTART_DELETED_FIELD_NUMBER: _ClassVar[int]
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    checkpoint: _checkpoint_pb2.Checkpoint
    writes: _containers.RepeatedCompositeFieldContainer[_value_pb2.PendingWrite]
    durability: _checkpoint_pb2.Durability
    expected_head: str
    agent_id: str
    vector: _containers.RepeatedScalarFieldContainer[float]
    searchable: bool
    continue_latest: bool
    raise_id: bool
    restart_deleted: bool
    lease_id: str
    def __init__(self, checkpoint: _Optional[_Union[_checkpoint_pb2.Checkpoint, _Mapping]] = ..., writes: _Optional[_Iterable[_Union[_value_pb2.PendingWrite, _Mapping]]] = ..., durability: _Optional[_Union[_checkpoint_pb2.Durability, str]] = ..., expected_head: _Optional[str] = ..., agent_id: _Optional[str] = ..., vector: _Optional[_Iterable[float]] = ..., searchable: bool = ..., continue_latest: bool = ..., raise_id: bool = ..., restart_deleted: bool = ..., lease_id: _Optional[str] = ...) -> None: ...

class SaveCheckpointResponse(_message.Message):
    __slots__ = ("ref", "durability", "seq", "incarnation", "catalog_blob_id", "warnings", "parent_checkpoint_id")
    REF_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    CATALOG_BLOB_ID_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    PARENT_CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    ref: _checkpoint_pb2.CheckpointRef
    durability: _checkpoint_pb2.Durability
    seq: int
    incarnation: int
    catalog_blob_id: str
    warnings: _containers.RepeatedCompositeFieldContainer[_errors_pb2.Warning]
    parent_checkpoint_id: str
    def __init__(self, ref: _Optional[_Union[_checkpoint_pb2.CheckpointRef, _Mapping]] = ..., durability: _Optional[_Union[_checkpoint_pb2.Durability, str]] = ..., seq: _Optional[int] = ..., incarnation: _Optional[int] = ..., catalog_blob_id: _Optional[str] = ..., warnings: _Optional[_Iterable[_Union[_errors_pb2.Warning, _Mapping]]] = ..., parent_checkpoint_id: _Optional[str] = ...) -> None: ...

class ExchangeRequest(_message.Message):
    __slots__ = ("hello", "frames")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    frames: _containers.RepeatedCompositeFieldContainer[Frame]
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., frames: _Optional[_Iterable[_Union[Frame, _Mapping]]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("session", "attempt")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    session: bytes
    attempt: int
    def __init__(self, session: _Optional[bytes] = ..., attempt: _Optional[int] = ...) -> None: ...

class Frame(_message.Message):
    __slots__ = ("id", "timeout", "traceparent", "save", "writes", "get", "chunk")
    ID_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    SAVE_FIELD_NUMBER: _ClassVar[int]
    WRITES_FIELD_NUMBER: _ClassVar[int]
    GET_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    id: int
    timeout: _duration_pb2.Duration
    traceparent: str
    save: SaveCheckpointRequest
    writes: SaveWritesRequest
    get: GetCheckpointRequest
    chunk: _value_pb2.ValueChunk
    def __init__(self, id: _Optional[int] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., traceparent: _Optional[str] = ..., save: _Optional[_Union[SaveCheckpointRequest, _Mapping]] = ..., writes: _Optional[_Union[SaveWritesRequest, _Mapping]] = ..., get: _Optional[_Union[GetCheckpointRequest, _Mapping]] = ..., chunk: _Optional[_Union[_value_pb2.ValueChunk, _Mapping]] = ...) -> None: ...

class ExchangeResponse(_message.Message):
    __slots__ = ("answers", "draining")
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    answers: _containers.RepeatedCompositeFieldContainer[Answer]
    draining: bool
    def __init__(self, answers: _Optional[_Iterable[_Union[Answer, _Mapping]]] = ..., draining: bool = ...) -> None: ...

class Answer(_message.Message):
    __slots__ = ("id", "last", "saved", "written", "got", "error")
    ID_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    SAVED_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_FIELD_NUMBER: _ClassVar[int]
    GOT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    id: int
    last: bool
    saved: SaveCheckpointResponse
    written: SaveWritesResponse
    got: GetCheckpointResponse
    error: _errors_pb2.CallError
    def __init__(self, id: _Optional[int] = ..., last: bool = ..., saved: _Optional[_Union[SaveCheckpointResponse, _Mapping]] = ..., written: _Optional[_Union[SaveWritesResponse, _Mapping]] = ..., got: _Optional[_Union[GetCheckpointResponse, _Mapping]] = ..., error: _Optional[_Union[_errors_pb2.CallError, _Mapping]] = ...) -> None: ...

class SaveWritesRequest(_message.Message):
    __slots__ = ("ref", "writes", "durability", "lease_id")
    REF_FIELD_NUMBER: _ClassVar[int]
    WRITES_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    ref: _checkpoint_pb2.CheckpointRef
    writes: _containers.RepeatedCompositeFieldContainer[_value_pb2.PendingWrite]
    durability: _checkpoint_pb2.Durability
    lease_id: str
    def __init__(self, ref: _Optional[_Union[_checkpoint_pb2.CheckpointRef, _Mapping]] = ..., writes: _Optional[_Iterable[_Union[_value_pb2.PendingWrite, _Mapping]]] = ..., durability: _Optional[_Union[_checkpoint_pb2.Durability, str]] = ..., lease_id: _Optional[str] = ...) -> None: ...

class SaveWritesResponse(_message.Message):
    __slots__ = ("durability", "seq", "early", "catalog_blob_id", "warnings")
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    EARLY_FIELD_NUMBER: _ClassVar[int]
    CATALOG_BLOB_ID_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    durability: _checkpoint_pb2.Durability
    seq: int
    early: bool
    catalog_blob_id: str
    warnings: _containers.RepeatedCompositeFieldContainer[_errors_pb2.Warning]
    def __init__(self, durability: _Optional[_Union[_checkpoint_pb2.Durability, str]] = ..., seq: _Optional[int] = ..., early: bool = ..., catalog_blob_id: _Optional[str] = ..., warnings: _Optional[_Iterable[_Union[_errors_pb2.Warning, _Mapping]]] = ...) -> None: ...

class GetCheckpointRequest(_message.Message):
    __slots__ = ("ref", "view", "source", "held_digests")
    REF_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    HELD_DIGESTS_FIELD_NUMBER: _ClassVar[int]
    ref: _checkpoint_pb2.CheckpointRef
    view: _checkpoint_pb2.View
    source: _checkpoint_pb2.Source
    held_digests: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, ref: _Optional[_Union[_checkpoint_pb2.CheckpointRef, _Mapping]] = ..., view: _Optional[_Union[_checkpoint_pb2.View, str]] = ..., source: _Optional[_Union[_checkpoint_pb2.Source, str]] = ..., held_digests: _Optional[_Iterable[bytes]] = ...) -> None: ...

class GetCheckpointResponse(_message.Message):
    __slots__ = ("checkpoint",)
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    checkpoint: _checkpoint_pb2.Checkpoint
    def __init__(self, checkpoint: _Optional[_Union[_checkpoint_pb2.Checkpoint, _Mapping]] = ...) -> None: ...

class LoadCheckpointRequest(_message.Message):
    __slots__ = ("ref", "view", "source", "held_digests")
    REF_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    HELD_DIGESTS_FIELD_NUMBER: _ClassVar[int]
    ref: _checkpoint_pb2.CheckpointRef
    view: _checkpoint_pb2.View
    source: _checkpoint_pb2.Source
    held_digests: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, ref: _Optional[_Union[_checkpoint_pb2.CheckpointRef, _Mapping]] = ..., view: _Optional[_Union[_checkpoint_pb2.View, str]] = ..., source: _Optional[_Union[_checkpoint_pb2.Source, str]] = ..., held_digests: _Optional[_Iterable[bytes]] = ...) -> None: ...

class LoadCheckpointResponse(_message.Message):
    __slots__ = ("checkpoint", "chunk")
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    checkpoint: _checkpoint_pb2.Checkpoint
    chunk: _value_pb2.ValueChunk
    def __init__(self, checkpoint: _Optional[_Union[_checkpoint_pb2.Checkpoint, _Mapping]] = ..., chunk: _Optional[_Union[_value_pb2.ValueChunk, _Mapping]] = ...) -> None: ...

class ListCheckpointsRequest(_message.Message):
    __slots__ = ("thread_id", "checkpoint_ns", "checkpoint_id", "before", "filter_json", "label", "limit", "view", "source")
    THREAD_ID_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_NS_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    FILTER_JSON_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str
    before: str
    filter_json: bytes
    label: str
    limit: int
    view: _checkpoint_pb2.View
    source: _checkpoint_pb2.Source
    def __init__(self, thread_id: _Optional[str] = ..., checkpoint_ns: _Optional[str] = ..., checkpoint_id: _Optional[str] = ..., before: _Optional[str] = ..., filter_json: _Optional[bytes] = ..., label: _Optional[str] = ..., limit: _Optional[int] = ..., view: _Optional[_Union[_checkpoint_pb2.View, str]] = ..., source: _Optional[_Union[_checkpoint_pb2.Source, str]] = ...) -> None: ...

class ListCheckpointsResponse(_message.Message):
    __slots__ = ("checkpoint", "chunk")
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    checkpoint: _checkpoint_pb2.Checkpoint
    chunk: _value_pb2.ValueChunk
    def __init__(self, checkpoint: _Optional[_Union[_checkpoint_pb2.Checkpoint, _Mapping]] = ..., chunk: _Optional[_Union[_value_pb2.ValueChunk, _Mapping]] = ...) -> None: ...

class GetDeltaHistoryRequest(_message.Message):
    __slots__ = ("ref", "channels")
    REF_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    ref: _checkpoint_pb2.CheckpointRef
    channels: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, ref: _Optional[_Union[_checkpoint_pb2.CheckpointRef, _Mapping]] = ..., channels: _Optional[_Iterable[str]] = ...) -> None: ...

class DeltaChannelHistory(_message.Message):
    __slots__ = ("channel", "seed", "writes")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    WRITES_FIELD_NUMBER: _ClassVar[int]
    channel: str
    seed: _value_pb2.Channel
    writes: _containers.RepeatedCompositeFieldContainer[_value_pb2.PendingWrite]
    def __init__(self, channel: _Optional[str] = ..., seed: _Optional[_Union[_value_pb2.Channel, _Mapping]] = ..., writes: _Optional[_Iterable[_Union[_value_pb2.PendingWrite, _Mapping]]] = ...) -> None: ...

class GetDeltaHistoryResponse(_message.Message):
    __slots__ = ("history", "chunk")
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    history: DeltaChannelHistory
    chunk: _value_pb2.ValueChunk
    def __init__(self, history: _Optional[_Union[DeltaChannelHistory, _Mapping]] = ..., chunk: _Optional[_Union[_value_pb2.ValueChunk, _Mapping]] = ...) -> None: ...

class SetLabelRequest(_message.Message):
    __slots__ = ("ref", "label", "durability")
    REF_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    ref: _checkpoint_pb2.CheckpointRef
    label: str
    durability: _checkpoint_pb2.Durability
    def __init__(self, ref: _Optional[_Union[_checkpoint_pb2.CheckpointRef, _Mapping]] = ..., label: _Optional[str] = ..., durability: _Optional[_Union[_checkpoint_pb2.Durability, str]] = ...) -> None: ...

class SetLabelResponse(_message.Message):
    __slots__ = ("ref", "seq", "durability")
    REF_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    ref: _checkpoint_pb2.CheckpointRef
    seq: int
    durability: _checkpoint_pb2.Durability
    def __init__(self, ref: _Optional[_Union[_checkpoint_pb2.CheckpointRef, _Mapping]] = ..., seq: _Optional[int] = ..., durability: _Optional[_Union[_checkpoint_pb2.Durability, str]] = ...) -> None: ...
