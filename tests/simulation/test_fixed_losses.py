"""Schedules of lost blobs that random ones found, each with the bug that it would meet."""

from __future__ import annotations

from tests.kit.drafts import TENANT, key
from tests.simulation.test_fixed_schedules import BIG, Stage, fixed


@fixed(apart=True, max_pack_checkpoints=1)
async def test_a_rebuilt_catalog_places_what_is_stored_above_the_watermark(stage: Stage) -> None:
    """A checkpoint that is stored alone in a version from above its range is named later."""
    await stage.save("01", x=BIG)
    for label in "abcdef":
        await stage.server.rows.set_label(TENANT, key("01"), label)
    archive = stage.server.archive
    flusher = archive._flusher(TENANT)
    async with flusher.turn:
        await flusher.flush.settle()
        await flusher.flush.once(list)
        assert stage.marks() == (7, 5)
        await archive.lifetime.salvage.rebuild(flusher)
    await stage.flush()
    assert stage.recovered() == {"01"}
