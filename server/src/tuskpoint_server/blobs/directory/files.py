"""The files of a blob directory: how they come, are read and go, and what a pack is.

A file is written under a temporary name in `<root>/incoming`, synced and renamed, and the
directory that it is renamed into is synced: a name never shows half a file. The file
`<root>/layout` says how the directory is laid out; it is there before the first blob.

A blob is one member as it is, or a pack file: the members of one put behind an index of them.

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

import contextlib
import hashlib
import os
import struct
import time
import uuid
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import NamedTuple

from ...domain.errors import Reason, Refusal, malformed
from ...domain.limits import LIMITS, MIB
from ...domain.model import BlobLocation
from ...process import sync
from .. import api
from ..api import Listed, Member, digest_of

_LAYOUT = b"tuskpoint blobs, layout 1\n"
_SHARD_CHARACTERS = 2
_ABANDONED_AFTER_S = 24 * 3600

MAGIC = b"TUSKPACK"
_VERSION = 1
_HEAD = struct.Struct("<8sII")
_ROW = struct.Struct("<32sQQ16s")
_HASH_BYTES = 32
_KIND_BYTES = 16
_MOST_MEMBERS = 1_000_000  # bound on the index that is read into memory; nobody puts as many
_LONGEST_BYTES = 2 * LIMITS.max_bundle
"""Bound on what is read into memory; anyone who shares the directory may have put it there."""
_TOO_LONG = "it is longer than anything that is stored"


class UnknownLayoutError(Exception):
    """A blob directory that is laid out in another way; the text is one line."""


class NotAPackError(Exception):
    """A file that is no pack; the text says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A blob as its file shows it: its ID, its bytes, and the seconds since it was last put."""

    blob_id: str
    size: int
    age_s: float


class BlobFiles:
    """The files below one root; every method blocks and may be called from any thread."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._incoming = root / "incoming"
        self._incoming.mkdir(parents=True, exist_ok=True)
        shards = self.shards()
        # Read after that: whoever made one of them had written the layout before.
        self._check_layout(used=bool(shards))
        self._synced_shards = set(shards)
        sync(root)
        # Temporary files that a crash left; younger ones may be another server's.
        oldest = time.time() - _ABANDONED_AFTER_S
        for path in self._incoming.iterdir():
            with contextlib.suppress(FileNotFoundError):  # another server was faster
                if path.stat().st_mtime < oldest:
                    path.unlink()

    def write(self, blob_id: str, pieces: Sequence[bytes]) -> None:
        """Make a blob of some bytes durable.

        One that is there already is replaced: that heals a damaged one, and its age
        begins again.
        """
        path = self._path(blob_id)
        shard = path.parent
        with contextlib.suppress(FileExistsError):
            shard.mkdir()
            self._synced_shards.discard(shard.name)
        # Another server may have made it, and not have synced its name yet.
        if shard.name not in self._synced_shards:
            sync(self._root)
            self._synced_shards.add(shard.name)
        self._place(path, pieces)

    def remove(self, blob_id: str, min_age_s: float) -> bool:
        """Remove a blob; tell whether it was there and old enough."""
        try:
            path = self._path(blob_id)
            # Looked at again: it may have been put once more since it was listed.
            if time.time() - path.stat().st_mtime < min_age_s:
                return False
            path.unlink()
        except FileNotFoundError:
            return False
        sync(path.parent)
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

    def read(
        self, locations: Sequence[BlobLocation], told: Callable[[int], object] | None = None
    ) -> list[bytes]:
        """Return the bytes at locations in one blob, in order, each after checking its hash.

        They are read in the order of the file. `told` is called in this thread with the number
        of bytes that were read of the one that is being read.
        """
        blob_id = locations[0].blob_id
        if not blob_id:
            raise Refusal(Reason.BLOB_NOT_FOUND, blob_id=locations[0].sha256.hex())
        with self._opened(blob_id) as blob:
            packed = any(one.identifier for one in locations)
            rows = read_rows(blob.file, blob.size) if packed else b""
            found = [b""] * len(locations)
            spans = [_span(blob, rows, location) for location in locations]
            for number in sorted(range(len(spans)), key=spans.__getitem__):
                data = _read_span(blob.file, *spans[number], told)
                try:
                    found[number] = api.verified(data, locations[number])
                except Refusal:
                    if packed:
                        read_index(blob.file, blob.size)
                    raise
            return found

    def list_members(self, blob_id: str) -> list[Listed]:
        """Return what a blob holds: the members of a pack, which its ID vouches for, or itself."""
        with self._opened(blob_id) as blob:
            if blob.file.read(len(MAGIC)) != MAGIC:
                return [Listed(BlobLocation(digest_of(blob_id) or b"", blob.size, blob_id), "")]
            _check_whole(blob)
            return [
                Listed(BlobLocation(sha256, size, blob_id, sha256.hex()), kind)
                for sha256, _, size, kind in read_index(blob.file, blob.size)
            ]

    @contextlib.contextmanager
    def _opened(self, blob_id: str) -> Iterator[_Blob]:
        """Open a blob; where its index is wrong, its hash says whether it is what was stored."""
        try:
            file = self._path(blob_id).open("rb", buffering=0)
        except FileNotFoundError:
            raise Refusal(Reason.BLOB_NOT_FOUND, blob_id=blob_id) from None
        with file:
            blob = _Blob(blob_id, file, os.fstat(file.fileno()).st_size)
            try:
                yield blob
            except NotAPackError as error:
                _check_whole(blob)
                raise malformed(blob_id, str(error)) from None

    def _path(self, blob_id: str) -> Path:
        """Return the path of a blob; what cannot be the ID of one is not found, and no path."""
        if digest_of(blob_id) is None:
            raise FileNotFoundError(blob_id)
        return self._root / blob_id[:_SHARD_CHARACTERS] / blob_id

    def _place(self, path: Path, pieces: Sequence[bytes]) -> None:
        """Make a file of some bytes durable under its name."""
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
                found = file.read(200)
        except FileNotFoundError:
            if used:
                raise UnknownLayoutError(
                    "it holds blobs, but no file 'layout' that says how they are laid out"
                ) from None
            self._place(path, [_LAYOUT])
            return
        if found != _LAYOUT:
            shown = found.decode(errors="replace").strip().partition("\n")[0]
            raise UnknownLayoutError(
                f"its layout is '{shown}', and this server knows '{_LAYOUT.decode().strip()}'"
            )


