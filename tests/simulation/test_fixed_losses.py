"""Losses of blobs that random schedules found, each with the bug that it would trigger."""

from __future__ import annotations

import asyncio

from tests.kit.drafts import TENANT, key, write
from tests.simulation.promises.checks import newest
from tests.simulation.test_fixed_edits import edit
from tests.simulation.test_fixed_schedules import BIG, Stage, fixed
from tuskpoint_server.archive.formats.stored_json import Kind
from tuskpoint_server.archive.renew.repair import survey
from tuskpoint_server.archive.rows import lifetimes


@fixed(standalone=True, max_pack_checkpoints=1)
async def test_a_rebuilt_catalog_places_what_is_stored_above_the_watermark(stage: Stage) -> None:
    """A checkpoint stored alone, in a version above its range, gets its record later."""
    await stage.save("01", x=BIG)
    for label in "abcdef":
        await stage.server.rows.set_label(TENANT, key("01"), label)
    archive = stage.server.archive
    flusher = archive._flusher(TENANT)
    async with flusher.turn:
        await flusher.flush.settle()
        await flusher.flush.once(list)
        assert stage.marks() == (7, 5)
        await archive.lifetime.repair.rebuild(flusher)
    await stage.flush()
    assert stage.recovered() == {"01"}


@fixed()
async def test_a_restart_goes_on_to_store_lost_blobs_again(stage: Stage) -> None:
    """The first new catalog is certified and present, so only the journal knows of the loss."""
    await stage.save("01", x=BIG)
    await stage.flush()
    before, vault = newest(stage.server), stage.world.vault
    for blob_id, pack in vault.packs.items():
        for sha256 in list(pack):
            vault.lose(blob_id, sha256)
    await stage.world.restart()
    for _ in range(6000):
        if newest(stage.server) != before:
            break
        await asyncio.sleep(0.01)
    await stage.world.restart()
    await asyncio.sleep(60.0)
    await stage.flush()
    assert stage.recovered() == {"01"}


async def rebuild(stage: Stage) -> None:
    """Build the newest catalog again from the journal, as after a loss of its runs."""
    archive = stage.server.archive
    flusher = archive._flusher(TENANT)
    async with flusher.turn:
        await flusher.flush.settle()
        await archive.lifetime.repair.rebuild(flusher)


@fixed()
async def test_the_row_of_a_thread_takes_nothing_out_of_a_rebuilt_catalog(stage: Stage) -> None:
    """The catalog records a thread by its segments, whatever its damaged row says."""
    for name in ("t", "u"):
        await stage.save("01", x=BIG, thread_id=name)
    await stage.flush()
    edit(stage, "threads", "thread_id = 't'", certified_seq=0)
    edit(stage, "threads", "thread_id = 'u'", deleted=1)
    await rebuild(stage)
    await stage.check()
    assert stage.recovered("t") == stage.recovered("u") == {"01"}


@fixed()
async def test_the_row_of_a_checkpoint_is_a_gap_of_a_rebuilt_catalog(stage: Stage) -> None:
    """Neither the journal nor the catalog records an edited checkpoint as certified."""
    await stage.save("01", x=BIG)
    await stage.save("02", "01", x=b"two")
    await stage.flush()
    edit(stage, "checkpoints", "checkpoint_id = '01'", label="forged")
    await rebuild(stage)
    await stage.check()
    assert stage.recovered() == {"02"}
    assert (await stage.server.archive.status(TENANT)).gaps == 1


@fixed()
async def test_writes_whose_checkpoint_is_above_a_rebuilt_catalog_are_kept(stage: Stage) -> None:
    """The next flush records the changed checkpoint, and its old writes stay."""
    await stage.save("01", x=BIG, writes=[write("w", b"1")])
    await stage.flush()
    await stage.server.rows.set_label(TENANT, key("01"), "later")
    await rebuild(stage)
    database = stage.server.database
    blobs = (await database.query(lifetimes.all_blobs))[TENANT]
    result = await survey(database, stage.server.store, TENANT, blobs)
    dead = [member.kind for blob in result.blobs for member in blob.dead]
    assert Kind.SEGMENT not in dead
