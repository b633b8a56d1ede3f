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
    __slots__ = ("checkpoint_ns", "checkpoint_id", "parent_checkpoint_id", "revision", "envelope", "addenda", "summary", "label", "lineage", "create_time")
    CHECKPOINT_NS_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    PARENT_CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    ENVELOPE_FIELD_NUMBER: _ClassVar[int]
    ADDENDA_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    checkpoint_ns: str
    checkpoint_id: str
    parent_checkpoint_id: str
    revision: int
    envelope: _checkpoint_pb2.BlobLocation
    addenda: _containers.RepeatedCompositeFieldContainer[_checkpoint_pb2.BlobLocation]
    summary: str
    label: str
    lineage: _checkpoint_pb2.Lineage
    create_time: _timestamp_pb2.Timestamp
    def __init__(self, checkpoint_ns: _Optional[str] = ..., checkpoint_id: _Optional[str] = ..., parent_checkpoint_id: _Optional[str] = ..., revision: _Optional[int] = ..., envelope: _Optional[_Union[_checkpoint_pb2.BlobLocation, _Mapping]] = ..., addenda: _Optional[_Iterable[_Union[_checkpoint_pb2.BlobLocation, _Mapping]]] = ..., summary: _Optional[str] = ..., label: _Optional[str] = ..., lineage: _Optional[_Union[_checkpoint_pb2.Lineage, _Mapping]] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ManifestHead(_message.Message):
    __slots__ = ("location", "segment", "generation", "records")
    LOCATION_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    location: _checkpoint_pb2.BlobLocation
    segment: int
    generation: int
    records: int
    def __init__(self, location: _Optional[_Union[_checkpoint_pb2.BlobLocation, _Mapping]] = ..., segment: _Optional[int] = ..., generation: _Optional[int] = ..., records: _Optional[int] = ...) -> None: ...
