"""The manifest of one thread is folded from the runs, and stored as a separate blob."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kit.archives import House, check_certified, house, shown
from tests.kit.blobs.stores import MemoryStore
from tests.kit.drafts import TENANT, draft, key, refused, write
from tuskpoint_server.archive.formats.manifests import Manifest, decode_manifest
from tuskpoint_server.archive.formats.stored_json import decode_parts, join_parts
from tuskpoint_server.archive.read.read import Segments, page_of
from tuskpoint_server.blobs.api import BlobStore, StoreLimits
from tuskpoint_server.core.errors import Reason
from tuskpoint_server.core.model import BlobLocation, View
from tuskpoint_server.features.removal.removal_rows import RemovalRows


async def grow(home: House, count: int, thread_id: str = "t", start: int = 0) -> None:
    """Append checkpoints, each with its own flush."""
    for number in range(start, start + count):
        name, before = f"{number:04d}", f"{number - 1:04d}" if number else ""
        await home.journal.save_checkpoint(
            TENANT,
            draft(name, before, {"x": b"%d" % number * 200}, thread_id=thread_id, label="l" + name),
        )
        await home.journal.save_writes(TENANT, key(name, thread_id), [write("c", b"late")])
        await home.flush()


async def folded(home: House, thread_id: str = "t") -> Manifest | None:
    answer = await home.archive.manifest(TENANT, thread_id)
    return answer[0] if answer is not None else None


async def stored(home: House, manifest: Manifest) -> BlobLocation:
    return await home.archive.store_manifest(TENANT, manifest)


async def read_back(store: BlobStore, location: BlobLocation) -> Manifest:
    """Return the manifest with a blob ID and a hash, which is all that a caller knows."""
    data = await store.get(BlobLocation(location.sha256, 0, location.blob_id, location.identifier))
    if json.loads(data)["kind"] == "parts":
        listed = decode_parts(data, location, 1 << 30)
        data = join_parts(listed, await store.get_many(listed.parts), location.blob_id)
    return decode_manifest(data, location.blob_id)


async def test_nothing_is_known_of_a_digest_that_is_not_stored(home: House) -> None:
    assert await folded(home) is None
    await grow(home, 1)
    assert await folded(home, "other") is None


async def test_the_manifest_of_a_thread_equals_its_runs(home: House) -> None:
    for number in range(20):
        await grow(home, 1, "t", number)
        await grow(home, 1, "u", number)
    manifest = await folded(home)
    assert manifest == await home.manifest()
    assert manifest is not None
    assert [name for _, name in manifest.entries] == [f"{number:04d}" for number in range(20)]
    assert await check_certified(home) == 40


async def test_an_ended_thread_has_a_manifest_without_entries(home: House) -> None:
    await grow(home, 2)
    await RemovalRows(home.journal.database).delete_thread(TENANT, "t")
    await home.flush()
    manifest = await folded(home)
    assert manifest is not None
    assert manifest.ended
    assert page_of(manifest, None, 10) == ([], False)


async def test_pages_hold_every_entry_once(home: House) -> None:
    await grow(home, 7)
    manifest = await folded(home)
    assert manifest is not None
    seen, after, more = [], None, True
    while more:
        page, more = page_of(manifest, after, 3)
        seen += page
        after = page[-1][0]
    assert seen == sorted(manifest.entries.items())
    assert len(seen) == 7


async def test_a_stored_manifest_leads_to_every_checkpoint(home: House) -> None:
    await grow(home, 5)
    manifest = await folded(home)
    assert manifest is not None
    again = await read_back(home.store, await stored(home, manifest))
    assert again == manifest
    for number in range(5):
        name = f"{number:04d}"
        loaded = await home.journal.load(TENANT, key(name), View.FULL)
        assert loaded is not None
        entry = again.entries["", name]
        hashes = [entry.record.segment, *(write.segment for write in entry.writes)]
        places = tuple(filter(None, map(again.location, dict.fromkeys(hashes))))
        reported = replace(loaded.entry, segments=places)
        assert shown(await Segments(home.store, 0).checkpoint(reported)) == shown(loaded)


@pytest.fixture
def small() -> MemoryStore:
    return MemoryStore(StoreLimits(max_member_bytes=5000))


async def test_a_large_manifest_is_stored_in_parts(tmp_path: Path, small: MemoryStore) -> None:
    async with house(tmp_path, small) as home:
        await grow(home, 12)
        manifest = await folded(home)
        assert manifest is not None
        location = await stored(home, manifest)
        assert small.packs[location.blob_id][location.sha256].kind == "parts"
        assert await read_back(small, location) == manifest


async def test_a_blob_that_cannot_be_read_back_is_reported(
    tmp_path: Path, small: MemoryStore
) -> None:
    async with house(tmp_path, small) as home:
        await grow(home, 1)
        manifest = await folded(home)
        assert manifest is not None

        def lose(members: object) -> None:
            small.lost = {member.sha256 for member in members}  # type: ignore[attr-defined]

        small.after_put = lose
        await refused(stored(home, manifest), Reason.BLOB_UNAVAILABLE)


async def test_runs_that_a_later_catalog_dropped_are_not_asked_for(
    tmp_path: Path, small: MemoryStore
) -> None:
    """A flush may come between the read of the catalog and the read of its runs."""
    async with house(tmp_path, small) as home:
        await grow(home, 9)
        read_many = small.get_many
        calls = []

        async def get_many(locations: list[BlobLocation]) -> list[bytes]:
            calls.append(len(locations))
            if len(calls) == 1:
                await grow(home, 1, start=9)
                small.lost = {locations[0].sha256}
                try:
                    return await read_many(locations)
                finally:
                    small.lost = set()
            return await read_many(locations)

        small.get_many = get_many  # type: ignore[method-assign, assignment]
        manifest = await folded(home)
        assert manifest is not None
        assert len(manifest.entries) == 10
