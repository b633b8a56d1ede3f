import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from tuskpoint.v1 import checkpoint_pb2 as _checkpoint_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RestoreMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RESTORE_MODE_UNSPECIFIED: _ClassVar[RestoreMode]
    RESTORE_MODE_NEW_THREADS: _ClassVar[RestoreMode]
    RESTORE_MODE_ROLLBACK: _ClassVar[RestoreMode]
RESTORE_MODE_UNSPECIFIED: RestoreMode
RESTORE_MODE_NEW_THREADS: RestoreMode
RESTORE_MODE_ROLLBACK: RestoreMode

class Snapshot(_message.Message):
    __slots__ = ("snapshot_id", "session_id", "hostname", "working_directory", "metadata_json", "members", "create_time")
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    WORKING_DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    METADATA_JSON_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    snapshot_id: str
    session_id: str
    hostname: str
    working_directory: str
    metadata_json: bytes
    members: _containers.RepeatedCompositeFieldContainer[_checkpoint_pb2.CheckpointRef]
    create_time: _timestamp_pb2.Timestamp
    def __init__(self, snapshot_id: _Optional[str] = ..., session_id: _Optional[str] = ..., hostname: _Optional[str] = ..., working_directory: _Optional[str] = ..., metadata_json: _Optional[bytes] = ..., members: _Optional[_Iterable[_Union[_checkpoint_pb2.CheckpointRef, _Mapping]]] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class CreateSnapshotRequest(_message.Message):
    __slots__ = ("thread_ids", "session_id", "hostname", "working_directory", "metadata_json", "request_id", "durability")
    THREAD_IDS_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    WORKING_DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    METADATA_JSON_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    thread_ids: _containers.RepeatedScalarFieldContainer[str]
    session_id: str
    hostname: str
    working_directory: str
    metadata_json: bytes
    request_id: str
    durability: _checkpoint_pb2.Durability
    def __init__(self, thread_ids: _Optional[_Iterable[str]] = ..., session_id: _Optional[str] = ..., hostname: _Optional[str] = ..., working_directory: _Optional[str] = ..., metadata_json: _Optional[bytes] = ..., request_id: _Optional[str] = ..., durability: _Optional[_Union[_checkpoint_pb2.Durability, str]] = ...) -> None: ...

class CreateSnapshotResponse(_message.Message):
    __slots__ = ("snapshot", "durability")
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    snapshot: Snapshot
    durability: _checkpoint_pb2.Durability
    def __init__(self, snapshot: _Optional[_Union[Snapshot, _Mapping]] = ..., durability: _Optional[_Union[_checkpoint_pb2.Durability, str]] = ...) -> None: ...

class GetSnapshotRequest(_message.Message):
    __slots__ = ("snapshot_id",)
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    snapshot_id: str
    def __init__(self, snapshot_id: _Optional[str] = ...) -> None: ...

class GetSnapshotResponse(_message.Message):
    __slots__ = ("snapshot",)
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    snapshot: Snapshot
    def __init__(self, snapshot: _Optional[_Union[Snapshot, _Mapping]] = ...) -> None: ...

class GetLatestSnapshotRequest(_message.Message):
    __slots__ = ("session_id", "hostname", "working_directory")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    WORKING_DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    hostname: str
    working_directory: str
    def __init__(self, session_id: _Optional[str] = ..., hostname: _Optional[str] = ..., working_directory: _Optional[str] = ...) -> None: ...

class GetLatestSnapshotResponse(_message.Message):
    __slots__ = ("snapshot",)
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    snapshot: Snapshot
    def __init__(self, snapshot: _Optional[_Union[Snapshot, _Mapping]] = ...) -> None: ...

class ListSnapshotsRequest(_message.Message):
    __slots__ = ("session_id", "page_size", "page_token", "hostname", "working_directory")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    WORKING_DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    page_size: int
    page_token: str
    hostname: str
    working_directory: str
    def __init__(self, session_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., hostname: _Optional[str] = ..., working_directory: _Optional[str] = ...) -> None: ...

class ListSnapshotsResponse(_message.Message):
    __slots__ = ("snapshots", "next_page_token")
    SNAPSHOTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    snapshots: _containers.RepeatedCompositeFieldContainer[Snapshot]
    next_page_token: str
    def __init__(self, snapshots: _Optional[_Iterable[_Union[Snapshot, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class RestoreSnapshotRequest(_message.Message):
    __slots__ = ("snapshot_id", "mode", "request_id", "durability", "skip_deleted")
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    SKIP_DELETED_FIELD_NUMBER: _ClassVar[int]
    snapshot_id: str
    mode: RestoreMode
    request_id: str
    durability: _checkpoint_pb2.Durability
    skip_deleted: bool
    def __init__(self, snapshot_id: _Optional[str] = ..., mode: _Optional[_Union[RestoreMode, str]] = ..., request_id: _Optional[str] = ..., durability: _Optional[_Union[_checkpoint_pb2.Durability, str]] = ..., skip_deleted: bool = ...) -> None: ...

class RestoreSnapshotResponse(_message.Message):
    __slots__ = ("restored", "durability")
    RESTORED_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    restored: _containers.RepeatedCompositeFieldContainer[_checkpoint_pb2.CheckpointRef]
    durability: _checkpoint_pb2.Durability
    def __init__(self, restored: _Optional[_Iterable[_Union[_checkpoint_pb2.CheckpointRef, _Mapping]]] = ..., durability: _Optional[_Union[_checkpoint_pb2.Durability, str]] = ...) -> None: ...

class DeleteSnapshotRequest(_message.Message):
    __slots__ = ("snapshot_id", "durability")
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    snapshot_id: str
    durability: _checkpoint_pb2.Durability
    def __init__(self, snapshot_id: _Optional[str] = ..., durability: _Optional[_Union[_checkpoint_pb2.Durability, str]] = ...) -> None: ...

class DeleteSnapshotResponse(_message.Message):
    __slots__ = ("deleted", "durability")
    DELETED_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    deleted: bool
    durability: _checkpoint_pb2.Durability
    def __init__(self, deleted: bool = ..., durability: _Optional[_Union[_checkpoint_pb2.Durability, str]] = ...) -> None: ...
