"""The files of a blob directory: their names, and how they come, are counted and go.

A file is written under a temporary name in `<root>/incoming`, synced and renamed, and the
directory that it is renamed into is synced: a name never shows half a file. The file
`<root>/layout` says how the directory is laid out; it is there before the first blob.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...domain.limits import MIB
from ..api import digest_of

_LAYOUT_FILE = "layout"
_LAYOUT = b"tuskpoint blobs, layout 1\n"
_SHARD_CHARACTERS = 2
_ABANDONED_AFTER_S = 24 * 3600


class UnknownLayoutError(Exception):
    """A blob directory that is laid out in another way; the text is one line."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A blob as its file shows it: its ID, its bytes, and the seconds since it was last put."""

    blob_id: str
    size: int
    age_s: float


class BlobFiles:
    """The files below one root; every method blocks and may be called from any thread.

    Raises:
        UnknownLayoutError: It is laid out in another way.
        OSError: It cannot be made, read or written.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._incoming = root / "incoming"
        self._incoming.mkdir(parents=True, exist_ok=True)
        self._check_layout()
        self._synced_shards = set(self.shards())
        _sync(root)
        # Temporary files that a crash left; younger ones may be another server's.
        oldest = time.time() - _ABANDONED_AFTER_S
        for path in self._incoming.iterdir():
            with contextlib.suppress(FileNotFoundError):  # another server was faster
                if path.stat().st_mtime < oldest:
                    path.unlink()

    def path(self, blob_id: str) -> Path:
        """Return the path of a blob.

        Raises:
            FileNotFoundError: No blob can have this ID; nothing else becomes a path.
        """
        if digest_of(blob_id) is None:
            raise FileNotFoundError(blob_id)
        return self._root / blob_id[:_SHARD_CHARACTERS] / blob_id

    def write(self, blob_id: str, pieces: Sequence[bytes]) -> None:
        """Make a blob of some bytes durable.

        One that is there already is replaced: that heals a damaged one, and its age
        begins again.

        Raises:
            OSError: It may or may not be stored; no temporary file is left.
        """
        path = self.path(blob_id)
        part = self._incoming / uuid.uuid4().hex
        try:
            _write_synced(part, pieces)
            made = True
            try:
                path.parent.mkdir()
            except FileExistsError:
                made = False
            # Another server may have made it, and not have synced its name yet.
            if made or path.parent.name not in self._synced_shards:
                _sync(self._root)
                self._synced_shards.add(path.parent.name)
            part.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
            raise
        _sync(path.parent)

    def remove(self, blob_id: str, min_age_s: float) -> bool:
        """Remove a blob; tell whether it was there and old enough.

        Raises:
            OSError: It cannot be removed.
        """
        try:
            path = self.path(blob_id)
            # Looked at again: it may have been put once more since it was listed.
            if time.time() - path.stat().st_mtime < min_age_s:
                return False
            path.unlink()
        except FileNotFoundError:
            return False
        _sync(path.parent)
        return True

    def shards(self) -> list[str]:
        """Return the names of the directories that hold blobs, in order."""
        with os.scandir(self._root) as entries:
            return sorted(
                entry.name
                for entry in entries
                if len(entry.name) == _SHARD_CHARACTERS and entry.is_dir()
            )

    def shard(self, name: str) -> Iterator[StoredFile]:
        """Return the blobs of one directory; what is not named like one is left out."""
        now = time.time()
        with os.scandir(self._root / name) as entries:
            for entry in entries:
                if entry.name[:_SHARD_CHARACTERS] != name or digest_of(entry.name) is None:
                    continue
                with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                    stat = entry.stat()
                    yield StoredFile(entry.name, stat.st_size, max(0.0, now - stat.st_mtime))

    def _check_layout(self) -> None:
        """Check the layout of a directory that is in use; write it down in an unused one."""
        path = self._root / _LAYOUT_FILE
        found = _read_layout(path)
        if found is None and self.shards():
            found = _read_layout(path)  # another server may have begun the directory just now
            if found is None:
                raise UnknownLayoutError(
                    f"it holds blobs, but no file '{_LAYOUT_FILE}' that says how they are laid out"
                )
        if found is None:
            part = self._incoming / uuid.uuid4().hex
            _write_synced(part, [_LAYOUT])
            part.replace(path)
            _sync(self._root)
        elif found != _LAYOUT:
            shown = found.decode(errors="replace").strip().partition("\n")[0]
            raise UnknownLayoutError(
                f"its layout is '{shown}', and this server knows '{_LAYOUT.decode().strip()}'"
            )


def _read_layout(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            return file.read(200)
    except FileNotFoundError:
        return None


def _write_synced(path: Path, pieces: Sequence[bytes]) -> None:
    with path.open("xb", buffering=MIB) as file:
        file.writelines(pieces)
        file.flush()
        os.fsync(file.fileno())


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
