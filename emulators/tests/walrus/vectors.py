"""Published blob IDs and quilts of Walrus, and their contents."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

_FILE = Path(__file__).parent / "data" / "vectors.json"

# A blob ID of a thousand shards takes seconds.
ONLY_IF_ALL = (
    pytest.mark.slow,
    pytest.mark.skipif(
        os.environ.get("TUSKPOINT_VECTORS") != "all",
        reason="slow: set TUSKPOINT_VECTORS=all for these vectors",
    ),
)

VECTORS: dict[str, Any] = json.loads(_FILE.read_text())


def content(recipe: dict[str, Any]) -> bytes:
    """Return the content that a recipe of the vectors describes."""
    match recipe["recipe"]:
        case "ascii":
            return str(recipe["text"]).encode("ascii")
        case "repeat":
            return bytes([recipe["byte"]]) * int(recipe["size"])
        case "pattern":
            size = int(recipe["size"])
            period = bytes((i * 7 + 13) % 256 for i in range(256))
            return (period * (size // 256 + 1))[:size]
        case "sha256_stream":
            return _stream(recipe["prefix"].encode("ascii"), recipe["size"])
        case other:
            raise ValueError(other)


def _stream(prefix: bytes, size: int) -> bytes:
    chunks = (
        hashlib.sha256(prefix + i.to_bytes(8, "little")).digest() for i in range(-(-size // 32))
    )
    return b"".join(chunks)[:size]
