"""Counting the fields of a message before it is parsed.

An empty message takes two bytes inside another one, a hundred in memory, and next to nothing
once it is packed: without a bound a blob of a megabyte, made by somebody who means harm, takes
all the memory there is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MAX_FIELDS = 1 << 21
"""Fields of a message that are read at most, those of nested messages included."""

_SHORTEST = 2  # bytes of a field
_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5
"""Wire types (protobuf.dev/programming-guides/encoding); groups are of no message here."""

_FIXED = {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}

Shape = Mapping[int, Any]
"""Shapes of the messages in a message, by the number of their field."""


def shape(descriptor: Any) -> Shape:
    """Return the shape of a message; the runtime has descriptors of its own type."""
    return {
        field.number: shape(field.message_type)
        for field in descriptor.fields
        if field.message_type is not None
    }


def has_too_many(plain: bytes, of: Shape) -> bool:
    """Return whether a serialized message has more fields than are read.

    Args:
        plain: The message.
        of: Its shape.

    Raises:
        ValueError: It is not a message.
    """
    if len(plain) <= _SHORTEST * MAX_FIELDS:
        return False
    try:
        return _left(plain, 0, len(plain), of, MAX_FIELDS) < 0
    except IndexError:
        raise ValueError("it ends inside a field") from None


def _left(plain: bytes, at: int, end: int, of: Shape, left: int) -> int:
    """Return how many fields may follow those of a message; negative: it has too many."""
    while at < end and left >= 0:
        left -= 1
        tag, at = plain[at], at + 1
        if tag >= 0x80:
            tag, at = _varint(plain, at - 1)
        kind = tag & 7
        if kind == _LENGTH:
            size, at = _varint(plain, at)
            if at + size > end:
                raise ValueError("a field is longer than what holds it")
            inner = of.get(tag >> 3)
            if inner is not None:
                left = _left(plain, at, at + size, inner, left)
            at += size
        elif kind == _VARINT:
            _, at = _varint(plain, at)
        elif kind in _FIXED:
            at += _FIXED[kind]
        else:
            raise ValueError("a field has an unknown type")
    return left


def _varint(plain: bytes, at: int) -> tuple[int, int]:
    """Return a number and where it ends."""
    byte = plain[at]
    if byte < 0x80:
        return byte, at + 1
    number, shift = byte & 0x7F, 7
    while byte >= 0x80:
        at += 1
        byte = plain[at]
        number |= (byte & 0x7F) << shift
        shift += 7
        if shift > 70:
            raise ValueError("a number is too long")
    return number, at + 1