class _Blob(NamedTuple):
    """A blob that is open for reading, without a buffer."""

    blob_id: str
    file: FileIO
    size: int


def _check_whole(blob: _Blob) -> None:
    """Refuse a blob with another hash than its ID spells."""
    if blob.size > _LONGEST_BYTES:
        raise malformed(blob.blob_id, _TOO_LONG)
    blob.file.seek(0)
    actual = hashlib.file_digest(blob.file, "sha256").digest()
    if api.blob_name(actual) != blob.blob_id:
        raise api.hash_mismatch(blob.blob_id, digest_of(blob.blob_id) or b"", actual)


def _span(blob: _Blob, rows: bytes, location: BlobLocation) -> tuple[int, int]:
    """Return offset and size in bytes of what is at a location."""
    span: tuple[int, int] | None = (0, blob.size)
    if location.identifier:
        span = find(rows, api.member_hash(location.identifier) or b"")
    if span is None:
        # Either it was never there, or the index is not the one that was stored.
        _check_whole(blob)
        raise Refusal(Reason.BLOB_NOT_FOUND, blob_id=blob.blob_id)
    if sum(span) > blob.size:
        raise NotAPackError(f"its index has a member that ends at byte {sum(span)} of {blob.size}")
    if span[1] > _LONGEST_BYTES:
        raise malformed(blob.blob_id, _TOO_LONG)
    return span


def _read_span(file: FileIO, offset: int, size: int, told: Callable[[int], object] | None) -> bytes:
    """Return the bytes of a span, fewer if the file ends before it."""
    chunks: list[bytes] = []
    arrived = 0
    longest = MIB if told else size
    while arrived < size and (
        chunk := os.pread(file.fileno(), min(longest, size - arrived), offset + arrived)
    ):
        chunks.append(chunk)
        arrived += len(chunk)
        if told:
            told(arrived)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def pack_pieces(members: Sequence[Member]) -> list[bytes]:
    """Return the bytes of a pack file in pieces: head and index, then each member.

    The same members make the same bytes, whatever their order; no two have the same hash.
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


def read_rows(file: FileIO, size: int) -> bytes:
    """Return the rows of the index of a pack file of a size."""
    file.seek(0)
    head = file.read(_HEAD.size)
    if not head.startswith(MAGIC):
        raise NotAPackError("it is not a pack")
    if len(head) < _HEAD.size:
        raise NotAPackError("it ends within its head")
    _, version, count = _HEAD.unpack(head)
    if version != _VERSION:
        raise NotAPackError(f"it is a pack of version {version}, not {_VERSION}")
    if not 1 <= count <= _MOST_MEMBERS or _HEAD.size + count * _ROW.size > size:
        raise NotAPackError(f"{size} bytes cannot be a pack of {count} members")
    return file.read(count * _ROW.size)


def find(rows: bytes, sha256: bytes) -> tuple[int, int] | None:
    """Return offset and size in bytes of a member; `None` if it is not in the pack."""
    width = _ROW.size
    at = width * bisect_left(
        range(len(rows) // width), sha256, key=lambda n: rows[n * width : n * width + _HASH_BYTES]
    )
    if rows[at : at + _HASH_BYTES] != sha256:
        return None
    _, offset, size, _ = _ROW.unpack_from(rows, at)
    return offset, size


def read_index(file: FileIO, size: int) -> list[tuple[bytes, int, int, str]]:
    """Return hash, offset, size and kind of each member of a pack file of a size.

    The index has to account for each of its bytes.
    """
    rows = read_rows(file, size)
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
