"""The cache stays within its bound under concurrent reads, and verifies every file."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from tests.kit.blobs.member_file import MemberFile
from tuskpoint_server.blobs.api import BlobMember
from tuskpoint_server.blobs.cache import CachedStore
from tuskpoint_server.blobs.directory import DirectoryStore
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.core.model import BlobLocation
from tuskpoint_server.core.values import blob_digest

BOUND = 10_000


async def stored(store: DirectoryStore, count: int) -> dict[BlobLocation, bytes]:
    """Store pieces of up to a third of the bound."""
    source = random.Random(7)
    pieces = [source.randbytes(source.randrange(1, BOUND // 3)) for _ in range(count)]
    receipt = await store.put([BlobMember(blob_digest(data), data) for data in pieces])
    return dict(zip(receipt.locations, pieces, strict=True))


def on_disk(path: Path) -> int:
    return sum(file.stat().st_size for file in path.iterdir())


async def test_readers_at_once_keep_the_bound(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "blobs")
    pieces = await stored(store, 40)
    path = tmp_path / "cache"
    cache = CachedStore(store, path, BOUND)
    source = random.Random(8)

    async def read(location: BlobLocation) -> None:
        assert await cache.get(location) == pieces[location]
        assert cache.size_bytes <= BOUND + BOUND // 3 * 40  # bytes of unfinished reads count

    for _ in range(5):
        await asyncio.gather(*(read(source.choice(list(pieces))) for _ in range(60)))
        assert cache.size_bytes <= BOUND
        assert on_disk(path) <= cache.size_bytes
    damaged = [file for file in path.iterdir() if source.random() < 0.5]
    for file in damaged:
        file.write_bytes(b"damaged")
    await asyncio.gather(*(read(location) for location in list(pieces) * 3))
    assert cache.size_bytes <= BOUND
    assert not any(file.read_bytes() == b"damaged" for file in path.iterdir())

    for bound in (BOUND, BOUND // 2, 0):
        again = CachedStore(store, path, bound)
        assert on_disk(path) == again.size_bytes <= bound
        for location in pieces:
            assert await again.get(location) == pieces[location]
        assert on_disk(path) == again.size_bytes <= bound


async def test_half_written_files_are_removed_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "cache"
    path.mkdir()
    (path / "0123.part").write_bytes(b"half")
    cache = CachedStore(DirectoryStore(tmp_path / "blobs"), path, BOUND)
    assert (on_disk(path), cache.size_bytes) == (0, 0)


@pytest.mark.parametrize("many", [False, True])
async def test_other_bytes_are_neither_returned_nor_kept(tmp_path: Path, many: bool) -> None:
    store = DirectoryStore(tmp_path / "blobs")
    pieces = await stored(store, 3)
    cache = CachedStore(store, tmp_path / "cache", BOUND)
    for location in pieces:
        MemberFile.at(tmp_path / "blobs", location).flip()
    for location in pieces:
        with pytest.raises(Refusal) as reported:
            await (cache.get_many([location]) if many else cache.get(location))
        assert reported.value.reason is Reason.BLOB_HASH_MISMATCH
    assert on_disk(tmp_path / "cache") == cache.size_bytes == 0
