"""Pack files: the members of one put, after an index with a row for each member.

Blob directories, object stores and the spool store pack files. docs/storage.md has the format, byte
by byte.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_left
from collections.abc import Callable, Sequence
from io import FileIO

from .api import BlobMember

Read = Callable[[int, int], bytes]
"""Returns `size` bytes from an offset, or fewer if the file ends before."""

MAGIC = b"TUSKPACK"
_VERSION = 1
_HEAD = struct.Struct("<8sII")
_ROW = struct.Struct("<32sQQ16s")
_HASH_BYTES = 32
_KIND_BYTES = 16
# bound on the index that is read into memory; larger than the index of any put
_MOST_MEMBERS = 1_000_000


class NotAPackError(Exception):
    """The file is not a pack; the text gives the reason."""


def pack_pieces(members: Sequence[BlobMember]) -> list[bytes]:
    """Return the bytes of a pack file in pieces: head and index, then each member.

    The bytes do not depend on the order of the members, whose hashes must differ.
    """
    if not 1 <= len(members) <= _MOST_MEMBERS:
        raise ValueError(f"a pack holds 1 to {_MOST_MEMBERS} members, not {len(members)}")
    ordered = sorted(members, key=lambda member: member.sha256)
    index = [_HEAD.pack(MAGIC, _VERSION, len(ordered))]
    offset = _HEAD.size + len(ordered) * _ROW.size
    for member in ordered:
        kind = member.kind.encode("ascii")
        if len(kind) > _KIND_BYTES:
            raise ValueError(f"the kind '{member.kind}' does not fit the index of a pack")
        index.append(_ROW.pack(member.sha256, offset, len(member.data), kind))
        offset += len(member.data)
    return [b"".join(index), *(member.data for member in ordered)]


def reader(file: FileIO) -> Read:
    """Return a function that reads bytes of an open file."""

    def read(offset: int, size: int) -> bytes:
        chunks: list[bytes] = []
        end = offset + size
        while offset < end and (chunk := os.pread(file.fileno(), end - offset, offset)):
            chunks.append(chunk)
            offset += len(chunk)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    return read


def read_rows(read: Read, size: int) -> bytes:
    """Return the rows of the index of a pack file with a given size."""
    head = read(0, _HEAD.size)
    if not head.startswith(MAGIC):
        raise NotAPackError("it is not a pack")
    if len(head) < _HEAD.size:
        raise NotAPackError("it ends within its head")
    _, version, count = _HEAD.unpack(head)
    if version != _VERSION:
        raise NotAPackError(f"it is a pack of version {version}, not {_VERSION}")
    if not 1 <= count <= _MOST_MEMBERS or _HEAD.size + count * _ROW.size > size:
        raise NotAPackError(f"{size} bytes cannot be a pack of {count} members")
    return read(_HEAD.size, count * _ROW.size)


def pack_bytes(sizes: Sequence[int]) -> int:
    """Return the size of the pack file of members of these sizes."""
    return _HEAD.size + sum(sizes) + len(sizes) * _ROW.size


def find(rows: bytes, sha256: bytes) -> tuple[int, int] | None:
    """Return offset and size in bytes of a member; `None` if the pack lacks the member."""
    width = _ROW.size
    start = width * bisect_left(
        range(len(rows) // width), sha256, key=lambda n: rows[n * width : n * width + _HASH_BYTES]
    )
    if rows[start : start + _HASH_BYTES] != sha256:
        return None
    _, offset, size, _ = _ROW.unpack_from(rows, start)
    return offset, size


def read_index(read: Read, size: int) -> list[tuple[bytes, int, int, str]]:
    """Return hash, offset, size and kind of each member of a pack file with a given size.

    The index must account for each byte of the file.
    """
    rows = read_rows(read, size)
    end = _HEAD.size + len(rows)
    index: list[tuple[bytes, int, int, str]] = []
    for sha256, offset, length, kind in _ROW.iter_unpack(rows):
        if offset != end:
            raise NotAPackError(f"its index has a member at byte {offset} instead of {end}")
        if not kind.isascii():
            raise NotAPackError("its index has a kind that is not ASCII")
        if index and index[-1][0] >= sha256:
            raise NotAPackError("its members are not in order")
        end += length
        index.append((sha256, offset, length, kind.rstrip(b"\0").decode("ascii")))
    if end != size:
        raise NotAPackError(f"its members end at byte {end} of {size}")
    return index
