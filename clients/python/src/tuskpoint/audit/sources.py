"""Sources of an audit: their interface, and the blob directory."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hashlib
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Protocol

from .formats.packs import read_pack_index
from .formats.stored import Location, MalformedError

_ID_BYTES = 32
_PATCH_ID_BYTES = 37


class BadSource(Exception):
    """A source is misconfigured. The text has the remedy."""


class BlobMissingError(Exception):
    """The source does not have the blob."""


class BlobUnreadableError(Exception):
    """The source gave no answer: the blob may exist. The text has the reason, in one line."""


class BlobTooLongError(Exception):
    """The source has more bytes than the blob can have."""

    def __init__(self, bound: int) -> None:
        super().__init__(f"it is longer than {bound} bytes")


@dataclass(frozen=True, slots=True)
class FetchedBytes:
    """Bytes from a source, and their SHA-256 in lowercase hex."""

    data: bytes
    sha256: str


@dataclass(frozen=True, slots=True)
class Member:
    """A patch of a quilt or a member of a pack file. `kind` is a hint, or empty."""

    identifier: str
    kind: str


@dataclass(slots=True)
class Traffic:
    """The traffic of a source so far."""

    requests: int = 0
    bytes_read: int = 0


class Source(Protocol):
    """A place with blobs."""

    @property
    def kind(self) -> str:
        """Kind of the source, for the report."""

    @property
    def places(self) -> Sequence[str]:
        """URLs or the path of the source, without credentials."""

    @property
    def ids_are_hashes(self) -> bool:
        """Whether a blob ID is the SHA-256 of the blob and so proves its content."""

    @property
    def traffic(self) -> Traffic:
        """Traffic of the source so far."""

    @property
    def remarks(self) -> Sequence[str]:
        """Anomalies that did not change a verdict, one line each."""

    async def fetch(self, location: Location, max_bytes: int) -> FetchedBytes:
        """Return the bytes at a location; bytes with another hash only if there are no better ones.

        Raises:
            BlobMissingError: The source does not have the bytes.
            BlobTooLongError: The bytes exceed `max_bytes`.
            BlobUnreadableError: The source gives no answer.
        """

    async def members(self, blob_id: str) -> list[Member] | None:
        """Return the patches of a quilt or the members of a pack, or `None` for any other blob.

        Raises:
            BlobMissingError: The source does not have the blob.
            BlobUnreadableError: The source gives no answer.
        """

    async def close(self) -> None:
        """Close the connections."""


class PackSource(ABC):
    """A place with pack files of the server: a blob directory, or a bucket."""

    kind: str
    ids_are_hashes = True
    remarks: Sequence[str] = ()

    def __init__(self, place: str) -> None:
        self.places: Sequence[str] = (place,)
        self.traffic = Traffic()

    async def fetch(self, location: Location, max_bytes: int) -> FetchedBytes:
        """Return the bytes of a blob, or of a member of a blob; see `Source`."""
        fetched = await asyncio.to_thread(self._read, location, max_bytes)
        self.traffic.requests += 1
        self.traffic.bytes_read += len(fetched.data)
        return fetched

    async def members(self, blob_id: str) -> list[Member] | None:
        """Return the members of a pack file, if the SHA-256 of the file is in its ID."""
        return await asyncio.to_thread(self._members, blob_id)

    async def close(self) -> None:  # noqa: B027 - nothing has to be closed
        """Do nothing: no file stays open."""

    @abstractmethod
    def _open(self, blob_id: str) -> AbstractContextManager[BufferedReader]:
        """Open a blob; raise as described in `Source.members`."""

    def _read(self, location: Location, max_bytes: int) -> FetchedBytes:
        with self._open(location.blob_id) as file:
            if location.identifier:
                return _read_member(file, location.identifier, max_bytes)
            return _read_span(file, 0, file.seek(0, os.SEEK_END), max_bytes)

    def _members(self, blob_id: str) -> list[Member] | None:
        with self._open(blob_id) as file:
            try:
                index = read_pack_index(file)
            except MalformedError:
                return None
            # The ID is the hash of the file, so a caller with the ID needs no other hash.
            if _sha256_of(file) != hash_of_id(blob_id):
                return None
        return [Member(row.sha256.hex(), row.kind) for row in index]


class DirectorySource(PackSource):
    """A blob directory of the server's `--blob-dir`.

    Args:
        root: The directory.

    Raises:
        BadSource: There is no such directory.
    """

    kind = "directory"

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise BadSource(f"{root} is not a directory; name the server's blob directory")
        super().__init__(str(root))
        self._root = root

    @contextlib.contextmanager
    def _open(self, blob_id: str) -> Iterator[BufferedReader]:
        if hash_of_id(blob_id) is None:
            raise BlobMissingError
        path = self._root / blob_id[:2] / blob_id
        try:
            if not stat.S_ISREG(path.stat().st_mode):
                raise BlobUnreadableError(f"{path} is not a file")
            with path.open("rb") as file:
                yield file
        except FileNotFoundError:
            raise BlobMissingError from None
        except OSError as error:
            raise BlobUnreadableError(f"{path} cannot be read: {error.strerror}") from None


def hash_of_id(blob_id: str) -> str | None:
    """Return the 32 bytes of a blob ID (base64url without padding), as hex.

    In a blob directory these bytes are the SHA-256 of the file; on Walrus they are not.

    Returns:
        `None` if the text is not a blob ID.
    """
    raw = decoded_id(blob_id)
    return raw.hex() if raw is not None and len(raw) == _ID_BYTES else None


def decoded_id(text: str) -> bytes | None:
    """Return the bytes of base64url without padding, or `None` if the text is something else."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        return None
    return raw if base64.urlsafe_b64encode(raw).rstrip(b"=").decode() == text else None


def is_patch_id(text: str) -> bool:
    """Return whether a text is the ID of a quilt's patch on Walrus.

    Such an ID is 37 bytes in base64url: the quilt's ID, version 1, and the first and the last
    column (`crates/walrus-core/src/metadata.rs`).
    """
    raw = decoded_id(text)
    if raw is None or len(raw) != _PATCH_ID_BYTES or raw[32] != 1:
        return False
    return int.from_bytes(raw[33:35], "little") < int.from_bytes(raw[35:37], "little")


def _read_member(file: BufferedReader, identifier: str, max_bytes: int) -> FetchedBytes:
    """Return a member of a pack; for an incomplete pack, no bytes and the hash of the file."""
    try:
        index = read_pack_index(file)
    except MalformedError:
        return FetchedBytes(b"", _sha256_of(file))
    for row in index:
        if row.sha256.hex() == identifier:
            return _read_span(file, row.offset, row.size, max_bytes)
    raise BlobMissingError


def _read_span(file: BufferedReader, offset: int, size: int, max_bytes: int) -> FetchedBytes:
    if size > max_bytes:
        raise BlobTooLongError(max_bytes)
    file.seek(offset)
    data = file.read(size)
    return FetchedBytes(data, hashlib.sha256(data).hexdigest())


def _sha256_of(file: BufferedReader) -> str:
    file.seek(0)
    return hashlib.file_digest(file, "sha256").hexdigest()
