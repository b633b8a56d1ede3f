"""Members: the bytes that are stored and named by their SHA-256, and what each may be."""

from __future__ import annotations

from enum import StrEnum

from ..model import BlobLocation

MEMBER_BYTES = 8 << 20
"""Bytes that a member has at most; what is larger is stored in parts."""


class Kind(StrEnum):
    """What a member holds; also its tag in a quilt, where it is only a hint."""

    SEGMENT = "segment"
    PARTS = "parts"
    """A list of the parts of a segment or a manifest."""
    PART = "part"
    RUN = "run"
    CATALOG = "catalog"
    MANIFEST = "manifest"
    """The folded manifest of one thread."""


def location_json(location: BlobLocation) -> dict[str, object]:
    """Return the stored form of a location. An empty `blob_id` means "this quilt"."""
    return {
        "blob_id": location.blob_id,
        "identifier": location.identifier,
        "sha256": location.sha256.hex(),
        "size_bytes": location.size,
    }


def settled(location: BlobLocation, holder: str) -> BlobLocation:
    """Return a location with "this quilt" replaced by the blob that held the reference."""
    if location.blob_id or not holder:
        return location
    return BlobLocation(location.sha256, location.size, holder, location.identifier)
