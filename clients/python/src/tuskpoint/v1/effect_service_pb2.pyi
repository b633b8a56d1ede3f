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

class EffectState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EFFECT_STATE_UNSPECIFIED: _ClassVar[EffectState]
    EFFECT_STATE_RUNNING: _ClassVar[EffectState]
    EFFECT_STATE_DONE: _ClassVar[EffectState]
    EFFECT_STATE_FAILED: _ClassVar[EffectState]
    EFFECT_STATE_UNKNOWN: _ClassVar[EffectState]

class AttemptOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ATTEMPT_OUTCOME_UNSPECIFIED: _ClassVar[AttemptOutcome]
    ATTEMPT_OUTCOME_NOT_DONE: _ClassVar[AttemptOutcome]
    ATTEMPT_OUTCOME_REFUSED: _ClassVar[AttemptOutcome]
    ATTEMPT_OUTCOME_UNKNOWN: _ClassVar[AttemptOutcome]

class OnUnknown(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ON_UNKNOWN_UNSPECIFIED: _ClassVar[OnUnknown]
    ON_UNKNOWN_FAIL: _ClassVar[OnUnknown]
    ON_UNKNOWN_RETRY: _ClassVar[OnUnknown]
EFFECT_STATE_UNSPECIFIED: EffectState
EFFECT_STATE_RUNNING: EffectState
EFFECT_STATE_DONE: EffectState
EFFECT_STATE_FAILED: EffectState
EFFECT_STATE_UNKNOWN: EffectState
ATTEMPT_OUTCOME_UNSPECIFIED: AttemptOutcome
ATTEMPT_OUTCOME_NOT_DONE: AttemptOutcome
ATTEMPT_OUTCOME_REFUSED: AttemptOutcome
ATTEMPT_OUTCOME_UNKNOWN: AttemptOutcome
ON_UNKNOWN_UNSPECIFIED: OnUnknown
ON_UNKNOWN_FAIL: OnUnknown
ON_UNKNOWN_RETRY: OnUnknown

class Effect(_message.Message):
    __slots__ = ("thread_id", "key", "name", "idempotency_key", "state", "retryable", "attempt", "owner", "lease_id", "input_digest", "checkpoint_id", "checkpoint_ns", "result", "error", "resolved_by", "create_time", "attempt_time", "expire_time", "end_time", "seq")
    THREAD_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    INPUT_DIGEST_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_NS_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    RESOLVED_BY_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_TIME_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    thread_id: str
    key: str
    name: str
    idempotency_key: str
    state: EffectState
    retryable: bool
    attempt: int
    owner: str
    lease_id: str
    input_digest: bytes
    checkpoint_id: str
    checkpoint_ns: str
    result: _value_pb2.Value
    error: str
    resolved_by: str
    create_time: _timestamp_pb2.Timestamp
    attempt_time: _timestamp_pb2.Timestamp
    expire_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    seq: int
    def __init__(self, thread_id: _Optional[str] = ..., key: _Optional[str] = ..., name: _Optional[str] = ..., idempotency_key: _Optional[str] = ..., state: _Optional[_Union[EffectState, str]] = ..., retryable: bool = ..., attempt: _Optional[int] = ..., owner: _Optional[str] = ..., lease_id: _Optional[str] = ..., input_digest: _Optional[bytes] = ..., checkpoint_id: _Optional[str] = ..., checkpoint_ns: _Optional[str] = ..., result: _Optional[_Union[_value_pb2.Value, _Mapping]] = ..., error: _Optional[str] = ..., resolved_by: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., attempt_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., expire_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., seq: _Optional[int] = ...) -> None: ...

class BeginEffectRequest(_message.Message):
    __slots__ = ("thread_id", "key", "name", "input_digest", "checkpoint_id", "checkpoint_ns", "lease_id", "timeout", "on_unknown", "owner", "request_id", "durability")
    THREAD_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    INPUT_DIGEST_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_NS_FIELD_NUMBER: _ClassVar[int]
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    ON_UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    thread_id: str
    key: str
    name: str
    input_digest: bytes
    checkpoint_id: str
    checkpoint_ns: str
    lease_id: str
    timeout: _duration_pb2.Duration
    on_unknown: OnUnknown
    owner: str
    request_id: str
    durability: _checkpoint_pb2.Durability
    def __init__(self, thread_id: _Optional[str] = ..., key: _Optional[str] = ..., name: _Optional[str] = ..., input_digest: _Optional[bytes] = ..., checkpoint_id: _Optional[str] = ..., checkpoint_ns: _Optional[str] = ..., lease_id: _Optional[str] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., on_unknown: _Optional[_Union[OnUnknown, str]] = ..., owner: _Optional[str] = ..., request_id: _Optional[str] = ..., durability: _Optional[_Union[_checkpoint_pb2.Durability, str]] = ...) -> None: ...

class BeginEffectResponse(_message.Message):
    __slots__ = ("run", "effect", "durability")
    RUN_FIELD_NUMBER: _ClassVar[int]
    EFFECT_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    run: bool
    effect: Effect
    durability: _checkpoint_pb2.Durability
    def __init__(self, run: bool = ..., effect: _Optional[_Union[Effect, _Mapping]] = ..., durability: _Optional[_Union[_checkpoint_pb2.Durability, str]] = ...) -> None: ...

class CompleteEffectRequest(_message.Message):
    __slots__ = ("thread_id", "key", "idempotency_key", "result", "durability")
    THREAD_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    thread_id: str
    key: str
    idempotency_key: str
    result: _value_pb2.Value
    durability: _checkpoint_pb2.Durability
    def __init__(self, thread_id: _Optional[str] = ..., key: _Optional[str] = ..., idempotency_key: _Optional[str] = ..., result: _Optional[_Union[_value_pb2.Value, _Mapping]] = ..., durability: _Optional[_Union[_checkpoint_pb2.Durability, str]] = ...) -> None: ...

class CompleteEffectResponse(_message.Message):
    __slots__ = ("effect", "durability")
    EFFECT_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    effect: Effect
    durability: _checkpoint_pb2.Durability
    def __init__(self, effect: _Optional[_Union[Effect, _Mapping]] = ..., durability: _Optional[_Union[_checkpoint_pb2.Durability, str]] = ...) -> None: ...

class FailEffectRequest(_message.Message):
    __slots__ = ("thread_id", "key", "attempt", "idempotency_key", "outcome", "error", "durability")
    THREAD_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    thread_id: str
    key: str
    attempt: int
    idempotency_key: str
    outcome: AttemptOutcome
    error: str
    durability: _checkpoint_pb2.Durability
    def __init__(self, thread_id: _Optional[str] = ..., key: _Optional[str] = ..., attempt: _Optional[int] = ..., idempotency_key: _Optional[str] = ..., outcome: _Optional[_Union[AttemptOutcome, str]] = ..., error: _Optional[str] = ..., durability: _Optional[_Union[_checkpoint_pb2.Durability, str]] = ...) -> None: ...

class FailEffectResponse(_message.Message):
    __slots__ = ("effect", "durability")
    EFFECT_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    effect: Effect
    durability: _checkpoint_pb2.Durability
    def __init__(self, effect: _Optional[_Union[Effect, _Mapping]] = ..., durability: _Optional[_Union[_checkpoint_pb2.Durability, str]] = ...) -> None: ...

class ResolveEffectRequest(_message.Message):
    __slots__ = ("thread_id", "key", "attempt", "done", "result", "resolved_by", "durability")
    THREAD_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    RESOLVED_BY_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    thread_id: str
    key: str
    attempt: int
    done: bool
    result: _value_pb2.Value
    resolved_by: str
    durability: _checkpoint_pb2.Durability
    def __init__(self, thread_id: _Optional[str] = ..., key: _Optional[str] = ..., attempt: _Optional[int] = ..., done: bool = ..., result: _Optional[_Union[_value_pb2.Value, _Mapping]] = ..., resolved_by: _Optional[str] = ..., durability: _Optional[_Union[_checkpoint_pb2.Durability, str]] = ...) -> None: ...

class ResolveEffectResponse(_message.Message):
    __slots__ = ("effect", "durability")
    EFFECT_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    effect: Effect
    durability: _checkpoint_pb2.Durability
    def __init__(self, effect: _Optional[_Union[Effect, _Mapping]] = ..., durability: _Optional[_Union[_checkpoint_pb2.Durability, str]] = ...) -> None: ...

class GetEffectRequest(_message.Message):
    __slots__ = ("thread_id", "key", "view")
    THREAD_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    thread_id: str
    key: str
    view: _checkpoint_pb2.View
    def __init__(self, thread_id: _Optional[str] = ..., key: _Optional[str] = ..., view: _Optional[_Union[_checkpoint_pb2.View, str]] = ...) -> None: ...

class GetEffectResponse(_message.Message):
    __slots__ = ("effect",)
    EFFECT_FIELD_NUMBER: _ClassVar[int]
    effect: Effect
    def __init__(self, effect: _Optional[_Union[Effect, _Mapping]] = ...) -> None: ...

class ListEffectsRequest(_message.Message):
    __slots__ = ("thread_id", "states", "page_size", "page_token")
    THREAD_ID_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    thread_id: str
    states: _containers.RepeatedScalarFieldContainer[EffectState]
    page_size: int
    page_token: str
    def __init__(self, thread_id: _Optional[str] = ..., states: _Optional[_Iterable[_Union[EffectState, str]]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListEffectsResponse(_message.Message):
    __slots__ = ("effects", "next_page_token")
    EFFECTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    effects: _containers.RepeatedCompositeFieldContainer[Effect]
    next_page_token: str
    def __init__(self, effects: _Optional[_Iterable[_Union[Effect, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...
