"""Sealed members: their header, and opening with a key. See docs/storage.md."""

from __future__ import annotations

import struct

from google.protobuf.message import DecodeError

from ...storage.v1 import sealed_pb2
from .stored import MalformedError

_HEAD = struct.Struct("<II")
_MAGIC = 0x184D2A51
_MAX_HEADER = 64 * 1024
_VERSION = 1
_NONCE = bytes(12)


def is_sealed(data: bytes) -> bool:
    """Return whether stored bytes are a sealed member."""
    return len(data) >= _HEAD.size and _HEAD.unpack_from(data)[0] == _MAGIC


def wrapped_key(data: bytes) -> bytes:
    """Return the wrapped key in the header of a sealed member; empty if it is not a root.

    Raises:
        MalformedError: The member has no usable header.
    """
    return _header(data)[0].wrapped_key


def opened(data: bytes, key: bytes) -> bytes:
    """Return the content of a sealed member.

    Raises:
        MalformedError: The member is not sealed, or the key does not open it.
    """
    if not is_sealed(data):
        raise MalformedError("it is not sealed, and the reference to it has a key")
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    _, begin = _header(data)
    try:
        return AESGCM(key).decrypt(_NONCE, memoryview(data)[begin:], data[:begin])
    except InvalidTag:
        raise MalformedError("the key in the reference to it does not open it") from None


def _header(data: bytes) -> tuple[sealed_pb2.SealedHeader, int]:
    """Return the header of a sealed member, and the start of its ciphertext."""
    _, size = _HEAD.unpack_from(data)
    begin = _HEAD.size + size
    if size > _MAX_HEADER or begin > len(data):
        raise MalformedError("the header of its sealing is cut off or too large")
    try:
        header = sealed_pb2.SealedHeader.FromString(data[_HEAD.size : begin])
    except DecodeError:
        raise MalformedError("the header of its sealing is not a SealedHeader") from None
    if header.format_version != _VERSION:
        version = header.format_version
        raise MalformedError(f"it is sealed in format {version} and only {_VERSION} is known")
    return header, begin
