"""Bounded cache of blobs on local disk."""

from __future__ import annotations

import asyncio
import logging
import threading
import uuid
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

from ..core.model import BlobLocation
from ..core.values import blob_digest
from .api import BlobStore, Progress

_log = logging.getLogger(__name__)


class CachedStore:
    """A `BlobStore` that caches verified bytes of another store, with least-recently-used eviction.

    Files are named by hash and hashed again on every read; a damaged file is removed, and the inner
    store is read. The cache only has copies, so failures of the cache are logged and never fail a
    read. Bytes are cached only after they were read back. The directory is created if it is
    missing.
    """

    def __init__(self, inner: BlobStore, path: Path, max_bytes: int) -> None:
        self.inner = inner
        self.backend = inner.backend
        self.limits = inner.limits
        self.epoch_s = inner.epoch_s
        self.predict = inner.predict
        self.put = inner.put
        self.list_blob = inner.list_blob
        self.renew = inner.renew
        self.close = inner.close
        self._path = path
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._total = 0
        # number of `clear` calls so far; bytes fetched before a `clear` are not cached after it
        self._cleared = 0
        path.mkdir(parents=True, exist_ok=True)
        self._scan()

    @property
    def size_bytes(self) -> int:
        """Bytes in the cache."""
        with self._lock:
            return self._total

    async def get(self, location: BlobLocation, *, progress: Progress | None = None) -> bytes:
        """Return the bytes from the cache, or else from the inner store."""
        data, cleared = await asyncio.to_thread(self._read, location.sha256), self._cleared
        if data is None:
            data = await self.inner.get(location, progress=progress)
            await asyncio.to_thread(self._keep, location.sha256, data, cleared)
        return data

    async def get_many(self, locations: Sequence[BlobLocation]) -> list[bytes]:
        """Return bytes from the cache, and all missing ones with one call of the inner store."""
        hashes = dict.fromkeys(location.sha256 for location in locations)
        cached = await asyncio.to_thread(lambda: {sha256: self._read(sha256) for sha256 in hashes})
        contents = {sha256: data for sha256, data in cached.items() if data is not None}
        lacking = {
            location.sha256: location for location in locations if location.sha256 not in contents
        }
        cleared = self._cleared
        fetched = await self.inner.get_many(list(lacking.values()))
        for sha256, data in zip(lacking, fetched, strict=True):
            await asyncio.to_thread(self._keep, sha256, data, cleared)
            contents[sha256] = data
        return [contents[location.sha256] for location in locations]

    async def clear(self) -> None:
        """Remove all files, also files that a read is using; may raise `OSError`."""
        await asyncio.to_thread(self._clear)

    def _clear(self) -> None:
        with self._lock:
            self._cleared += 1
            self._sizes.clear()
            self._total = 0
            for file in self._path.iterdir():
                file.unlink(missing_ok=True)

    def _scan(self) -> None:
        """Adopt the files of an earlier process, oldest first."""
        for part in self._path.glob("*.part"):
            part.unlink()
        entries = [(file.stat(), file.name) for file in self._path.iterdir()]
        entries.sort(key=lambda entry: entry[0].st_mtime)
        self._sizes.update((name, stat.st_size) for stat, name in entries)
        self._total = sum(self._sizes.values())
        self._evict()

    def _read(self, sha256: bytes) -> bytes | None:
        name = sha256.hex()
        with self._lock:
            if name not in self._sizes:
                return None
            self._sizes.move_to_end(name)
        try:
            data = (self._path / name).read_bytes()
            if blob_digest(data) == sha256:
                return data
        except FileNotFoundError:
            pass  # evicted between the lookup and the read, or removed by hand
        except OSError as error:
            _log.warning("a cached blob cannot be read: %s", error.strerror)
        with self._lock:
            self._total -= self._sizes.pop(name, 0)
            (self._path / name).unlink(missing_ok=True)
        return None

    def _keep(self, sha256: bytes, data: bytes, cleared: int) -> None:
        if len(data) > self._max_bytes:
            return
        name = sha256.hex()
        part = self._path / f"{uuid.uuid4().hex}.part"
        try:
            part.write_bytes(data)
            with self._lock:
                if self._cleared != cleared:
                    part.unlink(missing_ok=True)
                    return
                part.replace(self._path / name)
                self._total += len(data) - self._sizes.pop(name, 0)
                self._sizes[name] = len(data)
        except OSError as error:
            if self._cleared == cleared:  # otherwise `clear` removed the file
                _log.warning("a blob cannot be cached: %s", error.strerror)
            part.unlink(missing_ok=True)
            return
        self._evict()

    def _evict(self) -> None:
        with self._lock:
            while self._total > self._max_bytes:
                name, size = self._sizes.popitem(last=False)
                self._total -= size
                (self._path / name).unlink(missing_ok=True)


def origin(store: BlobStore) -> BlobStore:
    """Return the store behind a cache; return any other store as it is."""
    return store.inner if isinstance(store, CachedStore) else store
