from tuskpoint.v1 import checkpoint_pb2 as _checkpoint_pb2
from tuskpoint.v1 import envelope_pb2 as _envelope_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class HandoffBundle(_message.Message):
    __slots__ = ("format_version", "ref", "checkpoints")
    FORMAT_VERSION_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    format_version: int
    ref: _checkpoint_pb2.CheckpointRef
    checkpoints: _containers.RepeatedCompositeFieldContainer[BundledCheckpoint]
    def __init__(self, format_version: _Optional[int] = ..., ref: _Optional[_Union[_checkpoint_pb2.CheckpointRef, _Mapping]] = ..., checkpoints: _Optional[_Iterable[_Union[BundledCheckpoint, _Mapping]]] = ...) -> None: ...

class BundledCheckpoint(_message.Message):
    __slots__ = ("envelope", "hidden")
    ENVELOPE_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_FIELD_NUMBER: _ClassVar[int]
    envelope: _envelope_pb2.CheckpointEnvelope
    hidden: bool
    def __init__(self, envelope: _Optional[_Union[_envelope_pb2.CheckpointEnvelope, _Mapping]] = ..., hidden: bool = ...) -> None: ...
