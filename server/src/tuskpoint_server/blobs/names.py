"""How blobs and their members are named: by their SHA-256."""

from __future__ import annotations

import base64
import binascii

from ..domain.values import DIGEST_BYTES


def blob_name(sha256: bytes) -> str:
    """Return 32 bytes as a blob ID: base64url (RFC 4648, section 5) without padding."""
    return base64.urlsafe_b64encode(sha256).rstrip(b"=").decode()


def digest_of(blob_id: str) -> bytes | None:
    """Return the 32 bytes that a blob ID spells; `None` if no blob can have this ID."""
    try:
        digest = base64.b64decode(blob_id + "=", altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        return None
    return digest if len(digest) == DIGEST_BYTES and blob_name(digest) == blob_id else None


def member_hash(identifier: str) -> bytes | None:
    """Return the hash that a member is named by, in lowercase hex; `None` if it is no hash."""
    try:
        sha256 = bytes.fromhex(identifier)
    except ValueError:
        return None
    return sha256 if len(sha256) == DIGEST_BYTES and sha256.hex() == identifier else None
