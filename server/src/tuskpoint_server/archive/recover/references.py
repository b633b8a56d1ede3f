"""What people name a catalog or a manifest by, and how its exact location is found.

They have the blob ID that the server's log, its status or the pointer file shows. The blob may
be a quilt of hundreds of members; the store's list of them names the one that is meant.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...blobs.api import BlobStore
from ...domain.errors import Reason, Refusal
from ...domain.formats.stored_json import Kind
from ...domain.model import BlobLocation
from ...domain.values import DIGEST_BYTES

_NAMED_AT_MOST = 20


class UnclearReferenceError(Exception):
    """A reference names nothing, or more than one thing; its text is one line."""


@dataclass(frozen=True, slots=True)
class BlobReference:
    """A blob as people name it.

    Attributes:
        blob_id: The blob or quilt.
        sha256: Hash of the wanted bytes, or empty.
        is_member: The hash was given as the identifier of a member.
    """

    blob_id: str
    sha256: bytes = b""
    is_member: bool = False


def parse_reference(text: str) -> BlobReference:
    """Return what "BLOB_ID", "BLOB_ID/IDENTIFIER" or "BLOB_ID:SHA256HEX" names.

    Raises:
        UnclearReferenceError: It is none of these.
    """
    given = text.strip()
    separator = "/" if "/" in given else ":"
    blob_id, separated, spelled = given.partition(separator)
    sha256 = _sha256(spelled)
    if not blob_id or (separated and not sha256):
        wanted = "BLOB_ID/IDENTIFIER" if separator == "/" else "BLOB_ID:SHA256HEX"
        raise UnclearReferenceError(f"'{text}' is not BLOB_ID or {wanted}")
    return BlobReference(blob_id, sha256, bool(sha256) and separator == "/")


async def find(blobs: BlobStore, reference: BlobReference, kind: Kind) -> BlobLocation:
    """Return where the one member of a kind lies that a reference names.

    Args:
        blobs: Where it lies.
        reference: The reference.
        kind: What is wanted.

    Raises:
        UnclearReferenceError: There is none, or more than one.
        Refusal: `BLOB_HASH_MISMATCH`: nothing there has the given hash; what the store raises.
    """
    blob_id, sha256 = reference.blob_id, reference.sha256
    if reference.is_member:
        return BlobLocation(sha256, 0, blob_id, sha256.hex())
    listed = await blobs.list_blob(blob_id)
    if sha256:
        found = [one.location for one in listed if one.location.sha256 == sha256]
        if not found:
            actual = _shortened([one.location.sha256.hex() for one in listed])
            raise Refusal(
                Reason.BLOB_HASH_MISMATCH, blob_id=blob_id, expected=sha256.hex(), actual=actual
            )
        return found[0]
    # A store says of a blob that is no quilt what its bytes are, not of which kind.
    found = [one.location for one in listed if one.kind in (kind, "")]
    if len(found) == 1:
        return found[0]
    if not found:
        raise UnclearReferenceError(f"blob {blob_id} holds no {kind}")
    named = _shortened([one.identifier for one in found])
    raise UnclearReferenceError(
        f"blob {blob_id} holds more than one {kind}; name one as {blob_id}/IDENTIFIER: {named}"
    )


def _shortened(items: list[str]) -> str:
    more = len(items) - _NAMED_AT_MOST
    text = ", ".join(items[:_NAMED_AT_MOST])
    return f"{text} and {more} more" if more > 0 else text


def _sha256(spelled: str) -> bytes:
    """Return the SHA-256 that is spelled in hex; empty if it is none."""
    try:
        digest = bytes.fromhex(spelled)
    except ValueError:
        return b""
    return digest if len(digest) == DIGEST_BYTES and digest.hex() == spelled.lower() else b""
