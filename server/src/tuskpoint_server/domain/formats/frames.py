"""Zstandard frames (RFC 8878) as they are stored: whole, with their content size declared."""

from __future__ import annotations

import sys
import threading

from ..stored_json import malformed

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_LEVEL = 1
_SHORTEST = 9  # a frame of nothing; what is shorter may be read past its end


class _PerThread(threading.local):
    """A compressor keeps its tables from one frame to the next; each thread has its own."""

    def __init__(self) -> None:
        self.compressor = zstd.ZstdCompressor(level=_LEVEL)


_per_thread = _PerThread()


def pack(plain: bytes) -> bytes:
    """Return the frame that holds these bytes."""
    return _per_thread.compressor.compress(plain, zstd.ZstdCompressor.FLUSH_FRAME)


def unpack(frame: bytes | memoryview, name: str, max_bytes: int) -> bytes:
    """Return what a frame holds; nothing may follow it.

    The declared size is checked before anything is allocated, and no more is unpacked.

    Raises:
        Refusal: `BLOB_MALFORMED`.
    """
    try:
        size = zstd.get_frame_info(frame).decompressed_size if len(frame) >= _SHORTEST else None
        if size is None:
            raise malformed(name, "it is not zstd with a declared content size")
        if size > max_bytes:
            raise malformed(name, f"it unpacks to {size} bytes and the bound is {max_bytes}")
        decompressor = zstd.ZstdDecompressor()
        plain = decompressor.decompress(frame, size)
    except zstd.ZstdError:
        raise malformed(name, "it is not zstd") from None
    if not decompressor.eof or len(plain) != size:
        raise malformed(name, "its zstd frame is cut off or of another size than it declares")
    if decompressor.unused_data:
        raise malformed(name, "bytes follow its zstd frame")
    return plain


def frame_size(data: bytes, name: str) -> int:
    """Return how many bytes the first frame in some bytes has.

    Raises:
        Refusal: `BLOB_MALFORMED`.
    """
    if len(data) < _SHORTEST:
        raise malformed(name, "it is too short for a zstd frame")
    try:
        return zstd.get_frame_size(data)
    except zstd.ZstdError:
        raise malformed(name, "it does not begin with a whole zstd frame") from None
