"""The pack file: the members of one put, behind an index of them.

| bytes        | content                                                     |
|--------------|-------------------------------------------------------------|
| 8            | `TUSKPACK`                                                  |
| 4            | version of the format, 1                                    |
| 4            | number of members, at least 1                               |
| 64 each      | the index: a row per member, in ascending order of the hash |
| the rest     | the members' bytes, in the order of the rows, without gaps  |

A row is the member's SHA-256 (32 bytes), the offset of its bytes in the file (8), their
number (8) and its kind (16, ASCII, filled up with zero bytes). Numbers are unsigned and
little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import FileIO
from itertools import pairwise

from ..api import Member

MAGIC = b"TUSKPACK"

_VERSION = 1
_HEAD = struct.Struct("<8sII")
_ROW = struct.Struct("<32sQQ16s")
_PLACE = struct.Struct("<QQ")
_HASH_BYTES = 32
_MOST_MEMBERS = 1_000_000
"""Bound on the index that is read into memory; nobody puts as many."""


class NotAPackError(Exception):
    """A file that is no pack; the text says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Row:
    """A member as the index has it.

    Attributes:
        sha256: Hash of its bytes.
        offset: Where they begin in the file.
        size: Their number.
        kind: Its kind; empty if it has none.
    """

    sha256: bytes
    offset: int
    size: int
    kind: str


class PackIndex:
    """The checked index of a pack file.

    It keeps the rows as they are in the file, 64 bytes for each member.

    Args:
        rows: The rows, checked.
    """

    def __init__(self, rows: bytes) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows) // _ROW.size

    @property
    def size_bytes(self) -> int:
        """Bytes that it takes in memory."""
        return len(self._rows)

    def find(self, sha256: bytes) -> tuple[int, int] | None:
        """Return offset and size in bytes of a member; `None` if it is not in the pack."""
        rows, low, high = self._rows, 0, len(self)
        while low < high:
            middle = (low + high) // 2
            at = middle * _ROW.size
            found = rows[at : at + _HASH_BYTES]
            if found == sha256:
                offset, size = _PLACE.unpack_from(rows, at + _HASH_BYTES)
                return offset, size
            if found < sha256:
                low = middle + 1
            else:
                high = middle
        return None

    def __iter__(self) -> Iterator[Row]:
        for sha256, offset, size, kind in _ROW.iter_unpack(self._rows):
            yield Row(sha256, offset, size, kind.rstrip(b"\0").decode("ascii"))


def pack_pieces(members: Sequence[Member]) -> list[bytes]:
    """Return the bytes of a pack file in pieces: head and index, then each member.

    The same members make the same bytes, whatever their order.

    Args:
        members: At least one, no two with the same hash.

    Raises:
        ValueError: A kind is longer than 16 bytes or not ASCII, or the members are too many.
    """
    if not 1 <= len(members) <= _MOST_MEMBERS:
        raise ValueError(f"a pack holds 1 to {_MOST_MEMBERS} members, not {len(members)}")
    ordered = sorted(members, key=lambda member: member.sha256)
    index = [_HEAD.pack(MAGIC, _VERSION, len(ordered))]
    offset = _HEAD.size + len(ordered) * _ROW.size
    for member in ordered:
        kind = member.kind.encode("ascii")
        if len(kind) > _ROW.size - _HASH_BYTES - _PLACE.size:
            raise ValueError(f"the kind '{member.kind}' does not fit the index of a pack")
        index.append(_ROW.pack(member.sha256, offset, len(member.data), kind))
        offset += len(member.data)
    return [b"".join(index), *(member.data for member in ordered)]


def is_pack(data: bytes) -> bool:
    """Tell whether bytes begin as a pack file does."""
    return data.startswith(MAGIC)


def read_index(file: FileIO, size: int) -> PackIndex:
    """Return the index of a pack file, checked as far as it can be without the members.

    Args:
        file: The file.
        size: Its size in bytes.

    Raises:
        NotAPackError: It is no pack file, or its index does not account for each of its bytes.
        OSError: It cannot be read.
    """
    file.seek(0)
    head = file.read(_HEAD.size)
    if not is_pack(head):
        raise NotAPackError("it is not a pack")
    if len(head) < _HEAD.size:
        raise NotAPackError("it ends within its head")
    _, version, count = _HEAD.unpack(head)
    if version != _VERSION:
        raise NotAPackError(f"it is a pack of version {version}, not {_VERSION}")
    end = _HEAD.size + count * _ROW.size
    if not 1 <= count <= _MOST_MEMBERS or end > size:
        raise NotAPackError(f"{size} bytes cannot be a pack of {count} members")
    rows = file.read(end - _HEAD.size)
    _check(rows, end, size)
    return PackIndex(rows)


def _check(rows: bytes, end: int, size: int) -> None:
    """Check that rows are in order and that the members follow without gaps up to the end."""
    hashes = []
    for sha256, offset, length, kind in _ROW.iter_unpack(rows):
        if offset != end:
            raise NotAPackError(f"its index has a member at byte {offset} instead of {end}")
        if not kind.isascii():
            raise NotAPackError("its index has a kind that is not ASCII")
        end += length
        hashes.append(sha256)
    if end != size:
        raise NotAPackError(f"its members end at byte {end} of {size}")
    if any(first >= second for first, second in pairwise(hashes)):
        raise NotAPackError("its members are not in order")
