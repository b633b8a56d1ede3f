"""Bounds on unpacked and parsed data, because anybody may have written to a blob store."""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from typing import Any

from .stored import MalformedError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_SHORTEST_FRAME = 9  # size of an empty frame; zstd may read past the end of shorter input
_SHORTEST_FIELD = 2
_COUNTED_ABOVE = 1 << 20  # size above which the fields of a message are always counted
_ROW_FIELDS, _INNER_FIELDS = 7, 4
"""Least fields that a row, or a message in a row, counts for: an empty one costs memory, too."""

_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5
_FIXED = {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}
_LONGEST_VARINT = 10

_Shape = Mapping[int, Any]
"""Maps the number of each field with a message to the shape of that message."""


def declared_size(frame: bytes | memoryview) -> int:
    """Return the content size that a zstd frame declares.

    Raises:
        MalformedError: The bytes are not a frame, or the frame declares no size.
    """
    try:
        size = (
            zstd.get_frame_info(frame).decompressed_size if len(frame) >= _SHORTEST_FRAME else None
        )
    except zstd.ZstdError:
        size = None
    if size is None:
        raise MalformedError("it is not zstd with a declared content size")
    return size


def unpack(frame: bytes | memoryview, max_bytes: int, prefix: bytes | None = None) -> bytes:
    """Return the content of a zstd frame. Nothing may follow the frame.

    Args:
        frame: The frame.
        max_bytes: Bound on the content, checked before unpacking.
        prefix: The keyframe of a patch.

    Raises:
        MalformedError: The bytes are not a frame. Or the frame is damaged, exceeds the bound, or
            differs from its declared size.
    """
    size = declared_size(frame)
    if size > max_bytes:
        raise MalformedError(f"it unpacks to {size} bytes where {max_bytes} are the most")
    dictionary = None if prefix is None else zstd.ZstdDict(prefix, is_raw=True).as_prefix
    unpacker = zstd.ZstdDecompressor(zstd_dict=dictionary)
    try:
        plain = unpacker.decompress(frame, size + 1)
    except zstd.ZstdError:
        raise MalformedError("its zstd frame is damaged") from None
    if not unpacker.eof or len(plain) != size:
        raise MalformedError("its zstd frame is cut off, or of another size than it declares")
    if unpacker.unused_data:
        raise MalformedError("bytes follow its zstd frame")
    return plain


def first_frame(data: bytes) -> memoryview:
    """Return the first frame at the start of some bytes.

    Raises:
        MalformedError: The bytes do not start with a whole frame.
    """
    try:
        if len(data) >= _SHORTEST_FRAME:
            return memoryview(data)[: zstd.get_frame_size(data)]
    except zstd.ZstdError:
        pass
    raise MalformedError("it does not begin with a whole zstd frame")


def check_fields(plain: bytes, descriptor: Any, most: int) -> None:
    """Count the fields of a serialized message before parsing, including nested fields.

    Args:
        plain: The message.
        descriptor: Descriptor of the message's type (`Message.DESCRIPTOR`).
        most: Bound on the number of fields.

    Raises:
        MalformedError: There are more fields, or the bytes are not a message.
    """
    if len(plain) <= min(_SHORTEST_FIELD * most, _COUNTED_ABOVE):
        return
    # For each open message: its end, its shape, and the number of fields that may remain after its
    # end.
    open_messages: list[tuple[int, _Shape, int]] = [(len(plain), _shape(descriptor), most)]
    at = 0
    try:
        while open_messages:
            end, shape, bound = open_messages[-1]
            if at == end:
                open_messages.pop()
                most = min(most, bound)
                continue
            most -= 1
            if most < 0:
                raise MalformedError("it has more fields than any reader takes")
            tag, at = _varint(plain, at)
            kind, inner, size = tag & 7, None, 0
            if kind == _LENGTH:
                size, at = _varint(plain, at)
                inner = shape.get(tag >> 3)
            elif kind == _VARINT:
                _, at = _varint(plain, at)
            elif kind in _FIXED:
                size = _FIXED[kind]
            else:
                raise MalformedError("a field has an unknown type")
            if at + size > end:
                raise MalformedError("a field is longer than what holds it")
            if inner is None:
                at += size
            else:
                least = _ROW_FIELDS if len(open_messages) == 1 else _INNER_FIELDS
                open_messages.append((at + size, inner, most + 1 - least))
    except IndexError:
        raise MalformedError("it ends inside a field") from None


def _varint(plain: bytes, at: int) -> tuple[int, int]:
    number = 0
    for place in range(_LONGEST_VARINT):
        byte = plain[at + place]
        number |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return number, at + place + 1
    raise MalformedError("a number is too long")


@functools.cache
def _shape(descriptor: Any) -> _Shape:
    return {
        field.number: _shape(field.message_type)
        for field in descriptor.fields
        if field.message_type is not None
    }
