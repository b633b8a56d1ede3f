"""Schedules of edits at rest that random ones found, each with the bug that it would meet."""

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
    """Change the one row behind the server's back; without changes it is deleted."""
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
    """Certify everything, which ends and says that something is not certified."""
    async with asyncio.timeout(3600.0):
        await refused(stage.server.archive.certify_all(TENANT), Reason.CERTIFICATION_FAILED)


@fixed()
async def test_a_change_that_names_another_checkpoint_is_stored_all_the_same(stage: Stage) -> None:
    """The checkpoint that a changed row of the log names lacks no row: it never was."""
    await stage.save("01", x=b"one")
    await stage.save("02", "01", x=b"two")
    edit(stage, "changes", "seq = 2", checkpoint_id="03")
    await stage.flush()
    assert stage.recovered() == {"01", "02"}


@fixed()
async def test_a_change_that_left_the_log_is_stored_all_the_same(stage: Stage) -> None:
    """What the log does not name any more is not called certified without being stored."""
    await stage.save("01", x=b"one")
    await stage.save("02", "01", x=b"two")
    edit(stage, "changes", "seq = 1")
    await stage.flush()
    assert stage.marks() == (2, 2)
    assert stage.recovered() == {"01", "02"}


@fixed()
async def test_a_flush_ends_although_the_row_of_a_thread_is_damaged(stage: Stage) -> None:
    """Whoever waits for all threads hears of the damaged one, once the others are certified."""
    await stage.save("01", x=b"one")
    await stage.save("01", x=b"one", thread_id="u")
    edit(stage, "threads", "thread_id = 't'", agent_id="somebody")
    await is_refused(stage)
    assert stage.marks("u") == (1, 1)
    assert stage.marks("t") == (1, 0)


@fixed()
async def test_the_watermark_of_a_damaged_row_certifies_nothing(stage: Stage) -> None:
    """A watermark that was raised at rest answers nobody who waits."""
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
    """The values of its family stay, and those of others go."""
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
    """A row that names nothing any more leaves its values unneeded, and they stay."""
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
    """A damaged thread does not keep those that come after it."""
    for name in ("t", "u"):
        await stage.save("01", x=b"one", thread_id=name, run_id="r")
    edit(stage, "checkpoints", "thread = 1", label="forged")
    await refused(stage.server.removal.delete_runs(TENANT, ["r"]), Reason.JOURNAL_DAMAGED)
    stage.server.model.remove("u", [("", "01")])
    assert not stage.server.shadow.threads["u"].rows
    assert stage.server.shadow.threads["t"].rows


@fixed(longest_retry_s=10.0)
async def test_a_pack_on_its_way_gives_a_damaged_thread_up(stage: Stage) -> None:
    """It is built again without the thread, and keeps no other one from being certified."""
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
    """A damaged write leaves a gap at the end of the log at most."""
    await stage.save("01", x=b"one", writes=[write("w", b"1")])
    edit(stage, "writes", "thread = 1", seq=9)
    await is_refused(stage)
    await is_refused(stage)


@fixed()
async def test_a_gap_is_tried_for_whoever_came_while_a_flush_began(stage: Stage) -> None:
    """A caller whom no try counts for is not forgotten."""
    await stage.save("01", x=b"one")
    edit(stage, "checkpoints", "thread = 1", label="forged")
    await is_refused(stage)
    flusher = stage.server.archive._flusher(TENANT)
    async with flusher.turn:
        flusher.flush_soon()
        await asyncio.sleep(1.0)  # the flush waits for its turn now
        waiting = asyncio.get_running_loop().create_task(is_refused(stage))
        await asyncio.sleep(1.0)
    await waiting


@fixed()
async def test_a_snapshot_of_a_thread_without_its_latest_checkpoint_is_refused(
    stage: Stage,
) -> None:
    """A snapshot that lacks what it names would be dropped by a recovery."""
    await stage.save("01", x=b"one")
    await stage.save("01", x=b"one", thread_id="u")
    edit(stage, "checkpoints", "thread = 1")
    call = stage.server.snapshots.create_snapshot(TENANT, SnapshotDraft(("t", "u")), "")
    await refused(call, Reason.JOURNAL_DAMAGED)
