import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from tuskpoint.v1 import lease_pb2 as _lease_pb2
from tuskpoint.v1 import step_pb2 as _step_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ThreadState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    THREAD_STATE_UNSPECIFIED: _ClassVar[ThreadState]
    THREAD_STATE_IDLE: _ClassVar[ThreadState]
    THREAD_STATE_INTERRUPTED: _ClassVar[ThreadState]
    THREAD_STATE_FAILED: _ClassVar[ThreadState]
THREAD_STATE_UNSPECIFIED: ThreadState
THREAD_STATE_IDLE: ThreadState
THREAD_STATE_INTERRUPTED: ThreadState
THREAD_STATE_FAILED: ThreadState

class NamespaceHead(_message.Message):
    __slots__ = ("checkpoint_ns", "checkpoint_id")
    CHECKPOINT_NS_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    checkpoint_ns: str
    checkpoint_id: str
    def __init__(self, checkpoint_ns: _Optional[str] = ..., checkpoint_id: _Optional[str] = ...) -> None: ...

class Thread(_message.Message):
    __slots__ = ("thread_id", "incarnation", "seq", "agent_id", "state", "checkpoint_count", "head_checkpoint_id", "heads", "uncertified_count", "create_time", "update_time", "expire_time", "retention", "unsearchable", "question", "failure", "summary", "lease")
    THREAD_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_COUNT_FIELD_NUMBER: _ClassVar[int]
    HEAD_CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    HEADS_FIELD_NUMBER: _ClassVar[int]
    UNCERTIFIED_COUNT_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    UPDATE_TIME_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    RETENTION_FIELD_NUMBER: _ClassVar[int]
    UNSEARCHABLE_FIELD_NUMBER: _ClassVar[int]
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    thread_id: str
    incarnation: int
    seq: int
    agent_id: str
    state: ThreadState
    checkpoint_count: int
    head_checkpoint_id: str
    heads: _containers.RepeatedCompositeFieldContainer[NamespaceHead]
    uncertified_count: int
    create_time: _timestamp_pb2.Timestamp
    update_time: _timestamp_pb2.Timestamp
    expire_time: _timestamp_pb2.Timestamp
    retention: _duration_pb2.Duration
    unsearchable: bool
    question: _step_pb2.Question
    failure: _step_pb2.Failure
    summary: str
    lease: _lease_pb2.Lease
    def __init__(self, thread_id: _Optional[str] = ..., incarnation: _Optional[int] = ..., seq: _Optional[int] = ..., agent_id: _Optional[str] = ..., state: _Optional[_Union[ThreadState, str]] = ..., checkpoint_count: _Optional[int] = ..., head_checkpoint_id: _Optional[str] = ..., heads: _Optional[_Iterable[_Union[NamespaceHead, _Mapping]]] = ..., uncertified_count: _Optional[int] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., update_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., expire_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., retention: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., unsearchable: bool = ..., question: _Optional[_Union[_step_pb2.Question, _Mapping]] = ..., failure: _Optional[_Union[_step_pb2.Failure, _Mapping]] = ..., summary: _Optional[str] = ..., lease: _Optional[_Union[_lease_pb2.Lease, _Mapping]] = ...) -> None: ...
