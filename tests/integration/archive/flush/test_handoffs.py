"""Bundles of hand-offs are stored, read back, and found by the records of a thread."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.kit.archives import check_certified, house
from tests.kit.blobs.stores import MemoryStore
from tests.kit.drafts import TENANT, draft, key, write
from tuskpoint_server.blobs.api import StoreLimits
from tuskpoint_server.features.call_memory import Holder
from tuskpoint_server.features.lineage.first_answers import request
from tuskpoint_server.features.lineage.handoff_rows import HandoffRows
from tuskpoint_server.features.lineage.lineage import LineageRows

SMALL = StoreLimits(max_member_bytes=4_000)


@pytest.mark.parametrize("limits", [None, SMALL], ids=["whole", "in parts"])
async def test_a_bundle_that_was_handed_off_is_pinned(
    tmp_path: Path, limits: StoreLimits | None
) -> None:
    store = MemoryStore(limits)
    async with house(tmp_path, store) as home:
        data = random.Random(1).randbytes(20_000)
        await home.journal.save_checkpoint(
            TENANT, draft("a", "", {"x": data}, writes=(write("c", b"w"),))
        )
        await home.flush()
        closure = await LineageRows(home.journal.database).closure(TENANT, key("a"))
        assert closure is not None
        bundle = await home.archive.standalone.store_bundle(TENANT, closure)
        assert bool(bundle.parts) == (limits is not None)
        fetched = await home.archive.standalone.fetch(bundle.location, lambda count: None, Holder())
        opened = await home.archive.standalone.open(TENANT, fetched, bundle.location, Holder())
        assert opened.key == closure.key
        rows = HandoffRows(home.journal.database)
        create_request = request(TENANT, "", "CreateHandoff")
        await rows.keep_handoff(
            create_request, key("a"), bundle.location, bundle.parts, b"answer", content_seq=1
        )
        await home.flush()
        manifest = await home.manifest()
        [pin] = manifest.pins
        assert pin.segment == bundle.location.sha256
        assert manifest.location(pin.segment) == bundle.location
        needed = manifest.needed()
        assert {part.sha256 for part in bundle.parts} <= needed <= manifest.members.keys()
        assert await check_certified(home) == 1
