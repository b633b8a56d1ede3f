"""Blobs in a directory: one file per member, named by its content.

`<root>/<first 2 characters>/<base64url of the SHA-256>`. A file is written under a
temporary name in `<root>/incoming`, synced, renamed and its directory synced, so a
name never shows half a file. Several servers may share the directory.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

from ..domain.digests import DIGEST_BYTES
from ..domain.errors import Reason, Refusal
from ..domain.limits import LIMITS, MIB
from ..domain.model import BlobLocation
from .api import Listed, Member, Progress, Receipt, StoreLimits
from .verified import is_intact, verified

_A = TypeVar("_A")
_T = TypeVar("_T")

_INCOMING = "incoming"
_ABANDONED_AFTER_S = 24 * 3600
_THREADS = 8
_READ_BYTES = MIB
_LONGEST_BYTES = 2 * LIMITS.max_bundle
"""Bound on what is read into memory; whoever shares the directory may have put it there."""


class DirectoryStore:
    """A `BlobStore` in a directory.

    Args:
        root: The directory; created if it is missing.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._incoming = root / _INCOMING
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="blob-directory")
        self._incoming.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(self._incoming)

    @property
    def backend(self) -> str:
        """Kind of store."""
        return "directory"

    @property
    def limits(self) -> StoreLimits:
        """There are none."""
        return StoreLimits()

    @property
    def epoch_s(self) -> None:
        """Files do not expire."""
        return None

    def predict(self, sha256: bytes, size: int) -> BlobLocation:
        """Return the location that these bytes will have."""
        return BlobLocation(sha256, size, blob_name(sha256))

    async def put(self, members: Sequence[Member], *, apart: bool = False) -> Receipt:
        """Store a pack, each member in a file; all is synced on return."""
        wanted = {member.sha256: member for member in members}
        missing = await self._missing(list(wanted.values()))
        if missing:
            await self._write(missing)
        # Also of what was there already: a crash may have come between its name and the sync.
        await self._each(_sync, {self._path(sha256).parent for sha256 in wanted})
        await self._each(_sync, [self._root])
        return Receipt(tuple(self.predict(one.sha256, len(one.data)) for one in members))

    async def get(self, location: BlobLocation, *, progress: Progress | None = None) -> bytes:
        """Return the bytes at a location, after checking their SHA-256."""
        read = self._read if progress is None else partial(self._read, tell=_in_loop(progress))
        [data] = await self._each(read, [location])
        return data

    async def get_many(self, locations: Sequence[BlobLocation]) -> list[bytes]:
        """Return the bytes at many locations, each after checking its SHA-256."""
        return await self._each(self._read, locations)

    async def list_blob(self, blob_id: str) -> Sequence[Listed]:
        """Return the one member that a file is."""
        [listed] = await self._each(self._list, [blob_id])
        return [listed]

    async def renew(self, blob_id: str) -> Receipt:
        """Check that a file is there; it stays for good."""
        [listed] = await self.list_blob(blob_id)
        await self.get(listed.location)
        return Receipt((listed.location,))

    async def close(self) -> None:
        """Wait for running work and end the threads."""
        await asyncio.to_thread(self._pool.shutdown)

    async def _missing(self, members: Sequence[Member]) -> list[Member]:
        stored = await self._each(self._is_stored, members)
        return [member for member, found in zip(members, stored, strict=True) if not found]

    async def _write(self, members: Sequence[Member]) -> None:
        batch = uuid.uuid4().hex
        names = [
            (self._incoming / f"{batch}-{number}", self._path(member.sha256))
            for number, member in enumerate(members)
        ]
        try:
            await self._each(_ensure_folder, {target.parent for _, target in names})
            await self._each(
                lambda pair: _write_file(pair[0][0], pair[1].data),
                list(zip(names, members, strict=True)),
            )
            # The first sync carries most of what the others would wait for.
            await self._each(lambda pair: _sync(pair[0]), names)
            await self._each(lambda pair: pair[0].replace(pair[1]), names)
        except BaseException:
            await self._each(lambda pair: pair[0].unlink(missing_ok=True), names)
            raise

    async def _each(self, work: Callable[[_A], _T], items: Iterable[_A]) -> list[_T]:
        """Run work on every item in the threads; wait for all, then fail if one failed.

        Each thread takes a share: handing over thousands of single items would cost the
        event loop more than the files cost the disk.
        """
        todo = list(items)
        loop = asyncio.get_running_loop()
        size = -(-len(todo) // _THREADS) or 1
        calls = [
            loop.run_in_executor(self._pool, _share, work, todo[start : start + size])
            for start in range(0, len(todo), size)
        ]
        shares = await asyncio.gather(*calls)
        for _, errors in shares:
            for error in errors:
                if isinstance(error, OSError):
                    raise unavailable(self.backend, error) from error
                raise error
        return [result for results, _ in shares for result in results]

    def _is_stored(self, member: Member) -> bool:
        path = self._path(member.sha256)
        try:
            if path.stat().st_size != len(member.data):
                return False
            return is_intact(path.read_bytes(), member.sha256)
        except FileNotFoundError:
            return False

    def _read(self, location: BlobLocation, tell: Progress | None = None) -> bytes:
        name = location.blob_id or blob_name(location.sha256)
        if not is_blob_name(name):
            raise Refusal(Reason.BLOB_NOT_FOUND, blob_id=name)
        try:
            data = _read_file(self._root / name[:2] / name, tell)
        except FileNotFoundError:
            raise Refusal(Reason.BLOB_NOT_FOUND, blob_id=name) from None
        return verified(data, location)

    def _list(self, blob_id: str) -> Listed:
        if not is_blob_name(blob_id):
            raise Refusal(Reason.BLOB_NOT_FOUND, blob_id=blob_id)
        try:
            size = (self._root / blob_id[:2] / blob_id).stat().st_size
        except FileNotFoundError:
            raise Refusal(Reason.BLOB_NOT_FOUND, blob_id=blob_id) from None
        return Listed(BlobLocation(_digest_of(blob_id), size, blob_id), "")

    def _path(self, sha256: bytes) -> Path:
        name = blob_name(sha256)
        return self._root / name[:2] / name


def blob_name(sha256: bytes) -> str:
    """Return the blob ID of a hash: base64url (RFC 4648, section 5) without padding."""
    return base64.urlsafe_b64encode(sha256).rstrip(b"=").decode()


def is_blob_name(name: str) -> bool:
    """Tell whether a blob ID can be one of this store; nothing else becomes a path."""
    try:
        digest = _digest_of(name)
    except (ValueError, binascii.Error):
        return False
    return len(digest) == DIGEST_BYTES and blob_name(digest) == name


def _digest_of(name: str) -> bytes:
    return base64.b64decode(name + "=", altchars=b"-_", validate=True)


def unavailable(backend: str, error: OSError) -> Refusal:
    """Return the refusal for a store whose files cannot be used."""
    return Refusal(
        Reason.BLOB_UNAVAILABLE, backend=backend, problem=error.strerror or type(error).__name__
    )


def _share(work: Callable[[_A], _T], items: Sequence[_A]) -> tuple[list[_T], list[Exception]]:
    """Run work on every item, the ones after a failure too."""
    results: list[_T] = []
    errors: list[Exception] = []
    for item in items:
        try:
            results.append(work(item))
        except Exception as error:  # noqa: BLE001 - raised by the caller, once all have run
            errors.append(error)
    return results, errors


def _ensure_folder(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)


def _write_file(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)


def _in_loop(progress: Progress) -> Progress:
    """Return what threads call to have `progress` told in the running loop."""
    loop = asyncio.get_running_loop()

    def tell(count: int) -> None:
        loop.call_soon_threadsafe(progress, count)

    return tell


def _read_file(path: Path, tell: Progress | None) -> bytes:
    """Return a file's bytes, as many as there can be, telling how many are read.

    Raises:
        Refusal: `BLOB_MALFORMED` if it is longer.
    """
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size > _LONGEST_BYTES:
            raise Refusal(
                Reason.BLOB_MALFORMED,
                blob_id=path.name,
                problem="it is longer than anything that is stored",
            )
        if tell is None:
            return file.read()
        chunks: list[bytes] = []
        at = 0
        while chunk := file.read(_READ_BYTES):
            chunks.append(chunk)
            at += len(chunk)
            tell(at)
    return b"".join(chunks)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_abandoned(folder: Path) -> None:
    """Remove temporary files that a crash left; younger ones may be another server's."""
    oldest = time.time() - _ABANDONED_AFTER_S
    for path in folder.iterdir():
        try:
            if path.stat().st_mtime < oldest:
                path.unlink()
        except FileNotFoundError:
            continue  # another server was faster
