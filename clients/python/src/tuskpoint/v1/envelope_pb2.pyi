import datetime

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

class EnvelopeKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ENVELOPE_KIND_UNSPECIFIED: _ClassVar[EnvelopeKind]
    ENVELOPE_KIND_FULL: _ClassVar[EnvelopeKind]
    ENVELOPE_KIND_ADDENDUM: _ClassVar[EnvelopeKind]
ENVELOPE_KIND_UNSPECIFIED: EnvelopeKind
ENVELOPE_KIND_FULL: EnvelopeKind
ENVELOPE_KIND_ADDENDUM: EnvelopeKind

class CheckpointEnvelope(_message.Message):
    __slots__ = ("format_version", "kind", "ref", "parent_checkpoint_id", "revision", "state", "metadata_json", "label", "summary", "lineage", "writes", "create_time", "full_sha256")
    FORMAT_VERSION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    PARENT_CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    METADATA_JSON_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    WRITES_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    FULL_SHA256_FIELD_NUMBER: _ClassVar[int]
    format_version: int
    kind: EnvelopeKind
    ref: _checkpoint_pb2.CheckpointRef
    parent_checkpoint_id: str
    revision: int
    state: _checkpoint_pb2.CheckpointState
    metadata_json: bytes
    label: str
    summary: str
    lineage: _checkpoint_pb2.Lineage
    writes: _containers.RepeatedCompositeFieldContainer[_value_pb2.PendingWrite]
    create_time: _timestamp_pb2.Timestamp
    full_sha256: bytes
    def __init__(self, format_version: _Optional[int] = ..., kind: _Optional[_Union[EnvelopeKind, str]] = ..., ref: _Optional[_Union[_checkpoint_pb2.CheckpointRef, _Mapping]] = ..., parent_checkpoint_id: _Optional[str] = ..., revision: _Optional[int] = ..., state: _Optional[_Union[_checkpoint_pb2.CheckpointState, _Mapping]] = ..., metadata_json: _Optional[bytes] = ..., label: _Optional[str] = ..., summary: _Optional[str] = ..., lineage: _Optional[_Union[_checkpoint_pb2.Lineage, _Mapping]] = ..., writes: _Optional[_Iterable[_Union[_value_pb2.PendingWrite, _Mapping]]] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., full_sha256: _Optional[bytes] = ...) -> None: ...
