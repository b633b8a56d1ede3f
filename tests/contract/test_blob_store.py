"""What every blob store keeps to, whatever it is made of."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tuskpoint_server.blobs import directory
from tuskpoint_server.blobs.api import BlobStore, Member
from tuskpoint_server.blobs.cache import CachedStore, origin
from tuskpoint_server.blobs.directory import DirectoryStore
from tuskpoint_server.blobs.verified import verified
from tuskpoint_server.domain.errors import Reason, Refusal
from tuskpoint_server.domain.model import BlobLocation


class MemoryStore:
    """A store in memory."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}

    @property
    def backend(self) -> str:
        return "memory"

    def predict(self, sha256: bytes, size: int) -> BlobLocation:
        return BlobLocation(sha256, size, sha256.hex())

    async def put(self, members: Sequence[Member]) -> Sequence[BlobLocation]:
        self.blobs.update((member.sha256.hex(), member.data) for member in members)
        return [self.predict(member.sha256, len(member.data)) for member in members]

    async def get(self, location: BlobLocation) -> bytes:
        if location.blob_id not in self.blobs:
            raise Refusal(Reason.BLOB_NOT_FOUND, blob_id=location.blob_id)
        return verified(self.blobs[location.blob_id], location)

    async def close(self) -> None:
        self.blobs.clear()


@dataclass
class Subject:
    """A store, and what reaches behind its back."""

    store: BlobStore
    overwrite: Callable[[BlobLocation, bytes], None]
    remove: Callable[[BlobLocation], None]


@pytest.fixture(params=["memory", "directory", "cached", "cached-directory-reopened"])
async def subject(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Subject]:
    if request.param == "memory":
        memory = MemoryStore()
        yield Subject(
            memory,
            lambda location, data: memory.blobs.__setitem__(location.blob_id, data),
            lambda location: memory.blobs.__delitem__(location.blob_id),
        )
        return
    blobs = tmp_path / "blobs"
    store: BlobStore = DirectoryStore(blobs)
    if request.param != "directory":
        store = CachedStore(store, tmp_path / "cache", 1 << 24)
    if request.param == "cached-directory-reopened":
        await store.close()
        store = CachedStore(DirectoryStore(blobs), tmp_path / "cache", 1 << 24)
    yield Subject(
        store,
        lambda location, data: _ignore(_file(blobs, location).write_bytes(data)),
        lambda location: _file(blobs, location).unlink(),
    )
    await store.close()


def member(data: bytes) -> Member:
    return Member(hashlib.sha256(data).digest(), data)


def _ignore(_: object) -> None:
    pass


def _file(blobs: Path, location: BlobLocation) -> Path:
    return blobs / location.blob_id[:2] / location.blob_id


@pytest.mark.parametrize("data", [b"", b"a", bytes(5 << 20)], ids=["empty", "byte", "5 MiB"])
async def test_get_returns_what_was_put(subject: Subject, data: bytes) -> None:
    [location] = await subject.store.put([member(data)])
    assert (location.sha256, location.size) == (hashlib.sha256(data).digest(), len(data))
    assert await subject.store.get(location) == data
    assert await subject.store.get(location) == data


async def test_prediction_is_where_it_lies(subject: Subject) -> None:
    one = member(b"content")
    predicted = subject.store.predict(one.sha256, len(one.data))
    assert list(await subject.store.put([one])) == [predicted]


async def test_many_members_come_back_in_order(subject: Subject) -> None:
    members = [member(b"%d" % number) for number in range(300)]
    locations = await subject.store.put(members)
    assert [await subject.store.get(location) for location in locations] == [
        one.data for one in members
    ]


async def test_same_content_twice(subject: Subject) -> None:
    one = member(b"content")
    first = await subject.store.put([one, one])
    assert first[0] == first[1]
    assert await subject.store.put([one]) == [first[0]]
    assert await subject.store.get(first[0]) == one.data


async def test_puts_of_the_same_content_at_once(subject: Subject) -> None:
    one = member(b"content" * 1000)
    outcomes = await asyncio.gather(*(subject.store.put([one]) for _ in range(20)))
    assert {location for locations in outcomes for location in locations} == {
        subject.store.predict(one.sha256, len(one.data))
    }
    assert await subject.store.get(outcomes[0][0]) == one.data


