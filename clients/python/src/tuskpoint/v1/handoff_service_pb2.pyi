from tuskpoint.v1 import checkpoint_pb2 as _checkpoint_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AdoptStage(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ADOPT_STAGE_UNSPECIFIED: _ClassVar[AdoptStage]
    ADOPT_STAGE_FETCHING: _ClassVar[AdoptStage]
    ADOPT_STAGE_FETCHED: _ClassVar[AdoptStage]
    ADOPT_STAGE_VERIFIED: _ClassVar[AdoptStage]
    ADOPT_STAGE_ADOPTED: _ClassVar[AdoptStage]
ADOPT_STAGE_UNSPECIFIED: AdoptStage
ADOPT_STAGE_FETCHING: AdoptStage
ADOPT_STAGE_FETCHED: AdoptStage
ADOPT_STAGE_VERIFIED: AdoptStage
ADOPT_STAGE_ADOPTED: AdoptStage

class HandoffDescriptor(_message.Message):
    __slots__ = ("source", "thread_id", "checkpoint_id", "blob_id", "blob_sha256", "to_agent", "summary", "key", "signer", "signature", "sealed_key")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    THREAD_ID_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    BLOB_ID_FIELD_NUMBER: _ClassVar[int]
    BLOB_SHA256_FIELD_NUMBER: _ClassVar[int]
    TO_AGENT_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    SIGNER_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    SEALED_KEY_FIELD_NUMBER: _ClassVar[int]
    source: str
    thread_id: str
    checkpoint_id: str
    blob_id: str
    blob_sha256: str
    to_agent: str
    summary: str
    key: str
    signer: str
    signature: str
    sealed_key: str
    def __init__(self, source: _Optional[str] = ..., thread_id: _Optional[str] = ..., checkpoint_id: _Optional[str] = ..., blob_id: _Optional[str] = ..., blob_sha256: _Optional[str] = ..., to_agent: _Optional[str] = ..., summary: _Optional[str] = ..., key: _Optional[str] = ..., signer: _Optional[str] = ..., signature: _Optional[str] = ..., sealed_key: _Optional[str] = ...) -> None: ...

class CreateHandoffRequest(_message.Message):
    __slots__ = ("ref", "to_agent", "request_id", "include_key", "recipient")
    REF_FIELD_NUMBER: _ClassVar[int]
    TO_AGENT_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_KEY_FIELD_NUMBER: _ClassVar[int]
    RECIPIENT_FIELD_NUMBER: _ClassVar[int]
    ref: _checkpoint_pb2.CheckpointRef
    to_agent: str
    request_id: str
    include_key: bool
    recipient: str
    def __init__(self, ref: _Optional[_Union[_checkpoint_pb2.CheckpointRef, _Mapping]] = ..., to_agent: _Optional[str] = ..., request_id: _Optional[str] = ..., include_key: bool = ..., recipient: _Optional[str] = ...) -> None: ...

class CreateHandoffResponse(_message.Message):
    __slots__ = ("descriptor",)
    DESCRIPTOR_FIELD_NUMBER: _ClassVar[int]
    descriptor: HandoffDescriptor
    def __init__(self, descriptor: _Optional[_Union[HandoffDescriptor, _Mapping]] = ...) -> None: ...

class AdoptHandoffRequest(_message.Message):
    __slots__ = ("descriptor", "new_thread_id", "request_id", "required_signers", "durability")
    DESCRIPTOR_FIELD_NUMBER: _ClassVar[int]
    NEW_THREAD_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    REQUIRED_SIGNERS_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    descriptor: HandoffDescriptor
    new_thread_id: str
    request_id: str
    required_signers: _containers.RepeatedScalarFieldContainer[str]
    durability: _checkpoint_pb2.Durability
    def __init__(self, descriptor: _Optional[_Union[HandoffDescriptor, _Mapping]] = ..., new_thread_id: _Optional[str] = ..., request_id: _Optional[str] = ..., required_signers: _Optional[_Iterable[str]] = ..., durability: _Optional[_Union[_checkpoint_pb2.Durability, str]] = ...) -> None: ...

class Adoption(_message.Message):
    __slots__ = ("adopted_from", "new_thread_id", "checkpoint_id", "blob_id", "verified", "signer")
    ADOPTED_FROM_FIELD_NUMBER: _ClassVar[int]
    NEW_THREAD_ID_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    BLOB_ID_FIELD_NUMBER: _ClassVar[int]
    VERIFIED_FIELD_NUMBER: _ClassVar[int]
    SIGNER_FIELD_NUMBER: _ClassVar[int]
    adopted_from: str
    new_thread_id: str
    checkpoint_id: str
    blob_id: str
    verified: bool
    signer: str
    def __init__(self, adopted_from: _Optional[str] = ..., new_thread_id: _Optional[str] = ..., checkpoint_id: _Optional[str] = ..., blob_id: _Optional[str] = ..., verified: bool = ..., signer: _Optional[str] = ...) -> None: ...

class AdoptHandoffResponse(_message.Message):
    __slots__ = ("stage", "fetched_bytes", "adoption", "durability")
    STAGE_FIELD_NUMBER: _ClassVar[int]
    FETCHED_BYTES_FIELD_NUMBER: _ClassVar[int]
    ADOPTION_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    stage: AdoptStage
    fetched_bytes: int
    adoption: Adoption
    durability: _checkpoint_pb2.Durability
    def __init__(self, stage: _Optional[_Union[AdoptStage, str]] = ..., fetched_bytes: _Optional[int] = ..., adoption: _Optional[_Union[Adoption, _Mapping]] = ..., durability: _Optional[_Union[_checkpoint_pb2.Durability, str]] = ...) -> None: ...
