"""Edits at rest that random schedules found, each with the bug that it would trigger."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from tests.kit.drafts import TENANT, refused, write
from tests.simulation.at_rest.edits import Edit
from tests.simulation.test_fixed_schedules import BIG, Stage, fixed
from tuskpoint_server.blobs.api import BlobMember
from tuskpoint_server.core.errors import Reason
from tuskpoint_server.features.lineage.snapshot_rows import SnapshotDraft


def edit(stage: Stage, table: str, where: str, *values: Any, **changes: Any) -> None:
    """Change the single row behind the server's back; without new values, delete the row."""
    server = stage.server
    ledger = server.disk.journal.ledger
    [row] = ledger.rows(table, where, values)
    key = {name: row[name] for name in (("thread", "seq") if table == "changes" else ("number",))}
    name = {"contents": ("family", "digest"), "threads": ("thread_id",)}.get(table, ())
    place = ("thread", "checkpoint_ns", "checkpoint_id")
    named = {
        column: row[column] for column in (name or (tuple(key) if table == "changes" else place))
    }
    before = {column: row[column] for column in changes} if changes else row
    ledger.make(Edit(table, key, named, before, changes or None))


async def is_refused(stage: Stage) -> None:
    """Certify everything; the flush must end and report uncertified changes."""
    async with asyncio.timeout(3600.0):
        await refused(stage.server.archive.certify_all(TENANT), Reason.CERTIFICATION_FAILED)


@fixed()
async def test_a_change_that_names_another_checkpoint_is_stored_all_the_same(stage: Stage) -> None:
    """The checkpoint that an edited row of the log names never existed, so no row is missing."""
    await stage.save("01", x=b"one")
    await stage.save("02", "01", x=b"two")
    edit(stage, "changes", "seq = 2", checkpoint_id="03")
    await stage.flush()
    assert stage.recovered() == {"01", "02"}


@fixed()
async def test_a_change_that_left_the_log_is_stored_all_the_same(stage: Stage) -> None:
    """A change that is missing in the log does not count as certified before it is stored."""
    await stage.save("01", x=b"one")
    await stage.save("02", "01", x=b"two")
    edit(stage, "changes", "seq = 1")
    await stage.flush()
    assert stage.marks() == (2, 2)
    assert stage.recovered() == {"01", "02"}


@fixed()
async def test_a_flush_ends_although_the_row_of_a_thread_is_damaged(stage: Stage) -> None:
    """A caller that waits for all threads gets the error of the damaged one after the others are
    certified."""
    await stage.save("01", x=b"one")
    await stage.save("01", x=b"one", thread_id="u")
    edit(stage, "threads", "thread_id = 't'", agent_id="somebody")
    await is_refused(stage)
    assert stage.marks("u") == (1, 1)
    assert stage.marks("t") == (1, 0)


@fixed()
async def test_the_watermark_of_a_damaged_row_certifies_nothing(stage: Stage) -> None:
    """A watermark raised by an edit answers no caller that waits."""
    waiting: list[asyncio.Task[Any]] = []

    async def raise_watermark(members: Sequence[BlobMember]) -> None:
        saved = await stage.save("01", x=b"one")
        certify = stage.server.archive.certify(TENANT, saved.key, saved.seq)
        waiting.append(asyncio.get_running_loop().create_task(certify))
        await asyncio.sleep(1.0)
        edit(stage, "threads", "thread_id = 't'", certified_seq=8)

    await stage.save("01", x=b"one", thread_id="u")
    stage.server.store.on_put = raise_watermark
    await stage.server.archive.certify_all(TENANT, lambda name: name == "u")
    await refused(waiting[0], Reason.CERTIFICATION_FAILED)


