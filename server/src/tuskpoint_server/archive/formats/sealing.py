"""Sealing: encryption of members of the blob store, each under its own key (sealed.proto).

A reference to a member carries its key beside its hash (`BlobLocation.key`), so keys form the tree
that hashes form, from the catalog down. Only roots have their key in their own header, wrapped by a
key provider. Removing a reference removes the key.
"""

from __future__ import annotations

import hmac
import os
from typing import NamedTuple

from google.protobuf.message import DecodeError

from tuskpoint.storage.v1 import sealed_pb2

from ...core.errors import Reason, Refusal, malformed_bytes
from ...core.model import BlobLocation
from ...core.values import UnopenedBytes
from .segments import SKIPPABLE

KEY_BYTES = 32
MAGIC = 0x184D2A51
_VERSION = 1
_MAX_HEADER = 64 << 10
_NONCE = bytes(12)  # a key seals only once, so the nonce may be constant


class Root(NamedTuple):
    """Key of a member that people name, and the same key wrapped by the key provider."""

    key: bytes = b""
    wrapped: bytes = b""


NO_ROOT = Root()


class SealedBytes(NamedTuple):
    """Stored bytes of a member, and its key; the key is empty if the member is not sealed."""

    data: bytes
    key: bytes


def new_key() -> bytes:
    """Return a random key."""
    return os.urandom(KEY_BYTES)


class Sealer:
    """Seals the members of one flush: equal content, and only that, has an equal key."""

    def __init__(self, *, seals: bool) -> None:
        self._secret = new_key() if seals else b""

    def seal(self, content: bytes) -> SealedBytes:
        """Return the stored bytes of a member; without sealing, the content itself."""
        if not self._secret:
            return SealedBytes(content, b"")
        key = hmac.digest(self._secret, content, "sha256")
        return SealedBytes(_seal_content(content, Root(key)), key)


def seal_root(content: bytes, root: Root) -> bytes:
    """Return the stored bytes of a root; without a key, the content itself."""
    return _seal_content(content, root) if root.key else content


def _seal_content(content: bytes, root: Root) -> bytes:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # the import is slow

    header = sealed_pb2.SealedHeader(format_version=_VERSION, wrapped_key=root.wrapped)
    packed = header.SerializeToString(deterministic=True)
    frame = SKIPPABLE.pack(MAGIC, len(packed)) + packed
    return frame + AESGCM(root.key).encrypt(_NONCE, content, frame)


def is_sealed(data: bytes) -> bool:
    """Return whether stored bytes are a sealed member."""
    return len(data) >= SKIPPABLE.size and SKIPPABLE.unpack_from(data)[0] == MAGIC


def wrapped_key(data: bytes, name: str) -> bytes:
    """Return the wrapped key of a sealed root; empty for any other member."""
    return _header(data, name)[0].wrapped_key if is_sealed(data) else b""


def open_member(data: bytes, location: BlobLocation) -> bytes:
    """Return the content of a member; `location` is the reference to it, with its key.

    Raises:
        Refusal: `KEY_MISSING` if the member is sealed and the reference has no key;
            `BLOB_MALFORMED` if the member is not sealed and the reference has a key, or if the key
            does not open the member; `JOURNAL_DAMAGED` if the journal's own record of the key does
            not open.
    """
    name = location.blob_id
    if isinstance(location.key, UnopenedBytes):
        raise Refusal(
            Reason.JOURNAL_DAMAGED, what=f"the key of blob {name}", problem=location.key.problem
        )
    if not location.key:
        if is_sealed(data):
            problem = "the reference to it has no key"
            raise Refusal(Reason.KEY_MISSING, what=f"blob {name}", problem=problem)
        return data
    if not is_sealed(data):
        raise malformed_bytes(name, "it is not sealed, and its reference has a key")
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    _, begin = _header(data, name)
    try:
        return AESGCM(location.key).decrypt(_NONCE, memoryview(data)[begin:], data[:begin])
    except InvalidTag:
        raise malformed_bytes(name, "the key in its reference does not open it") from None


def _header(data: bytes, name: str) -> tuple[sealed_pb2.SealedHeader, int]:
    """Return the header of a sealed member, and the offset of the sealed content."""
    _, size = SKIPPABLE.unpack_from(data)
    begin = SKIPPABLE.size + size
    if size > _MAX_HEADER or begin > len(data):
        raise malformed_bytes(name, "its header is cut off or too large")
    try:
        header = sealed_pb2.SealedHeader.FromString(data[SKIPPABLE.size : begin])
    except DecodeError:
        raise malformed_bytes(name, "its header is not a SealedHeader") from None
    if header.format_version != _VERSION:
        version = header.format_version
        raise malformed_bytes(
            name, f"it is sealed in format {version} and only {_VERSION} is known"
        )
    return header, begin
