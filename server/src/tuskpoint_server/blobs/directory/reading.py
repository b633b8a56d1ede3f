"""Reads blobs of a directory: each with one open, members in the order of their bytes."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import FileIO

from ...domain.errors import Reason, Refusal
from ...domain.limits import LIMITS, MIB
from ...domain.model import BlobLocation
from ..api import Listed, Progress
from ..names import blob_name, digest_of, member_hash
from ..verified import verified
from .files import BlobFiles
from .pack import MAGIC, NotAPackError, PackIndex, is_pack, read_index

_READ_BYTES = MIB
_KEPT_INDEX_BYTES = 8 * MIB
_LONGEST_BYTES = 2 * LIMITS.max_bundle
"""Bound on what is read into memory; anyone who shares the directory may have put it there."""

_TOO_LONG = "it is longer than anything that is stored"


@dataclass(frozen=True, slots=True)
class _Open:
    """An open blob: its ID, its file without a buffer, and its size in bytes."""

    blob_id: str
    file: FileIO
    size: int


class BlobReader:
    """Reads and lists blobs; every method blocks and may be called from any thread.

    Args:
        files: The files that are read.
    """

    def __init__(self, files: BlobFiles) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._indexes: OrderedDict[str, PackIndex] = OrderedDict()
        self._index_bytes = 0

    def read(
        self, locations: Sequence[BlobLocation], progress: Progress | None = None
    ) -> list[bytes]:
        """Return the bytes at locations in one blob, in order, each after checking its hash.

        Args:
            locations: At least one, all with the same blob ID.
            progress: Called in this thread with the number of bytes read of the one that
                is being read.

        Raises:
            Refusal: As `BlobStore.get` has it.
            OSError: The file cannot be read.
        """
        blob_id = locations[0].blob_id
        if not blob_id:
            raise Refusal(Reason.BLOB_NOT_FOUND, blob_id=locations[0].sha256.hex())
        with self._lock:
            known = blob_id in self._indexes
        with self._open(blob_id) as blob:
            try:
                return self._read(blob, locations, progress)
            except Refusal:
                self.forget(blob_id)
                if not known:
                    raise
            # The file may be another one than that whose index was known.
            return self._read(blob, locations, progress)

    def list_members(self, blob_id: str) -> list[Listed]:
        """Return what a blob holds: the members of a pack, which its ID vouches for, or itself.

        Raises:
            Refusal: `BLOB_NOT_FOUND`, `BLOB_MALFORMED`; `BLOB_HASH_MISMATCH` of a pack with
                another hash than its ID spells.
            OSError: The file cannot be read.
        """
        with self._open(blob_id) as blob:
            if not is_pack(blob.file.read(len(MAGIC))):
                sha256 = digest_of(blob_id) or b""
                return [Listed(BlobLocation(sha256, blob.size, blob_id), "")]
            damage = _damage(blob)
            if damage is not None:
                raise damage
            return [
                Listed(BlobLocation(row.sha256, row.size, blob_id, row.sha256.hex()), row.kind)
                for row in self._index(blob)
            ]

    def _read(
        self, blob: _Open, locations: Sequence[BlobLocation], progress: Progress | None
    ) -> list[bytes]:
        found = [b""] * len(locations)
        places = [self._place(blob, location) for location in locations]
        for number in sorted(range(len(places)), key=places.__getitem__):
            data = _read_at(blob, *places[number], progress)
            found[number] = verified(data, locations[number])
        return found

    def forget(self, blob_id: str) -> None:
        """Forget the index of a pack; it is read again when it is needed."""
        with self._lock:
            index = self._indexes.pop(blob_id, None)
            if index is not None:
                self._index_bytes -= index.size_bytes

    @contextlib.contextmanager
    def _open(self, blob_id: str) -> Iterator[_Open]:
        try:
            file = self._files.path(blob_id).open("rb", buffering=0)
        except FileNotFoundError:
            self.forget(blob_id)
            raise Refusal(Reason.BLOB_NOT_FOUND, blob_id=blob_id) from None
        with file:
            yield _Open(blob_id, file, os.fstat(file.fileno()).st_size)

    def _place(self, blob: _Open, location: BlobLocation) -> tuple[int, int]:
        """Return offset and size of the bytes that a location names.

        Raises:
            Refusal: There are none, or they are more than anything that is stored.
        """
        place: tuple[int, int] | None = (0, blob.size)
        if location.identifier:
            place = self._index(blob).find(member_hash(location.identifier) or b"")
        if place is None:
            # Either it was never there, or the index is not the one that was stored.
            raise _damage(blob) or Refusal(Reason.BLOB_NOT_FOUND, blob_id=blob.blob_id)
        if place[1] > _LONGEST_BYTES:
            raise _malformed(blob, _TOO_LONG)
        return place

    def _index(self, blob: _Open) -> PackIndex:
        with self._lock:
            index = self._indexes.get(blob.blob_id)
            if index is not None:
                self._indexes.move_to_end(blob.blob_id)
                return index
        try:
            index = read_index(blob.file, blob.size)
        except NotAPackError as error:
            raise _damage(blob) or _malformed(blob, str(error)) from None
        self._keep(blob.blob_id, index)
        return index

    def _keep(self, blob_id: str, index: PackIndex) -> None:
        self.forget(blob_id)
        with self._lock:
            self._indexes[blob_id] = index
            self._index_bytes += index.size_bytes
            while self._index_bytes > _KEPT_INDEX_BYTES:
                _, dropped = self._indexes.popitem(last=False)
                self._index_bytes -= dropped.size_bytes


def _damage(blob: _Open) -> Refusal | None:
    """Return the refusal of a blob with another hash than its ID spells; `None` if it is whole."""
    if blob.size > _LONGEST_BYTES:
        return _malformed(blob, _TOO_LONG)
    hasher = hashlib.sha256()
    blob.file.seek(0)
    while chunk := blob.file.read(_READ_BYTES):
        hasher.update(chunk)
    actual = hasher.digest()
    if blob_name(actual) == blob.blob_id:
        return None
    return Refusal(
        Reason.BLOB_HASH_MISMATCH,
        blob_id=blob.blob_id,
        expected=(digest_of(blob.blob_id) or b"").hex(),
        actual=actual.hex(),
    )


def _malformed(blob: _Open, problem: str) -> Refusal:
    return Refusal(Reason.BLOB_MALFORMED, blob_id=blob.blob_id, problem=problem)


def _read_at(blob: _Open, offset: int, size: int, progress: Progress | None) -> bytes:
    """Return the bytes of a span, fewer if the file ends before it."""
    chunks: list[bytes] = []
    count = 0
    longest = _READ_BYTES if progress is not None else size
    while count < size:
        chunk = os.pread(blob.file.fileno(), min(longest, size - count), offset + count)
        if not chunk:
            break
        chunks.append(chunk)
        count += len(chunk)
        if progress is not None:
            progress(count)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)
