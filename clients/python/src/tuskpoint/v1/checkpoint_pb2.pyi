import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from tuskpoint.v1 import step_pb2 as _step_pb2
from tuskpoint.v1 import value_pb2 as _value_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Durability(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DURABILITY_UNSPECIFIED: _ClassVar[Durability]
    DURABILITY_JOURNALED: _ClassVar[Durability]
    DURABILITY_CERTIFIED: _ClassVar[Durability]

class View(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VIEW_UNSPECIFIED: _ClassVar[View]
    VIEW_ENTRY: _ClassVar[View]
    VIEW_FULL: _ClassVar[View]
    VIEW_JSON: _ClassVar[View]
    VIEW_STEP: _ClassVar[View]

class Source(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SOURCE_UNSPECIFIED: _ClassVar[Source]
    SOURCE_ANY: _ClassVar[Source]
    SOURCE_BLOB: _ClassVar[Source]
DURABILITY_UNSPECIFIED: Durability
DURABILITY_JOURNALED: Durability
DURABILITY_CERTIFIED: Durability
VIEW_UNSPECIFIED: View
VIEW_ENTRY: View
VIEW_FULL: View
VIEW_JSON: View
VIEW_STEP: View
SOURCE_UNSPECIFIED: Source
SOURCE_ANY: Source
SOURCE_BLOB: Source

class CheckpointRef(_message.Message):
    __slots__ = ("thread_id", "checkpoint_ns", "checkpoint_id")
    THREAD_ID_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_NS_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str
    def __init__(self, thread_id: _Optional[str] = ..., checkpoint_ns: _Optional[str] = ..., checkpoint_id: _Optional[str] = ...) -> None: ...

class VersionsSeen(_message.Message):
    __slots__ = ("channels",)
    class ChannelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _value_pb2.Version
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_value_pb2.Version, _Mapping]] = ...) -> None: ...
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    channels: _containers.MessageMap[str, _value_pb2.Version]
    def __init__(self, channels: _Optional[_Mapping[str, _value_pb2.Version]] = ...) -> None: ...

class ChannelNames(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, names: _Optional[_Iterable[str]] = ...) -> None: ...

class CheckpointState(_message.Message):
    __slots__ = ("schema_version", "ts", "channels", "versions_seen", "updated_channels", "delta_channels", "extras")
    class VersionsSeenEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: VersionsSeen
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[VersionsSeen, _Mapping]] = ...) -> None: ...
    class ExtrasEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _value_pb2.Value
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_value_pb2.Value, _Mapping]] = ...) -> None: ...
    SCHEMA_VERSION_FIELD_NUMBER: _ClassVar[int]
    TS_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_SEEN_FIELD_NUMBER: _ClassVar[int]
    UPDATED_CHANNELS_FIELD_NUMBER: _ClassVar[int]
    DELTA_CHANNELS_FIELD_NUMBER: _ClassVar[int]
    EXTRAS_FIELD_NUMBER: _ClassVar[int]
    schema_version: int
    ts: str
    channels: _containers.RepeatedCompositeFieldContainer[_value_pb2.Channel]
    versions_seen: _containers.MessageMap[str, VersionsSeen]
    updated_channels: ChannelNames
    delta_channels: _containers.RepeatedScalarFieldContainer[str]
    extras: _containers.MessageMap[str, _value_pb2.Value]
    def __init__(self, schema_version: _Optional[int] = ..., ts: _Optional[str] = ..., channels: _Optional[_Iterable[_Union[_value_pb2.Channel, _Mapping]]] = ..., versions_seen: _Optional[_Mapping[str, VersionsSeen]] = ..., updated_channels: _Optional[_Union[ChannelNames, _Mapping]] = ..., delta_channels: _Optional[_Iterable[str]] = ..., extras: _Optional[_Mapping[str, _value_pb2.Value]] = ...) -> None: ...

class BlobLocation(_message.Message):
    __slots__ = ("blob_id", "identifier", "sha256", "size_bytes")
    BLOB_ID_FIELD_NUMBER: _ClassVar[int]
    IDENTIFIER_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    blob_id: str
    identifier: str
    sha256: bytes
    size_bytes: int
    def __init__(self, blob_id: _Optional[str] = ..., identifier: _Optional[str] = ..., sha256: _Optional[bytes] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class Lineage(_message.Message):
    __slots__ = ("forked_from", "rolled_back_from", "adopted_from")
    FORKED_FROM_FIELD_NUMBER: _ClassVar[int]
    ROLLED_BACK_FROM_FIELD_NUMBER: _ClassVar[int]
    ADOPTED_FROM_FIELD_NUMBER: _ClassVar[int]
    forked_from: str
    rolled_back_from: str
    adopted_from: str
    def __init__(self, forked_from: _Optional[str] = ..., rolled_back_from: _Optional[str] = ..., adopted_from: _Optional[str] = ...) -> None: ...

class Checkpoint(_message.Message):
    __slots__ = ("ref", "parent_checkpoint_id", "state", "metadata_json", "label", "summary", "lineage", "writes", "seq", "durability", "location", "create_time", "agent_id", "step")
    REF_FIELD_NUMBER: _ClassVar[int]
    PARENT_CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    METADATA_JSON_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    WRITES_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    LOCATION_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    ref: CheckpointRef
    parent_checkpoint_id: str
    state: CheckpointState
    metadata_json: bytes
    label: str
    summary: str
    lineage: Lineage
    writes: _containers.RepeatedCompositeFieldContainer[_value_pb2.PendingWrite]
    seq: int
    durability: Durability
    location: BlobLocation
    create_time: _timestamp_pb2.Timestamp
    agent_id: str
    step: _step_pb2.Step
    def __init__(self, ref: _Optional[_Union[CheckpointRef, _Mapping]] = ..., parent_checkpoint_id: _Optional[str] = ..., state: _Optional[_Union[CheckpointState, _Mapping]] = ..., metadata_json: _Optional[bytes] = ..., label: _Optional[str] = ..., summary: _Optional[str] = ..., lineage: _Optional[_Union[Lineage, _Mapping]] = ..., writes: _Optional[_Iterable[_Union[_value_pb2.PendingWrite, _Mapping]]] = ..., seq: _Optional[int] = ..., durability: _Optional[_Union[Durability, str]] = ..., location: _Optional[_Union[BlobLocation, _Mapping]] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., agent_id: _Optional[str] = ..., step: _Optional[_Union[_step_pb2.Step, _Mapping]] = ...) -> None: ...
