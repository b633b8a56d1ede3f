import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from tuskpoint.v1 import checkpoint_pb2 as _checkpoint_pb2
from tuskpoint.v1 import value_pb2 as _value_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EventKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EVENT_KIND_UNSPECIFIED: _ClassVar[EventKind]
    EVENT_KIND_CHECKPOINT_SAVED: _ClassVar[EventKind]
    EVENT_KIND_WRITES_SAVED: _ClassVar[EventKind]
    EVENT_KIND_LABEL_SET: _ClassVar[EventKind]
    EVENT_KIND_CHECKPOINTS_DELETED: _ClassVar[EventKind]
    EVENT_KIND_THREAD_DELETED: _ClassVar[EventKind]
    EVENT_KIND_RETENTION_SET: _ClassVar[EventKind]
    EVENT_KIND_SEARCHABLE_SET: _ClassVar[EventKind]
    EVENT_KIND_HANDED_OFF: _ClassVar[EventKind]
    EVENT_KIND_RECOVERED: _ClassVar[EventKind]
    EVENT_KIND_CERTIFIED: _ClassVar[EventKind]
    EVENT_KIND_PROGRESS: _ClassVar[EventKind]
    EVENT_KIND_EFFECT_CHANGED: _ClassVar[EventKind]
    EVENT_KIND_LEASE_CHANGED: _ClassVar[EventKind]
EVENT_KIND_UNSPECIFIED: EventKind
EVENT_KIND_CHECKPOINT_SAVED: EventKind
EVENT_KIND_WRITES_SAVED: EventKind
EVENT_KIND_LABEL_SET: EventKind
EVENT_KIND_CHECKPOINTS_DELETED: EventKind
EVENT_KIND_THREAD_DELETED: EventKind
EVENT_KIND_RETENTION_SET: EventKind
EVENT_KIND_SEARCHABLE_SET: EventKind
EVENT_KIND_HANDED_OFF: EventKind
EVENT_KIND_RECOVERED: EventKind
EVENT_KIND_CERTIFIED: EventKind
EVENT_KIND_PROGRESS: EventKind
EVENT_KIND_EFFECT_CHANGED: EventKind
EVENT_KIND_LEASE_CHANGED: EventKind

class ReplayThreadRequest(_message.Message):
    __slots__ = ("thread_id", "checkpoint_ns", "from_checkpoint_id", "to_checkpoint_id", "view", "source")
    THREAD_ID_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_NS_FIELD_NUMBER: _ClassVar[int]
    FROM_CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    TO_CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    thread_id: str
    checkpoint_ns: str
    from_checkpoint_id: str
    to_checkpoint_id: str
    view: _checkpoint_pb2.View
    source: _checkpoint_pb2.Source
    def __init__(self, thread_id: _Optional[str] = ..., checkpoint_ns: _Optional[str] = ..., from_checkpoint_id: _Optional[str] = ..., to_checkpoint_id: _Optional[str] = ..., view: _Optional[_Union[_checkpoint_pb2.View, str]] = ..., source: _Optional[_Union[_checkpoint_pb2.Source, str]] = ...) -> None: ...

class ReplayThreadResponse(_message.Message):
    __slots__ = ("checkpoint", "chunk")
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    checkpoint: _checkpoint_pb2.Checkpoint
    chunk: _value_pb2.ValueChunk
    def __init__(self, checkpoint: _Optional[_Union[_checkpoint_pb2.Checkpoint, _Mapping]] = ..., chunk: _Optional[_Union[_value_pb2.ValueChunk, _Mapping]] = ...) -> None: ...

class WatchThreadRequest(_message.Message):
    __slots__ = ("thread_id", "cursor", "kinds", "view", "progress_interval", "from_now")
    THREAD_ID_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    FROM_NOW_FIELD_NUMBER: _ClassVar[int]
    thread_id: str
    cursor: bytes
    kinds: _containers.RepeatedScalarFieldContainer[EventKind]
    view: _checkpoint_pb2.View
    progress_interval: _duration_pb2.Duration
    from_now: bool
    def __init__(self, thread_id: _Optional[str] = ..., cursor: _Optional[bytes] = ..., kinds: _Optional[_Iterable[_Union[EventKind, str]]] = ..., view: _Optional[_Union[_checkpoint_pb2.View, str]] = ..., progress_interval: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., from_now: bool = ...) -> None: ...

class WatchThreadResponse(_message.Message):
    __slots__ = ("event", "chunk")
    EVENT_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    event: ThreadEvent
    chunk: _value_pb2.ValueChunk
    def __init__(self, event: _Optional[_Union[ThreadEvent, _Mapping]] = ..., chunk: _Optional[_Union[_value_pb2.ValueChunk, _Mapping]] = ...) -> None: ...

class ThreadEvent(_message.Message):
    __slots__ = ("kind", "cursor", "seq", "incarnation", "checkpoint", "deleted_checkpoints", "time")
    KIND_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    DELETED_CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    kind: EventKind
    cursor: bytes
    seq: int
    incarnation: int
    checkpoint: _checkpoint_pb2.Checkpoint
    deleted_checkpoints: int
    time: _timestamp_pb2.Timestamp
    def __init__(self, kind: _Optional[_Union[EventKind, str]] = ..., cursor: _Optional[bytes] = ..., seq: _Optional[int] = ..., incarnation: _Optional[int] = ..., checkpoint: _Optional[_Union[_checkpoint_pb2.Checkpoint, _Mapping]] = ..., deleted_checkpoints: _Optional[int] = ..., time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...
