"""Sealed content opens only with the right keys, and a deleted thread's keys are destroyed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kit.archives import KEYS, House, check_certified, house
from tests.kit.blobs.stores import MemoryStore
from tests.kit.drafts import TENANT, draft, key
from tuskpoint_server.archive.formats.catalogs import read_threads
from tuskpoint_server.archive.formats.records import EndRecord, MemberRecord
from tuskpoint_server.archive.formats.runs import members_of
from tuskpoint_server.archive.formats.sealing import is_sealed, open_member, wrapped_key
from tuskpoint_server.core.errors import Refusal
from tuskpoint_server.core.model import BlobLocation


@pytest.fixture
def blobs() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
async def home(tmp_path: Path, blobs: MemoryStore) -> AsyncIterator[House]:
    async with house(tmp_path, blobs, keys=KEYS) as opened_house:
        yield opened_house


async def save(home: House, name: str, thread_id: str, parent: str = "") -> None:
    data = f"state {name} of {thread_id}".encode() * 9
    await home.journal.save_checkpoint(
        TENANT, draft(name, parent, {"x": data}, thread_id=thread_id)
    )


async def known_keys(home: House) -> set[bytes]:
    """Return every key in the journal or behind the newest catalog."""
    rows = await home.ask("SELECT key FROM members WHERE key IS NOT NULL")
    keys = {bytes(row[0]) for row in rows}
    catalog = await home.archive.catalog(TENANT)
    assert catalog is not None
    for ref in catalog.catalog.runs.oldest_first():
        keys |= {place.key for place in await members_of(ref, home.store.get)}
    async for _, records in read_threads(catalog.catalog.runs, home.store.get):
        keys |= {record.location.key for record in records if isinstance(record, MemberRecord)}
    return keys - {b""}


def opens(data: bytes, location: BlobLocation, data_key: bytes) -> bool:
    try:
        return bool(open_member(data, replace(location, key=data_key)))
    except Refusal:
        return False


async def test_everything_that_is_stored_is_sealed_and_only_roots_have_a_wrapped_key(
    home: House, blobs: MemoryStore
) -> None:
    await save(home, "1", "t")
    await home.flush()
    kinds = set()
    for pack in blobs.packs.values():
        for member in pack.values():
            assert is_sealed(member.data)
            assert bool(wrapped_key(member.data, "blob")) == (member.kind == "catalog")
            kinds.add(member.kind)
    assert kinds == {"segment", "run", "catalog"}
    assert await check_certified(home) == 1


async def test_no_key_opens_what_only_a_deleted_thread_used(
    home: House, blobs: MemoryStore
) -> None:
    for number in range(12):  # enough flushes for a merge of runs
        await save(home, f"{number:02}", "gone", f"{number - 1:02}" if number else "")
        await save(home, f"{number:02}", "kept", f"{number - 1:02}" if number else "")
        await home.flush()
    rows = await home.ask(
        "SELECT m.sha256, m.size, m.blob_id, m.identifier FROM members AS m"
        " JOIN threads AS t ON t.number = m.thread WHERE t.thread_id = 'gone'"
    )
    segments = [BlobLocation(bytes(row[0]), *row[1:]) for row in rows]
    stored = {location: await home.store.get(location) for location in segments}
    before = await known_keys(home)
    assert len(stored) == 12
    assert all(
        any(opens(data, location, data_key) for data_key in before)
        for location, data in stored.items()
    )
    await home.journal.removal.delete_thread(TENANT, "gone")
    await home.flush()
    after = await known_keys(home)
    assert not any(
        opens(data, location, data_key) for location, data in stored.items() for data_key in after
    )
    catalog = await home.archive.catalog(TENANT)
    assert catalog is not None
    async for thread_id, records in read_threads(catalog.catalog.runs, home.store.get):
        assert thread_id == "kept" or {type(record) for record in records} == {EndRecord}
    assert await check_certified(home) == 12


async def test_threads_may_be_deleted_in_any_flush_also_in_one_that_merges_runs(
    home: House, blobs: MemoryStore
) -> None:
    for number in range(30):
        await save(home, f"{number:02}", "kept", f"{number - 1:02}" if number else "")
        await save(home, "1", f"gone-{number}")
        if number:
            await home.journal.removal.delete_thread(TENANT, f"gone-{number - 1}")
        await home.flush()
        assert (await home.archive.status(TENANT)).last_error == ""
    catalog = await home.archive.catalog(TENANT)
    assert catalog is not None
    assert await check_certified(home) == 31
    known = {row[0] for row in await home.ask("SELECT sha256 FROM members")}
    named: set[bytes] = set()
    for ref in catalog.catalog.runs.oldest_first():
        named |= {place.sha256 for place in await members_of(ref, home.store.get)}
    assert named <= known


async def test_what_a_fork_needs_of_a_deleted_thread_stays_readable(home: House) -> None:
    await save(home, "1", "gone")
    await home.flush()
    await home.journal.lineage.fork(TENANT, key("1", "gone"), "fork", "")
    await home.flush()
    await home.journal.removal.delete_thread(TENANT, "gone")
    await home.flush()
    checkpoint = await home.from_blobs(key("1", "fork"))
    assert checkpoint.state is not None
    assert await check_certified(home) == 1
