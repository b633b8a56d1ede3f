"""Auditing the manifest of one thread."""

from __future__ import annotations

from typing import Any

from .formats.manifests import ManifestHead
from .formats.stored import Fields, Location, Malformed, is_sha256, parse_json
from .reading import Piece, Reader
from .roots import Root, read_root
from .threads import audit_thread
from .verdicts import Findings, ordered


async def audit_manifest(
    reader: Reader, root: Root, *, known: ManifestHead | None = None, piece: Piece | None = None
) -> Findings:
    """Audit a manifest: its chain of segments, and every checkpoint that it tells of.

    Args:
        reader: Reads.
        root: The last segment.
        known: What is known of it besides, such as how many records there are.
        piece: Its bytes, if they were given.
    """
    piece = piece or await read_root(reader, root, "segment")
    head = ManifestHead(
        root.location,
        known.number if known else None,
        known.generation if known else None,
        known.records if known else None,
    )
    reader.expect(1)
    found = await audit_thread(reader, head, None, piece)
    return Findings(
        subject={"kind": "manifest", **subject_of(root)},
        root=piece.finding,
        trust=root.trust,
        items=ordered(found.items),
        threads=(found.total,) if found.total.segments else (),
    )


def subject_of(root: Root) -> dict[str, Any]:
    """Return what names a root, as findings have it: only what was given counts."""
    location = root.location
    return {
        "blob_id": location.blob_id,
        "identifier": location.identifier,
        "sha256": location.sha256 if root.pinned else "",
    }


def is_segment(content: bytes) -> bool:
    """Tell whether a file is a segment itself, and not a note of where one lies.

    Raises:
        Malformed: It is not JSON.
    """
    found = parse_json(content)
    return isinstance(found, dict) and "records" in found and "thread_id" in found


def read_head(content: bytes) -> ManifestHead:
    """Return where a manifest ends, from the JSON object that a catalog has for it.

    Args:
        content: An object with `blob_id`, `sha256`, and perhaps `identifier`, `size_bytes`,
            `segment`, `generation` and `records`.

    Raises:
        Malformed: It is none.
    """
    fields = Fields(parse_json(content))
    sha256 = fields.text("sha256", "")
    if sha256 and not is_sha256(sha256):
        raise Malformed("'sha256' is not a SHA-256 in lowercase hex")
    size = fields.count("size_bytes") if fields.has("size_bytes") else None
    location = Location(fields.text("blob_id"), fields.text("identifier", ""), sha256, size)
    number, generation, records = (
        fields.count(key) if fields.has(key) else None
        for key in ("segment", "generation", "records")
    )
    return ManifestHead(location, number, generation, records)
