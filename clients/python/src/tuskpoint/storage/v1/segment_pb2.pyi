from tuskpoint.v1 import checkpoint_pb2 as _checkpoint_pb2
from tuskpoint.v1 import value_pb2 as _value_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Sealing(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SEALING_UNSPECIFIED: _ClassVar[Sealing]
    SEALING_NONE: _ClassVar[Sealing]

class ValueEncoding(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VALUE_ENCODING_UNSPECIFIED: _ClassVar[ValueEncoding]
    VALUE_ENCODING_ZSTD: _ClassVar[ValueEncoding]
    VALUE_ENCODING_PATCH: _ClassVar[ValueEncoding]
SEALING_UNSPECIFIED: Sealing
SEALING_NONE: Sealing
VALUE_ENCODING_UNSPECIFIED: ValueEncoding
VALUE_ENCODING_ZSTD: ValueEncoding
VALUE_ENCODING_PATCH: ValueEncoding

class SegmentHeader(_message.Message):
    __slots__ = ("format_version", "sealing")
    FORMAT_VERSION_FIELD_NUMBER: _ClassVar[int]
    SEALING_FIELD_NUMBER: _ClassVar[int]
    format_version: int
    sealing: Sealing
    def __init__(self, format_version: _Optional[int] = ..., sealing: _Optional[_Union[Sealing, str]] = ...) -> None: ...

class ThreadSegment(_message.Message):
    __slots__ = ("thread_id", "incarnation", "generation", "first_seq", "last_seq", "checkpoints", "writes", "values", "members", "handoff")
    THREAD_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQ_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQ_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    WRITES_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    HANDOFF_FIELD_NUMBER: _ClassVar[int]
    thread_id: str
    incarnation: int
    generation: int
    first_seq: int
    last_seq: int
    checkpoints: _containers.RepeatedCompositeFieldContainer[SegmentCheckpoint]
    writes: _containers.RepeatedCompositeFieldContainer[SegmentWrite]
    values: _containers.RepeatedCompositeFieldContainer[SegmentValue]
    members: _containers.RepeatedCompositeFieldContainer[SegmentMember]
    handoff: SegmentHandoff
    def __init__(self, thread_id: _Optional[str] = ..., incarnation: _Optional[int] = ..., generation: _Optional[int] = ..., first_seq: _Optional[int] = ..., last_seq: _Optional[int] = ..., checkpoints: _Optional[_Iterable[_Union[SegmentCheckpoint, _Mapping]]] = ..., writes: _Optional[_Iterable[_Union[SegmentWrite, _Mapping]]] = ..., values: _Optional[_Iterable[_Union[SegmentValue, _Mapping]]] = ..., members: _Optional[_Iterable[_Union[SegmentMember, _Mapping]]] = ..., handoff: _Optional[_Union[SegmentHandoff, _Mapping]] = ...) -> None: ...

class SegmentCheckpoint(_message.Message):
    __slots__ = ("checkpoint_ns", "checkpoint_id", "seq", "parent_checkpoint_id", "state", "metadata_json", "delta_base", "label", "summary", "lineage", "create_time_us")
    CHECKPOINT_NS_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    PARENT_CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    METADATA_JSON_FIELD_NUMBER: _ClassVar[int]
    DELTA_BASE_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_US_FIELD_NUMBER: _ClassVar[int]
    checkpoint_ns: str
    checkpoint_id: str
    seq: int
    parent_checkpoint_id: str
    state: bytes
    metadata_json: bytes
    delta_base: DeltaBase
    label: str
    summary: str
    lineage: _checkpoint_pb2.Lineage
    create_time_us: int
    def __init__(self, checkpoint_ns: _Optional[str] = ..., checkpoint_id: _Optional[str] = ..., seq: _Optional[int] = ..., parent_checkpoint_id: _Optional[str] = ..., state: _Optional[bytes] = ..., metadata_json: _Optional[bytes] = ..., delta_base: _Optional[_Union[DeltaBase, _Mapping]] = ..., label: _Optional[str] = ..., summary: _Optional[str] = ..., lineage: _Optional[_Union[_checkpoint_pb2.Lineage, _Mapping]] = ..., create_time_us: _Optional[int] = ...) -> None: ...

class SegmentWrite(_message.Message):
    __slots__ = ("checkpoint_ns", "checkpoint_id", "seq", "task_id", "idx", "task_path", "channel", "type", "digest", "size_bytes", "encoding", "data")
    CHECKPOINT_NS_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    IDX_FIELD_NUMBER: _ClassVar[int]
    TASK_PATH_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    checkpoint_ns: str
    checkpoint_id: str
    seq: int
    task_id: str
    idx: int
    task_path: str
    channel: str
    type: str
    digest: bytes
    size_bytes: int
    encoding: ValueEncoding
    data: bytes
    def __init__(self, checkpoint_ns: _Optional[str] = ..., checkpoint_id: _Optional[str] = ..., seq: _Optional[int] = ..., task_id: _Optional[str] = ..., idx: _Optional[int] = ..., task_path: _Optional[str] = ..., channel: _Optional[str] = ..., type: _Optional[str] = ..., digest: _Optional[bytes] = ..., size_bytes: _Optional[int] = ..., encoding: _Optional[_Union[ValueEncoding, str]] = ..., data: _Optional[bytes] = ...) -> None: ...

class SegmentValue(_message.Message):
    __slots__ = ("digest", "type", "size_bytes", "encoding", "data", "keyframe")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    KEYFRAME_FIELD_NUMBER: _ClassVar[int]
    digest: bytes
    type: str
    size_bytes: int
    encoding: ValueEncoding
    data: bytes
    keyframe: bytes
    def __init__(self, digest: _Optional[bytes] = ..., type: _Optional[str] = ..., size_bytes: _Optional[int] = ..., encoding: _Optional[_Union[ValueEncoding, str]] = ..., data: _Optional[bytes] = ..., keyframe: _Optional[bytes] = ...) -> None: ...

class SegmentMember(_message.Message):
    __slots__ = ("location", "digests", "key")
    LOCATION_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    location: _checkpoint_pb2.BlobLocation
    digests: bytes
    key: bytes
    def __init__(self, location: _Optional[_Union[_checkpoint_pb2.BlobLocation, _Mapping]] = ..., digests: _Optional[bytes] = ..., key: _Optional[bytes] = ...) -> None: ...

class SegmentHandoff(_message.Message):
    __slots__ = ("checkpoint_ns", "checkpoint_id")
    CHECKPOINT_NS_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    checkpoint_ns: str
    checkpoint_id: str
    def __init__(self, checkpoint_ns: _Optional[str] = ..., checkpoint_id: _Optional[str] = ...) -> None: ...

class DeltaBase(_message.Message):
    __slots__ = ("channels",)
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    channels: _containers.RepeatedCompositeFieldContainer[DeltaChannel]
    def __init__(self, channels: _Optional[_Iterable[_Union[DeltaChannel, _Mapping]]] = ...) -> None: ...

class DeltaChannel(_message.Message):
    __slots__ = ("name", "seed", "writes", "ancestor_checkpoint_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    WRITES_FIELD_NUMBER: _ClassVar[int]
    ANCESTOR_CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    seed: DeltaSeed
    writes: _containers.RepeatedCompositeFieldContainer[DeltaWrite]
    ancestor_checkpoint_id: str
    def __init__(self, name: _Optional[str] = ..., seed: _Optional[_Union[DeltaSeed, _Mapping]] = ..., writes: _Optional[_Iterable[_Union[DeltaWrite, _Mapping]]] = ..., ancestor_checkpoint_id: _Optional[str] = ...) -> None: ...

class DeltaSeed(_message.Message):
    __slots__ = ("version", "digest", "size_bytes")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    version: _value_pb2.Version
    digest: bytes
    size_bytes: int
    def __init__(self, version: _Optional[_Union[_value_pb2.Version, _Mapping]] = ..., digest: _Optional[bytes] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class DeltaWrite(_message.Message):
    __slots__ = ("task_path", "task_id", "idx", "digest", "type", "size_bytes")
    TASK_PATH_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    IDX_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    task_path: str
    task_id: str
    idx: int
    digest: bytes
    type: str
    size_bytes: int
    def __init__(self, task_path: _Optional[str] = ..., task_id: _Optional[str] = ..., idx: _Optional[int] = ..., digest: _Optional[bytes] = ..., type: _Optional[str] = ..., size_bytes: _Optional[int] = ...) -> None: ...
