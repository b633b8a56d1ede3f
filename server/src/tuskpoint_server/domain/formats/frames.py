"""Zstandard frames (RFC 8878) as they are stored: whole, with their content size declared."""

from __future__ import annotations

import sys
import threading

from ..compression import DamagedValueError, declared_size, decompress
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
        size = declared_size(frame)
        if size > max_bytes:
            raise malformed(name, f"it unpacks to {size} bytes and the bound is {max_bytes}")
        return decompress(frame, size)
    except DamagedValueError as error:
        raise malformed(name, f"it is not zstd as it is stored: {error}") from None


def frame_size(data: bytes, name: str) -> int:
    """Return how many stored bytes the first frame in some bytes has.

    Raises:
        Refusal: `BLOB_MALFORMED`.
    """
    if len(data) < _SHORTEST:
        raise malformed(name, "it is too short for a zstd frame")
    try:
        return zstd.get_frame_size(data)
    except zstd.ZstdError:
        raise malformed(name, "it does not begin with a whole zstd frame") from None
