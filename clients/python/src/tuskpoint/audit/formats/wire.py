"""Bounds on what is unpacked and parsed: what comes from a blob store may come from anybody."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Mapping
from typing import Any

from .stored import Malformed

MAX_FIELDS = 1 << 21
"""Fields of a message, those of nested messages included, as docs/handoff.md has it.

An empty message takes two bytes packed away in another, and forty in memory.
"""

_GZIP = 31  # zlib's spelling of "gzip, 32 KiB window"
_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5
_LONGEST_VARINT = 10

_Shape = Mapping[int, Any]
"""Number of each field that holds a message -> shape of that message."""


def unpack(data: bytes, max_bytes: int) -> bytes:
    """Return what gzip (RFC 1952, one member) holds; never more than `max_bytes` are unpacked.

    Raises:
        Malformed: It is not gzip, is cut off, is followed by more, or unpacks to more.
    """
    unpacker = zlib.decompressobj(_GZIP)
    try:
        plain = unpacker.decompress(data, max_bytes + 1)
    except zlib.error:
        raise Malformed("it is not gzip, or damaged") from None
    if len(plain) > max_bytes:
        raise Malformed(f"it unpacks to more than {max_bytes} bytes")
    if not unpacker.eof:
        raise Malformed("its gzip stream is cut off")
    if unpacker.unused_data:
        raise Malformed("bytes follow its gzip stream")
    return plain


def check_fields(plain: bytes, descriptor: Any, most: int) -> None:
    """Count the fields of a serialized message before it is parsed.

    Args:
        plain: The message.
        descriptor: Descriptor of its type (`Message.DESCRIPTOR`).
        most: Bound on their number.

    Raises:
        Malformed: There are more, or it is no message.
    """
    open_messages: list[tuple[int, _Shape]] = [(len(plain), _shape(descriptor))]
    at = 0
    try:
        while open_messages:
            end, shape = open_messages[-1]
            if at == end:
                open_messages.pop()
                continue
            most -= 1
            if most < 0:
                raise Malformed("it has more fields than any reader takes")
            tag, at = _varint(plain, at)
            at, inner_end = _skip(plain, at, tag & 7)
            inner = shape.get(tag >> 3) if tag & 7 == _LENGTH else None
            if max(at, inner_end) > end:
                raise Malformed("a field is longer than what holds it")
            if inner is None:
                at = inner_end
            else:
                open_messages.append((inner_end, inner))
    except IndexError:
        raise Malformed("it ends inside a field") from None


def _skip(plain: bytes, at: int, kind: int) -> tuple[int, int]:
    """Return where the content of a field begins and ends."""
    if kind == _LENGTH:
        size, at = _varint(plain, at)
        return at, at + size
    if kind == _VARINT:
        _, at = _varint(plain, at)
        return at, at
    if kind == _EIGHT_BYTES:
        return at, at + 8
    if kind == _FOUR_BYTES:
        return at, at + 4
    raise Malformed("a field has an unknown type")


def _varint(plain: bytes, at: int) -> tuple[int, int]:
    number = 0
    for place in range(_LONGEST_VARINT):
        byte = plain[at + place]
        number |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return number, at + place + 1
    raise Malformed("a number is too long")


@functools.cache
def _shape(descriptor: Any) -> _Shape:
    return {
        field.number: _shape(field.message_type)
        for field in descriptor.fields
        if field.message_type is not None
    }
