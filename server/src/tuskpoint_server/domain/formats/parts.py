"""Lists of parts: how bytes are stored that are larger than a member may be.

The bytes are cut, each part is stored by itself, and a list names the parts in order. The
list is then stored where the bytes would have been: its SHA-256 is the name of what the parts
make, and commits to the hash of every part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..digests import blob_digest
from ..errors import Reason, Refusal
from ..model import BlobLocation
from ..stored_json import FORMAT_VERSION, Fields, dump, malformed
from .members import Kind, location_json, settled

MAX_PARTS = 4096
_FIRST_BYTE = b"{"


@dataclass(frozen=True, slots=True)
class PartList:
    """The parts of some bytes, in order, and what they make together."""

    sha256: bytes
    size: int
    parts: tuple[BlobLocation, ...]


def cut(data: bytes, part_bytes: int) -> Iterator[bytes]:
    """Yield the parts of bytes, each of this size but the last."""
    for start in range(0, len(data), part_bytes):
        yield data[start : start + part_bytes]


def encode_parts(data: bytes, parts: Sequence[BlobLocation]) -> bytes:
    """Return the stored form of the list of parts of `data`."""
    return dump(
        {
            "format_version": FORMAT_VERSION,
            "kind": Kind.PARTS.value,
            "sha256": blob_digest(data).hex(),
            "size_bytes": len(data),
            "parts": [location_json(part) for part in parts],
        }
    )


def is_part_list(data: bytes) -> bool:
    """Return whether stored bytes are a list of parts; a segment begins otherwise."""
    return data.startswith(_FIRST_BYTE)


def decode_parts(data: bytes, location: BlobLocation, max_bytes: int) -> PartList:
    """Return what the stored bytes at a location hold.

    Args:
        data: The stored bytes, already checked against their hash.
        location: Where they lie.
        max_bytes: Bound on what the parts make together.

    Raises:
        Refusal: `BLOB_MALFORMED`.
    """
    fields = Fields.document(data, location.blob_id, Kind.PARTS)
    parts = tuple(settled(part.location(), location.blob_id) for part in fields.children("parts"))
    size = fields.number("size_bytes")
    if len(parts) > MAX_PARTS:
        raise fields.fail(f"it has more than {MAX_PARTS} parts")
    if size > max_bytes or sum(part.size for part in parts) != size:
        raise fields.fail(f"its parts do not make up {size} bytes, or more than {max_bytes}")
    return PartList(fields.sha256("sha256"), size, parts)


def join(listed: PartList, parts: Sequence[bytes], name: str) -> bytes:
    """Return the bytes that parts make, after checking their hash.

    Args:
        listed: The list.
        parts: Content of the parts, in order.
        name: Blob ID of the list, for the refusal.

    Raises:
        Refusal: `BLOB_MALFORMED`, `BLOB_HASH_MISMATCH`.
    """
    data = b"".join(parts)
    if len(data) != listed.size:
        raise malformed(name, f"its parts have {len(data)} bytes where {listed.size} were listed")
    actual = blob_digest(data)
    if actual != listed.sha256:
        raise Refusal(
            Reason.BLOB_HASH_MISMATCH,
            blob_id=name,
            expected=listed.sha256.hex(),
            actual=actual.hex(),
        )
    return data
