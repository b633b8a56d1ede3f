"""Stored values: their digests, and bytes that are plain, compressed or a patch.

Zstandard (RFC 8878), frames with their content size. A patch is a frame that was compressed
with another value, its keyframe, as prefix: only the same keyframe opens the patch.
"""

from __future__ import annotations

import hashlib
import sys
import threading
from enum import IntEnum
from typing import NamedTuple

from .errors import malformed_bytes
from .model import Value

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

DIGEST_BYTES = 32
PREFIX_BYTES = 16  # of a digest; names a value of another segment
_JOINED_BYTES = 4096


def begin_digest(kind: str) -> hashlib._Hash:
    """Start the digest of a value of this type, which `tuskpoint.v1.Channel.digest` defines.

    The type has no zero byte, so different values have different inputs.
    """
    return hashlib.sha256(kind.encode() + b"\0")


def digest_of(kind: str, data: bytes) -> bytes:
    """Return the digest of a value of this type with these bytes."""
    if len(data) < _JOINED_BYTES:  # a second call takes less time than a copy of the bytes
        return hashlib.sha256(b"%b\0%b" % (kind.encode(), data)).digest()
    digest = begin_digest(kind)
    digest.update(data)
    return digest.digest()


def value_digest(value: Value) -> bytes:
    """Return the digest of a value."""
    return digest_of(value.type, value.data)


def blob_digest(data: bytes) -> bytes:
    """Return the SHA-256 over exact stored bytes."""
    return hashlib.sha256(data).digest()


def split(data: bytes, length: int) -> list[bytes]:
    """Return bytes in pieces of this length; the last one may be shorter."""
    return [data[start : start + length] for start in range(0, len(data), length)]


MIN_COMPRESSED = 2048
"""Bytes below which a value is stored uncompressed.

For a small value a frame costs more than all other work, and each call may yield the interpreter
to another thread. Segments are compressed as a whole.
"""

MIN_KEYFRAME = 8  # least bytes of a keyframe; Zstandard accepts no shorter prefix
_LEVEL = 2  # a tenth smaller than level 1 for large values, for a quarter more time
_FRAME_LEVEL = 1
_MIN_WINDOW_LOG = 10
_EMPTY_FRAME_BYTES = 9  # an empty frame, the shortest stored frame

_FRAME_START = b"\x28\xb5\x2f\xfd"
_SIZES = {0x20: (1, 0), 0x60: (2, 256), 0xA0: (4, 0)}
"""Bytes of the content size, and the amount to add, by the descriptor of a frame (RFC 8878,
3.1.1.1): a single segment without checksum and dictionary, as this module writes all frames."""


class Encoding(IntEnum):
    """How a value's stored bytes are read; the numbers are stored."""

    PLAIN = 0
    ZSTD = 1
    PATCH = 2


class DamagedValueError(Exception):
    """Stored bytes cannot be read, or were changed."""


class UnopenedBytes(bytes):
    """Empty bytes in place of sealed bytes that their key does not open.

    Attributes:
        stored: The sealed bytes.
        problem: For people: why the bytes count as damaged.
    """

    stored: bytes
    problem: str

    def __new__(cls, stored: bytes, problem: str) -> UnopenedBytes:
        """Keep the sealed bytes and the problem."""
        unopened = super().__new__(cls)
        unopened.stored, unopened.problem = stored, problem
        return unopened


class PackedValue(NamedTuple):
    """A value's stored bytes."""

    encoding: Encoding
    data: bytes
    keyframe: bytes | None = None  # digest of the value that a patch is based on


class _ThreadCompressors(threading.local):
    """Compressors of a thread, which keep their tables between uses."""

    def __init__(self) -> None:
        self.values = zstd.ZstdCompressor(level=_LEVEL)
        self.frames = zstd.ZstdCompressor(level=_FRAME_LEVEL)


_per_thread = _ThreadCompressors()


def compress(data: bytes) -> PackedValue:
    """Return stored bytes that need no other value: compressed if that is shorter."""
    if len(data) >= MIN_COMPRESSED:
        packed = _per_thread.values.compress(data, zstd.ZstdCompressor.FLUSH_FRAME)
        if len(packed) < len(data):
            return PackedValue(Encoding.ZSTD, packed)
    return PackedValue(Encoding.PLAIN, data)


