"""Pack files of a blob directory. See docs/storage.md."""

from __future__ import annotations

import os
import struct
from io import BufferedReader
from typing import NamedTuple

from .stored import MalformedError

_MAGIC = b"TUSKPACK"
_VERSION = 1
_HEAD = struct.Struct("<8sII")
_ROW = struct.Struct("<32sQQ16s")
_MOST_MEMBERS = 1_000_000


class PackRow(NamedTuple):
    """A member of a pack file: its hash and the position of its bytes. `name` contains its kind."""

    sha256: bytes
    offset: int
    size: int
    name: bytes

    @property
    def kind(self) -> str:
        """Kind of the member, a hint, or empty."""
        return self.name.rstrip(b"\0").decode(errors="replace")


def read_pack_index(file: BufferedReader) -> list[PackRow]:
    """Return the index of a pack file. All members are within the file.

    Raises:
        MalformedError: The file is not a pack file, or its index does not fit the file.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size or not head.startswith(_MAGIC):
        raise MalformedError("it is not a pack")
    _, version, count = _HEAD.unpack(head)
    if version != _VERSION:
        raise MalformedError(f"it is a pack of version {version}")
    if not 1 <= count <= _MOST_MEMBERS or _HEAD.size + count * _ROW.size > size:
        raise MalformedError(f"{size} bytes cannot be a pack of {count} members")
    rows = [PackRow(*row) for row in _ROW.iter_unpack(file.read(count * _ROW.size))]
    if any(row.offset + row.size > size for row in rows):
        raise MalformedError("a member ends past its end")
    return rows
