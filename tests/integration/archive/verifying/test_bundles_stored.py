"""Bundles of hand-offs are put, read back, fetched by hash, and refused if changed."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kit.archives import House, house
from tests.kit.blobs.stores import MemoryStore
from tests.kit.drafts import TENANT, draft, key, refused, write
from tuskpoint_server.archive.formats.bundles import Closure, encode_bundle
from tuskpoint_server.archive.formats.stored_json import encode_parts
from tuskpoint_server.blobs.api import BlobMember, StoreLimits
from tuskpoint_server.core.errors import Reason
from tuskpoint_server.core.model import BlobLocation
from tuskpoint_server.core.values import blob_digest
from tuskpoint_server.features.call_memory import Holder
from tuskpoint_server.features.lineage.lineage import LineageRows

LARGE = random.Random(5).randbytes(30_000)
NAMED = BlobLocation(bytes(32), 0, "blob")


async def save(home: House, name: str, parent: str = "", data: bytes = b"state") -> None:
    await home.journal.save_checkpoint(
        TENANT,
        draft(name, parent, {"x": data}, writes=(write("w", b"pending"),), metadata={"n": name}),
    )


async def closure_of(home: House, name: str = "") -> Closure:
    closure = await LineageRows(home.journal.database).closure(TENANT, key(name))
    assert closure is not None
    return closure


def known(location: BlobLocation) -> BlobLocation:
    """Return the part of a location that a descriptor contains: blob and hash."""
    return BlobLocation(location.sha256, 0, location.blob_id, location.identifier)


@pytest.fixture
def small() -> MemoryStore:
    return MemoryStore(StoreLimits(max_member_bytes=5000, puts_at_once=4))


@pytest.fixture
async def parted(tmp_path: Path, small: MemoryStore) -> AsyncIterator[House]:
    """A journal and its archive, whose store accepts only small members."""
    async with house(tmp_path, small) as opened:
        yield opened


async def test_a_bundle_is_a_blob_of_its_own_that_holds_the_closure(home: House) -> None:
    await save(home, "1")
    await save(home, "2", "1")
    closure, store = await closure_of(home), home.archive.standalone
    bundle = await store.store_bundle(TENANT, closure)
    assert (bundle.parts, bundle.location.identifier) == ((), "")
    counts: list[int] = []
    data = await store.fetch(known(bundle.location), counts.append, Holder())
    assert hashlib.sha256(data).digest() == bundle.location.sha256
    assert counts[-1] == len(data) == bundle.location.size
    opened = await store.open(TENANT, data, bundle.location, Holder())
    assert opened.key == closure.key == key("2")
    assert encode_bundle(opened) == data
    assert opened.segment == closure.segment


async def test_the_same_content_gives_the_same_blob(home: House) -> None:
    await save(home, "1")
    store = home.archive.standalone
    first = await store.store_bundle(TENANT, await closure_of(home))
    await home.flush()
    assert await store.store_bundle(TENANT, await closure_of(home)) == first
    await home.journal.save_writes(TENANT, key("1"), [write("late", b"x", task="u")])
    assert (
        await store.store_bundle(TENANT, await closure_of(home))
    ).location.sha256 != first.location.sha256


async def test_a_large_bundle_is_stored_in_parts_and_joined(
    parted: House, small: MemoryStore
) -> None:
    await save(parted, "1", data=LARGE)
    closure, store = await closure_of(parted), parted.archive.standalone
    bundle = await store.store_bundle(TENANT, closure)
    assert len(bundle.parts) >= 6
    assert await parted.ask("SELECT count(*) FROM blobs") == [(len(bundle.parts) + 1,)]
    data = await store.fetch(known(bundle.location), lambda count: None, Holder())
    assert data == encode_bundle(closure)
    part = bundle.parts[2]
    pack = small.packs[part.blob_id]
    whole = pack[part.sha256].data
    bad = bytes([whole[0] ^ 1]) + whole[1:]
    pack[part.sha256] = replace(pack[part.sha256], data=bad)
    refusal = await refused(
        store.fetch(known(bundle.location), lambda count: None, Holder()), Reason.BLOB_HASH_MISMATCH
    )
    assert refusal.metadata["expected"] == part.sha256.hex()
    assert refusal.metadata["actual"] == blob_digest(bad).hex()
    small.lost = {part.sha256}
    await refused(
        store.fetch(known(bundle.location), lambda count: None, Holder()), Reason.BLOB_NOT_FOUND
    )


async def test_a_false_list_of_parts_is_refused(parted: House, small: MemoryStore) -> None:
    store = parted.archive.standalone
    data = b"0123456789"
    receipt = await small.put([BlobMember(blob_digest(data), data)], standalone=True)
    [part] = receipt.locations
    lies = {
        "another size": ([replace(part, size=9)], Reason.BLOB_MALFORMED),
        "an empty part": ([part, replace(part, size=0)], Reason.BLOB_MALFORMED),
        "a part of another bundle": ([part, part], Reason.BLOB_HASH_MISMATCH),
    }
    for lie, (listed, reason) in lies.items():
        content = json.loads(encode_parts(data, listed))
        content["size_bytes"] = sum(part.size for part in listed)
        stored = json.dumps(content).encode()
        receipt = await small.put([BlobMember(blob_digest(stored), stored)], standalone=True)
        refusal = await refused(
            store.fetch(receipt.locations[0], lambda count: None, Holder()), reason
        )
        assert refusal.metadata["blob_id"] == receipt.locations[0].blob_id, lie


async def test_a_segment_that_hands_nothing_off_is_no_bundle(
    parted: House, small: MemoryStore
) -> None:
    await save(parted, "1")
    await parted.flush()
    [segment] = small.members("segment")
    await refused(
        parted.archive.standalone.open(TENANT, segment.data, NAMED, Holder()), Reason.BLOB_MALFORMED
    )


async def test_a_bundle_that_cannot_be_read_back_is_not_handed_off(
    parted: House, small: MemoryStore
) -> None:
    await save(parted, "1")
    store = parted.archive.standalone

    def lose(members: object) -> None:
        small.lost = {member.sha256 for member in members}  # type: ignore[attr-defined]

    small.after_put = lose
    refusal = await refused(
        store.store_bundle(TENANT, await closure_of(parted)), Reason.BLOB_UNAVAILABLE
    )
    assert "cannot be read back" in refusal.message
    small.after_put, small.lost = (lambda members: None), set()
    assert (await store.store_bundle(TENANT, await closure_of(parted))).location.size > 0