def patch(data: bytes, keyframe: bytes) -> bytes:
    """Return a frame with the difference between a value and a keyframe of at least `MIN_KEYFRAME`.

    Long-distance matching finds a shared stretch anywhere in the keyframe; the level's own search
    would look only a few positions back.
    """
    window_log = max(_MIN_WINDOW_LOG, (len(data) + len(keyframe)).bit_length())
    return zstd.compress(
        data,
        options={
            zstd.CompressionParameter.compression_level: _LEVEL,
            zstd.CompressionParameter.window_log: window_log,
            zstd.CompressionParameter.enable_long_distance_matching: 1,
        },
        zstd_dict=zstd.ZstdDict(keyframe, is_raw=True).as_prefix,
    )


def unpack(encoding: int, data: bytes, size: int, keyframe: bytes | None, max_size: int) -> bytes:
    """Return a value of `size` bytes from its stored bytes; a patch needs its whole keyframe.

    Nothing is allocated before the declared sizes agree with one another and are within the limit.

    Raises:
        DamagedValueError: The bytes are damaged, or have another encoding or size.
    """
    if not 0 <= size <= max_size:
        raise DamagedValueError(f"a value of {size} bytes, where {max_size} is the most")
    if encoding == Encoding.PLAIN:
        if len(data) != size:
            raise DamagedValueError(f"{len(data)} bytes are stored of a value of {size}")
        return data
    # A new decompressor takes longer than unpacking a small value.
    if encoding == Encoding.ZSTD:
        decompressor = zstd.ZstdDecompressor()
    elif encoding == Encoding.PATCH:
        if keyframe is None or len(keyframe) < MIN_KEYFRAME:
            raise DamagedValueError("a patch without its keyframe")
        based_on = zstd.ZstdDict(keyframe, is_raw=True).as_prefix
        decompressor = zstd.ZstdDecompressor(zstd_dict=based_on)
    else:
        raise DamagedValueError(f"there is no encoding {encoding}")
    declared = _declared_size(data)
    if declared != size:
        raise DamagedValueError(f"a frame of {declared} bytes for a value of {size}")
    return _decompress(data, size, decompressor)


def _declared_size(frame: bytes | memoryview) -> int:
    # zstd may read past the end of input that is shorter than an empty frame.
    if len(frame) < _EMPTY_FRAME_BYTES:
        raise DamagedValueError("a frame that is cut off")
    if frame[:4] == _FRAME_START and frame[4] in _SIZES:
        # The library has the same check, and takes three times as long.
        length, added = _SIZES[frame[4]]
        return int.from_bytes(frame[5 : 5 + length], "little") + added
    try:
        size = zstd.get_frame_info(frame).decompressed_size
    except zstd.ZstdError as error:
        raise DamagedValueError(f"a frame that cannot be read: {error}") from None
    if size is None:
        raise DamagedValueError("a frame without a declared content size")
    return size


def _decompress(frame: bytes | memoryview, size: int, decompressor: zstd.ZstdDecompressor) -> bytes:
    """Return the content of a frame that declares this size; no bytes may follow the frame."""
    try:
        plain = decompressor.decompress(frame, size)
    except zstd.ZstdError as error:
        raise DamagedValueError(f"a frame that cannot be read: {error}") from None
    if decompressor.unused_data:
        raise DamagedValueError("bytes follow a frame")
    if not decompressor.eof:
        raise DamagedValueError("a frame that is cut off")
    if len(plain) != size:
        raise DamagedValueError(f"a frame that gives {len(plain)} bytes and not {size}")
    return plain


def pack_frame(plain: bytes) -> bytes:
    """Return a frame with these bytes."""
    return _per_thread.frames.compress(plain, zstd.ZstdCompressor.FLUSH_FRAME)


def content_size(frame: bytes | memoryview, name: str, max_bytes: int) -> int:
    """Return the content size that a frame declares, and refuse a size above a bound."""
    try:
        size = _declared_size(frame)
    except DamagedValueError as error:
        raise malformed_bytes(name, f"it is not zstd as it is stored: {error}") from None
    if size > max_bytes:
        raise malformed_bytes(name, f"it unpacks to {size} bytes and the bound is {max_bytes}")
    return size


def unpack_frame(frame: bytes | memoryview, name: str, max_bytes: int) -> bytes:
    """Return the content of a frame after checking its declared size; no bytes may follow."""
    size = content_size(frame, name, max_bytes)
    try:
        return _decompress(frame, size, zstd.ZstdDecompressor())
    except DamagedValueError as error:
        raise malformed_bytes(name, f"it is not zstd as it is stored: {error}") from None


def frame_size(data: bytes, name: str) -> int:
    """Return the length of the first frame in some bytes."""
    if len(data) < _EMPTY_FRAME_BYTES:
        raise malformed_bytes(name, "it is too short for a zstd frame")
    try:
        return zstd.get_frame_size(data)
    except zstd.ZstdError:
        raise malformed_bytes(name, "it does not begin with a whole zstd frame") from None
