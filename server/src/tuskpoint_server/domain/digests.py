"""SHA-256 of values and of stored bytes."""

from __future__ import annotations

import hashlib

from .model import Value

DIGEST_BYTES = 32


def value_digest(value: Value) -> bytes:
    """Return the digest that a value is keyed by.

    SHA-256 over the UTF-8 of the type, one zero byte and the data, as documented at
    `tuskpoint.v1.Channel.digest`. The type holds no zero byte, so two different pairs
    never digest the same input.
    """
    digest = hashlib.sha256(value.type.encode())
    digest.update(b"\0")
    digest.update(value.data)
    return digest.digest()


def blob_digest(data: bytes) -> bytes:
    """Return the SHA-256 over exact stored bytes."""
    return hashlib.sha256(data).digest()
