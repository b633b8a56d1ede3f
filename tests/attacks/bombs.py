"""Stored bytes that unpack to far more than their size."""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from pathlib import Path

from tuskpoint_server.archive.formats.segments import SKIPPABLE, SKIPPABLE_MAGIC

_MAGIC, _DESCRIPTOR, _WINDOW = 0xFD2FB528, 0xC0, 0x50
"""Start of a frame with a size field of eight bytes and a window of 1 MiB (RFC 8878, section
3.1.1.1)."""

_BLOCK_BYTES = 128 << 10
_RLE = 1
MIB = 1 << 20


def frame(size: int, byte: int = 0) -> bytes:
    """Return a zstd frame that repeats one byte; 128 KiB of content cost 4 bytes."""
    sizes = [min(_BLOCK_BYTES, size - at) for at in range(0, size, _BLOCK_BYTES)]
    blocks = b"".join(
        (number + 1 == len(sizes) | _RLE << 1 | block_size << 3).to_bytes(3, "little")
        + bytes([byte])
        for number, block_size in enumerate(sizes)
    )
    return struct.pack("<IBBQ", _MAGIC, _DESCRIPTOR, _WINDOW, size) + blocks


def segment_of(content: bytes) -> bytes:
    """Return a zstd frame after the header of a segment."""
    header = b"\x08\x02\x10\x01"  # Fields format_version and sealing.
    return SKIPPABLE.pack(SKIPPABLE_MAGIC, len(header)) + header + content


def placed(blobs: Path, data: bytes) -> tuple[str, str]:
    """Put a blob into a blob directory, as every user of the directory can; return its ID and
    SHA-256."""
    sha256 = hashlib.sha256(data)
    blob_id = base64.urlsafe_b64encode(sha256.digest()).decode().rstrip("=")
    file = blobs / blob_id[:2] / blob_id
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    return blob_id, sha256.hexdigest()


def descriptor_of(blob_id: str, sha256: str) -> str:
    """Return an unsigned descriptor of a bundle."""
    return json.dumps(
        {
            "source": "bomb:1",
            "thread_id": "bomb",
            "checkpoint_id": "1",
            "blob_id": blob_id,
            "blob_sha256": sha256,
            "to_agent": "",
            "summary": "",
        }
    )
