"""Gzip (RFC 1952) as blobs use it: one member, no time in it, nothing after it."""

from __future__ import annotations

from isal import igzip, isal_zlib

from .stored_json import malformed

_WINDOW_BITS = 31  # zlib's spelling of "gzip, 32 KiB window"


def pack(plain: bytes) -> bytes:
    """Return the stored form; equal bytes give equal bytes."""
    return igzip.compress(plain, mtime=0)


def unpack(data: bytes, name: str, max_bytes: int) -> bytes:
    """Return what stored bytes hold.

    Args:
        data: The stored bytes.
        name: Blob ID, for the refusal.
        max_bytes: Bound on the unpacked size; no more is ever unpacked.

    Raises:
        Refusal: `BLOB_MALFORMED`.
    """
    unpacker = isal_zlib.decompressobj(wbits=_WINDOW_BITS)
    try:
        plain = unpacker.decompress(data, max_bytes + 1)
    except isal_zlib.error:  # type: ignore[misc] # the stub declares an instance
        raise malformed(name, "it is not gzip") from None
    if len(plain) > max_bytes:
        raise malformed(name, f"it unpacks to more than {max_bytes} bytes")
    if not unpacker.eof:
        raise malformed(name, "its gzip stream is cut off")
    if unpacker.unused_data:
        raise malformed(name, "bytes follow its gzip stream")
    return plain
