import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from tuskpoint.v1 import checkpoint_pb2 as _checkpoint_pb2
from tuskpoint.v1 import errors_pb2 as _errors_pb2
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

class HandoffState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    HANDOFF_STATE_UNSPECIFIED: _ClassVar[HandoffState]
    HANDOFF_STATE_OFFERED: _ClassVar[HandoffState]
    HANDOFF_STATE_ADOPTED: _ClassVar[HandoffState]
    HANDOFF_STATE_WITHDRAWN: _ClassVar[HandoffState]
    HANDOFF_STATE_EXPIRED: _ClassVar[HandoffState]
ADOPT_STAGE_UNSPECIFIED: AdoptStage
ADOPT_STAGE_FETCHING: AdoptStage
ADOPT_STAGE_FETCHED: AdoptStage
ADOPT_STAGE_VERIFIED: AdoptStage
ADOPT_STAGE_ADOPTED: AdoptStage
HANDOFF_STATE_UNSPECIFIED: HandoffState
HANDOFF_STATE_OFFERED: HandoffState
HANDOFF_STATE_ADOPTED: HandoffState
HANDOFF_STATE_WITHDRAWN: HandoffState
HANDOFF_STATE_EXPIRED: HandoffState

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
    __slots__ = ("ref", "to_agent", "request_id", "include_key", "recipient", "expires_in")
    REF_FIELD_NUMBER: _ClassVar[int]
    TO_AGENT_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_KEY_FIELD_NUMBER: _ClassVar[int]
    RECIPIENT_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_IN_FIELD_NUMBER: _ClassVar[int]
    ref: _checkpoint_pb2.CheckpointRef
    to_agent: str
    request_id: str
    include_key: bool
    recipient: str
    expires_in: _duration_pb2.Duration
    def __init__(self, ref: _Optional[_Union[_checkpoint_pb2.CheckpointRef, _Mapping]] = ..., to_agent: _Optional[str] = ..., request_id: _Optional[str] = ..., include_key: bool = ..., recipient: _Optional[str] = ..., expires_in: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class CreateHandoffResponse(_message.Message):
    __slots__ = ("descriptor", "handoff_id", "warnings")
    DESCRIPTOR_FIELD_NUMBER: _ClassVar[int]
    HANDOFF_ID_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    descriptor: HandoffDescriptor
    handoff_id: str
    warnings: _containers.RepeatedCompositeFieldContainer[_errors_pb2.Warning]
    def __init__(self, descriptor: _Optional[_Union[HandoffDescriptor, _Mapping]] = ..., handoff_id: _Optional[str] = ..., warnings: _Optional[_Iterable[_Union[_errors_pb2.Warning, _Mapping]]] = ...) -> None: ...

class AdoptHandoffRequest(_message.Message):
    __slots__ = ("descriptor", "new_thread_id", "request_id", "required_signers", "durability", "handoff_id")
    DESCRIPTOR_FIELD_NUMBER: _ClassVar[int]
    NEW_THREAD_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    REQUIRED_SIGNERS_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    HANDOFF_ID_FIELD_NUMBER: _ClassVar[int]
    descriptor: HandoffDescriptor
    new_thread_id: str
    request_id: str
    required_signers: _containers.RepeatedScalarFieldContainer[str]
    durability: _checkpoint_pb2.Durability
    handoff_id: str
    def __init__(self, descriptor: _Optional[_Union[HandoffDescriptor, _Mapping]] = ..., new_thread_id: _Optional[str] = ..., request_id: _Optional[str] = ..., required_signers: _Optional[_Iterable[str]] = ..., durability: _Optional[_Union[_checkpoint_pb2.Durability, str]] = ..., handoff_id: _Optional[str] = ...) -> None: ...

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

class Handoff(_message.Message):
    __slots__ = ("handoff_id", "descriptor", "state", "create_time", "expire_time", "close_time", "adopted_thread_id", "to_agent")
    HANDOFF_ID_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTOR_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    CLOSE_TIME_FIELD_NUMBER: _ClassVar[int]
    ADOPTED_THREAD_ID_FIELD_NUMBER: _ClassVar[int]
    TO_AGENT_FIELD_NUMBER: _ClassVar[int]
    handoff_id: str
    descriptor: HandoffDescriptor
    state: HandoffState
    create_time: _timestamp_pb2.Timestamp
    expire_time: _timestamp_pb2.Timestamp
    close_time: _timestamp_pb2.Timestamp
    adopted_thread_id: str
    to_agent: str
    def __init__(self, handoff_id: _Optional[str] = ..., descriptor: _Optional[_Union[HandoffDescriptor, _Mapping]] = ..., state: _Optional[_Union[HandoffState, str]] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., expire_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., close_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., adopted_thread_id: _Optional[str] = ..., to_agent: _Optional[str] = ...) -> None: ...

class ListHandoffsRequest(_message.Message):
    __slots__ = ("to_agent", "thread_id", "states", "page_size", "page_token")
    TO_AGENT_FIELD_NUMBER: _ClassVar[int]
    THREAD_ID_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    to_agent: str
    thread_id: str
    states: _containers.RepeatedScalarFieldContainer[HandoffState]
    page_size: int
    page_token: str
    def __init__(self, to_agent: _Optional[str] = ..., thread_id: _Optional[str] = ..., states: _Optional[_Iterable[_Union[HandoffState, str]]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListHandoffsResponse(_message.Message):
    __slots__ = ("handoffs", "next_page_token", "warnings")
    HANDOFFS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    handoffs: _containers.RepeatedCompositeFieldContainer[Handoff]
    next_page_token: str
    warnings: _containers.RepeatedCompositeFieldContainer[_errors_pb2.Warning]
    def __init__(self, handoffs: _Optional[_Iterable[_Union[Handoff, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., warnings: _Optional[_Iterable[_Union[_errors_pb2.Warning, _Mapping]]] = ...) -> None: ...

class WatchHandoffsRequest(_message.Message):
    __slots__ = ("to_agent", "states", "progress_interval")
    TO_AGENT_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    to_agent: str
    states: _containers.RepeatedScalarFieldContainer[HandoffState]
    progress_interval: _duration_pb2.Duration
    def __init__(self, to_agent: _Optional[str] = ..., states: _Optional[_Iterable[_Union[HandoffState, str]]] = ..., progress_interval: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class WatchHandoffsResponse(_message.Message):
    __slots__ = ("handoff",)
    HANDOFF_FIELD_NUMBER: _ClassVar[int]
    handoff: Handoff
    def __init__(self, handoff: _Optional[_Union[Handoff, _Mapping]] = ...) -> None: ...

class WithdrawHandoffRequest(_message.Message):
    __slots__ = ("handoff_id", "durability")
    HANDOFF_ID_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    handoff_id: str
    durability: _checkpoint_pb2.Durability
    def __init__(self, handoff_id: _Optional[str] = ..., durability: _Optional[_Union[_checkpoint_pb2.Durability, str]] = ...) -> None: ...

class WithdrawHandoffResponse(_message.Message):
    __slots__ = ("handoff",)
    HANDOFF_FIELD_NUMBER: _ClassVar[int]
    handoff: Handoff
    def __init__(self, handoff: _Optional[_Union[Handoff, _Mapping]] = ...) -> None: ...
