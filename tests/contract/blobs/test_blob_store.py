"""Every blob store keeps the same contract, whatever it stores blobs in."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.kit.blobs.member_file import MemberFile
from tests.kit.blobs.object_stores import BUCKETS, bucket, overwrite, remove
from tests.kit.blobs.stores import MemoryStore, member, put
from tests.kit.blobs.walrus_peer import write_quilt
from tuskpoint_emulators.walrus.encoding.blob_id import from_text
from tuskpoint_emulators.walrus.server import WalrusEmulator
from tuskpoint_server.blobs.api import (
    BlobStore,
    Progress,
)
from tuskpoint_server.blobs.cache import CachedStore, origin
from tuskpoint_server.blobs.directory import DirectoryStore
from tuskpoint_server.blobs.objects.store import ObjectStore
from tuskpoint_server.blobs.walrus.settings import WalrusSettings
from tuskpoint_server.blobs.walrus.store import WalrusStore
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.core.model import BlobLocation


@dataclass
class Subject:
    """A store, and access to its blobs behind its back."""

    store: BlobStore
    overwrite: Callable[[BlobLocation, bytes], None]
    remove: Callable[[BlobLocation], None]


@pytest.fixture(
    params=[
        "memory",
        "directory",
        "cached",
        "cached-directory-reopened",
        "walrus",
        "cached-walrus",
        *BUCKETS,
    ]
)
async def subject(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Subject]:
    if request.param in BUCKETS:
        with bucket(request.param, tmp_path) as objects:
            in_bucket = ObjectStore(objects, "s3")
            yield Subject(
                in_bucket,
                lambda location, data: overwrite(objects, location, data),
                lambda location: remove(objects, location),
            )
            await in_bucket.close()
        return
    if request.param == "memory":
        memory = MemoryStore()
        yield Subject(
            memory,
            lambda location, data: _replace(memory, location, data),
            lambda location: memory.packs.__delitem__(location.blob_id),
        )
        return
    if request.param.endswith("walrus"):
        async with WalrusEmulator() as emulator:
            walrus: BlobStore = _walrus(emulator.url)
            if request.param != "walrus":
                walrus = CachedStore(walrus, tmp_path / "cache", 1 << 24)
            yield Subject(
                walrus,
                lambda location, data: _tamper(emulator, location, data),
                lambda location: _ignore(emulator.ledger.advance(EPOCHS)),
            )
            await walrus.close()
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
        lambda location, data: MemberFile.at(blobs, location).write_bytes(data),
        lambda location: MemberFile.at(blobs, location).unlink(),
    )
    await store.close()


EPOCHS = 2


def _walrus(url: str) -> WalrusStore:
    settings = WalrusSettings(aggregators=(url,), publishers=(url,), epochs=EPOCHS)
    return WalrusStore(settings, sleep=lambda _: asyncio.sleep(0))


def _replace(memory: MemoryStore, location: BlobLocation, data: bytes) -> None:
    pack = memory.packs[location.blob_id]
    pack[location.sha256] = replace(pack[location.sha256], data=data)


def _tamper(emulator: WalrusEmulator, location: BlobLocation, data: bytes) -> None:
    """Let reads of a member find other bytes in an otherwise sound quilt."""
    quilt = write_quilt({location.identifier: ({}, data)})
    emulator.ledger.tamper(from_text(location.blob_id), quilt)


def _ignore(_: object) -> None:
    pass


@pytest.mark.parametrize("data", [b"", b"a", bytes(5 << 20)], ids=["empty", "byte", "5 MiB"])
async def test_get_returns_the_bytes_that_were_put(subject: Subject, data: bytes) -> None:
    [location] = await put(subject.store, member(data))
    assert (location.sha256, location.size) == (hashlib.sha256(data).digest(), len(data))
    assert await subject.store.get(location) == data
    assert await subject.store.get(location) == data


@pytest.mark.parametrize("standalone", [False, True])
async def test_bytes_are_reported_as_they_arrive(subject: Subject, standalone: bool) -> None:
    sample = member(os.urandom(5 << 20))
    [location] = (await subject.store.put([sample], standalone=standalone)).locations
    counts: list[int] = []
    # A caller that only has an ID and a hash does not know the size.
    unsized = replace(location, size=0)
    assert await subject.store.get(unsized, progress=counts.append) == sample.data
    assert counts == sorted(set(counts))
    assert counts[-1] == len(sample.data)


async def test_the_predicted_location_is_right(subject: Subject) -> None:
    for sample, location in zip(
        [member(b"content"), member(b"other")],
        await put(subject.store, member(b"content"), member(b"other")),
        strict=True,
    ):
        predicted = subject.store.predict(sample.sha256, len(sample.data))
        assert predicted in (location, replace(location, blob_id=""))


async def test_many_members_come_back_in_order(subject: Subject) -> None:
    members = [member(b"%d" % number) for number in range(60)]
    locations = await put(subject.store, *members)
    assert [await subject.store.get(location) for location in locations] == [
        member.data for member in members
    ]


async def test_same_content_twice(subject: Subject) -> None:
    sample = member(b"content")
    first = await put(subject.store, sample, sample)
    assert first[0] == first[1]
    assert await put(subject.store, sample) == (first[0],)
    assert await subject.store.get(first[0]) == sample.data


async def test_puts_of_the_same_content_at_once(subject: Subject) -> None:
    sample = member(b"content" * 1000)
    outcomes = await asyncio.gather(*(put(subject.store, sample) for _ in range(20)))
    assert len({location for locations in outcomes for location in locations}) == 1
    assert await subject.store.get(outcomes[0][0]) == sample.data


async def test_missing_blob(subject: Subject) -> None:
    [location] = await put(subject.store, member(b"content"))
    subject.remove(location)
    with pytest.raises(Refusal) as refused:
        await subject.store.get(location)
    assert refused.value.reason is Reason.BLOB_NOT_FOUND
    assert refused.value.metadata["blob_id"] == location.blob_id


@pytest.mark.parametrize("actual", [b"Content", b"conten", b"content!", b"", b"quite another blob"])
async def test_other_bytes_never_leave(subject: Subject, actual: bytes) -> None:
    [location] = await put(subject.store, member(b"content"))
    subject.overwrite(location, actual)
    counts: list[int] = []
    with pytest.raises(Refusal) as refused:
        await subject.store.get(location, progress=counts.append)
    assert max(counts, default=0) == len(actual)
    assert refused.value.reason is Reason.BLOB_HASH_MISMATCH
    assert refused.value.metadata == {
        "blob_id": location.blob_id,
        "expected": hashlib.sha256(b"content").hexdigest(),
        "actual": hashlib.sha256(actual).hexdigest(),
    }


async def test_recorded_hash_decides_not_the_blob_id(subject: Subject) -> None:
    right, other = await put(subject.store, member(b"right"), member(b"other"))
    with pytest.raises(Refusal) as refused:
        await subject.store.get(replace(other, sha256=right.sha256))
    assert refused.value.reason is Reason.BLOB_HASH_MISMATCH


async def test_many_are_read_in_the_order_asked_for(subject: Subject) -> None:
    members = [member(b"%d" % number) for number in range(40)]
    locations = list(await put(subject.store, *members))
    [other] = await put(subject.store, member(b"other"))
    await subject.store.get(locations[3])
    wanted = [locations[7], other, *reversed(locations), locations[7]]
    assert await subject.store.get_many(wanted) == [
        b"7",
        b"other",
        *(b"%d" % number for number in reversed(range(40))),
        b"7",
    ]
    assert await subject.store.get_many([]) == []


async def test_members_in_many_blobs_are_read_at_once(subject: Subject) -> None:
    packs = [[member(b"%d of %d" % (n, pack)) for n in range(5)] for pack in range(4)]
    locations = [location for pack in packs for location in await put(subject.store, *pack)]
    assert await subject.store.get_many(locations[::-1]) == [
        member.data for pack in reversed(packs) for member in reversed(pack)
    ]


async def test_kinds_are_kept(subject: Subject) -> None:
    members = [member(b"one"), replace(member(b"two"), kind="catalog"), member(b"three")]
    receipt = await subject.store.put(members)
    [blob_id] = {location.blob_id for location in receipt.locations}
    listed = await subject.store.list_blob(blob_id)
    assert {listing.location.sha256: listing.kind for listing in listed} == {
        member.sha256: member.kind for member in members
    }


async def test_one_that_is_wrong_fails_the_read_of_many(subject: Subject) -> None:
    locations = list(await put(subject.store, *(member(b"%d" % number) for number in range(20))))
    locations[4] = replace(locations[5], sha256=member(b"not there").sha256)
    with pytest.raises(Refusal) as refused:
        await subject.store.get_many(locations)
    assert refused.value.reason is Reason.BLOB_HASH_MISMATCH


@pytest.mark.parametrize("standalone", [False, True], ids=["together", "standalone"])
async def test_blobs_are_listed(subject: Subject, standalone: bool) -> None:
    members = [member(b"one"), member(b"two"), member(b"")]
    receipt = await subject.store.put(members, standalone=standalone)
    listed = [
        listed.location
        for blob_id in {location.blob_id for location in receipt.locations}
        for listed in await subject.store.list_blob(blob_id)
    ]
    assert {replace(location, size=0) for location in listed} == {
        replace(location, size=0) for location in receipt.locations
    }


@pytest.mark.parametrize("standalone", [False, True], ids=["together", "standalone"])
async def test_renewal_changes_no_location(subject: Subject, standalone: bool) -> None:
    receipt = await subject.store.put([member(b"one"), member(b"two")], standalone=standalone)
    for blob_id in {location.blob_id for location in receipt.locations}:
        for location in (await subject.store.renew(blob_id)).locations:
            assert replace(location, size=0) in {
                replace(location, size=0) for location in receipt.locations
            }
    for location, data in zip(receipt.locations, (b"one", b"two"), strict=True):
        assert await subject.store.get(location) == data


async def test_missing_blob_is_neither_listed_nor_renewed(subject: Subject) -> None:
    [location] = await put(subject.store, member(b"content"))
    subject.remove(location)
    for call in (subject.store.list_blob, subject.store.renew):
        with pytest.raises(Refusal) as refused:
            await call(location.blob_id)
        assert refused.value.reason is Reason.BLOB_NOT_FOUND


async def test_storing_again_heals(subject: Subject) -> None:
    if subject.store.epoch_s is not None:
        pytest.skip("what is certified is not stored twice: the network keeps it whole")
    sample = member(b"content")
    for damage in (b"Content", b"con"):
        [location] = await put(subject.store, sample)
        subject.overwrite(location, damage)
        await subject.store.put([sample])
        assert await subject.store.get(location) == sample.data


class CountedStore(MemoryStore):
    """A store in memory that counts reads."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    async def get(self, location: BlobLocation, *, progress: Progress | None = None) -> bytes:
        self.reads += 1
        return await super().get(location, progress=progress)


