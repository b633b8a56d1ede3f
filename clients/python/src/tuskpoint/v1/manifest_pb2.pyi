import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from tuskpoint.v1 import checkpoint_pb2 as _checkpoint_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ManifestEntry(_message.Message):
    __slots__ = ("checkpoint_ns", "checkpoint_id", "parent_checkpoint_id", "seq", "segment", "state_sha256", "writes", "summary", "label", "lineage", "create_time")
    CHECKPOINT_NS_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    PARENT_CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    STATE_SHA256_FIELD_NUMBER: _ClassVar[int]
    WRITES_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    checkpoint_ns: str
    checkpoint_id: str
    parent_checkpoint_id: str
    seq: int
    segment: _checkpoint_pb2.BlobLocation
    state_sha256: bytes
    writes: _containers.RepeatedCompositeFieldContainer[_checkpoint_pb2.BlobLocation]
    summary: str
    label: str
    lineage: _checkpoint_pb2.Lineage
    create_time: _timestamp_pb2.Timestamp
    def __init__(self, checkpoint_ns: _Optional[str] = ..., checkpoint_id: _Optional[str] = ..., parent_checkpoint_id: _Optional[str] = ..., seq: _Optional[int] = ..., segment: _Optional[_Union[_checkpoint_pb2.BlobLocation, _Mapping]] = ..., state_sha256: _Optional[bytes] = ..., writes: _Optional[_Iterable[_Union[_checkpoint_pb2.BlobLocation, _Mapping]]] = ..., summary: _Optional[str] = ..., label: _Optional[str] = ..., lineage: _Optional[_Union[_checkpoint_pb2.Lineage, _Mapping]] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...
