import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from tuskpoint.v1 import lease_pb2 as _lease_pb2
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class OnBusy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ON_BUSY_UNSPECIFIED: _ClassVar[OnBusy]
    ON_BUSY_REJECT: _ClassVar[OnBusy]
    ON_BUSY_WAIT: _ClassVar[OnBusy]
    ON_BUSY_TAKE_OVER: _ClassVar[OnBusy]
ON_BUSY_UNSPECIFIED: OnBusy
ON_BUSY_REJECT: OnBusy
ON_BUSY_WAIT: OnBusy
ON_BUSY_TAKE_OVER: OnBusy

class AcquireLeaseRequest(_message.Message):
    __slots__ = ("thread_id", "owner", "ttl", "on_busy", "wait", "advisory", "request_id")
    THREAD_ID_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    ON_BUSY_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    ADVISORY_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    thread_id: str
    owner: str
    ttl: _duration_pb2.Duration
    on_busy: OnBusy
    wait: _duration_pb2.Duration
    advisory: bool
    request_id: str
    def __init__(self, thread_id: _Optional[str] = ..., owner: _Optional[str] = ..., ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., on_busy: _Optional[_Union[OnBusy, str]] = ..., wait: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., advisory: bool = ..., request_id: _Optional[str] = ...) -> None: ...

class AcquireLeaseResponse(_message.Message):
    __slots__ = ("lease",)
    LEASE_FIELD_NUMBER: _ClassVar[int]
    lease: _lease_pb2.Lease
    def __init__(self, lease: _Optional[_Union[_lease_pb2.Lease, _Mapping]] = ...) -> None: ...

class KeepLeaseRequest(_message.Message):
    __slots__ = ("thread_id", "lease_id", "ttl")
    THREAD_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    thread_id: str
    lease_id: str
    ttl: _duration_pb2.Duration
    def __init__(self, thread_id: _Optional[str] = ..., lease_id: _Optional[str] = ..., ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class KeepLeaseResponse(_message.Message):
    __slots__ = ("lease",)
    LEASE_FIELD_NUMBER: _ClassVar[int]
    lease: _lease_pb2.Lease
    def __init__(self, lease: _Optional[_Union[_lease_pb2.Lease, _Mapping]] = ...) -> None: ...

class ReleaseLeaseRequest(_message.Message):
    __slots__ = ("thread_id", "lease_id")
    THREAD_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    thread_id: str
    lease_id: str
    def __init__(self, thread_id: _Optional[str] = ..., lease_id: _Optional[str] = ...) -> None: ...

class ReleaseLeaseResponse(_message.Message):
    __slots__ = ("released",)
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    released: bool
    def __init__(self, released: bool = ...) -> None: ...
