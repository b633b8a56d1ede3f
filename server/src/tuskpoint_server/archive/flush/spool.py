"""Files of the archive: packs on their way, and the name of each tenant's newest catalog.

A spool file is `MAGIC`, the length of the header (8 bytes, big endian), the header (JSON: hash,
size and kind of every member, in order), then the members one after another.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from ...blobs.api import Member
from ...domain.credentials import DEFAULT_TENANT
from ...domain.values import blob_digest

MAGIC = b"tuskpoint-pack-1\n"
_LENGTH_BYTES = 8


class SpoolDamaged(Exception):
    """A spool file is missing or does not hold what was written."""


class Spool:
    """The directory of spool files, created if it is missing."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.mkdir(parents=True, exist_ok=True)

    def write(self, members: Sequence[Member]) -> str:
        """Write members to a new file, fsync file and directory, and return its name.

        Raises:
            OSError: The disk is full or fails; nothing of the file is left.
        """
        name = f"{uuid.uuid4().hex}.pack"
        path = self._path / name
        header = json.dumps(
            [[member.sha256.hex(), len(member.data), member.kind] for member in members],
            separators=(",", ":"),
        ).encode()
        try:
            with path.open("xb") as file:
                file.write(MAGIC)
                file.write(len(header).to_bytes(_LENGTH_BYTES, "big"))
                file.write(header)
                file.writelines(member.data for member in members)
                file.flush()
                os.fsync(file.fileno())
            _sync(self._path)
        except OSError:
            path.unlink(missing_ok=True)
            raise
        return name

    def read(self, name: str) -> list[Member]:
        """Return the members of a file, in order, their hashes checked; or `SpoolDamaged`."""
        try:
            content = (self._path / name).read_bytes()
        except FileNotFoundError:
            raise SpoolDamaged(f"spool file {name} is missing") from None
        start = len(MAGIC) + _LENGTH_BYTES
        length = int.from_bytes(content[len(MAGIC) : start], "big")
        try:
            if not content.startswith(MAGIC):
                raise ValueError
            header = [
                (bytes.fromhex(digest), int(size), kind)
                for digest, size, kind in json.loads(content[start : start + length])
            ]
        except (TypeError, ValueError):
            raise SpoolDamaged(f"spool file {name} has no readable header") from None
        members = []
        position = start + length
        for sha256, size, kind in header:
            data = content[position : position + size]
            if blob_digest(data) != sha256:
                raise SpoolDamaged(f"spool file {name} does not hold member {sha256.hex()}")
            members.append(Member(sha256, data, kind))
            position += size
        return members

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        (self._path / name).unlink(missing_ok=True)

    def keep_only(self, names: set[str]) -> None:
        """Remove every file that no pack refers to."""
        for path in self._path.iterdir():
            if path.name not in names:
                path.unlink(missing_ok=True)

    def size_bytes(self) -> int:
        """Return the bytes of all files."""
        total = 0
        for path in self._path.iterdir():
            try:
                total += path.stat().st_size
            except FileNotFoundError:
                continue  # certified meanwhile
        return total


class Pointer:
    """The pointer files: that of the tenant `default`, whose name others carry a suffix to."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def path(self, tenant: str) -> Path:
        """Return the file of a tenant."""
        if tenant == DEFAULT_TENANT:
            return self._path
        return self._path.with_name(f"{self._path.name}.{quote(tenant, safe='')}")

    def write(self, tenant: str, blob_id: str) -> None:
        """Replace the file of a tenant by one that holds this blob ID and a newline.

        A reader sees the old or the new content, also after a crash.

        Raises:
            OSError: The file cannot be written; the old one stays.
        """
        path = self.path(tenant)
        path.parent.mkdir(parents=True, exist_ok=True)
        # Begins with a dot, so that it is no tenant's file.
        part = path.with_name(f".{path.name}.part")
        with part.open("w", encoding="utf-8") as file:
            file.write(f"{blob_id}\n")
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        _sync(path.parent)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
