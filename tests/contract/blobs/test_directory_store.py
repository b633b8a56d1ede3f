"""The blob store in a directory: its files, what damages them, and what removes them."""

from __future__ import annotations

import asyncio
import base64
import errno
import hashlib
import os
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kit.member_file import MemberFile, blob_path, pack_of, read_pack, stored_files
from tests.kit.stores import member
from tuskpoint_server.blobs import packed
from tuskpoint_server.blobs.api import Member
from tuskpoint_server.blobs.directory import DirectoryStore
from tuskpoint_server.blobs.packed import UnknownLayoutError
from tuskpoint_server.domain.errors import Reason, Refusal
from tuskpoint_server.domain.model import BlobLocation


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "blobs"


@pytest.fixture
async def blobs(root: Path) -> AsyncIterator[DirectoryStore]:
    store = DirectoryStore(root)
    yield store
    await store.close()


async def put(store: DirectoryStore, *members: Member) -> tuple[BlobLocation, ...]:
    return (await store.put(members)).locations


def spelled(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def files_below(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]


THREE = (member(b"one"), member(b"two" * 1000, "segment"), member(b"", "catalog-page"))


async def refusal_of(call: object) -> Refusal:
    with pytest.raises(Refusal) as refused:
        await call  # type: ignore[misc]
    return refused.value


async def test_a_put_is_one_file_named_by_its_hash(blobs: DirectoryStore, root: Path) -> None:
    locations = await put(blobs, *THREE)
    [file] = stored_files(root)
    whole = file.read_bytes()
    assert file == root / file.name[:2] / spelled(whole)
    assert locations == tuple(
        BlobLocation(one.sha256, len(one.data), file.name, one.sha256.hex()) for one in THREE
    )
    assert read_pack(whole) == {one.sha256.hex(): (one.data, one.kind.encode()) for one in THREE}


async def test_the_same_members_make_the_same_file(blobs: DirectoryStore, root: Path) -> None:
    await put(blobs, *THREE)
    await put(blobs, *reversed(THREE), THREE[1])
    assert len(stored_files(root)) == 1
    await put(blobs, *THREE[:2])
    assert len(stored_files(root)) == 2


@pytest.mark.parametrize("apart", [False, True])
async def test_a_member_alone_is_a_file_as_it_is(
    blobs: DirectoryStore, root: Path, apart: bool
) -> None:
    [location] = (await blobs.put([member(b"", "catalog")], apart=apart)).locations
    name = "47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"
    assert location == BlobLocation(hashlib.sha256(b"").digest(), 0, name)
    assert (root / "47" / name).read_bytes() == b""


async def test_apart_each_is_a_file_as_it_is(blobs: DirectoryStore, root: Path) -> None:
    receipt = await blobs.put(THREE, apart=True)
    assert receipt.locations == tuple(
        BlobLocation(one.sha256, len(one.data), spelled(one.data)) for one in THREE
    )
    assert {file.read_bytes() for file in stored_files(root)} == {one.data for one in THREE}


@pytest.mark.parametrize("apart", [False, True])
async def test_content_that_looks_like_a_pack_is_not_taken_for_one(
    blobs: DirectoryStore, apart: bool
) -> None:
    inner = member(pack_of({one.sha256.hex(): (one.data, b"catalog") for one in THREE}))
    [location] = (await blobs.put([inner], apart=apart)).locations
    [listed] = await blobs.list_blob(location.blob_id)
    assert (listed.location, listed.kind) == (location, "")
    assert await blobs.get(location) == inner.data


async def test_servers_share_a_directory(blobs: DirectoryStore, root: Path) -> None:
    other = DirectoryStore(root)
    receipts = await asyncio.gather(*(store.put(THREE) for store in (blobs, other) * 10))
    assert len({receipt.locations for receipt in receipts}) == 1
    assert len(stored_files(root)) == 1
    locations = receipts[0].locations
    for store in (blobs, other):
        assert await store.get_many(locations) == [one.data for one in THREE]
    await other.close()


Events = list[tuple[str, Path]]


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> Events:
    """What is synced and renamed from here on, in order."""
    found: Events = []
    rename = os.replace

    def sync(descriptor: int) -> None:
        found.append(("sync", Path(os.readlink(f"/proc/self/fd/{descriptor}"))))

    def noted(source: Path, target: Path, **options: int | None) -> None:
        found.append(("rename", Path(target)))
        rename(source, target, **options)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", noted)
    monkeypatch.setattr(Path, "replace", lambda path, target: noted(path, target))
    return found


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc to name open files")
@pytest.mark.parametrize("count", [1, 2, 300])
async def test_a_put_syncs_one_file_and_one_directory(
    blobs: DirectoryStore, root: Path, events: Events, count: int
) -> None:
    members = [member(b"%d" % number) for number in range(count)]
    [name, *_] = {location.blob_id for location in await put(blobs, *members)}
    file = blob_path(root, name)
    # The directory is new, so its own name has to last too.
    first, (second, part), *others = events
    assert (first, second, part.parent) == (("sync", root), "sync", root / "incoming")
    assert others == [("rename", file), ("sync", file.parent)]
    events.clear()
    # Also of what was there already: a crash may have come between its name and the sync.
    await put(blobs, *members)
    assert [what for what, _ in events] == ["sync", "rename", "sync"]
    assert events[1:] == others


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
    (root / spelled(b"content")[:2]).mkdir()
    await put(blobs, member(b"content"))
    assert ("sync", root) in events


@pytest.mark.parametrize("apart", [False, True])
async def test_full_disk_leaves_nothing_behind(
    blobs: DirectoryStore, root: Path, monkeypatch: pytest.MonkeyPatch, apart: bool
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        refused = await refusal_of(blobs.put(THREE, apart=apart))
    assert refused.reason is Reason.BLOB_UNAVAILABLE
    assert refused.metadata["backend"] == "directory"
    assert "No space left" in refused.message
    assert files_below(root) == [root / "layout"]
    [location, *_] = (await blobs.put(THREE, apart=apart)).locations
    assert await blobs.get(location) == b"one"


async def test_unwritable_directory(blobs: DirectoryStore, root: Path) -> None:
    (root / spelled(b"content")[:2]).write_bytes(b"in the way")
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


async def test_only_what_is_wanted_is_read_in_the_order_of_the_file(
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
    monkeypatch.setattr(packed, "read_index", pytest.fail)  # only rows that are looked at
    wanted = [locations[number] for number in (40, 3, 17, 3, 29)]
    assert await blobs.get_many(wanted) == [b"%03d" % n * 100 for n in (40, 3, 17, 3, 29)]
    assert opened == [blob_path(root, locations[0].blob_id)]
    assert spans == sorted(spans)
    assert sum(size for _, size in spans) == 16 + 50 * 64 + 4 * 300  # head, index, members


async def test_unreadable_blob_is_not_a_missing_one(blobs: DirectoryStore, root: Path) -> None:
    name = spelled(b"content")
    blob_path(root, name).mkdir(parents=True)
    location = BlobLocation(hashlib.sha256(b"content").digest(), 7, name)
    for call in (blobs.get(location), blobs.list_blob(name), blobs.remove(name)):
        assert (await refusal_of(call)).reason is Reason.BLOB_UNAVAILABLE


async def test_file_that_nobody_stored_is_not_read_into_memory(
    blobs: DirectoryStore, root: Path
) -> None:
    [alone] = await put(blobs, member(b"content"))
    [packed, *_] = await put(blobs, *THREE)
    for location in (alone, packed):
        with blob_path(root, location.blob_id).open("r+b") as file:
            file.truncate(1 << 40)
    assert await blobs.get(packed) == b"one"  # its span is still what it was
    other = replace(packed, identifier="00" * 32)
    for call in (blobs.get(alone), blobs.get(other), blobs.list_blob(packed.blob_id)):
        assert (await refusal_of(call)).reason is Reason.BLOB_MALFORMED


async def test_a_damaged_member_is_refused_with_both_hashes_and_alone(
    blobs: DirectoryStore, root: Path
) -> None:
    one, two, three = await put(blobs, *THREE)
    MemberFile.at(root, two).flip(17)
    found = MemberFile.at(root, two).read_bytes()
    for read in (blobs.get(two), blobs.get_many([one, two])):
        refused = await refusal_of(read)
        assert refused.reason is Reason.BLOB_HASH_MISMATCH
        assert refused.metadata == {
            "blob_id": two.blob_id,
            "expected": two.sha256.hex(),
            "actual": hashlib.sha256(found).hexdigest(),
        }
    assert await blobs.get_many([one, three]) == [b"one", b""]


def _changed(position: int) -> Callable[[bytes], bytes]:
    return lambda whole: whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :]


# What is done to a pack of THREE, and which of them it does not concern.
INDEX_DAMAGES: dict[str, tuple[Callable[[bytes], bytes], set[int]]] = {
    "the magic": (_changed(0), set()),
    "the version": (_changed(8), set()),
    "the count": (_changed(12), {0, 1}),
    "a huge count": (lambda whole: whole[:12] + b"\xff" * 4 + whole[16:], set()),
    "no members": (lambda whole: whole[:12] + bytes(4) + whole[16:], set()),
    "every hash": (lambda whole: _changed(16)(_changed(16 + 64)(_changed(16 + 128)(whole))), set()),
    "an offset": (_changed(16 + 64 + 32), {0, 2}),
    "a size": (_changed(16 + 64 + 40), {0, 2}),
    "a kind": (lambda whole: whole[: 16 + 48] + b"\xff" + whole[16 + 49 :], {0, 1, 2}),
    "the end": (lambda whole: whole[:-1], {0}),
    "half of the index": (lambda whole: whole[: 16 + 70], set()),
    "half of the head": (lambda whole: whole[:10], set()),
    "everything": (lambda whole: b"", set()),
    "something behind it": (lambda whole: whole + b"\0", {0, 1, 2}),
}


@pytest.mark.parametrize(("damage", "whole_ones"), INDEX_DAMAGES.values(), ids=INDEX_DAMAGES)
async def test_a_damaged_index_is_refused_with_both_hashes_of_the_pack(
    blobs: DirectoryStore, root: Path, damage: Callable[[bytes], bytes], whole_ones: set[int]
) -> None:
    locations = await put(blobs, *THREE)
    file = blob_path(root, locations[0].blob_id)
    whole = file.read_bytes()
    damaged = damage(whole)
    assert damaged != whole
    file.write_bytes(damaged)
    refused = [await refusal_of(blobs.renew(file.name))]
    for number, location in enumerate(locations):
        if number in whole_ones:
            assert await blobs.get(location) == THREE[number].data
        else:
            refused.append(await refusal_of(blobs.get(location)))
    for refusal in refused:
        assert refusal.reason is Reason.BLOB_HASH_MISMATCH
        assert refusal.metadata == {
            "blob_id": file.name,
            "expected": hashlib.sha256(whole).hexdigest(),
            "actual": hashlib.sha256(damaged).hexdigest(),
        }


async def test_a_pack_that_never_was_one_is_malformed(blobs: DirectoryStore, root: Path) -> None:
    """Whoever writes to the directory may name any file by its hash."""
    whole = pack_of({"11" * 32: (b"one", b""), "22" * 32: (b"two", b"")})[:-1]
    file = blob_path(root, spelled(whole))
    file.parent.mkdir()
    file.write_bytes(whole)
    location = BlobLocation(b"\x11" * 32, 3, file.name, "11" * 32)
    for call in (blobs.get(location), blobs.list_blob(file.name), blobs.renew(file.name)):
        assert (await refusal_of(call)).reason is Reason.BLOB_MALFORMED


async def test_a_pack_is_listed_only_as_it_was_stored(blobs: DirectoryStore, root: Path) -> None:
    """Its ID vouches for what it lists: nobody slips a catalog of their own into it."""
    [location, *_] = await put(blobs, *THREE)
    file = blob_path(root, location.blob_id)
    members = read_pack(file.read_bytes())
    members["ab" * 32] = (b"{}", b"catalog")
    file.write_bytes(pack_of(members))
    for call in (blobs.list_blob(location.blob_id), blobs.renew(location.blob_id)):
        assert (await refusal_of(call)).reason is Reason.BLOB_HASH_MISMATCH


async def test_storing_again_heals_also_for_whom_has_read_the_damage(
    blobs: DirectoryStore, root: Path
) -> None:
    other = DirectoryStore(root)
    locations = await put(blobs, *THREE)
    MemberFile.at(root, locations[0]).write_bytes(b"of another length")
    for store in (blobs, other):
        assert (await refusal_of(store.get(locations[0]))).reason is Reason.BLOB_HASH_MISMATCH
    await put(other, *THREE)
    for store in (blobs, other):
        assert await store.get_many(locations) == [one.data for one in THREE]
    await other.close()


async def test_a_pack_that_was_healed_is_read_though_a_damaged_index_is_known(
    blobs: DirectoryStore, root: Path
) -> None:
    members = sorted((member(b"%d" % n) for n in range(2)), key=lambda one: one.sha256)
    first, second = await put(blobs, *members)
    file = blob_path(root, first.blob_id)
    whole = file.read_bytes()
    MemberFile.at(root, first).write_bytes(b"of another length")
    # It lies elsewhere than in the pack that was stored, and is whole.
    assert await blobs.get(second) == members[1].data
    file.write_bytes(whole)
    assert await blobs.get(second) == members[1].data
    assert await blobs.get(first) == members[0].data


async def test_a_lost_pack_is_not_found_though_its_index_is_known(
    blobs: DirectoryStore, root: Path
) -> None:
    locations = await put(blobs, *THREE)
    await blobs.get_many(locations)
    blob_path(root, locations[0].blob_id).unlink()
    for location in locations:
        assert (await refusal_of(blobs.get(location))).reason is Reason.BLOB_NOT_FOUND
    await put(blobs, *THREE)
    assert await blobs.get_many(locations) == [one.data for one in THREE]


async def test_blobs_are_counted_with_size_and_age(blobs: DirectoryStore, root: Path) -> None:
    assert [file async for file in blobs.blobs()] == []
    [pack, *_] = await put(blobs, *THREE)
    [alone] = await put(blobs, member(b"content"))
    hour_ago = time.time() - 3600
    os.utime(blob_path(root, pack.blob_id), (hour_ago, hour_ago))
    (root / "incoming" / "half").write_bytes(b"half")
    (root / pack.blob_id[:2] / "notes").write_bytes(b"not ours")
    (root / pack.blob_id[:2] / spelled(b"elsewhere")).write_bytes(b"in the wrong place")
    found = {file.blob_id: file async for file in blobs.blobs()}
    assert {name: file.size for name, file in found.items()} == {
        path.name: path.stat().st_size
        for path in (blob_path(root, one.blob_id) for one in (pack, alone))
    }
    assert 3600 <= found[pack.blob_id].age_s < 7200
    assert 0 <= found[alone.blob_id].age_s < 3600


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


async def test_removing_takes_one_blob_and_nothing_else(blobs: DirectoryStore, root: Path) -> None:
    locations = await put(blobs, *THREE)
    [alone] = await put(blobs, member(b"content"))
    await blobs.get_many(locations)
    assert await blobs.remove(locations[0].blob_id) is True
    for location in locations:
        assert (await refusal_of(blobs.get(location))).reason is Reason.BLOB_NOT_FOUND
    assert await blobs.remove(locations[0].blob_id) is False
    assert await blobs.get(alone) == b"content"
    assert [file.name for file in stored_files(root)] == [alone.blob_id]
    assert await put(blobs, *THREE) == locations
    assert await blobs.get_many(locations) == [one.data for one in THREE]


async def test_a_member_cannot_be_removed_from_a_pack(blobs: DirectoryStore) -> None:
    locations = await put(blobs, *THREE)
    for one in THREE:
        assert await blobs.remove(spelled(one.data)) is False
    assert await blobs.get_many(locations) == [one.data for one in THREE]


async def test_what_was_put_lately_is_not_removed(blobs: DirectoryStore, root: Path) -> None:
    locations = await put(blobs, *THREE)
    name = locations[0].blob_id
    assert await blobs.remove(name, min_age_s=60) is False
    os.utime(blob_path(root, name), (0, 0))
    # Another server finds the same bytes worth storing: from now on it counts on them.
    await put(blobs, *THREE)
    assert await blobs.remove(name, min_age_s=60) is False
    os.utime(blob_path(root, name), (0, 0))
    assert await blobs.remove(name, min_age_s=60) is True


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
            *(one.data for one in THREE),
            b"content",
        ]
        await again.close()


async def test_the_layout_is_written_down_before_the_first_blob(
    blobs: DirectoryStore, root: Path
) -> None:
    assert (root / "layout").read_text() == "tuskpoint blobs, layout 1\n"
    await put(blobs, member(b"content"))
    again = DirectoryStore(root)
    assert (root / "layout").read_text() == "tuskpoint blobs, layout 1\n"
    await again.close()


async def test_blobs_without_a_layout_are_refused(blobs: DirectoryStore, root: Path) -> None:
    await put(blobs, member(b"content"))
    (root / "layout").unlink()
    with pytest.raises(UnknownLayoutError, match="no file 'layout'"):
        DirectoryStore(root)
    assert not (root / "layout").exists()


@pytest.mark.parametrize("found", [b"tuskpoint blobs, layout 2\n", b"", b"\xff" * 1000])
def test_another_layout_is_refused_in_one_line(root: Path, found: bytes) -> None:
    root.mkdir()
    (root / "layout").write_bytes(found)
    with pytest.raises(UnknownLayoutError) as refused:
        DirectoryStore(root)
    assert "\n" not in str(refused.value)
    assert (root / "layout").read_bytes() == found


def test_other_things_in_an_unused_directory_are_no_layout(root: Path) -> None:
    (root / "lost+found").mkdir(parents=True)
    (root / "ab").write_bytes(b"a file")
    DirectoryStore(root)
    assert (root / "layout").exists()


@pytest.mark.parametrize("listed", [False, True])
def test_another_server_begins_the_directory_between_two_looks(
    root: Path, monkeypatch: pytest.MonkeyPatch, listed: bool
) -> None:
    shards = DirectoryStore._shards

    def look(self: DirectoryStore) -> list[str]:
        found = shards(self)
        (root / "layout").write_bytes(b"tuskpoint blobs, layout 1\n")
        (root / "ab").mkdir()
        return found if listed else shards(self)

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