@fixed()
async def test_eviction_goes_on_past_a_state_that_cannot_be_read(stage: Stage) -> None:
    """The values of the damaged thread's family stay, and the values of the other thread are
    evicted."""
    for name in ("t", "u"):
        await stage.save("01", x=BIG, thread_id=name)
        await stage.save("02", "01", x=b"two", thread_id=name)
    await stage.flush()
    await asyncio.sleep(1.0)
    edit(stage, "checkpoints", "thread = 1 AND checkpoint_id = '02'", state=b"\xff\xff")
    await stage.server.evict()
    gone = stage.server.disk.journal.raw("SELECT DISTINCT thread FROM contents WHERE data IS NULL")
    assert gone == [(stage.server.shadow.threads["u"].number,)]


@fixed()
async def test_what_a_damaged_row_may_need_is_not_removed(stage: Stage) -> None:
    """An edited row that names no values makes them look unneeded, and they stay."""
    await stage.save("01", x=BIG)
    await stage.save("02", "01", x=b"two", run_id="r")
    await stage.server.removal.delete_runs(TENANT, ["r"])
    stage.server.model.remove("t", [("", "02")])
    edit(stage, "checkpoints", "checkpoint_id = '01'", state=b"")
    await stage.world.clients.sweep(stage.server)
    [[count]] = stage.server.disk.journal.raw("SELECT count(*) FROM contents WHERE size > 1000")
    assert count == 1


@fixed()
async def test_a_run_is_deleted_from_all_threads_that_are_sound(stage: Stage) -> None:
    """A damaged thread does not stop the deletion from the threads after it."""
    for name in ("t", "u"):
        await stage.save("01", x=b"one", thread_id=name, run_id="r")
    edit(stage, "checkpoints", "thread = 1", label="forged")
    await refused(stage.server.removal.delete_runs(TENANT, ["r"]), Reason.JOURNAL_DAMAGED)
    stage.server.model.remove("u", [("", "01")])
    assert not stage.server.shadow.threads["u"].rows
    assert stage.server.shadow.threads["t"].rows


@fixed(longest_retry_s=10.0)
async def test_a_pack_on_its_way_gives_a_damaged_thread_up(stage: Stage) -> None:
    """The pack is built again without the damaged thread, and the other thread is certified."""
    await stage.save("01", x=b"one")
    await stage.save("01", x=b"one", thread_id="u")
    stage.world.vault.outage = (0.0, 1e12)
    await refused(stage.server.archive.certify_all(TENANT), Reason.BLOB_UNAVAILABLE)
    assert stage.server.disk.spooled
    await stage.world.restart()
    edit(stage, "threads", "thread_id = 't'", agent_id="somebody")
    stage.world.vault.outage = (0.0, 0.0)
    await is_refused(stage)
    assert stage.marks("u") == (1, 1)


@fixed()
async def test_a_number_above_the_end_of_the_log_is_waited_for_by_nobody(stage: Stage) -> None:
    """A damaged write leaves at most a gap at the end of the log."""
    await stage.save("01", x=b"one", writes=[write("w", b"1")])
    edit(stage, "writes", "thread = 1", seq=9)
    await is_refused(stage)
    await is_refused(stage)


@fixed()
async def test_a_gap_is_tried_for_whoever_came_while_a_flush_began(stage: Stage) -> None:
    """A caller that arrives during the start of a flush gets an answer, although no attempt counts
    for it."""
    await stage.save("01", x=b"one")
    edit(stage, "checkpoints", "thread = 1", label="forged")
    await is_refused(stage)
    flusher = stage.server.archive._flusher(TENANT)
    async with flusher.turn:
        flusher.flush_soon()
        await asyncio.sleep(1.0)  # The flush waits for its turn now.
        waiting = asyncio.get_running_loop().create_task(is_refused(stage))
        await asyncio.sleep(1.0)
    await waiting


@fixed()
async def test_a_snapshot_of_a_thread_without_its_latest_checkpoint_is_refused(
    stage: Stage,
) -> None:
    """Recovery would drop a snapshot that lacks a checkpoint it names."""
    await stage.save("01", x=b"one")
    await stage.save("01", x=b"one", thread_id="u")
    edit(stage, "checkpoints", "thread = 1")
    call = stage.server.snapshots.create_snapshot(TENANT, SnapshotDraft(("t", "u")), "")
    await refused(call, Reason.JOURNAL_DAMAGED)