async def test_missing_blob(subject: Subject) -> None:
    [location] = await subject.store.put([member(b"content")])
    subject.remove(location)
    with pytest.raises(Refusal) as refused:
        await subject.store.get(location)
    assert refused.value.reason is Reason.BLOB_NOT_FOUND
    assert refused.value.metadata["blob_id"] == location.blob_id


@pytest.mark.parametrize("found", [b"Content", b"conten", b"content!", b"", b"quite another blob"])
async def test_other_bytes_never_leave(subject: Subject, found: bytes) -> None:
    [location] = await subject.store.put([member(b"content")])
    subject.overwrite(location, found)
    with pytest.raises(Refusal) as refused:
        await subject.store.get(location)
    assert refused.value.reason is Reason.BLOB_HASH_MISMATCH
    assert refused.value.metadata == {
        "blob_id": location.blob_id,
        "expected": hashlib.sha256(b"content").hexdigest(),
        "actual": hashlib.sha256(found).hexdigest(),
    }


async def test_recorded_hash_decides_not_the_blob_id(subject: Subject) -> None:
    right, other = await subject.store.put([member(b"right"), member(b"other")])
    with pytest.raises(Refusal) as refused:
        await subject.store.get(replace(right, blob_id=other.blob_id))
    assert refused.value.reason is Reason.BLOB_HASH_MISMATCH


async def test_storing_again_heals(subject: Subject) -> None:
    one = member(b"content")
    for damage in (b"Content", b"con"):
        [location] = await subject.store.put([one])
        subject.overwrite(location, damage)
        await subject.store.put([one])
        assert await subject.store.get(location) == one.data


# --- the directory ---------------------------------------------------------------------


@pytest.fixture
async def blobs(tmp_path: Path) -> AsyncIterator[DirectoryStore]:
    store = DirectoryStore(tmp_path / "blobs")
    yield store
    await store.close()


@pytest.mark.parametrize(
    "name", ["../secret", "/etc/passwd", "aa", "a" * 44, "é" * 43, "_" * 43, "a/" + "a" * 41]
)
async def test_blob_id_cannot_leave_the_directory(
    blobs: DirectoryStore, tmp_path: Path, name: str
) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    with pytest.raises(Refusal) as refused:
        await blobs.get(BlobLocation(hashlib.sha256(b"secret").digest(), 6, name))
    assert refused.value.reason is Reason.BLOB_NOT_FOUND


async def test_servers_share_a_directory(blobs: DirectoryStore, tmp_path: Path) -> None:
    other = DirectoryStore(tmp_path / "blobs")
    [location] = await other.put([member(b"content")])
    assert await blobs.get(location) == b"content"
    await other.close()


async def test_file_is_named_by_its_hash(blobs: DirectoryStore, tmp_path: Path) -> None:
    await blobs.put([member(b"")])
    name = "47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"
    assert (tmp_path / "blobs" / "47" / name).read_bytes() == b""


