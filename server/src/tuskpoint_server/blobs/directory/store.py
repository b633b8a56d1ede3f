"""Blob store in a directory.

A file is written under a temporary name in `<root>/incoming`, synced and renamed, and the directory
that it is renamed into is synced: a name never shows half a file. The file `<root>/layout` names
the layout of the directory and is written before the first blob.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from ...core.limits import MIB
from ...core.process import sync
from ..api import StoreLostError, digest_of
from ..packed import (
    LAYOUT,
    SHARD_CHARACTERS,
    PackStore,
    StoredFile,
    check_layout,
    without_layout,
)
from ..packs import Read, reader

_ABANDONED_AFTER_S = 24 * 3600


class _File:
    """Blob in an open file."""

    def __init__(self, blob_id: str, size: int, read: Read) -> None:
        self.blob_id = blob_id
        self.size = size
        self.read = read

    def expect(self, spans: Sequence[tuple[int, int]]) -> None:
        """Do nothing: reads of a local file need no announcement."""


class DirectoryStore(PackStore):
    """A `BlobStore` in a directory.

    A put is one file: a pack, addressed like a quilt, whose members are named by their SHA-256 in
    hex. A member that is the only one of its put, or is put standalone, is a file of its own.

    A directory without its file `layout` is not mounted, or is the wrong directory: nothing is
    created in it, and blobs that it lacks do not count as lost.

    Args:
        root: The directory.
        begin: Whether to create the directory and its layout if they are missing.

    Raises:
        UnknownLayoutError: The directory has another layout.
        StoreLostError: The directory has no layout, and `begin` is false.
        OSError: The directory cannot be created, read or written.
    """

    backend = "directory"

    def __init__(self, root: Path, *, begin: bool = True) -> None:
        self._root = root
        self._incoming = root / "incoming"
        if not begin:
            self._require_layout()
        self._incoming.mkdir(parents=True, exist_ok=True)
        shards = self._shards()
        # Read `layout` after the listing: a server writes `layout` before it creates directories of
        # blobs.
        self._check_layout(used=bool(shards))
        self._synced_shards = set(shards)
        sync(root)
        # Remove temporary files that a crash left; younger files may belong to another server.
        oldest = time.time() - _ABANDONED_AFTER_S
        for path in self._incoming.iterdir():
            with contextlib.suppress(FileNotFoundError):  # another server removed the file first
                if path.stat().st_mtime < oldest:
                    path.unlink()
        super().__init__()

    def _require_layout(self) -> None:
        """Refuse if the directory that was filled is missing."""
        try:
            (self._root / "layout").stat()
        except FileNotFoundError:
            problem = "it has no file 'layout'; check that the disk with the blobs is mounted"
            raise StoreLostError(self.backend, problem) from None

    def _place(self, blob_id: str, pieces: Sequence[bytes]) -> None:
        self._require_layout()
        path = self._path(blob_id)
        shard = path.parent
        with contextlib.suppress(FileExistsError):
            shard.mkdir()
            self._synced_shards.discard(shard.name)
        # Another server may have created the directory, and not have synced its name yet.
        if shard.name not in self._synced_shards:
            sync(self._root)
            self._synced_shards.add(shard.name)
        self._write_file(path, pieces)

    @contextlib.contextmanager
    def _open(self, blob_id: str, likely: int) -> Iterator[_File]:
        try:
            file = self._path(blob_id).open("rb", buffering=0)
        except FileNotFoundError:
            self._require_layout()
            raise
        with file:
            yield _File(blob_id, os.fstat(file.fileno()).st_size, reader(file))

    def _remove(self, blob_id: str, min_age_s: float) -> bool:
        try:
            path = self._path(blob_id)
            # Check the age again: the blob may have been put once more since it was listed.
            if time.time() - path.stat().st_mtime < min_age_s:
                return False
            path.unlink()
        except FileNotFoundError:
            return False
        sync(path.parent)
        return True

    def _pages(self) -> Iterator[list[StoredFile]]:
        for shard in self._shards():
            yield list(self._shard(shard))

    def _shards(self) -> list[str]:
        """Return the names of the subdirectories that contain blobs, in order."""
        with os.scandir(self._root) as entries:
            return sorted(
                entry.name
                for entry in entries
                if len(entry.name) == SHARD_CHARACTERS and entry.is_dir()
            )

    def _shard(self, name: str) -> Iterator[StoredFile]:
        """Return the blobs of one subdirectory; skip files whose names are not blob IDs."""
        now = time.time()
        with os.scandir(self._root / name) as entries:
            for entry in entries:
                if entry.name[:SHARD_CHARACTERS] != name or digest_of(entry.name) is None:
                    continue
                # the file was removed after the listing
                with contextlib.suppress(FileNotFoundError):
                    stat = entry.stat()
                    yield StoredFile(entry.name, stat.st_size, max(0.0, now - stat.st_mtime))

    def _path(self, blob_id: str) -> Path:
        """Return the path of a blob; raise `FileNotFoundError` if no blob can have this ID."""
        if digest_of(blob_id) is None:
            raise FileNotFoundError(blob_id)
        return self._root / blob_id[:SHARD_CHARACTERS] / blob_id

    def _write_file(self, path: Path, pieces: Sequence[bytes]) -> None:
        """Store bytes durably under a name."""
        part = self._incoming / uuid.uuid4().hex
        try:
            with part.open("xb", buffering=MIB) as file:
                file.writelines(pieces)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
            raise
        sync(path.parent)

    def _check_layout(self, *, used: bool) -> None:
        path = self._root / "layout"
        try:
            with path.open("rb") as file:
                layout = file.read(200)
        except FileNotFoundError:
            if used:
                raise without_layout() from None
            self._write_file(path, [LAYOUT])
            return
        check_layout(layout)
