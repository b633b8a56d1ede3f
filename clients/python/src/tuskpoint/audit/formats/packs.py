"""The pack files of a blob directory. See docs/storage.md."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from io import BufferedReader

from .stored import Malformed

_MAGIC = b"TUSKPACK"
_VERSION = 1
_HEAD = struct.Struct("<8sII")
_ROW = struct.Struct("<32sQQ16s")
_MOST_MEMBERS = 1_000_000


@dataclass(frozen=True, slots=True)
class PackRow:
    """A member of a pack file.

    Attributes:
        sha256: SHA-256 of its bytes in lowercase hex; also its identifier.
        offset: Where they begin in the file.
        size: Their number.
        kind: A hint, or empty.
    """

    sha256: str
    offset: int
    size: int
    kind: str


def read_pack_index(file: BufferedReader) -> list[PackRow]:
    """Return the index of a pack file; its members lie within the file.

    Raises:
        Malformed: It is no pack file, or its index does not fit it.
    """
    return [_row(*row) for row in _ROW.iter_unpack(_read_rows(file))]


def find_in_pack(file: BufferedReader, identifier: str) -> PackRow | None:
    """Return the member of a pack file with a hash in hex; `None` if there is none.

    Raises:
        Malformed: As for `read_pack_index`.
    """
    for row in _ROW.iter_unpack(_read_rows(file)):
        if row[0].hex() == identifier:
            return _row(*row)
    return None


def _read_rows(file: BufferedReader) -> bytes:
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size or not head.startswith(_MAGIC):
        raise Malformed("it is not a pack")
    _, version, count = _HEAD.unpack(head)
    if version != _VERSION:
        raise Malformed(f"it is a pack of version {version}")
    if not 1 <= count <= _MOST_MEMBERS or _HEAD.size + count * _ROW.size > size:
        raise Malformed(f"{size} bytes cannot be a pack of {count} members")
    rows = file.read(count * _ROW.size)
    if any(offset + length > size for _, offset, length, _ in _ROW.iter_unpack(rows)):
        raise Malformed("a member lies past its end")
    return rows


def _row(sha256: bytes, offset: int, size: int, kind: bytes) -> PackRow:
    return PackRow(sha256.hex(), offset, size, kind.rstrip(b"\0").decode(errors="replace"))