async def test_files_and_directories_are_synced_before_the_answer(
    blobs: DirectoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[int] = set()
    monkeypatch.setattr(os, "fsync", lambda file: synced.add(os.fstat(file).st_ino))
    locations = await blobs.put([member(b"one"), member(b"two")])
    for location in locations:
        file = _file(tmp_path / "blobs", location)
        for path in (file, file.parent, tmp_path / "blobs"):
            assert os.stat(path).st_ino in synced


async def test_what_was_there_already_is_synced_too(
    blobs: DirectoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash may have come after the file got its name and before that was synced."""
    [location] = await blobs.put([member(b"one")])
    synced: set[int] = set()
    monkeypatch.setattr(os, "fsync", lambda file: synced.add(os.fstat(file).st_ino))
    await blobs.put([member(b"one")])
    for path in (_file(tmp_path / "blobs", location).parent, tmp_path / "blobs"):
        assert os.stat(path).st_ino in synced


async def test_full_disk_leaves_nothing_behind(
    blobs: DirectoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = iter(range(100))

    def full(path: Path, data: bytes) -> None:
        path.write_bytes(data[:2])
        if next(written) == 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(directory, "_write_file", full)
    with pytest.raises(Refusal) as refused:
        await blobs.put([member(b"one"), member(b"two"), member(b"three")])
    assert refused.value.reason is Reason.BLOB_UNAVAILABLE
    assert "No space left" in refused.value.message
    assert [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()] == []


async def test_unreadable_blob_is_not_a_missing_one(blobs: DirectoryStore, tmp_path: Path) -> None:
    location = blobs.predict(hashlib.sha256(b"content").digest(), 7)
    _file(tmp_path / "blobs", location).mkdir(parents=True)
    with pytest.raises(Refusal) as refused:
        await blobs.get(location)
    assert refused.value.reason is Reason.BLOB_UNAVAILABLE


async def test_leftovers_of_a_crash_are_ignored_and_go_one_day(tmp_path: Path) -> None:
    incoming = tmp_path / "blobs" / "incoming"
    incoming.mkdir(parents=True)
    (incoming / "old").write_bytes(b"half")
    (incoming / "young").write_bytes(b"half")
    os.utime(incoming / "old", (0, 0))
    store = DirectoryStore(tmp_path / "blobs")
    [location] = await store.put([member(b"content")])
    assert await store.get(location) == b"content"
    assert [path.name for path in incoming.iterdir()] == ["young"]
    await store.close()


# --- the cache -------------------------------------------------------------------------


class CountedStore(MemoryStore):
    """A store in memory that counts reads."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    async def get(self, location: BlobLocation) -> bytes:
        self.reads += 1
        return await super().get(location)


async def test_second_read_comes_from_the_cache(tmp_path: Path) -> None:
    inner = CountedStore()
    store = CachedStore(inner, tmp_path, 100)
    [location] = await store.put([member(b"content")])
    assert store.size_bytes == 0
    assert [await store.get(location), await store.get(location)] == [b"content"] * 2
    assert (inner.reads, store.size_bytes) == (1, 7)
    assert origin(store) is inner


async def test_cache_outlives_the_process(tmp_path: Path) -> None:
    inner = CountedStore()
    store = CachedStore(inner, tmp_path, 100)
    [location] = await store.put([member(b"content")])
    await store.get(location)
    (tmp_path / "crashed.part").write_bytes(b"half")
    reopened = CachedStore(inner, tmp_path, 100)
    assert await reopened.get(location) == b"content"
    assert inner.reads == 1
    assert not (tmp_path / "crashed.part").exists()


async def test_damaged_cache_is_not_believed(tmp_path: Path) -> None:
    inner = CountedStore()
    store = CachedStore(inner, tmp_path, 100)
    [location] = await store.put([member(b"content")])
    await store.get(location)
    (tmp_path / location.sha256.hex()).write_bytes(b"Content")
    assert await store.get(location) == b"content"
    assert inner.reads == 2
    assert await store.get(location) == b"content"
    assert inner.reads == 2


async def test_what_fails_is_not_cached(tmp_path: Path) -> None:
    inner = CountedStore()
    store = CachedStore(inner, tmp_path, 100)
    [location] = await store.put([member(b"content")])
    inner.blobs[location.blob_id] = b"Content"
    with pytest.raises(Refusal):
        await store.get(location)
    assert store.size_bytes == 0
    inner.blobs[location.blob_id] = b"content"
    assert await store.get(location) == b"content"


async def test_least_recently_read_goes_first(tmp_path: Path) -> None:
    inner = CountedStore()
    store = CachedStore(inner, tmp_path, 20)
    one, two, three, large = await store.put(
        [member(b"1" * 9), member(b"2" * 9), member(b"3" * 9), member(b"4" * 21)]
    )
    for location in (one, two, one, three, large):
        await store.get(location)
        assert store.size_bytes <= 20
    assert set(os.listdir(tmp_path)) == {one.sha256.hex(), three.sha256.hex()}
    reads = inner.reads
    await store.get(one)
    assert inner.reads == reads


async def test_reopened_cache_keeps_its_bound(tmp_path: Path) -> None:
    inner = CountedStore()
    store = CachedStore(inner, tmp_path, 100)
    for location in await store.put([member(b"%d" % number * 9) for number in range(10)]):
        await store.get(location)
    assert CachedStore(inner, tmp_path, 20).size_bytes == 18
    assert len(os.listdir(tmp_path)) == 2


async def test_unwritable_cache_does_not_fail_a_read(tmp_path: Path) -> None:
    inner = CountedStore()
    store = CachedStore(inner, tmp_path / "cache", 100)
    [location] = await store.put([member(b"content")])
    (tmp_path / "cache").rmdir()
    assert await store.get(location) == b"content"
