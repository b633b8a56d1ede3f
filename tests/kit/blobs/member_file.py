"""Reads and damages the files of a blob directory behind the server's back.

Shares no code with the server: it follows docs/storage.md.
"""

from __future__ import annotations

import base64
import hashlib
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_HEAD = struct.Struct("<8sII")
_ROW = struct.Struct("<32sQQ16s")


@dataclass(frozen=True)
class MemberFile:
    """Bytes at a location in a blob directory: a file, or a member of a pack file.

    Attributes:
        path: The file.
        identifier: Hash of the member in hex; empty if the file is the blob.
    """

    path: Path
    identifier: str = ""

    @classmethod
    def at(cls, blobs: Path, location: Any) -> MemberFile:
        """Return the bytes of any type at a location below a directory."""
        return cls(blob_path(blobs, location.blob_id), location.identifier)

    @property
    def blob_id(self) -> str:
        return self.path.name

    def read_bytes(self) -> bytes:
        """Return the bytes without a check."""
        whole = self.path.read_bytes()
        return read_pack(whole)[self.identifier][0] if self.identifier else whole

    def write_bytes(self, data: bytes) -> None:
        """Replace the bytes; the pack around them stays well-formed."""
        self.path.write_bytes(replaced(self.path.read_bytes(), self.identifier, data))

    def flip(self, position: int = -1) -> None:
        """Flip one bit."""
        data = bytearray(self.read_bytes())
        data[position] ^= 1
        self.write_bytes(bytes(data))

    def unlink(self) -> None:
        """Remove the file with all of its members."""
        self.path.unlink()


def replaced(whole: bytes, identifier: str, data: bytes) -> bytes:
    """Return a blob with one member replaced, or the new bytes if there is no identifier."""
    if not identifier:
        return data
    members = read_pack(whole)
    members[identifier] = (data, members[identifier][1])
    return pack_of(members)


def blob_id_of(whole: bytes) -> str:
    """Return the ID of a blob: the hash of its bytes, in unpadded base64url."""
    return base64.urlsafe_b64encode(hashlib.sha256(whole).digest()).rstrip(b"=").decode()


def blob_path(blobs: Path, blob_id: str) -> Path:
    """Return the file of a blob."""
    return blobs / blob_id[:2] / blob_id


def stored_files(blobs: Path) -> list[Path]:
    """Return the files of all blobs, in order of their IDs."""
    return sorted(
        (path for path in blobs.glob("??/*") if path.is_file()), key=lambda path: path.name
    )


def stored_members(blobs: Path) -> list[MemberFile]:
    """Return all stored values: members of packs, and standalone blobs."""
    return [
        MemberFile(path, identifier)
        for path in stored_files(blobs)
        for identifier in (read_pack(path.read_bytes()) or [""])
    ]


def read_pack(whole: bytes) -> dict[str, tuple[bytes, bytes]]:
    """Return bytes and kind of each member by identifier; empty if the blob is not a pack file."""
    if not whole.startswith(b"TUSKPACK"):
        return {}
    _, version, count = _HEAD.unpack_from(whole)
    assert version == 1
    members = {}
    for number in range(count):
        row = _ROW.unpack_from(whole, _HEAD.size + number * _ROW.size)
        sha256, offset, size, kind = row
        members[sha256.hex()] = (whole[offset : offset + size], kind.rstrip(b"\0"))
    return members


def pack_of(members: dict[str, tuple[bytes, bytes]]) -> bytes:
    """Return a pack file of members: bytes and kind by identifier, without a check of hashes."""
    index, content = [_HEAD.pack(b"TUSKPACK", 1, len(members))], b""
    begin = _HEAD.size + _ROW.size * len(members)
    for identifier in sorted(members):
        data, kind = members[identifier]
        place = begin + len(content)
        index.append(_ROW.pack(bytes.fromhex(identifier), place, len(data), kind))
        content += data
    return b"".join(index) + content
