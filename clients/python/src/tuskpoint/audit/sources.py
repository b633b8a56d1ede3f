"""Where an audit reads: what every source offers, and the blob directory."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Protocol

from .formats.packs import read_pack_index
from .formats.stored import Location, Malformed

_ID_BYTES = 32
_PATCH_ID_BYTES = 37


class BadSource(Exception):
    """A source that cannot be one: its text says what to change."""


class Missing(Exception):
    """The source says that it does not have the blob."""


class Unreadable(Exception):
    """The source gave no answer: nothing is known of the blob. The text says why, in one line."""


class TooLong(Exception):
    """The source has more bytes there than the blob can have."""

    def __init__(self, bound: int) -> None:
        super().__init__(f"it is longer than {bound} bytes")


@dataclass(frozen=True, slots=True)
class Fetched:
    """Bytes that a source gave, and their SHA-256 in lowercase hex."""

    data: bytes
    sha256: str


@dataclass(frozen=True, slots=True)
class Member:
    """A patch of a quilt or a member of a pack file. `kind` is a hint, or empty."""

    identifier: str
    kind: str


@dataclass(slots=True)
class Traffic:
    """What was asked of a source so far."""

    requests: int = 0
    bytes_read: int = 0


class Source(Protocol):
    """Something that has blobs."""

    @property
    def kind(self) -> str:
        """Its kind, for the report."""

    @property
    def places(self) -> Sequence[str]:
        """URLs or the path, without credentials."""

    @property
    def ids_are_hashes(self) -> bool:
        """Whether a blob ID is the SHA-256 of the blob, so that it proves all of its content."""

    @property
    def traffic(self) -> Traffic:
        """What was asked of it so far."""

    @property
    def remarks(self) -> Sequence[str]:
        """What was odd and did not change a verdict, one line each."""

    async def fetch(self, location: Location, max_bytes: int) -> Fetched:
        """Return the bytes at a location; those with another hash only if no others come.

        Raises:
            Missing: It is not there.
            TooLong: It is longer than `max_bytes`.
            Unreadable: The source gives no answer.
        """

    async def members(self, blob_id: str) -> list[Member] | None:
        """Return the patches of a quilt or the members of a pack; `None` if the blob is neither.

        Raises:
            Missing: It is not there.
            Unreadable: The source gives no answer.
        """

    async def close(self) -> None:
        """Let go of connections."""


class DirectorySource:
    """A blob directory, as the server's `--blob-dir` makes it.

    Args:
        root: The directory.

    Raises:
        BadSource: There is no such directory.
    """

    kind = "directory"
    ids_are_hashes = True
    remarks: Sequence[str] = ()

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise BadSource(f"{root} is not a directory; name the server's blob directory")
        self._root = root
        self.traffic = Traffic()

    @property
    def places(self) -> Sequence[str]:
        """The path."""
        return (str(self._root),)

    async def fetch(self, location: Location, max_bytes: int) -> Fetched:
        """Return the bytes of a file; see `Source`."""
        fetched = await asyncio.to_thread(self._read, location, max_bytes)
        self.traffic.requests += 1
        self.traffic.bytes_read += len(fetched.data)
        return fetched

    async def members(self, blob_id: str) -> list[Member] | None:
        """Return the members of a pack file, if it has the SHA-256 that its ID spells."""
        return await asyncio.to_thread(self._members, blob_id)

    async def close(self) -> None:
        """Nothing is open."""

    def _read(self, location: Location, max_bytes: int) -> Fetched:
        with self._open(location.blob_id) as file:
            if location.identifier:
                return _read_member(file, location.identifier, max_bytes)
            return _read_span(file, 0, file.seek(0, os.SEEK_END), max_bytes)

    def _members(self, blob_id: str) -> list[Member] | None:
        with self._open(blob_id) as file:
            try:
                index = read_pack_index(file)
            except Malformed:
                return None
            # Its ID proves what the index names, so that whoever has the ID needs no hash.
            if _sha256_of(file) != hash_of_id(blob_id):
                return None
        return [Member(row.sha256.hex(), row.kind) for row in index]

    @contextlib.contextmanager
    def _open(self, blob_id: str) -> Iterator[BufferedReader]:
        if hash_of_id(blob_id) is None:
            raise Missing
        path = self._root / blob_id[:2] / blob_id
        try:
            if not stat.S_ISREG(path.stat().st_mode):
                raise Unreadable(f"{path} is not a file")
            with path.open("rb") as file:
                yield file
        except FileNotFoundError:
            raise Missing from None
        except OSError as error:
            raise Unreadable(f"{path} cannot be read: {error.strerror}") from None


def hash_of_id(blob_id: str) -> str | None:
    """Return the 32 bytes that a blob ID spells (base64url without padding), as hex.

    In a blob directory they are the SHA-256 of the file; on Walrus they are not.

    Returns:
        `None` if it is no blob ID.
    """
    raw = decoded_id(blob_id)
    return raw.hex() if raw is not None and len(raw) == _ID_BYTES else None


def decoded_id(text: str) -> bytes | None:
    """Return the bytes that an ID spells in base64url without padding; `None` if it is none."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        return None
    return raw if base64.urlsafe_b64encode(raw).rstrip(b"=").decode() == text else None


def is_patch_id(text: str) -> bool:
    """Tell whether a text is the ID of a quilt's patch on Walrus.

    37 bytes in base64url: the quilt's ID, version 1, and the columns that it begins and ends in
    (`crates/walrus-core/src/metadata.rs`).
    """
    raw = decoded_id(text)
    if raw is None or len(raw) != _PATCH_ID_BYTES or raw[32] != 1:
        return False
    return int.from_bytes(raw[33:35], "little") < int.from_bytes(raw[35:37], "little")


def _read_member(file: BufferedReader, identifier: str, max_bytes: int) -> Fetched:
    """Return a member of a pack; of what is no whole pack nothing, with the hash of the file."""
    try:
        index = read_pack_index(file)
    except Malformed:
        return Fetched(b"", _sha256_of(file))
    for row in index:
        if row.sha256.hex() == identifier:
            return _read_span(file, row.offset, row.size, max_bytes)
    raise Missing


def _read_span(file: BufferedReader, offset: int, size: int, max_bytes: int) -> Fetched:
    if size > max_bytes:
        raise TooLong(max_bytes)
    file.seek(offset)
    data = file.read(size)
    return Fetched(data, hashlib.sha256(data).hexdigest())


def _sha256_of(file: BufferedReader) -> str:
    file.seek(0)
    return hashlib.file_digest(file, "sha256").hexdigest()
