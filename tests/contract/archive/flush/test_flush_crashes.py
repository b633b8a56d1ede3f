"""The next run finishes a flush that died at any failpoint, exactly once."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from tests.kit.archives import check_certified, house
from tests.kit.blobs.stores import MemoryStore
from tests.kit.drafts import TENANT, draft
from tuskpoint_server.archive.flush import one_flush, packs
from tuskpoint_server.archive.formats.segment_reading import decode_segment
from tuskpoint_server.archive.formats.stored_json import Kind
from tuskpoint_server.blobs.api import StoreLimits

# Tasks end here, not transactions, so that the database makes no difference.
pytestmark = pytest.mark.sqlite

PLACES = (
    "archive.after_collect",
    "archive.after_spool_file",
    "archive.after_spooled",
    "archive.after_put",
    "archive.after_stored",
    "archive.after_read_back",
    "archive.after_settled",
    "archive.after_certified",
    "archive.after_pointer",
)
SMALL = StoreLimits(max_members=4, max_put_bytes=60_000, max_member_bytes=9_000, puts_at_once=2)
SPOOLED = PLACES[2:6]
"""Failpoints between which the spooled bytes are exactly the stored bytes."""


class Death:
    """Ends the task that reaches a failpoint for the n-th time."""

    def __init__(self, place: str, visits: int) -> None:
        self.place = place
        self.left = visits
        self.happened = asyncio.Event()

    def __call__(self, place: str) -> None:
        if place == self.place:
            self.left -= 1
            if self.left == 0:
                self.happened.set()
                raise asyncio.CancelledError


@pytest.mark.parametrize("limits", [None, SMALL], ids=["one put", "small puts"])
@pytest.mark.parametrize("visits", [1, 2])
@pytest.mark.parametrize("place", PLACES)
async def test_a_death_loses_nothing_and_stores_nothing_in_other_bytes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    visits: int,
    limits: StoreLimits | None,
) -> None:
    store = MemoryStore(limits)
    rng = random.Random(1)
    death = Death(place, visits)
    for module in (one_flush, packs):
        monkeypatch.setattr(module, "failpoint", death)
    saved = 0
    async with house(tmp_path, store) as home:
        for _ in range(3):
            for number in range(6):
                name = f"{saved:03d}"
                await home.journal.save_checkpoint(
                    TENANT, draft(name, "", {"x": rng.randbytes(4000)}, thread_id=f"t{number}")
                )
                saved += 1
            flushing = asyncio.create_task(home.flush())
            dying = asyncio.create_task(death.happened.wait())
            await asyncio.wait({flushing, dying}, return_when=asyncio.FIRST_COMPLETED)
            dying.cancel()
            if death.happened.is_set():
                flushing.cancel()
                break
            await flushing
    if not death.happened.is_set():
        assert place == "archive.after_settled"
        assert limits is None
        return
    async with house(tmp_path, store) as home:
        await home.flush()
        assert (await home.waiting()).threads == 0
        assert await check_certified(home) == saved
        assert list((tmp_path / "spool").iterdir()) == []
        assert await home.ask("SELECT * FROM packs") == []
    if limits is None and place in SPOOLED:
        ranges = set()
        for member in store.members(Kind.SEGMENT):
            segment = decode_segment(member.data, "")
            known = (segment.thread_id, segment.first_seq)
            assert known not in ranges, "a range is stored in other bytes"
            ranges.add(known)