async def test_second_read_comes_from_the_cache(tmp_path: Path) -> None:
    inner = CountedStore()
    store = CachedStore(inner, tmp_path, 100)
    [location] = await put(store, member(b"content"))
    assert store.size_bytes == 0
    assert [await store.get(location), await store.get(location)] == [b"content"] * 2
    assert (inner.reads, store.size_bytes) == (1, 7)
    assert origin(store) is inner


async def test_cache_outlives_the_process(tmp_path: Path) -> None:
    inner = CountedStore()
    store = CachedStore(inner, tmp_path, 100)
    [location] = await put(store, member(b"content"))
    await store.get(location)
    (tmp_path / "crashed.part").write_bytes(b"half")
    reopened = CachedStore(inner, tmp_path, 100)
    assert await reopened.get(location) == b"content"
    assert inner.reads == 1
    assert not (tmp_path / "crashed.part").exists()


async def test_damaged_cache_is_not_believed(tmp_path: Path) -> None:
    inner = CountedStore()
    store = CachedStore(inner, tmp_path, 100)
    [location] = await put(store, member(b"content"))
    await store.get(location)
    (tmp_path / location.sha256.hex()).write_bytes(b"Content")
    assert await store.get(location) == b"content"
    assert inner.reads == 2
    assert await store.get(location) == b"content"
    assert inner.reads == 2


