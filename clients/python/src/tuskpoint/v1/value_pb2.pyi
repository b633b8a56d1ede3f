from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Value(_message.Message):
    __slots__ = ("type", "data")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    type: str
    data: bytes
    def __init__(self, type: _Optional[str] = ..., data: _Optional[bytes] = ...) -> None: ...

class LargeValue(_message.Message):
    __slots__ = ("type", "size_bytes")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    type: str
    size_bytes: int
    def __init__(self, type: _Optional[str] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class ValueChunk(_message.Message):
    __slots__ = ("value_index", "offset", "data")
    VALUE_INDEX_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    value_index: int
    offset: int
    data: bytes
    def __init__(self, value_index: _Optional[int] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class Version(_message.Message):
    __slots__ = ("text", "integer", "number")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    INTEGER_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    text: str
    integer: int
    number: float
    def __init__(self, text: _Optional[str] = ..., integer: _Optional[int] = ..., number: _Optional[float] = ...) -> None: ...

class Inherit(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Empty(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Channel(_message.Message):
    __slots__ = ("name", "version", "digest", "value", "large", "inherit", "empty", "size_bytes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    LARGE_FIELD_NUMBER: _ClassVar[int]
    INHERIT_FIELD_NUMBER: _ClassVar[int]
    EMPTY_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: Version
    digest: bytes
    value: Value
    large: LargeValue
    inherit: Inherit
    empty: Empty
    size_bytes: int
    def __init__(self, name: _Optional[str] = ..., version: _Optional[_Union[Version, _Mapping]] = ..., digest: _Optional[bytes] = ..., value: _Optional[_Union[Value, _Mapping]] = ..., large: _Optional[_Union[LargeValue, _Mapping]] = ..., inherit: _Optional[_Union[Inherit, _Mapping]] = ..., empty: _Optional[_Union[Empty, _Mapping]] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class PendingWrite(_message.Message):
    __slots__ = ("task_id", "task_path", "idx", "channel", "value", "large", "digest", "size_bytes")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_PATH_FIELD_NUMBER: _ClassVar[int]
    IDX_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    LARGE_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    task_path: str
    idx: int
    channel: str
    value: Value
    large: LargeValue
    digest: bytes
    size_bytes: int
    def __init__(self, task_id: _Optional[str] = ..., task_path: _Optional[str] = ..., idx: _Optional[int] = ..., channel: _Optional[str] = ..., value: _Optional[_Union[Value, _Mapping]] = ..., large: _Optional[_Union[LargeValue, _Mapping]] = ..., digest: _Optional[bytes] = ..., size_bytes: _Optional[int] = ...) -> None: ...
