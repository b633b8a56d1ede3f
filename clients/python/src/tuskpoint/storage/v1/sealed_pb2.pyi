from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class SealedHeader(_message.Message):
    __slots__ = ("format_version", "wrapped_key")
    FORMAT_VERSION_FIELD_NUMBER: _ClassVar[int]
    WRAPPED_KEY_FIELD_NUMBER: _ClassVar[int]
    format_version: int
    wrapped_key: bytes
    def __init__(self, format_version: _Optional[int] = ..., wrapped_key: _Optional[bytes] = ...) -> None: ...