async def test_a_failed_read_is_not_cached(tmp_path: Path) -> None:
    inner = CountedStore()
    store = CachedStore(inner, tmp_path, 100)
    [location] = await put(store, member(b"content"))
    _replace(inner, location, b"Content")
    with pytest.raises(Refusal):
        await store.get(location)
    assert store.size_bytes == 0
    _replace(inner, location, b"content")
    assert await store.get(location) == b"content"


async def test_least_recently_read_goes_first(tmp_path: Path) -> None:
    inner = CountedStore()
    store = CachedStore(inner, tmp_path, 20)
    contents = (b"1" * 9, b"2" * 9, b"3" * 9, b"4" * 21)
    first, second, third, large = await put(store, *map(member, contents))
    for location in (first, second, first, third, large):
        await store.get(location)
        assert store.size_bytes <= 20
    assert set(os.listdir(tmp_path)) == {first.sha256.hex(), third.sha256.hex()}
    reads = inner.reads
    await store.get(first)
    assert inner.reads == reads


async def test_reopened_cache_keeps_its_bound(tmp_path: Path) -> None:
    inner = CountedStore()
    store = CachedStore(inner, tmp_path, 100)
    for location in await put(store, *(member(b"%d" % number * 9) for number in range(10))):
        await store.get(location)
    assert CachedStore(inner, tmp_path, 20).size_bytes == 18
    assert len(os.listdir(tmp_path)) == 2


async def test_unwritable_cache_does_not_fail_a_read(tmp_path: Path) -> None:
    inner = CountedStore()
    store = CachedStore(inner, tmp_path / "cache", 100)
    [location] = await put(store, member(b"content"))
    (tmp_path / "cache").rmdir()
    assert await store.get(location) == b"content"
