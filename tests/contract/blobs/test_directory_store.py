"""The blob store in a directory writes, syncs and counts its files correctly."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kit.blobs.member_file import (
    blob_id_of,
    blob_path,
    pack_of,
    read_pack,
    stored_files,
)
from tests.kit.blobs.stores import THREE, member, put, refusal_of
from tuskpoint_server.blobs import packed
from tuskpoint_server.blobs.directory import DirectoryStore
from tuskpoint_server.core.errors import Reason
from tuskpoint_server.core.model import BlobLocation


def files_below(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]


async def test_a_put_is_one_file_named_by_its_hash(blobs: DirectoryStore, root: Path) -> None:
    locations = await put(blobs, *THREE)
    [file] = stored_files(root)
    whole = file.read_bytes()
    assert file == root / file.name[:2] / blob_id_of(whole)
    assert locations == tuple(
        BlobLocation(member.sha256, len(member.data), file.name, member.sha256.hex())
        for member in THREE
    )
    assert read_pack(whole) == {
        member.sha256.hex(): (member.data, member.kind.encode()) for member in THREE
    }


async def test_the_same_members_make_the_same_file(blobs: DirectoryStore, root: Path) -> None:
    await put(blobs, *THREE)
    await put(blobs, *reversed(THREE), THREE[1])
    assert len(stored_files(root)) == 1
    await put(blobs, *THREE[:2])
    assert len(stored_files(root)) == 2


@pytest.mark.parametrize("standalone", [False, True])
async def test_a_member_alone_is_a_file_as_it_is(
    blobs: DirectoryStore, root: Path, standalone: bool
) -> None:
    [location] = (await blobs.put([member(b"", "catalog")], standalone=standalone)).locations
    name = "47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"
    assert location == BlobLocation(hashlib.sha256(b"").digest(), 0, name)
    assert (root / "47" / name).read_bytes() == b""


async def test_apart_each_is_a_file_as_it_is(blobs: DirectoryStore, root: Path) -> None:
    receipt = await blobs.put(THREE, standalone=True)
    assert receipt.locations == tuple(
        BlobLocation(member.sha256, len(member.data), blob_id_of(member.data)) for member in THREE
    )
    assert {file.read_bytes() for file in stored_files(root)} == {member.data for member in THREE}


@pytest.mark.parametrize("standalone", [False, True])
async def test_content_that_looks_like_a_pack_is_not_taken_for_one(
    blobs: DirectoryStore, standalone: bool
) -> None:
    inner = member(pack_of({member.sha256.hex(): (member.data, b"catalog") for member in THREE}))
    [location] = (await blobs.put([inner], standalone=standalone)).locations
    [listed] = await blobs.list_blob(location.blob_id)
    assert (listed.location, listed.kind) == (location, "")
    assert await blobs.get(location) == inner.data


Events = list[tuple[str, Path]]


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> Events:
    """Record syncs and renames, in order."""
    log: Events = []
    rename = os.replace

    def sync(descriptor: int) -> None:
        log.append(("sync", Path(os.readlink(f"/proc/self/fd/{descriptor}"))))

    def noted(source: Path, target: Path, **options: int | None) -> None:
        log.append(("rename", Path(target)))
        rename(source, target, **options)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", noted)
    monkeypatch.setattr(Path, "replace", lambda path, target: noted(path, target))
    return log


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc to name open files")
@pytest.mark.parametrize("count", [1, 2, 300])
async def test_a_put_syncs_one_file_and_one_directory(
    blobs: DirectoryStore, root: Path, events: Events, count: int
) -> None:
    members = [member(b"%d" % number) for number in range(count)]
    [name, *_] = {location.blob_id for location in await put(blobs, *members)}
    file = blob_path(root, name)
    # The directory is new, so its own name has to be synced too.
    first, (second, part), *last_events = events
    assert (first, second, part.parent) == (("sync", root), "sync", root / "incoming")
    assert last_events == [("rename", file), ("sync", file.parent)]
    events.clear()
    # An existing file is synced as well: a crash may have come before its sync.
    await put(blobs, *members)
    assert [what for what, _ in events] == ["sync", "rename", "sync"]
    assert events[1:] == last_events


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc to name open files")
async def test_directories_that_are_there_at_the_start_are_synced_together(
    blobs: DirectoryStore, root: Path, events: Events
) -> None:
    await put(blobs, *THREE)
    events.clear()
    other = DirectoryStore(root)
    assert events == [("sync", root)]
    events.clear()
    await put(other, *THREE)
    assert [what for what, _ in events] == ["sync", "rename", "sync"]
    await other.close()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc to name open files")
async def test_a_directory_that_another_server_made_is_synced_too(
    blobs: DirectoryStore, root: Path, events: Events
) -> None:
    (root / blob_id_of(b"content")[:2]).mkdir()
    await put(blobs, member(b"content"))
    assert ("sync", root) in events


@pytest.mark.parametrize("standalone", [False, True])
async def test_full_disk_leaves_nothing_behind(
    blobs: DirectoryStore, root: Path, monkeypatch: pytest.MonkeyPatch, standalone: bool
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        refused = await refusal_of(blobs.put(THREE, standalone=standalone))
    assert refused.reason is Reason.BLOB_UNAVAILABLE
    assert refused.metadata["backend"] == "directory"
    assert "No space left" in refused.message
    assert files_below(root) == [root / "layout"]
    [location, *_] = (await blobs.put(THREE, standalone=standalone)).locations
    assert await blobs.get(location) == b"one"


async def test_unwritable_directory(blobs: DirectoryStore, root: Path) -> None:
    (root / blob_id_of(b"content")[:2]).write_bytes(b"in the way")
    refused = await refusal_of(blobs.put([member(b"content")]))
    assert refused.reason is Reason.BLOB_UNAVAILABLE
    assert list((root / "incoming").iterdir()) == []


async def test_leftovers_of_a_crash_are_ignored_and_go_one_day(root: Path) -> None:
    incoming = root / "incoming"
    incoming.mkdir(parents=True)
    (incoming / "old").write_bytes(b"half")
    (incoming / "young").write_bytes(b"half")
    os.utime(incoming / "old", (0, 0))
    store = DirectoryStore(root)
    [location] = await put(store, member(b"content"))
    assert await store.get(location) == b"content"
    assert [path.name for path in incoming.iterdir()] == ["young"]
    await store.close()


@pytest.mark.parametrize(
    "name", ["../secret", "/etc/passwd", "aa", "a" * 44, "é" * 43, "_" * 43, "a/" + "a" * 41, ""]
)
@pytest.mark.parametrize("identifier", ["", "00" * 32])
async def test_blob_id_cannot_leave_the_directory(
    blobs: DirectoryStore, tmp_path: Path, name: str, identifier: str
) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    location = BlobLocation(hashlib.sha256(b"secret").digest(), 6, name, identifier)
    assert (await refusal_of(blobs.get(location))).reason is Reason.BLOB_NOT_FOUND
    assert (await refusal_of(blobs.list_blob(name))).reason is Reason.BLOB_NOT_FOUND
    assert await blobs.remove(name) is False
    assert (tmp_path / "secret").exists()


@pytest.mark.parametrize(
    "identifier", ["00" * 32, hashlib.sha256(b"one").hexdigest().upper(), "one", "0", "é" * 64]
)
async def test_a_pack_has_no_other_members(blobs: DirectoryStore, identifier: str) -> None:
    [location, *_] = await put(blobs, *THREE)
    refused = await refusal_of(blobs.get(replace(location, identifier=identifier)))
    assert refused.reason is Reason.BLOB_NOT_FOUND
    assert refused.metadata["blob_id"] == location.blob_id


async def test_a_blob_of_its_own_has_no_members(blobs: DirectoryStore) -> None:
    [location] = await put(blobs, member(b"content"))
    refused = await refusal_of(blobs.get(replace(location, identifier=location.sha256.hex())))
    assert refused.reason is Reason.BLOB_MALFORMED
    assert "not a pack" in refused.message


async def test_only_wanted_members_are_read_in_the_order_of_the_file(
    blobs: DirectoryStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = [member(b"%03d" % number * 100) for number in range(50)]
    locations = await put(blobs, *members)
    await blobs.get(locations[0])
    opened: list[Path] = []
    spans: list[tuple[int, int]] = []
    open_file, read = Path.open, os.pread

    def opening(path: Path, *options: object, **more: object) -> object:
        opened.append(path)
        return open_file(path, *options, **more)  # type: ignore[call-overload]

    def reading_at(descriptor: int, size: int, offset: int) -> bytes:
        spans.append((offset, size))
        return read(descriptor, size, offset)

    monkeypatch.setattr(Path, "open", opening)
    monkeypatch.setattr(os, "pread", reading_at)
    # the store must read only the rows that it needs
    monkeypatch.setattr(packed, "read_index", pytest.fail)
    wanted = [locations[number] for number in (40, 3, 17, 3, 29)]
    assert await blobs.get_many(wanted) == [b"%03d" % n * 100 for n in (40, 3, 17, 3, 29)]
    assert opened == [blob_path(root, locations[0].blob_id)]
    assert spans == sorted(spans)
    assert sum(size for _, size in spans) == 16 + 50 * 64 + 4 * 300  # head, index, members


async def test_blobs_are_counted_with_size_and_age(blobs: DirectoryStore, root: Path) -> None:
    assert [file async for file in blobs.blobs()] == []
    [pack, *_] = await put(blobs, *THREE)
    [alone] = await put(blobs, member(b"content"))
    hour_ago = time.time() - 3600
    os.utime(blob_path(root, pack.blob_id), (hour_ago, hour_ago))
    (root / "incoming" / "half").write_bytes(b"half")
    (root / pack.blob_id[:2] / "notes").write_bytes(b"not ours")
    (root / pack.blob_id[:2] / blob_id_of(b"elsewhere")).write_bytes(b"in the wrong place")
    files = {file.blob_id: file async for file in blobs.blobs()}
    assert {name: file.size for name, file in files.items()} == {
        path.name: path.stat().st_size
        for path in (blob_path(root, location.blob_id) for location in (pack, alone))
    }
    assert 3600 <= files[pack.blob_id].age_s < 7200
    assert 0 <= files[alone.blob_id].age_s < 3600


async def test_a_blob_that_goes_while_they_are_counted_is_left_out(
    blobs: DirectoryStore, root: Path
) -> None:
    for number in range(40):
        await put(blobs, member(b"%d" % number))
    names = [path.name for path in stored_files(root)]
    counted = blobs.blobs()
    first = await anext(counted)
    for name in names:
        if name[:2] != first.blob_id[:2]:
            await blobs.remove(name)
    assert {file.blob_id async for file in counted} <= {
        name for name in names if name[:2] == first.blob_id[:2]
    }


async def test_a_member_cannot_be_removed_from_a_pack(blobs: DirectoryStore) -> None:
    locations = await put(blobs, *THREE)
    for sample in THREE:
        assert await blobs.remove(blob_id_of(sample.data)) is False
    assert await blobs.get_many(locations) == [member.data for member in THREE]


async def test_a_crash_while_a_blob_is_removed_is_harmless(
    blobs: DirectoryStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locations = await put(blobs, *THREE)
    [alone] = await put(blobs, member(b"content"))

    def crash(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", crash)
        refused = await refusal_of(blobs.remove(locations[0].blob_id))
    assert refused.reason is Reason.BLOB_UNAVAILABLE
    reopened = DirectoryStore(root)
    assert await reopened.remove(locations[0].blob_id) is False
    assert [file.blob_id async for file in reopened.blobs()] == [alone.blob_id]
    assert await reopened.get(alone) == b"content"
    await reopened.close()


async def test_nothing_is_removed_by_itself(blobs: DirectoryStore, root: Path) -> None:
    locations = await put(blobs, *THREE)
    [alone] = await put(blobs, member(b"content"))
    for path in files_below(root):
        os.utime(path, (0, 0))
    for _ in range(2):
        again = DirectoryStore(root)
        await put(again, member(b"other"))
        assert await again.get_many([*locations, alone]) == [
            *(member.data for member in THREE),
            b"content",
        ]
        await again.close()


@pytest.mark.parametrize("listed", [False, True])
def test_another_server_begins_the_directory_between_two_looks(
    root: Path, monkeypatch: pytest.MonkeyPatch, listed: bool
) -> None:
    shards = DirectoryStore._shards

    def look(self: DirectoryStore) -> list[str]:
        names = shards(self)
        (root / "layout").write_bytes(b"tuskpoint blobs, layout 1\n")
        (root / "ab").mkdir()
        return names if listed else shards(self)

    monkeypatch.setattr(DirectoryStore, "_shards", look)
    DirectoryStore(root)


async def test_servers_begin_a_directory_at_the_same_time(root: Path) -> None:
    start = threading.Barrier(8, timeout=30)

    def begin(number: int) -> BlobLocation:
        async def store() -> BlobLocation:
            start.wait()
            blobs = DirectoryStore(root)
            [location] = await put(blobs, member(b"%d" % number))
            await blobs.close()
            return location

        return asyncio.run(store())

    with ThreadPoolExecutor(8) as threads:
        loop = asyncio.get_running_loop()
        locations = await asyncio.gather(
            *(loop.run_in_executor(threads, begin, n) for n in range(8))
        )
    blobs = DirectoryStore(root)
    assert await blobs.get_many(locations) == [b"%d" % number for number in range(8)]
    await blobs.close()
