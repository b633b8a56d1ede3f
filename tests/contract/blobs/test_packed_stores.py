"""Stores of packs in a directory and in a bucket share layout, several servers and removal."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

import pytest

from tests.kit.blobs.object_stores import name_of
from tests.kit.blobs.s3_server import S3Server, Stored
from tests.kit.blobs.stores import THREE, member, refusal_of
from tuskpoint_server.blobs.directory import DirectoryStore
from tuskpoint_server.blobs.objects.places import open_bucket, parse_place
from tuskpoint_server.blobs.objects.store import ObjectStore
from tuskpoint_server.blobs.packed import UnknownLayoutError
from tuskpoint_server.core.errors import Reason

Store = DirectoryStore | ObjectStore

LAYOUT = b"tuskpoint blobs, layout 1\n"


class Place(Protocol):
    """The files or objects of packs by name, behind the back of the store."""

    def open(self) -> Store:
        """Open a store, which reads or writes the layout."""

    def read(self) -> dict[str, bytes]: ...
    def write(self, name: str, data: bytes) -> None: ...
    def remove(self, name: str) -> None: ...
    def make_old(self) -> None: ...


class Directory:
    def __init__(self, root: Path) -> None:
        self.root = root

    def open(self) -> Store:
        return DirectoryStore(self.root)

    def read(self) -> dict[str, bytes]:
        return {str(path.relative_to(self.root)): path.read_bytes() for path in self._files()}

    def write(self, name: str, data: bytes) -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_bytes(data)

    def remove(self, name: str) -> None:
        (self.root / name).unlink()

    def make_old(self) -> None:
        for path in self._files():
            os.utime(path, (0, 0))

    def _files(self) -> list[Path]:
        return [path for path in self.root.rglob("*") if path.is_file()]


class Bucket:
    def __init__(self, server: S3Server) -> None:
        self.server = server
        self.objects = server.objects["bucket"]

    def open(self) -> Store:
        store = ObjectStore(open_bucket(parse_place(self.server.url())), "s3")
        store.prepare()
        return store

    def read(self) -> dict[str, bytes]:
        return {name: blob.data for name, blob in self.objects.items()}

    def write(self, name: str, data: bytes) -> None:
        self.objects[name] = Stored(data, time.time())

    def remove(self, name: str) -> None:
        del self.objects[name]

    def make_old(self) -> None:
        for blob in self.objects.values():
            blob.modified -= 3600


@pytest.fixture(params=["directory", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "directory":
        return Directory(tmp_path / "blobs")
    return Bucket(request.getfixturevalue("server"))


@pytest.fixture
async def blobs(place: Place) -> AsyncIterator[Store]:
    store = await asyncio.to_thread(place.open)
    yield store
    await store.close()


async def test_servers_share_a_place(place: Place) -> None:
    stores = [await asyncio.to_thread(place.open) for _ in range(4)]
    receipts = await asyncio.gather(*(store.put(THREE) for store in stores * 5))
    [locations] = {receipt.locations for receipt in receipts}
    assert place.read().keys() == {"layout", name_of(locations[0].blob_id)}
    for store in stores:
        assert await store.get_many(locations) == [member.data for member in THREE]
        await store.close()


async def test_removing_takes_one_blob_and_nothing_else(place: Place, blobs: Store) -> None:
    locations = (await blobs.put(THREE)).locations
    [alone] = (await blobs.put([member(b"content")])).locations
    await blobs.get_many(locations)
    assert await blobs.remove("../layout") is False
    assert await blobs.remove(locations[0].blob_id) is True
    for location in locations:
        assert (await refusal_of(blobs.get(location))).reason is Reason.BLOB_NOT_FOUND
    assert await blobs.remove(locations[0].blob_id) is False
    assert await blobs.get(alone) == b"content"
    assert place.read() == {"layout": LAYOUT, name_of(alone.blob_id): b"content"}
    assert (await blobs.put(THREE)).locations == locations
    assert await blobs.get_many(locations) == [member.data for member in THREE]


async def test_a_blob_that_was_put_recently_is_not_removed(place: Place, blobs: Store) -> None:
    name = (await blobs.put(THREE)).locations[0].blob_id
    assert await blobs.remove(name, min_age_s=60) is False
    place.make_old()
    # Another server puts the same bytes, and from then on relies on them.
    await blobs.put(THREE)
    assert await blobs.remove(name, min_age_s=60) is False
    place.make_old()
    assert await blobs.remove(name, min_age_s=60) is True


def test_the_layout_is_written_before_the_first_blob_and_kept(place: Place) -> None:
    for _ in range(2):
        place.open()
        assert place.read() == {"layout": LAYOUT}


@pytest.mark.parametrize("layout", [b"tuskpoint blobs, layout 2\n", b"", b"\xff" * 1000])
def test_another_layout_is_refused_in_one_line(place: Place, layout: bytes) -> None:
    place.write("layout", layout)
    with pytest.raises(UnknownLayoutError) as refused:
        place.open()
    assert "\n" not in str(refused.value)
    assert place.read() == {"layout": layout}


async def test_blobs_without_a_layout_are_refused(place: Place, blobs: Store) -> None:
    await blobs.put([member(b"content")])
    place.remove("layout")
    with pytest.raises(UnknownLayoutError, match="no file 'layout'"):
        await asyncio.to_thread(place.open)
    assert "layout" not in place.read()


def test_other_files_in_an_unused_place_are_no_blobs(place: Place) -> None:
    place.write("ab", b"a file")
    place.write("logs/today", b"a file")
    place.open()
    assert place.read()["layout"] == LAYOUT
