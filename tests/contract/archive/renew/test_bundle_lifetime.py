"""Bundles of hand-offs last as long as the threads that they were taken from."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.kit.archives import check_certified
from tests.kit.drafts import TENANT, key
from tests.kit.epochs import Years, years
from tuskpoint_server.core.model import BlobLocation
from tuskpoint_server.features.call_memory import Holder
from tuskpoint_server.features.lineage.first_answers import request

# The database makes no difference to renewal.
pytestmark = pytest.mark.sqlite

EPOCHS = 3


async def hand_off(time: Years, checkpoint_id: str) -> BlobLocation:
    """Hand a checkpoint off, and record the bundle in its thread."""
    home = time.home
    closure = await home.journal.lineage.closure(TENANT, key(checkpoint_id))
    assert closure is not None
    bundle = await home.archive.standalone.store_bundle(TENANT, closure)
    handoff_request = request(TENANT, "", "CreateHandoff")
    await home.journal.handoffs.keep_handoff(
        handoff_request, key(checkpoint_id), bundle.location, bundle.parts, b"answer", content_seq=1
    )
    await time.flush()
    return bundle.location


async def readable(time: Years, bundle: BlobLocation) -> bool:
    data = await time.home.archive.standalone.fetch(bundle, lambda count: None, Holder())
    return (await time.home.archive.standalone.open(TENANT, data, bundle, Holder())).key == key("1")


async def test_a_bundle_is_renewed_as_long_as_its_thread_lives(tmp_path: Path) -> None:
    async with years(tmp_path, epochs=EPOCHS, max_put_bytes=1_000_000) as time:
        await time.save("1")
        bundle = await hand_off(time, "1")
        for _ in range(10):
            time.advance(0.6)
            assert (await time.keep()).failed == 0
            assert await readable(time, bundle)
        await time.delete("t")
        for _ in range(EPOCHS + 2):
            time.advance(1)
            await time.keep()
        assert bundle.blob_id not in time.store.live()
        assert bundle.blob_id not in await time.blobs()
        assert (await time.home.archive.status(TENANT)).failing_renewals == 0


async def test_a_lost_bundle_is_reported_after_its_end_and_can_be_handed_off_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with years(tmp_path, epochs=EPOCHS) as time:
        await time.save("1")
        bundle = await hand_off(time, "1")
        time.store.lose(bundle.blob_id)
        time.advance(2)
        done = await time.look()
        assert done.bundles_lost == 0  # the lost blob is not due to expire yet, and may come back
        assert (await time.home.archive.status(TENANT)).failing_renewals == 1
        time.advance(1.1)
        with caplog.at_level(logging.ERROR):
            done = await time.look()
        assert done.bundles_lost == 1
        assert "LOST: the bundle of a hand-off of checkpoint '1'" in caplog.text
        assert "hand it off again" in caplog.text
        await time.keep()
        status = await time.home.archive.status(TENANT)
        assert (status.failing_renewals, status.gaps) == (0, 0)
        assert await check_certified(time.home) == 1
        again = await hand_off(time, "1")
        assert again.sha256 == bundle.sha256
        assert await readable(time, again)
